package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// queue is this worker's share of a queue.
type queue struct {
	name  string
	slots int
	poked chan struct{} // work may be waiting
	sole  chan struct{} // as poked, of what is picked one at a time

	backlog atomic.Bool // a lane that may have work waits for free slots
	idle    chan *visit // to goroutines that have run a visit

	mu    sync.Mutex
	busy  int
	ended int           // of the busy ones: the step has, and the commit is to come
	freed chan struct{} // a slot was given back
}

func newQueue(name string, slots int) *queue {
	return &queue{name: name, slots: slots, poked: make(chan struct{}, 1), sole: make(chan struct{}, 1), freed: make(chan struct{}, 1), idle: make(chan *visit)}
}

// free says how many slots are, and how many will be when all steps that have ended are committed.
func (q *queue) free() (now, soon int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots - q.busy, q.slots - q.busy + q.ended
}

func (q *queue) take(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy += n
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended++
}

// give back the slots of n whose steps had ended, but keep those that go on.
func (q *queue) give(n, goOn int) {
	q.mu.Lock()
	q.ended -= n
	q.busy -= n - goOn
	q.mu.Unlock()
	signal(q.freed)
}

// signal fills a channel of one without waiting: a second signal says nothing new.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *Worker) poke(queues ...string) {
	for _, q := range w.queues {
		for _, name := range queues {
			if q.name == name {
				signal(q.poked)
			}
		}
	}
}

// room waits for free slots: for one, or in a flow of work for half of them, so that picks and the commits that follow stay large.
// There too it waits for more than one only a moment where steps hold the others, as some take long, and ten of these where the commit will
// give back enough.
func (q *queue) room(ctx context.Context, flow bool) bool {
	want := 1
	if flow {
		want = max(1, q.slots/2)
	}
	var over <-chan time.Time
	for moments := 0; ; {
		free, soon := q.free()
		if free >= want {
			return true
		}
		if free > 0 && over == nil {
			over = time.After(linger)
		}
		select {
		case <-ctx.Done():
			return false
		case <-q.freed:
		case <-over:
			over = nil
			if moments++; soon < want || moments == 10 {
				want = 1
			}
		}
	}
}

const (
	linger      = 5 * time.Millisecond
	pickTimeout = 15 * time.Second
)

// pickLoop keeps the slots of a queue filled. It picks from every lane that may have work, in turn, and waits for a poke where none
// has, at most PollInterval. Besides the queue's own lane there is one for each machine version, of what another worker picked that
// does not know it, and one beside each of these for what may have killed a worker.
func (w *Worker) pickLoop(ctx context.Context, q *queue, running *sync.WaitGroup) {
	poll := time.NewTicker(w.cfg.PollInterval)
	defer poll.Stop()
	always := make(chan struct{})
	close(always)
	var todo []string
	flow, poked, mixed := false, false, false
	w.look(ctx, q, &todo)
	for {
		var work <-chan struct{}
		if len(todo) > 0 {
			work = always
		}
		select {
		case <-ctx.Done():
			return
		case <-q.poked:
			todo, poked = addMissing(todo, ""), true
		case <-q.sole:
			todo = addMissing(todo, store.AloneLane)
		case <-poll.C:
			w.look(ctx, q, &todo)
		case <-work:
			q.backlog.Store(true)
			if !q.room(ctx, flow) {
				return
			}
			lane := todo[0]
			todo = todo[1:]
			n, more := w.pick(ctx, q, lane, running)
			if flow = more; flow {
				todo = append(todo, lane)
			}
			mixed = mixed || n > 0 && lane != "" // other workers of the queue have other machines
			if lane == "" && poked {
				// Who poked may have put into a lane what it does not know.
				if poked = false; n == 0 || mixed {
					w.look(ctx, q, &todo)
				}
			}
			q.backlog.Store(len(todo) > 0)
		}
	}
}

// look adds the lanes that this worker serves and that have something in them. Where it cannot ask, the queue's own lane will say so.
func (w *Worker) look(ctx context.Context, q *queue, todo *[]string) {
	call, cancel := context.WithTimeout(ctx, pickTimeout)
	defer cancel()
	lanes, err := w.store.Lanes(call, q.name)
	if err != nil {
		lanes = []string{""}
	}
	for _, lane := range lanes {
		if version := strings.TrimPrefix(lane, store.AloneLane); version == "" || slices.Contains(w.known, version) {
			*todo = addMissing(*todo, lane)
		}
	}
}

func addMissing(todo []string, lanes ...string) []string {
	for _, lane := range lanes {
		if !slices.Contains(todo, lane) {
			todo = append(todo, lane)
		}
	}
	return todo
}

// pick fills free slots from one lane, and reports how many it has filled and whether there may be more.
func (w *Worker) pick(ctx context.Context, q *queue, lane string, running *sync.WaitGroup) (picked int, more bool) {
	free, _ := q.free()
	n, alone := store.PickSize(free), strings.HasPrefix(lane, store.AloneLane)
	if alone {
		if n = 1; !w.alone.CompareAndSwap(false, true) {
			return 0, false // whoever has it looks for the next one
		}
	}
	var works []store.Work
	begin, diverted := time.Now(), w.store.Diverted()
	err := w.retry(ctx, "pick", func(context.Context) (err error) {
		// Not with ctx: a pick that is cut off may have committed, and what it leased would lie there until the lease ran out.
		call, cancel := context.WithTimeout(w.life.working, pickTimeout)
		defer cancel()
		works, err = w.store.Pick(call, q.name, lane, w.cfg.Name, w.known, n, w.cfg.Lease)
		return err
	})
	if err != nil {
		if alone {
			w.alone.Store(false)
		}
		return 0, false
	}
	if w.store.Diverted() > diverted {
		w.client.Wake(q.name)
	}
	taken := false
	w.metrics.pickSeconds.Observe(time.Since(begin).Seconds())
	q.take(len(works))
	contexts := w.leases.add(w.life.working, pointers(works))
	party := newParty(len(works))
	for i := range works {
		switch {
		case works[i].InboxErr != nil:
			w.log.Warn("an inbox could not be read: trying again", "instance", works[i].ID, "error", works[i].InboxErr)
			fallthrough
		case ctx.Err() != nil:
			w.hand(finished{outcome: release(&works[i]), queue: q, party: party})
		default:
			if taken = true; alone {
				context.AfterFunc(contexts[i], w.leaveAlone) // when it is committed, or not this worker's any more
			}
			w.begin(q, &visit{contexts[i], &works[i], party}, running)
		}
	}
	if alone {
		if !taken {
			w.alone.Store(false)
		}
		return len(works), false
	}
	return len(works), len(works) == n
}

// idleFor is how long a goroutine waits for another visit.
const idleFor = time.Second

// begin a visit on a goroutine that has run one, where there is any: its stack has the size that steps need.
func (w *Worker) begin(q *queue, v *visit, running *sync.WaitGroup) {
	running.Add(1)
	select {
	case q.idle <- v:
	default:
		go w.runVisits(q, v, running)
	}
}

// runVisits runs one visit after the other, until there is none for a while.
func (w *Worker) runVisits(q *queue, v *visit, running *sync.WaitGroup) {
	ended := w.life.picking.Done() // of this Run: there may be another
	over := time.NewTimer(idleFor)
	defer over.Stop()
	for {
		func() {
			defer running.Done() // also where the step ends its goroutine
			w.run(v, q)
		}()
		over.Reset(idleFor)
		select {
		case v = <-q.idle:
		case <-over.C:
			return
		case <-ended:
			return
		}
	}
}

// leaveAlone lets the next one be picked that is picked one at a time, of whatever queue.
func (w *Worker) leaveAlone() {
	w.alone.Store(false)
	for _, q := range w.queues {
		signal(q.sole)
	}
}

func pointers(works []store.Work) []*store.Work {
	ps := make([]*store.Work, len(works))
	for i := range works {
		ps[i] = &works[i]
	}
	return ps
}
