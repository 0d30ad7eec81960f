package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/store"
)

// CancelOption changes what [Client.Cancel] does.
type CancelOption func(*cancelOptions)

type cancelOptions struct{ children bool }

// WithChildren cancels the children too that are live, and theirs, in transactions of up to 200 instances after that of the instance
// itself. Where it is cut off, what it has canceled stays so, and another call goes on; also where the instance has ended before.
func WithChildren() CancelOption { return func(o *cancelOptions) { o.children = true } }

// Cancel ends an instance, empties its inbox, and cancels the triggers that it waits for. The step that runs, if one does, commits nothing any more. Its parent, if it has one, is
// told; its children go on, unless [WithChildren]. It is idempotent: the error is [ErrNotFound] only where there is no such instance; one
// that has ended stays as it ended.
func (c *Client) Cancel(ctx context.Context, ref Ref, reason string, opts ...CancelOption) (Instance, error) {
	var options cancelOptions
	for _, opt := range opts {
		opt(&options)
	}
	in, canceled, err := c.cancel(ctx, c.store, ref, reason)
	if err != nil {
		return in, err
	}
	c.Wake(append(canceled.Woken, OutboxQueue, WebhooksQueue)...)
	c.tell(noticeEnded, []uuid.UUID{in.ID})
	c.toldTriggers(canceled.Triggers)
	if options.children {
		err = c.cancelChildren(ctx, []uuid.UUID{in.ID}, reason)
	}
	return in, err
}

// CancelTx is Cancel of one instance inside a transaction of the caller's.
func (c *Client) CancelTx(ctx context.Context, tx pgx.Tx, ref Ref, reason string) (Instance, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Instance{}, err
	}
	in, _, err := c.cancel(ctx, st, ref, reason)
	return in, err
}

func (c *Client) cancel(ctx context.Context, st *store.Store, ref Ref, reason string) (in Instance, canceled store.Canceled, err error) {
	in, err = get(ctx, st, ref)
	if err != nil || !in.Status.Live() {
		return in, canceled, err
	}
	canceled, err = st.Cancel(ctx, []uuid.UUID{in.ID}, reason, c.publish)
	if err != nil {
		return Instance{}, canceled, fmt.Errorf("cancel: %w", err)
	}
	in, err = get(ctx, st, Ref{project: in.Project, id: in.ID})
	return in, canceled, err
}

// How much a cancel of children takes on at once.
const (
	cancelBatch   = 200 // instances that one transaction ends
	cancelParents = 100 // whose children are looked for
	cancelPage    = 1000
)

// cancelChildren ends what is live below instances that have ended, level by level: who has ended starts no more children, so none is
// missed. It goes through what has ended already too, for a call before it may have been cut off.
func (c *Client) cancelChildren(ctx context.Context, roots []uuid.UUID, reason string) error {
	for level := roots; len(level) > 0; {
		var next []uuid.UUID
		for parents := range slices.Chunk(level, cancelParents) {
			if err := c.cancelLive(ctx, parents, reason); err != nil {
				return fmt.Errorf("cancel children: %w", err)
			}
			below, err := c.below(ctx, parents)
			if err != nil {
				return fmt.Errorf("cancel children: %w", err)
			}
			next = append(next, below...)
		}
		level = next
	}
	return nil
}

// cancelLive cancels the live children of these.
func (c *Client) cancelLive(ctx context.Context, parents []uuid.UUID, reason string) error {
	for {
		live, err := c.store.Children(ctx, parents, true, uuid.Nil, cancelBatch)
		if err != nil || len(live) == 0 {
			return err
		}
		for batch := range slices.Chunk(live, cancelBatch) {
			canceled, err := c.store.Cancel(ctx, childIDs(batch), reason, c.publish)
			if err != nil {
				return err
			}
			c.Wake(append(canceled.Woken, OutboxQueue, WebhooksQueue)...)
			c.tell(noticeEnded, canceled.IDs)
			c.toldTriggers(canceled.Triggers)
		}
	}
}

// below are the children of these. Most have few: they are asked for together, and who has more by itself.
func (c *Client) below(ctx context.Context, parents []uuid.UUID) (all []uuid.UUID, err error) {
	children, err := c.store.Children(ctx, parents, false, uuid.Nil, cancelParents)
	if err != nil {
		return nil, err
	}
	all = childIDs(children)
	count := map[uuid.UUID]int{}
	for _, child := range children {
		if count[child.ParentID]++; count[child.ParentID] < cancelParents {
			continue
		}
		for after, n := child.ID, cancelPage; n == cancelPage; {
			more, err := c.store.Children(ctx, []uuid.UUID{child.ParentID}, false, after, cancelPage)
			if err != nil {
				return nil, err
			}
			if n = len(more); n > 0 {
				after = more[n-1].ID
			}
			all = append(all, childIDs(more)...)
		}
	}
	return all, nil
}

func childIDs(children []store.Child) []uuid.UUID {
	ids := make([]uuid.UUID, len(children))
	for i, child := range children {
		ids[i] = child.ID
	}
	return ids
}
