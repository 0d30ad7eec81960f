package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// health keeps what is wrong now, by part, and logs each change of it once.
type health struct {
	mu    sync.Mutex
	wrong map[string]error
}

func (h *health) set(log *slog.Logger, part string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.wrong[part]
	switch {
	case err != nil && was == nil:
		log.Warn("database trouble: trying again", "part", part, "error", err)
	case err == nil && was != nil:
		log.Info("database trouble is over", "part", part)
	}
	if err == nil {
		delete(h.wrong, part)
		return
	}
	if h.wrong == nil {
		h.wrong = map[string]error{}
	}
	h.wrong[part] = err
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, part := range slices.Sorted(maps.Keys(h.wrong)) {
		errs = append(errs, fmt.Errorf("%s: %w", part, h.wrong[part]))
	}
	return errors.Join(errs...)
}
