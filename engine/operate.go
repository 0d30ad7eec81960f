package engine

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/store"
)

// Retry runs the step of a failed or canceled instance again: live again and not paused, attempt 0, under the same idempotency key, with
// the inbox that it ended with. One that was canceled while it awaited or was delayed does so again, until the same time; if that has
// passed it fires at once. The triggers that ended with it wait again, until the same time; where another one waits with the key by then, or
// the quota is used up, the await of it is over and Canceled. LastError stays until it progresses. Its next end is published like the first one.
//
// The error is a [*ConflictError] where it has not ended, is done, or another live instance has its correlation key: ID is that one's. A
// unique key that another holds does not keep it from running.
func (c *Client) Retry(ctx context.Context, ref Ref) (Instance, error) {
	in, queue, err := c.retry(ctx, c.store, ref)
	c.Wake(queue)
	return in, c.told(in, err)
}

// RetryTx is Retry inside a transaction of the caller's, which must be READ COMMITTED. [Client.Wake] after the commit spares the worker's
// poll interval.
func (c *Client) RetryTx(ctx context.Context, tx pgx.Tx, ref Ref) (Instance, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Instance{}, err
	}
	in, _, err := c.retry(ctx, st, ref)
	return in, err
}

func (c *Client) retry(ctx context.Context, st *store.Store, ref Ref) (in Instance, queue string, err error) {
	if in, err = get(ctx, st, ref); err != nil {
		return in, "", err
	}
	var scope uuid.UUID
	if in.CorrelationKey != "" {
		scope = store.KeyScope(in.Project, in.CorrelationKey)
	}
	keys, err := st.EventKeys(ctx, in.ID)
	if err != nil {
		return in, "", fmt.Errorf("retry: %w", err)
	}
	scopes := []uuid.UUID{scope}
	for _, key := range keys {
		scopes = append(scopes, store.EventScope(in.Project, key))
	}
	err = st.InScopes(ctx, scopes, func(tx *store.Store) error {
		r, err := tx.Retry(ctx, in.ID, keys, c.maxTriggers)
		if err != nil {
			return fmt.Errorf("retry: %w", err)
		}
		queue = r.Queue
		if in, err = get(ctx, tx, Ref{project: in.Project, id: in.ID}); err != nil {
			return err
		}
		return in.notRetried(r)
	})
	if err != nil {
		return Instance{}, "", err
	}
	return in, queue, nil
}

// notRetried is why a retry is none.
func (in Instance) notRetried(r store.Retried) error {
	switch r.Verdict {
	case store.Started:
		return nil
	case store.Taken:
		return &ConflictError{ID: r.Holder, Reason: fmt.Sprintf("the correlation key %q is held by instance %s", in.CorrelationKey, r.Holder)}
	default:
		return &ConflictError{ID: in.ID, Reason: fmt.Sprintf("instance %s is %s: only a failed or canceled one can be retried", in.ID, in.Status)}
	}
}

// Pause keeps an instance from running: its inbox fills, and nothing is picked or woken, by a deadline neither, until [Client.Resume]. A
// step that executes goes on, and its outcome counts. It is idempotent. The error is a [*ConflictError] where the instance has ended before.
func (c *Client) Pause(ctx context.Context, ref Ref) (Instance, error) {
	in, err := pause(ctx, c.store, ref)
	return in, c.told(in, err)
}

// PauseTx is Pause inside a transaction of the caller's, which must be READ COMMITTED.
func (c *Client) PauseTx(ctx context.Context, tx pgx.Tx, ref Ref) (Instance, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Instance{}, err
	}
	return pause(ctx, st, ref)
}

func pause(ctx context.Context, st *store.Store, ref Ref) (Instance, error) {
	return whileLive(ctx, st, ref, "pause", func(id uuid.UUID) (done bool, err error) {
		paused, err := st.Pause(ctx, []uuid.UUID{id})
		return len(paused) > 0, err
	})
}

// Resume lets a paused instance run again: what came meanwhile wakes it, and a deadline that has passed fires at once. It is idempotent.
// The error is a [*ConflictError] where the instance has ended before.
func (c *Client) Resume(ctx context.Context, ref Ref) (Instance, error) {
	in, woken, err := resume(ctx, c.store, ref)
	c.Wake(woken...)
	return in, c.told(in, err)
}

// ResumeTx is Resume inside a transaction of the caller's, which must be READ COMMITTED. [Client.Wake] after the commit spares the
// worker's poll interval.
func (c *Client) ResumeTx(ctx context.Context, tx pgx.Tx, ref Ref) (Instance, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Instance{}, err
	}
	in, _, err := resume(ctx, st, ref)
	return in, err
}

func resume(ctx context.Context, st *store.Store, ref Ref) (in Instance, woken []string, err error) {
	in, err = whileLive(ctx, st, ref, "resume", func(id uuid.UUID) (done bool, err error) {
		resumed, err := st.Resume(ctx, []uuid.UUID{id})
		woken = resumed.Woken
		return len(resumed.IDs) > 0, err
	})
	return in, woken, err
}

// whileLive does what the verb says to an instance that has not ended, and returns it as it is then: it may have ended since.
func whileLive(ctx context.Context, st *store.Store, ref Ref, verb string, do func(id uuid.UUID) (done bool, err error)) (Instance, error) {
	in, err := get(ctx, st, ref)
	done := false
	if err == nil && in.Status.Live() {
		if done, err = do(in.ID); err != nil {
			return Instance{}, fmt.Errorf("%s: %w", verb, err)
		}
		in, err = get(ctx, st, Ref{project: in.Project, id: in.ID})
	}
	if err != nil {
		return Instance{}, err
	}
	if !done && !in.Status.Live() {
		return Instance{}, &ConflictError{ID: in.ID, Reason: fmt.Sprintf("instance %s is %s: only one that has not ended can be %sd", in.ID, in.Status, verb)}
	}
	return in, nil
}
