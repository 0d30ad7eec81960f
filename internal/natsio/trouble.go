package natsio

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Trouble is what a connection suffers from at the moment, for readiness. The status of a connection tells no reasons.
type Trouble struct {
	mu      sync.Mutex
	away    error
	refused error // a right that was not given
	at      time.Time
}

// refusalStands is how long a right that was refused is told of, after it was asked for.
const refusalStands = 30 * time.Second

// Err is why the connection does not stand, or which right the server has just refused; nil: nothing is known.
func (t *Trouble) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.away != nil:
		return fmt.Errorf("nats is away: %w", t.away)
	case t.refused != nil && time.Since(t.at) < refusalStands:
		return t.refused
	default:
		return nil
	}
}

func (t *Trouble) lost(err error) {
	if t == nil || err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = err
}

func (t *Trouble) back() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away, t.refused = nil, nil
}

func (t *Trouble) heard(err error) {
	if t == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused, t.at = err, time.Now()
}
