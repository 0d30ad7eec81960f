package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// alarm is the time of the next sweep, which may come to be earlier while the sweep sleeps.
type alarm struct {
	mu      sync.Mutex
	at      time.Time
	earlier chan struct{}
}

func newAlarm() *alarm { return &alarm{earlier: make(chan struct{}, 1)} }

// set forgets the time before. What is committed from here on and due before d is over has to be said with [alarm.by].
func (a *alarm) set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Now().Add(d)
}

// by says that something is due after d.
func (a *alarm) by(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := time.Now().Add(d); at.Before(a.at) {
		a.at = at
		signal(a.earlier)
	}
}

// sleep returns at the time, but not before least is over.
func (a *alarm) sleep(ctx context.Context, least time.Duration) {
	for begin := time.Now(); ; {
		a.mu.Lock()
		wait := max(time.Until(a.at), least-time.Since(begin))
		a.mu.Unlock()
		if wait <= 0 {
			return
		}
		over := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			over.Stop()
			return
		case <-over.C:
		case <-a.earlier:
			over.Stop()
		}
	}
}

// due tells the reap loop of the delays and deadlines of a group.
func (w *Worker) due(group []finished, settled *store.Settled) {
	var soonest *time.Duration
	for i := range group {
		if o := &group[i].outcome; o.Delay != nil && settled.Counted(o) && (soonest == nil || *o.Delay < *soonest) {
			soonest = o.Delay
		}
	}
	if soonest != nil {
		w.reap.by(*soonest)
	}
}
