package wake

import (
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

const listenBuffer = 256 // pokes that wait for a slow poke function; NATS drops the others

// Listen calls poke for each poke of these queues, from one goroutine; poke should not block. stop ends that, and when it returns poke is
// not running and is not called again; poke itself must not call it. The error is of the connection: closed or draining.
func (w *Wake) Listen(queues []string, poke func(queue string)) (stop func(), err error) {
	l := &listener{
		pokes: make(chan *nats.Msg, listenBuffer),
		queue: map[string]string{},
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	for _, q := range queues {
		subject := w.space.Wake(q)
		if _, twice := l.queue[subject]; twice {
			continue
		}
		sub, err := w.nc.ChanSubscribe(subject, l.pokes)
		if err != nil {
			l.unsubscribe()
			return nil, fmt.Errorf("listen to queue %s: %w", q, err)
		}
		l.subs, l.queue[subject] = append(l.subs, sub), q
	}
	go l.run(poke)
	return sync.OnceFunc(l.stop), nil
}

type listener struct {
	subs  []*nats.Subscription
	pokes chan *nats.Msg
	queue map[string]string // by subject
	quit  chan struct{}
	done  chan struct{}
}

func (l *listener) run(poke func(queue string)) {
	defer close(l.done)
	for {
		select {
		case <-l.quit:
			return
		case m, ok := <-l.pokes:
			if !ok {
				return // the connection was closed
			}
			poke(l.queue[m.Subject])
		}
	}
}

func (l *listener) stop() {
	l.unsubscribe()
	close(l.quit)
	<-l.done
}

func (l *listener) unsubscribe() {
	for _, sub := range l.subs {
		_ = sub.Unsubscribe() // fails only on a closed connection, which has none
	}
}
