package wake

import (
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// Listen calls poke for each poke of these queues, one at a time; poke should not block. stop ends that, and when it returns poke is
// not running and is not called again; poke itself must not call it. The error is of the connection: closed or draining.
func (w *Wake) Listen(queues []string, poke func(queue string)) (stop func(), err error) {
	l := &listener{poke: poke, subs: map[string]*nats.Subscription{}}
	for _, q := range queues {
		if err := l.listen(w.nc, w.space.Wake(q), q); err != nil {
			l.stop()
			return nil, fmt.Errorf("listen to queue %s: %w", q, err)
		}
	}
	return l.stop, nil
}

type listener struct {
	poke    func(queue string)
	subs    map[string]*nats.Subscription // by subject
	mu      sync.Mutex                    // held while poke runs
	stopped bool
}

func (l *listener) listen(nc *nats.Conn, subject, queue string) error {
	if l.subs[subject] != nil {
		return nil
	}
	sub, err := nc.Subscribe(subject, func(*nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.stopped {
			l.poke(queue)
		}
	})
	if err != nil {
		return err
	}
	l.subs[subject] = sub
	return nil
}

func (l *listener) stop() {
	for _, sub := range l.subs {
		_ = sub.Unsubscribe() // fails only on a closed connection, which has none, and when it is stopped again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}
