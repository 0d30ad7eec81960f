package bridge

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// DropLog remembers which dead letters were deleted on purpose; an [engine.Client] is one.
type DropLog interface {
	NoteDropped(ctx context.Context, letters []engine.DroppedLetter, keep time.Duration) error
}

// Dropper deletes dead letters for good, and leaves a note of each, so that an [Auditor] does not miss its message. Make it with
// [NewDropper].
type Dropper struct {
	letters *Letters
	log     DropLog
	kept    time.Duration
}

// NewDropper drops dead letters. kept is how long records outlive what they are of; so do its notes.
func NewDropper(letters *Letters, log DropLog, kept time.Duration) *Dropper {
	return &Dropper{letters: letters, log: log, kept: kept}
}

// Drop deletes dead letters. On error some may be deleted, and all can be dropped again; one that is gone is no error.
func (d *Dropper) Drop(ctx context.Context, letters []Letter) error {
	var notes []engine.DroppedLetter
	for _, l := range letters {
		if !l.Origin.IsZero() { // a step's signal, and what others put among the dead letters, came from no stream
			notes = append(notes, engine.DroppedLetter{Origin: l.Origin, Reason: l.Reason})
		}
	}
	// Before the letters go: a note of a letter that is still there says nothing, but a letter that is gone without one is missed.
	if err := d.log.NoteDropped(ctx, notes, d.kept); err != nil {
		return err
	}
	for _, l := range letters {
		if err := d.letters.remove(ctx, l.Seq); err != nil {
			return err
		}
	}
	return nil
}
