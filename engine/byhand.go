package engine

import (
	"context"

	"github.com/pointsman/pointsman/engine/internal/byhand"
	"github.com/pointsman/pointsman/internal/store"
)

func init() {
	byhand.Of = func(worker any) byhand.Worker { return handWorker{worker.(*Worker)} }
}

// handWorker does by hand, in the goroutine of its caller, what the loops of a worker do.
type handWorker struct{ *Worker }

func (w handWorker) Register(ctx context.Context) error { return w.register(ctx) }

func (w handWorker) Sweep(ctx context.Context) error {
	w.sweepOnce(ctx)
	return ctx.Err()
}

func (w handWorker) Pick(ctx context.Context, queue, lane string) (byhand.Visit, error) {
	works, err := w.store.Pick(ctx, queue, lane, w.cfg.Name, w.known, 1, w.cfg.Lease)
	if err != nil || len(works) == 0 {
		return nil, err
	}
	if err := works[0].InboxErr; err != nil {
		return nil, err
	}
	return &handVisit{worker: w.Worker, queue: newQueue(queue, 1), work: &works[0]}, nil
}

// handVisit is one execution by hand.
type handVisit struct {
	worker *Worker
	queue  *queue
	work   *store.Work
	done   finished
}

func (v *handVisit) Work() *store.Work { return v.work }

func (v *handVisit) Run(ctx context.Context) error {
	v.queue.take(1)
	own := v.worker.leases.add(ctx, []*store.Work{v.work})[0]
	go v.worker.runVisit(&visit{own, v.work, newParty(1)}, v.queue, false)
	select {
	case v.done = <-v.worker.outcomes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *handVisit) Commit(ctx context.Context) error {
	v.worker.commitAlone(ctx, []finished{v.done})
	return ctx.Err()
}

func (v *handVisit) Forget() {
	group := []finished{v.done}
	v.worker.leases.last(group) // that nothing is left of the lease is no reason to drop it
	v.worker.leases.remove(group)
	v.worker.answer(group, nil)
}
