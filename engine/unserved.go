package engine

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// unserved is what waits and is served by nobody, as this worker has said it in the log.
type unserved struct {
	said map[store.Lane]bool
}

// seen tells the other workers what this one serves.
func (w *Worker) seen(ctx context.Context) error {
	what := store.Serving{Queues: map[string]int{}, Machines: w.known}
	for _, q := range w.queues {
		what.Queues[q.name] = q.slots
	}
	return w.store.Seen(ctx, w.cfg.Name, what)
}

// gone tells them that it serves nothing any more. Where it cannot they find out in a minute.
func (w *Worker) gone(ctx context.Context) {
	if w.health.err() != nil {
		return
	}
	call, cancel := context.WithTimeout(ctx, w.grace)
	defer cancel()
	if err := w.store.Gone(call, w.cfg.Name); err != nil {
		w.log.Debug("could not say that it is gone", "worker", w.cfg.Name, "error", err)
	}
}

// look measures what nobody serves, and says of each lane once when that begins and when it is over.
func (u *unserved) look(ctx context.Context, w *Worker) {
	if err := w.seen(ctx); err != nil {
		return // the sweep says so
	}
	lanes, err := w.store.Unserved(ctx)
	if err != nil {
		return
	}
	instances, oldest, now := 0, time.Duration(0), make(map[store.Lane]bool, len(lanes))
	for _, l := range lanes {
		instances, oldest, now[l.Lane] = instances+l.Ready, max(oldest, l.Oldest), true
		if !u.said[l.Lane] {
			w.log.Warn("instances wait that no worker serves: start one that does, or cancel them",
				"queue", l.Queue, "machine", anyMachine(l.Lane), "instances", l.Ready, "oldest", l.Oldest.Round(time.Second))
		}
	}
	for l := range u.said {
		if !now[l] {
			w.log.Info("no instances wait there any more, or a worker serves them", "queue", l.Queue, "machine", anyMachine(l))
		}
	}
	u.said = now
	w.metrics.unservedLanes.Set(float64(len(lanes)))
	w.metrics.unservedInstances.Set(float64(instances))
	w.metrics.unservedOldest.Set(oldest.Seconds())
}

// anyMachine names the machine version of a lane ("machine@version"), or says that the whole queue is meant.
func anyMachine(l store.Lane) string {
	if l.Lane == "" {
		return "any"
	}
	return l.Lane
}
