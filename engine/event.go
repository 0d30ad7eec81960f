package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// SetEvent publishes a named value of the instance at once, in place of the one before: for the progress of a long step, which
// [Outcome.SetEvent] would show only at its end. It stays whatever the step comes to, and a step that runs again publishes again. value is at
// most 1 MiB of JSON.
//
// The error is [ErrLeaseLost] where this execution is not the instance's any more, because it was canceled, its lease ran out, or its
// outcome has committed: nothing is published then. A step need not heed other errors, as the next value makes up for one that is missing.
func (v *Visit[S]) SetEvent(ctx context.Context, key string, value any) error {
	if err := ident.Key("event", key); err != nil {
		return err
	}
	b, err := ident.Encode(value)
	if err == nil {
		err = ident.JSON("event "+key, b, ident.MaxJSON)
	}
	if err != nil {
		return err
	}
	if v.setEvent == nil {
		return errors.New("set event: this visit is of no worker")
	}
	return v.setEvent(ctx, key, b)
}

func (w *Worker) setEvent(ctx context.Context, work *store.Work, key string, value json.RawMessage) error {
	set, err := w.store.SetEvent(ctx, store.Leased{Token: work.Token, ID: work.ID}, work.Rev, store.Event{Key: key, Value: value})
	if err == nil && !set {
		err = ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("set event %q: %w", key, err)
	}
	return nil
}

// Event reads a value that an instance has published, also after its end. found is false where it never published the key. It has no
// effect on the instance. The error is [ErrNotFound] where there is no such instance; a value that does not fit T is an error too.
func Event[T any](ctx context.Context, c *Client, ref Ref, key string) (value T, found bool, err error) {
	in, err := c.Get(ctx, ref)
	if err != nil {
		return value, false, err
	}
	raw, err := c.Event(ctx, in.ID, key)
	if errors.Is(err, ErrNotFound) {
		return value, false, nil
	}
	if err != nil {
		return value, false, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, false, fmt.Errorf("event %q does not fit: %w", key, err)
	}
	return value, true, nil
}
