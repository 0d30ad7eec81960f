package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// Trail is what the database knows of an [Origin] by itself, where the message is not to be had.
type Trail struct {
	// Start is [Started] where the message started an instance, and did nothing else, [Duplicate] where that instance had its key; "": it
	// is not known as a start.
	Start      Result
	InstanceID uuid.UUID
	At         time.Time

	// DroppedAt is when its dead letter was deleted on purpose; zero: that is not known.
	DroppedAt time.Time
	Reason    string // why it was a dead letter
}

// Trails looks origins up, a few hundred in one statement. Signals are not found by their origin alone.
func (c *Client) Trails(ctx context.Context, origins []Origin) ([]Trail, error) {
	trails := make([]Trail, len(origins))
	for first := 0; first < len(origins); first += lookBatch {
		batch := origins[first:min(len(origins), first+lookBatch)]
		found, err := c.store.Traces(ctx, placesOf(batch))
		if err != nil {
			return nil, fmt.Errorf("trails: %w", err)
		}
		for i, t := range found {
			trail := Trail{InstanceID: t.InstanceID, At: t.At, DroppedAt: t.Dropped.At, Reason: t.Dropped.Reason}
			switch {
			case t.InstanceID == uuid.Nil:
			case t.Started:
				trail.Start = Started
			default:
				trail.Start = Duplicate
			}
			trails[first+i] = trail
		}
	}
	return trails, nil
}

// DroppedLetter is a dead letter that is deleted on purpose.
type DroppedLetter struct {
	Origin Origin // of its message
	Reason string // why that was dead
}

// NoteDropped puts down, and keeps for at least so long, that dead letters are deleted on purpose, so that their messages are not missed.
// Call it before they are deleted.
func (c *Client) NoteDropped(ctx context.Context, letters []DroppedLetter, keep time.Duration) error {
	if len(letters) == 0 {
		return nil
	}
	origins, reasons := make([]Origin, len(letters)), make([]string, len(letters))
	for i, l := range letters {
		origins[i], reasons[i] = l.Origin, clean(l.Reason)
	}
	if err := c.store.NoteDropped(ctx, placesOf(origins), reasons, keep); err != nil {
		return fmt.Errorf("note dropped: %w", err)
	}
	return nil
}

func placesOf(origins []Origin) []store.Place {
	places := make([]store.Place, len(origins))
	for i, o := range origins {
		places[i] = store.Place(o)
	}
	return places
}
