package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// How many instances one statement looks at, and how many it reads: a state and a result may have a megabyte each.
const (
	lookedAt = 1000
	readOf   = 100
)

// look tells who waits what there is to see. Where the database cannot be asked it is the next poll that tries again.
func (ws *waits) look(ctx context.Context, batch map[uuid.UUID][]*wait) {
	for ids := range slices.Chunk(slices.Collect(maps.Keys(batch)), lookedAt) {
		err := ws.lookAt(ctx, batch, ids)
		if err == nil || ctx.Err() != nil {
			continue
		}
		ws.log.Debug("waits cannot be looked after: trying again", "error", err)
		ws.sooner(batch, ids)
	}
}

// lookAt finds out who has something to see, and reads that alone: most looks find that an instance goes on.
func (ws *waits) lookAt(ctx context.Context, batch map[uuid.UUID][]*wait, ids []uuid.UUID) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	standings, err := ws.store.Standings(call, ids)
	if err != nil {
		return err
	}
	var read []uuid.UUID
	for _, id := range ids {
		st, found := standings[id]
		batch[id] = slices.DeleteFunc(batch[id], func(w *wait) bool {
			gone := !found || w.ref.project != "" && w.ref.project != st.Project
			if gone {
				w.show(sight{err: ErrNotFound})
			}
			return gone
		})
		if slices.ContainsFunc(batch[id], func(w *wait) bool { return w.every || st.Ended }) {
			read = append(read, id)
		}
	}
	for ids := range slices.Chunk(read, readOf) {
		if err := ws.read(call, batch, ids); err != nil {
			return err
		}
	}
	return nil
}

// read shows instances to who waits for them. One that has ended and was made to go on since is not shown as ended.
func (ws *waits) read(ctx context.Context, batch map[uuid.UUID][]*wait, ids []uuid.UUID) error {
	rows, err := ws.store.Instances(ctx, ids)
	if err != nil {
		return err
	}
	for _, row := range rows {
		in := snapshot(row)
		for _, w := range batch[in.ID] {
			if w.every || !in.Status.Live() {
				w.show(sight{in: in})
			}
		}
	}
	return nil
}

// show replaces what w has not looked at yet. Only the goroutine that attends shows.
func (w *wait) show(s sight) {
	select {
	case <-w.seen:
	default:
	}
	w.seen <- s
}

// sooner begins the pauses anew.
func (ws *waits) sooner(batch map[uuid.UUID][]*wait, ids []uuid.UUID) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := time.Now()
	for _, id := range ids {
		for _, w := range batch[id] {
			w.pause = ws.poll
			ws.schedule(w, now)
		}
	}
}
