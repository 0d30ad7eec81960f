package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// health knows which parts of a bridge cannot do their work at the moment, and why. It logs when a part's trouble begins and when
// it ends, never in between, so that an outage is two lines however long it lasts and however often it is retried.
type health struct {
	log *slog.Logger

	mu      sync.Mutex
	trouble map[string]error
	expiry  map[string]*time.Timer // of trouble that another bridge may be rid of before this one hears of it
}

// The parts of a bridge.
const (
	partStreams  = "streams"
	partRelay    = "relay"
	partPauses   = "routes"
	partOutcomes = "outcomes"
)

func partRoute(route string) string       { return "route " + route }
func partInbox(route string) string       { return "inbox for route " + route }
func partDeadLetters(route string) string { return "dead letters of route " + route }

// errStarting is the trouble of a part that has not reported yet.
var errStarting = errors.New("is starting")

func newHealth(log *slog.Logger) *health {
	return &health{log: log, trouble: map[string]error{}, expiry: map[string]*time.Timer{}}
}

// expect a first report of a part: until then the bridge is not ready.
func (h *health) expect(part string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble[part] = errStarting
}

// forget parts that are no more.
func (h *health) forget(parts ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range parts {
		delete(h.trouble, part)
		h.stopExpiry(part)
	}
}

func (h *health) stopExpiry(part string) {
	if timer := h.expiry[part]; timer != nil {
		timer.Stop()
		delete(h.expiry, part)
	}
}

// reportFor is report of an attempt that is made again in this time, by this bridge or by another, which does not tell. Trouble of that kind is over
// when nothing has been heard of it for so long.
func (h *health) reportFor(part string, err error, again time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(part, err)
	if err == nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(again+attemptTimeout, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.expiry[part] == timer {
			h.set(part, nil)
		}
	})
	h.expiry[part] = timer
}

// attemptTimeout is how long an attempt takes that hears nothing, at most, with what it waits for before.
const attemptTimeout = 2 * publishTimeout

// report takes the present state of a part: nil is well.
func (h *health) report(part string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(part, err)
}

// set is called with the lock, also while it logs: lines stand in the order of the states.
func (h *health) set(part string, err error) {
	h.stopExpiry(part)
	before, known := h.trouble[part]
	if err == nil {
		delete(h.trouble, part)
		if known {
			h.log.Info("ready", "part", part)
		}
		return
	}
	h.trouble[part] = err
	if !known || errors.Is(before, errStarting) {
		h.log.Warn("not ready", "part", part, "error", err)
	}
}

// err joins what troubles the parts, in the order of their names; nil when all are well.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, part := range slices.Sorted(maps.Keys(h.trouble)) {
		errs = append(errs, fmt.Errorf("%s: %w", part, h.trouble[part]))
	}
	return errors.Join(errs...)
}

// of joins what troubles these parts.
func (h *health) of(parts ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, part := range parts {
		errs = append(errs, h.trouble[part])
	}
	return errors.Join(errs...)
}
