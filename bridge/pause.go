package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// pausePoll is how often a bridge asks which routes are paused, in one query for all.
const pausePoll = 2 * time.Second

// pauses knows which routes an operator has paused. While the journal is away what it said last holds; before it has said anything no
// route is read, as it may be paused.
type pauses struct {
	states func(context.Context) ([]engine.RouteState, error)

	mu      sync.Mutex
	known   bool
	paused  map[string]bool
	changed chan struct{} // closed by the next look
}

func newPauses(journal Journal) *pauses {
	return &pauses{states: journal.RouteStates, changed: make(chan struct{})}
}

// run looks until ctx is done. report is told why nothing is known.
func (p *pauses) run(ctx context.Context, every time.Duration, report func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := p.look(ctx); err != nil && ctx.Err() == nil && !p.isKnown() {
			report(fmt.Errorf("which are paused: %w", err))
		} else if err == nil {
			report(nil)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *pauses) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	states, err := p.states(ctx)
	if err != nil {
		return err
	}
	paused := map[string]bool{}
	for _, s := range states {
		paused[s.Name] = s.Paused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.paused = true, paused
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

func (p *pauses) isKnown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

// is says whether a route is known to be paused, or not to be.
func (p *pauses) is(route string, paused bool) (yes bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known && p.paused[route] == paused, p.changed
}

// until a route is paused, or is not; false: ctx is done.
func (p *pauses) until(ctx context.Context, route string, paused bool) bool {
	for {
		yes, changed := p.is(route, paused)
		if yes {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// whileResumed calls read with a context that ends when the route is paused.
func (p *pauses) whileResumed(ctx context.Context, route string, read func(ctx context.Context) error) (paused bool, err error) {
	reading, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer stop()
		p.until(reading, route, true)
	})
	err = read(reading)
	paused = reading.Err() != nil && ctx.Err() == nil
	stop()
	watching.Wait()
	return paused, err
}
