// Package wake tells workers over core NATS that a queue may have work, and who waits for instances that they have changed, so that
// neither need wait for their next poll.
//
// A poke or a notice is best effort: it may be lost, late or needless, and nothing depends on it but latency. Whoever commits work calls
// [Wake.Wake], and whoever runs work calls [Wake.Listen]; with changes of instances it is [Wake.Tell] and [Wake.Hear]. A Wake is what
// engine.Config.Waker takes:
//
//	w := wake.New(nc, space)
//	defer w.Close()
//	client, err := engine.NewClient(db, engine.Config{Waker: w})
package wake

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/subjects"
)

const (
	window     = 5 * time.Millisecond // in which a queue is poked once, and a topic told of once
	maxPending = 4096                 // queues; beyond it pokes are dropped
)

// Wake pokes queues and gives notices. Its methods may be called from any goroutine.
type Wake struct {
	nc    *nats.Conn
	space subjects.Space

	mu      sync.Mutex
	pending map[string]bool   // queues to poke
	more    chan struct{}     // something came into pending
	told    map[string][]byte // of topics: ids, one after the other
	news    chan struct{}     // something came into told

	stop  sync.Once
	quit  chan struct{}
	parts sync.WaitGroup
}

// New returns a Wake that publishes on nc, which stays the caller's.
func New(nc *nats.Conn, space subjects.Space) *Wake {
	w := &Wake{
		nc: nc, space: space,
		pending: map[string]bool{},
		more:    make(chan struct{}, 1),
		told:    map[string][]byte{},
		news:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
	w.parts.Go(w.run)
	w.parts.Go(w.publishNotices)
	return w
}

// Wake pokes the listeners of these queues: at once, or together with others for the same queue a few milliseconds later. It never blocks,
// and does nothing while NATS is away or after Close.
func (w *Wake) Wake(queues []string) {
	w.mu.Lock()
	for _, q := range queues {
		if len(w.pending) < maxPending {
			w.pending[q] = true
		}
	}
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Close stops the poking and the telling, and returns when it has. Who listens and hears goes on.
func (w *Wake) Close() {
	w.stop.Do(func() { close(w.quit) })
	w.parts.Wait()
}

// run publishes, since a connection whose server does not read can block who publishes.
func (w *Wake) run() {
	poked := map[string]time.Time{} // in the last window
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-w.more:
		case <-timer.C:
		}
		now := time.Now()
		for q, at := range poked {
			if now.Sub(at) >= window {
				delete(poked, q)
			}
		}
		due, wait := w.take(poked, now)
		for _, q := range due {
			poked[q] = now
			w.poke(q)
		}
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}

// take removes and returns the pending queues that were not poked in their window, and says how long until the next of the others is due.
func (w *Wake) take(poked map[string]time.Time, now time.Time) (due []string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range w.pending {
		if at, recent := poked[q]; recent {
			left := at.Add(window).Sub(now)
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		due = append(due, q)
		delete(w.pending, q)
	}
	return due, wait
}

func (w *Wake) poke(queue string) {
	// While it is away the connection would keep pokes and send them when they are stale.
	if w.nc.IsConnected() {
		_ = w.nc.Publish(w.space.Wake(queue), nil) // best effort
	}
}
