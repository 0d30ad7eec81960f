package engine

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/internal/store"
)

// AcceptAll is Accept, all or nothing: the first intake that is not taken in undoes the batch and is the error, a [*BatchError]. It
// takes at most 200.
func (c *Client) AcceptAll(ctx context.Context, batch []Intake) ([]Receipt, error) {
	if len(batch) > maxScopes {
		return nil, &InvalidError{Field: "items", Reason: fmt.Sprintf("are %d: at most %d can be all or nothing", len(batch), maxScopes)}
	}
	var a *acceptance
	err := c.store.InScopes(ctx, nil, func(tx *store.Store) error {
		a = newAcceptance(ctx, tx, batch)
		if err := a.lock(); err != nil {
			return err
		}
		if err := a.run(a.slow); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		for i, r := range a.receipts {
			if err := r.Err(); err != nil {
				return &BatchError{i, err}
			}
		}
		return nil
	})
	if err != nil {
		return nil, blamed(err)
	}
	c.Wake(a.queues...)
	c.toldTriggers(a.ended)
	return a.receipts, nil
}

// blamed makes an error that is the fault of what was sent an [*InvalidError].
func blamed(err error) error {
	if store.Blame(err) == store.BlameData {
		return &InvalidError{Field: "items", Reason: err.Error()}
	}
	return err
}
