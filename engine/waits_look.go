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
func (ws *waits[T]) look(ctx context.Context, batch map[uuid.UUID][]*wait[T]) {
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
func (ws *waits[T]) lookAt(ctx context.Context, batch map[uuid.UUID][]*wait[T], ids []uuid.UUID) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	standings, err := ws.view.standings(call, ids)
	if err != nil {
		return err
	}
	var read []uuid.UUID
	for _, id := range ids {
		st, found := standings[id]
		batch[id] = slices.DeleteFunc(batch[id], func(w *wait[T]) bool {
			gone := !found || w.ref.project != "" && w.ref.project != st.Project
			if gone {
				w.show(sight[T]{err: ws.view.gone})
			}
			return gone
		})
		if slices.ContainsFunc(batch[id], func(w *wait[T]) bool { return w.every || st.Ended }) {
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
func (ws *waits[T]) read(ctx context.Context, batch map[uuid.UUID][]*wait[T], ids []uuid.UUID) error {
	rows, err := ws.view.read(ctx, ids)
	if err != nil {
		return err
	}
	for id, row := range rows {
		for _, w := range batch[id] {
			if w.every || !ws.view.live(row) {
				w.show(sight[T]{of: row})
			}
		}
	}
	return nil
}

// show replaces what w has not looked at yet. Only the goroutine that attends shows.
func (w *wait[T]) show(s sight[T]) {
	select {
	case <-w.seen:
	default:
	}
	w.seen <- s
}

// sooner begins the pauses anew.
func (ws *waits[T]) sooner(batch map[uuid.UUID][]*wait[T], ids []uuid.UUID) {
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
