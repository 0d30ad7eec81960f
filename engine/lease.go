package engine

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// leases is what this worker executes.
type leases struct {
	length time.Duration

	mu        sync.Mutex
	extended  time.Time          // when the leases were last known to stand
	remaining map[uuid.UUID]int  // of each lease, what is not settled
	dropping  map[uuid.UUID]bool // leases that the commit of their last instances drops
	running   map[store.Leased]context.CancelCauseFunc
}

func newLeases(length time.Duration) *leases {
	return &leases{length: length, remaining: map[uuid.UUID]int{}, dropping: map[uuid.UUID]bool{}, running: map[store.Leased]context.CancelCauseFunc{}}
}

// add takes up picked instances, and returns the context in which to execute each. An instance is here twice when its lease ran
// out and this worker picked it again, while the step of the first time still runs.
func (l *leases) add(working context.Context, works []*store.Work) []context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.remaining) == 0 {
		l.extended = time.Now()
	}
	contexts := make([]context.Context, len(works))
	for i, work := range works {
		ctx, cancel := context.WithCancelCause(working)
		contexts[i] = ctx
		l.remaining[work.Token]++
		l.running[store.Leased{Token: work.Token, ID: work.ID}] = cancel
	}
	return contexts
}

// last returns the leases of which nothing is left after this group.
func (l *leases) last(group []finished) []uuid.UUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[uuid.UUID]int{}
	for _, f := range group {
		count[f.outcome.Token]++
	}
	tokens := []uuid.UUID{}
	for token, n := range count {
		l.dropping[token] = l.remaining[token] == n
		if l.dropping[token] {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// remove forgets what has been settled. It returns the leases of which nothing is left and that no commit has dropped: two that
// went on at the same time had the rest of one.
func (l *leases) remove(group []finished) (orphans []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range group {
		key := store.Leased{Token: f.outcome.Token, ID: f.outcome.ID}
		if cancel := l.running[key]; cancel != nil {
			cancel(nil)
			delete(l.running, key)
		}
		if l.remaining[key.Token]--; l.remaining[key.Token] > 0 {
			continue
		}
		if !l.dropping[key.Token] {
			orphans = append(orphans, key.Token)
		}
		delete(l.remaining, key.Token)
		delete(l.dropping, key.Token)
	}
	return orphans
}

func (l *leases) tokens() (tokens []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for token := range l.remaining {
		tokens = append(tokens, token)
	}
	return tokens
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.running)
}

// lose cancels the steps of whole leases, and of single instances, that are no longer this worker's.
func (l *leases) lose(tokens []uuid.UUID, moved []store.Leased) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := map[uuid.UUID]bool{}
	for _, token := range tokens {
		gone[token] = true
	}
	for key, cancel := range l.running {
		if gone[key.Token] {
			cancel(ErrLeaseLost)
		}
	}
	// Most of what has moved did so by this worker's own commits, and may be executing here again under another lease.
	for _, key := range moved {
		if cancel := l.running[key]; cancel != nil {
			cancel(ErrLeaseLost)
		}
	}
}

func (l *leases) stand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extended = time.Now()
}

// expired reports whether the leases have not been extended for their length.
func (l *leases) expired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.extended) > l.length
}

// heartbeatLoop extends the leases. When the database has been away for the length of a lease, another worker may have what this
// one executes, so its steps are canceled; if nobody has, their outcomes count all the same.
func (w *Worker) heartbeatLoop(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := w.heartbeat(ctx)
		if ctx.Err() != nil {
			return
		}
		w.health.set(w.log, "heartbeat", err)
	}
}

func (w *Worker) heartbeat(ctx context.Context) error {
	tokens := w.leases.tokens()
	if len(tokens) == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat)
	defer cancel()
	gone, moved, err := w.store.Extend(call, tokens, w.cfg.Lease)
	if err != nil {
		if w.leases.expired() {
			w.leases.lose(tokens, nil)
		}
		return err
	}
	w.leases.stand()
	w.leases.lose(gone, moved)
	return nil
}
