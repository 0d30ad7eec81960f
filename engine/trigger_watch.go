package engine

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// triggers is how triggers are seen by who watches them.
func triggers(st *store.Store) view[Trigger] {
	return view[Trigger]{
		ended: noticeTriggers, standings: st.TriggerStandings, gone: ErrNoTrigger,
		live: func(t Trigger) bool { return t.Status == TriggerWaiting },
		read: func(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Trigger, error) {
			rows, err := st.TriggersByID(ctx, ids)
			seen := make(map[uuid.UUID]Trigger, len(rows))
			for _, row := range rows {
				seen[row.ID] = triggerOf(row)
			}
			return seen, err
		},
	}
}

// WatchTrigger yields the latest trigger of a key as it is, then as it has ended, and ends with that, or with an error: [ErrNoTrigger] where there
// is none, also when it is purged meanwhile, [ErrTooManyWaits], or that of ctx. What uses the key later is not watched. It learns of the end as
// [Client.Wait] does.
func (c *Client) WatchTrigger(ctx context.Context, project, key string) iter.Seq2[Trigger, error] {
	return func(yield func(Trigger, error) bool) {
		t, err := c.Trigger(ctx, project, key)
		if !yield(t, err) || err != nil || t.Status != TriggerWaiting {
			return
		}
		w, err := c.watched.enter(Ref{project: t.Project, id: t.ID}, false)
		if err != nil {
			yield(Trigger{}, fmt.Errorf("watch trigger: %w", err))
			return
		}
		defer c.watched.leave(w)
		select {
		case s := <-w.seen:
			yield(s.result("watch trigger"))
		case <-ctx.Done():
			yield(Trigger{}, fmt.Errorf("watch trigger: %w", ctx.Err()))
		}
	}
}
