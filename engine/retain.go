package engine

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// Retention is how long what has ended is kept. All workers of a database should say the same: each deletes by its own.
type Retention struct {
	// Instances: an ended instance goes this long after its end, with its history, its published values and its unique key; zero: 168h.
	Instances time.Duration
	// Dedup: what an instance has taken in is known as a duplicate until this long after its end (at most a 32nd longer), whether the
	// instance itself is still there or not; zero: 168h.
	Dedup time.Duration
	// Triggers: an ended trigger goes this long after its end; zero: 720h.
	Triggers time.Duration
	// Webhooks: a webhook goes this long after it was delivered or failed; zero: 720h.
	Webhooks time.Duration
	// Jobs: a job goes this long after its end; zero: 720h.
	Jobs time.Duration
}

// retainIdle is the longest that a worker goes without a look at what is due.
const retainIdle = time.Minute

// retainLoop deletes what has been kept for long enough. Every worker may do it: they share the work by what they find locked. It is a
// loop of its own, so that a backlog holds up no deadline, and rests after each turn for as long as that took.
func (w *Worker) retainLoop(ctx context.Context) {
	keep := w.cfg.Retention
	for ctx.Err() == nil {
		// What ends now is due no sooner than this.
		wait := min(retainIdle, keep.Instances, keep.Dedup, keep.Webhooks, keep.Jobs)
		err := w.retry(ctx, "retention", func(ctx context.Context) (err error) {
			wait, err = w.store.NextRetired(ctx, keep.Instances, keep.Dedup, wait)
			return err
		})
		if err == nil && wait == 0 {
			for _, turn := range []func(context.Context) (bool, error){w.retire, w.note, w.forget, w.forgetVerdicts} {
				w.retain(ctx, turn)
			}
		}
		w.retain(ctx, w.purgeTriggers)
		w.retain(ctx, w.retireDeliveries)        // finds out by itself that nothing is due
		w.retain(ctx, w.retireJobs)
		rest(ctx, max(wait, w.cfg.ReapInterval)) // not at once: what is due may be locked, or not to be had yet
	}
}

// retain calls turn, a transaction each time, until there is no more.
func (w *Worker) retain(ctx context.Context, turn func(context.Context) (bool, error)) {
	for more := true; more && ctx.Err() == nil; {
		begin := time.Now()
		_ = w.retry(ctx, "retention", func(ctx context.Context) (err error) {
			more, err = turn(ctx)
			return err
		})
		if more {
			rest(ctx, time.Since(begin))
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (w *Worker) retire(ctx context.Context) (more bool, err error) {
	n, err := w.store.Retire(ctx, w.cfg.Retention.Instances, w.cfg.Retention.Dedup)
	if err == nil {
		w.metrics.retired.WithLabelValues("instances").Add(float64(n))
	}
	return n == store.RetireBatch, err
}

// purgeTriggers deletes a batch of each project's.
func (w *Worker) purgeTriggers(ctx context.Context) (more bool, err error) {
	projects, err := w.store.TriggerProjects(ctx, w.cfg.Retention.Triggers)
	if err != nil {
		return false, err
	}
	for _, project := range projects {
		n, err := w.store.PurgeTriggers(ctx, project, w.cfg.Retention.Triggers, w.cfg.Retention.Dedup)
		if err != nil {
			return false, err
		}
		w.metrics.retired.WithLabelValues("triggers").Add(float64(n))
		more = more || n == store.PurgeBatch
	}
	return more, nil
}

func (w *Worker) retireDeliveries(ctx context.Context) (more bool, err error) {
	n, err := w.store.RetireDeliveries(ctx, w.cfg.Retention.Webhooks)
	if err == nil {
		w.metrics.retired.WithLabelValues("webhook_deliveries").Add(float64(n))
	}
	return n == store.DeliveryBatch, err
}

func (w *Worker) retireJobs(ctx context.Context) (more bool, err error) {
	n, err := w.store.RetireJobs(ctx, w.cfg.Retention.Jobs)
	if err == nil {
		w.metrics.retired.WithLabelValues("jobs").Add(float64(n))
	}
	return n == store.JobBatch, err
}

func (w *Worker) note(ctx context.Context) (more bool, err error) {
	if w.cfg.Retention.Dedup >= w.cfg.Retention.Instances {
		return false, nil
	}
	n, err := w.store.Note(ctx, w.cfg.Retention.Dedup)
	return n == store.NoteBatch, err
}

func (w *Worker) forget(ctx context.Context) (more bool, err error) {
	n, more, err := w.store.Forget(ctx, w.cfg.Retention.Dedup)
	if err == nil {
		w.metrics.retired.WithLabelValues("ledger").Add(float64(n))
	}
	return more, err
}

func (w *Worker) forgetVerdicts(ctx context.Context) (more bool, err error) {
	n, err := w.store.ForgetVerdicts(ctx)
	if err == nil {
		w.metrics.retired.WithLabelValues("verdicts").Add(float64(n))
	}
	return n == store.VerdictBatch, err
}
