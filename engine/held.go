package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// HeldSignal waits for an instance to start with its key.
type HeldSignal struct {
	CorrelationKey string
	Kind           string
	Name           string
	Payload        json.RawMessage
	DedupKey       string
	InsertedAt     time.Time
	ExpiresAt      time.Time // when it becomes a dead letter
	Route          string    // that brought it; "": it came by another way
	Subject        string
	Origin         Origin

	place HeldPlace
}

// Place of a held signal in the order of them.
func (h HeldSignal) Place() HeldPlace { return h.place }

// HeldPlace is where a page of held signals begins: behind this one. The zero value is before all.
type HeldPlace struct {
	Key string
	ID  uuid.UUID
}

// Held returns up to limit held signals of a project, behind a place, in the order of their keys: those of one key, or of all keys that
// begin with prefix.
func (c *Client) Held(ctx context.Context, project, key, prefix string, after HeldPlace, limit int) ([]HeldSignal, error) {
	err := errors.Join(ident.Token("project", project), optionally(ident.Key, "correlation_key", key), optionally(ident.Key, "correlation_prefix", prefix))
	if err != nil {
		return nil, err
	}
	rows, err := c.store.Held(ctx, project, key, prefix, store.HeldPlace{Key: after.Key, Dedup: after.ID}, limit)
	if err != nil {
		return nil, fmt.Errorf("held: %w", err)
	}
	held := make([]HeldSignal, len(rows))
	for i, h := range rows {
		held[i] = HeldSignal{
			CorrelationKey: h.Key, Kind: h.Kind, Name: h.Name, Payload: h.Payload, DedupKey: h.DedupKey, InsertedAt: h.InsertedAt, ExpiresAt: h.ExpiresAt,
			Route: h.Original.Route, Subject: h.Original.Subject, Origin: Origin{Route: h.Original.Route, Stream: h.Original.Stream, Created: h.Original.Created, Sequence: h.Original.Sequence},
			place: HeldPlace{Key: h.Key, ID: h.Dedup},
		}
	}
	return held, nil
}
