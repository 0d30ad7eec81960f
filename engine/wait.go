package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// Wait returns an instance when it has ended: at once where it has. A key means who has it now, or else had it last; what starts with the
// key later is not waited for. The error is [ErrNotFound] where there is no such instance, also when it is deleted meanwhile,
// [ErrTooManyWaits], or that of ctx: how the instance is then, [Client.Get] says.
//
// It learns of the end by a notice of who committed it, in this process or by the [Waker] in another, and where none comes by looking:
// see Config.WaitPoll. However many wait, they are looked at together. A database that is away is waited for.
func (c *Client) Wait(ctx context.Context, ref Ref) (Instance, error) {
	if ref.key != "" {
		in, err := c.Get(ctx, ref)
		if err != nil || !in.Status.Live() {
			return in, err
		}
		ref = ByID(in.ID)
	}
	w, err := c.waits.enter(ref, false)
	if err != nil {
		return Instance{}, fmt.Errorf("wait: %w", err)
	}
	defer c.waits.leave(w)
	select {
	case s := <-w.seen:
		return s.result("wait")
	case <-ctx.Done():
		return Instance{}, fmt.Errorf("wait: %w", ctx.Err())
	}
}

// Watch yields an instance as it is, then each time that it is seen to have changed, and ends with its end, or with an error, as
// [Client.Wait] has them. Changes that follow one another fast are seen as one. What is not the commit of a step, as a signal in the
// inbox, may be seen late: with the next commit, or by a look.
func (c *Client) Watch(ctx context.Context, ref Ref) iter.Seq2[Instance, error] {
	return func(yield func(Instance, error) bool) {
		if ref.key != "" {
			in, err := c.Get(ctx, ref)
			if err != nil {
				yield(in, err)
				return
			}
			ref = ByID(in.ID)
		}
		w, err := c.waits.enter(ref, true)
		if err != nil {
			yield(Instance{}, fmt.Errorf("watch: %w", err))
			return
		}
		defer c.waits.leave(w)
		c.follow(ctx, w, yield)
	}
}

func (c *Client) follow(ctx context.Context, w *wait[Instance], yield func(Instance, error) bool) {
	var last Instance
	for {
		select {
		case <-ctx.Done():
			yield(Instance{}, fmt.Errorf("watch: %w", ctx.Err()))
			return
		case s := <-w.seen:
			in, err := s.result("watch")
			if err == nil && in.sameAs(last) {
				continue
			}
			if !yield(in, err) || err != nil || !in.Status.Live() {
				return
			}
			last = in
		}
	}
}

// sameAs compares what may change while one watches; state and result only change with UpdatedAt.
func (in *Instance) sameAs(other Instance) bool {
	return in.ID == other.ID && in.UpdatedAt.Equal(other.UpdatedAt) && in.Status == other.Status && in.Step == other.Step && in.Attempt == other.Attempt &&
		in.Paused == other.Paused && in.InboxCount == other.InboxCount && slices.Equal(in.Awaits, other.Awaits) && sameTime(in.RunAt, other.RunAt)
}

func sameTime(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// result is a sight as the return values of an operation.
func (s sight[T]) result(operation string) (of T, err error) {
	if s.err != nil {
		return of, fmt.Errorf("%s: %w", operation, s.err)
	}
	return s.of, nil
}

// instances is how instances are seen by who waits for them.
func instances(st *store.Store) view[Instance] {
	return view[Instance]{
		ended: noticeEnded, changed: noticeChanged, standings: st.Standings, gone: ErrNotFound,
		live: func(in Instance) bool { return in.Status.Live() },
		read: func(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Instance, error) {
			rows, err := st.Instances(ctx, ids)
			seen := make(map[uuid.UUID]Instance, len(rows))
			for _, row := range rows {
				seen[row.ID] = snapshot(row)
			}
			return seen, err
		},
	}
}
