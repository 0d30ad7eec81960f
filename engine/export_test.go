package engine

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// SetGrace sets how long what was told to stop may take to do so.
func SetGrace(w *Worker, d time.Duration) { w.grace = d }

// ByHand is a worker none of whose loops run: a test calls what they call, in an order of its own.
type ByHand struct {
	*Worker
	queue *queue
	group []finished
}

// NewByHand is NewWorker.
func NewByHand(c *Client, cfg WorkerConfig) (*ByHand, error) {
	w, err := NewWorker(c, cfg)
	if err != nil {
		return nil, err
	}
	w.life.working = context.Background()
	return &ByHand{Worker: w, queue: w.queues[0]}, nil
}

// Execution is an instance that was picked, and whose step has not run yet.
type Execution struct {
	Work  store.Work
	ctx   context.Context
	ahead chan *visit
}

// AloneLane is where those are that a worker has one at a time.
const AloneLane = store.AloneLane

// Pick leases up to n instances of a lane of a queue.
func (h *ByHand) Pick(ctx context.Context, queue, lane string, n int) ([]*Execution, error) {
	works, err := h.store.Pick(ctx, queue, lane, h.cfg.Name, h.known, n, h.cfg.Lease)
	h.queue.take(len(works))
	contexts := h.leases.add(ctx, pointers(works))
	es := make([]*Execution, len(works))
	for i := range works {
		es[i] = &Execution{Work: works[i], ctx: contexts[i]}
	}
	return es, err
}

// Step runs a step, whose outcome waits for Commit. mayGoOn is for one that nobody waits behind.
func (h *ByHand) Step(e *Execution, mayGoOn bool) {
	e.ahead = h.runVisit(&visit{e.ctx, &e.Work, newParty(1)}, h.queue, mayGoOn)
	h.group = append(h.group, <-h.outcomes)
}

// Release is Step for what is to be given back.
func (h *ByHand) Release(e *Execution) {
	h.group = append(h.group, finished{outcome: release(&e.Work), queue: h.queue})
}

// Commit settles what the steps came to as one group.
func (h *ByHand) Commit(ctx context.Context) {
	var aside sync.WaitGroup
	h.commit(ctx, h.group, &aside)
	aside.Wait()
	h.group = nil
}

// Ahead is the next step of an instance that goes on with it, after the commit of the last; nil: it does not.
func (e *Execution) Ahead() *Execution {
	if e.ahead == nil {
		return nil
	}
	if v := <-e.ahead; v != nil {
		return &Execution{Work: *v.work, ctx: v.ctx}
	}
	return nil
}

// Tokens are the leases that the next heartbeat extends.
func (h *ByHand) Tokens() []uuid.UUID { return h.leases.tokens() }

// What the other loops do.
func (h *ByHand) Beat(ctx context.Context) error { return h.heartbeat(ctx) }

func (h *ByHand) SweepTimers(ctx context.Context) error { return once(h.fireTimers(ctx)) }
func (h *ByHand) SweepLeases(ctx context.Context) error { return once(h.reapLeases(ctx)) }
func (h *ByHand) ExpireHeld(ctx context.Context) error  { return once(h.expireHeld(ctx)) }

// Age makes everything in the database older.
func (h *ByHand) Age(ctx context.Context, d time.Duration) error { return h.store.Age(ctx, d) }

func once(_ bool, err error) error { return err }

// StepJob does one batch of a job, of at most so many instances.
func StepJob(ctx context.Context, r *JobRunner, most int) (worked bool, err error) {
	r.batch = most
	return r.step(ctx)
}

// StepJobPatiently is StepJob that waits for a lock as long as other transactions do.
func StepJobPatiently(ctx context.Context, r *JobRunner, most int) (worked bool, err error) {
	r.alone = true
	return StepJob(ctx, r, most)
}
