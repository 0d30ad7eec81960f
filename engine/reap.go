package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// How much one transaction of a sweep takes on.
const (
	sweptTimers = 500
	sweptLeases = 20
	sweptHolds  = 200

	sweptTriggers = 200
)

const gaugeInterval = 5 * time.Second

// reapLoop deals with what time has made due: deadlines, delayed starts and replays, triggers, expired leases, holds that nobody came for.
// Every worker may do it. It sleeps until the next time that something is due, at most ReapInterval:
// what other workers add meanwhile is not known here.
func (w *Worker) reapLoop(ctx context.Context) {
	var gauges time.Time
	for ctx.Err() == nil {
		w.reap.set(w.cfg.ReapInterval)
		w.sweepOnce(ctx)
		if time.Since(gauges) > gaugeInterval {
			gauges = time.Now()
			w.measure(ctx)
		}
		_ = w.retry(ctx, "sweep", func(ctx context.Context) error {
			wait, err := w.store.NextDue(ctx, w.cfg.ReapInterval)
			if err == nil {
				w.reap.by(wait)
			}
			return err
		})
		w.reap.sleep(ctx, 10*time.Millisecond) // not at once: what is due may be locked by who deals with it
	}
}

// sweepOnce deals with all that is due.
func (w *Worker) sweepOnce(ctx context.Context) {
	for _, sweep := range []func(context.Context) (more bool, err error){w.fireTimers, w.endTriggers, w.reapLeases, w.expireHeld, w.expireHeldEvents} {
		w.sweepAll(ctx, sweep)
	}
}

// sweepAll calls sweep, a transaction each time, until there is no more.
func (w *Worker) sweepAll(ctx context.Context, sweep func(context.Context) (bool, error)) {
	for more := true; more && ctx.Err() == nil; {
		_ = w.retry(ctx, "sweep", func(ctx context.Context) (err error) {
			more, err = sweep(ctx)
			return err
		})
	}
}

func (w *Worker) fireTimers(ctx context.Context) (more bool, err error) {
	woken, fired, err := w.store.SweepTimers(ctx, sweptTimers)
	w.client.Wake(woken...)
	return fired == sweptTimers, err
}

func (w *Worker) reapLeases(ctx context.Context) (more bool, err error) {
	reaped, err := w.store.SweepLeases(ctx, sweptLeases)
	if err != nil || len(reaped) == 0 {
		return false, err
	}
	w.log.Warn("leases ran out: their instances run again", "instances", len(reaped))
	w.metrics.leasesExpired.Add(float64(len(reaped)))
	queues, ids := make([]string, len(reaped)), make([]uuid.UUID, len(reaped))
	for i, r := range reaped {
		queues[i], ids[i] = r.Queue, r.ID
	}
	w.client.Wake(queues...)
	for _, q := range w.queues {
		signal(q.sole)
	}
	w.client.tell(noticeChanged, ids)
	return true, nil
}

func (w *Worker) expireHeld(ctx context.Context) (more bool, err error) {
	expired, err := w.store.ExpireHeld(ctx, sweptHolds)
	if expired > 0 && err == nil {
		w.client.Wake(OutboxQueue)
	}
	return expired == sweptHolds, err
}

// endTriggers ends the triggers whose time has come.
func (w *Worker) endTriggers(ctx context.Context) (more bool, err error) {
	ended, more, err := w.store.SweepTriggers(ctx, sweptTriggers)
	if err == nil {
		w.client.endedTriggers(ended)
	}
	return more, err
}

func (w *Worker) expireHeldEvents(ctx context.Context) (more bool, err error) {
	expired, err := w.store.ExpireHeldEvents(ctx, sweptHolds)
	if expired > 0 && err == nil {
		w.client.Wake(OutboxQueue)
	}
	return expired == sweptHolds, err
}

func (w *Worker) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	depths, err := w.store.QueueDepths(ctx, slices.Sorted(maps.Keys(w.cfg.Queues)))
	if err != nil {
		return // the sweep says so
	}
	for _, d := range depths {
		w.metrics.queueDepth.WithLabelValues(d.Queue).Set(float64(d.Ready))
		w.metrics.queueOldest.WithLabelValues(d.Queue).Set(d.Oldest.Seconds())
	}
	w.unserved.look(ctx, w)
}
