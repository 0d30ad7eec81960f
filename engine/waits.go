package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

const (
	maxWaits = 50_000 // in one client; each costs some hundred bytes, and a look every few seconds

	gather    = 2 * time.Millisecond // in which what is to be looked at comes together
	slowest   = 5                    // times the poll interval: how long a wait goes without a look at most
	pollSteps = 10                   // to an interval: polls that are due within a step are made together
)

// waits are who waits for an instance, or for a trigger, in this process. While there are any, one goroutine attends to them. It hears notices before it
// looks the first time, so that a change is either seen or told of; where a notice is lost, it looks by itself.
type waits[T any] struct {
	view  view[T]
	waker Waker
	poll  time.Duration
	log   *slog.Logger
	more  chan struct{} // something is due, or somebody left

	mu       sync.Mutex
	of       map[uuid.UUID][]*wait[T] // by instance
	count    int
	watching int                // of them want every change
	due      map[uuid.UUID]bool // instances to look at
	pollAt   time.Time          // when somebody's own time comes, not much later
	stop     context.CancelFunc // of the goroutine that attends
}

// view is how those that are waited for are seen.
type view[T any] struct {
	ended, changed string // topics of notices; changed "": there is no change but the end
	standings      func(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]store.Standing, error)
	read           func(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]T, error)
	live           func(T) bool
	gone           error // there is none
}

// wait is one of them.
type wait[T any] struct {
	ref   Ref
	every bool          // change, not the end alone
	seen  chan sight[T] // holds the latest
	pause time.Duration
	next  time.Time // when to look where no notice comes
}

// sight is what a wait was for.
type sight[T any] struct {
	of  T
	err error
}

func newWaits[T any](v view[T], waker Waker, poll time.Duration, log *slog.Logger) *waits[T] {
	return &waits[T]{view: v, waker: waker, poll: poll, log: log, more: make(chan struct{}, 1), of: map[uuid.UUID][]*wait[T]{}, due: map[uuid.UUID]bool{}}
}

func (ws *waits[T]) size() int64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return int64(ws.count)
}

// enter begins a wait for an instance by id, which [waits.leave] has to end.
func (ws *waits[T]) enter(ref Ref, every bool) (*wait[T], error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count == maxWaits {
		return nil, ErrTooManyWaits
	}
	w := &wait[T]{ref: ref, every: every, seen: make(chan sight[T], 1), pause: ws.poll}
	ws.of[ref.id] = append(ws.of[ref.id], w)
	ws.count++
	if every {
		ws.watching++
	}
	ws.due[ref.id] = true
	if ws.stop == nil {
		var ctx context.Context
		ctx, ws.stop = context.WithCancel(context.Background())
		ws.pollAt = time.Now().Add(slowest * ws.poll)
		go ws.attend(ctx)
	}
	signal(ws.more)
	return w, nil
}

// leave ends a wait, and with the last one all work for them.
func (ws *waits[T]) leave(w *wait[T]) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	others := slices.DeleteFunc(ws.of[w.ref.id], func(o *wait[T]) bool { return o == w })
	if ws.of[w.ref.id] = others; len(others) == 0 {
		delete(ws.of, w.ref.id)
		delete(ws.due, w.ref.id)
	}
	ws.count--
	if w.every {
		ws.watching--
	}
	if ws.count == 0 {
		ws.stop()
		ws.stop = nil
	}
	signal(ws.more)
}

// heard takes a notice.
func (ws *waits[T]) heard(topic string, ids []uuid.UUID) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count == 0 {
		return
	}
	news := false
	for _, id := range ids {
		if slices.ContainsFunc(ws.of[id], func(w *wait[T]) bool { return w.every || topic == ws.view.ended }) {
			ws.due[id], news = true, true
		}
	}
	if news {
		signal(ws.more)
	}
}

// attend looks at what is due until nobody waits any more.
func (ws *waits[T]) attend(ctx context.Context) {
	ears := ears{}
	defer ears.close()
	defer signal(ws.more) // what it took last may have been for the goroutine after it
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		ws.listen(ears)
		batch, next := ws.take(ctx)
		ws.look(ctx, batch)
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			continue
		case <-ws.more:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
	}
}

// ears are the topics that are heard, with what ends it.
type ears map[string]func()

func (e ears) close() {
	for _, stop := range e {
		stop()
	}
}

// listen hears other processes, of changes that are no end only while somebody wants to know.
func (ws *waits[T]) listen(e ears) {
	if ws.waker == nil {
		return
	}
	ws.mu.Lock()
	wanted := map[string]bool{ws.view.ended: true}
	if ws.view.changed != "" {
		wanted[ws.view.changed] = ws.watching > 0
	}
	ws.mu.Unlock()
	for topic, want := range wanted {
		stop, hears := e[topic]
		switch {
		case want && !hears:
			stop, err := ws.waker.Hear(topic, func(ids []uuid.UUID) { ws.heard(topic, ids) })
			if err != nil {
				ws.log.Warn("no notices from other processes: waits only poll", "error", err)
				stop = func() {}
			}
			e[topic] = stop
		case !want && hears:
			stop()
			delete(e, topic)
		}
	}
}

// take returns who is to be served by a look that begins now, by instance, and when somebody's own time comes next. Who enters later is not
// among them: what the look sees may be older than what he knows.
func (ws *waits[T]) take(ctx context.Context) (batch map[uuid.UUID][]*wait[T], next time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ctx.Err() != nil {
		return nil, next // what is due is for the goroutine that came after this one
	}
	now := time.Now()
	if !now.Before(ws.pollAt) {
		ws.pollDue(now)
	}
	batch = make(map[uuid.UUID][]*wait[T], len(ws.due))
	for id := range ws.due {
		batch[id] = slices.Clone(ws.of[id])
		for _, w := range batch[id] {
			ws.schedule(w, now)
			w.pause = min(w.pause*3/2, slowest*ws.poll)
		}
	}
	clear(ws.due)
	return batch, ws.pollAt
}

// pollDue adds those whose own time has come.
func (ws *waits[T]) pollDue(now time.Time) {
	ws.pollAt = now.Add(slowest * ws.poll)
	for id, all := range ws.of {
		for _, w := range all {
			if w.next.After(now) {
				ws.pollAt = earlier(ws.pollAt, w.next)
			} else {
				ws.due[id] = true
			}
		}
	}
	if step := now.Add(ws.poll / pollSteps); ws.pollAt.Before(step) {
		ws.pollAt = step
	}
}

// schedule says when to look for w again, a quarter sooner or later: they should not all come at once.
func (ws *waits[T]) schedule(w *wait[T], now time.Time) {
	w.next = now.Add(time.Duration(float64(w.pause) * (0.75 + rand.Float64()/2)))
	ws.pollAt = earlier(ws.pollAt, w.next)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
