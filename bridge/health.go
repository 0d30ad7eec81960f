package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// health knows which parts of a bridge cannot do their work at the moment, and why. It logs when a part's trouble begins and when
// it ends, never in between, so that an outage is two lines however long it lasts and however often it is retried.
type health struct {
	log *slog.Logger

	mu      sync.Mutex
	trouble map[string]error
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
	return &health{log: log, trouble: map[string]error{}}
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
	}
}

// report takes the present state of a part: nil is well.
func (h *health) report(part string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock() // also while it logs: lines stand in the order of the states
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
