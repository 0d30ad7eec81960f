package wake

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

const (
	idSize         = len(uuid.UUID{})
	maxNotice      = 1024 * idSize         // of one message
	maxTold        = 64 * maxNotice        // of a topic, not yet published; beyond it notices are dropped
	flushTime      = 5 * time.Second       // how long to wait for the server to know of a subscription
	maxUnread      = 1024                  // messages that wait for a slow hearer; NATS drops the others
	maxUnreadBytes = maxUnread * maxNotice // bytes of them
)

// Tell gives notice of these ids to whoever hears the topic, which is one subject token: at once, or together with others of the same topic
// a few milliseconds later. It never blocks, and does nothing while NATS is away or after Close.
func (w *Wake) Tell(topic string, ids []uuid.UUID) {
	w.mu.Lock()
	told := w.told[topic]
	for i := range ids {
		if len(told) == maxTold {
			break
		}
		told = append(told, ids[i][:]...)
	}
	w.told[topic] = told
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// publishNotices publishes what has come together in each window; it is apart from run for the same reason, and what is told last before
// Close still goes out: who commits the last group of a worker tells of it.
func (w *Wake) publishNotices() {
	spare := map[string][]byte{}
	for closing := false; !closing; {
		select {
		case <-w.quit:
			closing = true
		case <-w.news:
		}
		spare = w.takeTold(spare)
		for topic, told := range spare {
			w.publish(topic, told)
			spare[topic] = told[:0]
		}
		if closing {
			return
		}
		select {
		case <-w.quit:
		case <-time.After(window):
		}
	}
}

// takeTold gives room for more in exchange.
func (w *Wake) takeTold(room map[string][]byte) map[string][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = room
	return told
}

func (w *Wake) publish(topic string, told []byte) {
	for len(told) > 0 && w.nc.IsConnected() { // as of pokes, stale ones are worth nothing
		n := min(len(told), maxNotice)
		_ = w.nc.Publish(w.space.Notice(topic), told[:n]) // best effort
		told = told[n:]
	}
}

// Hear calls heard with the ids that others tell of under this topic, and with those told here, from one goroutine; heard should not block.
// When Hear returns the server knows of it, if it can be reached. stop ends that; heard may run once more while it does.
// The error is of the connection: closed or draining.
func (w *Wake) Hear(topic string, heard func(ids []uuid.UUID)) (stop func(), err error) {
	sub, err := w.nc.Subscribe(w.space.Notice(topic), func(m *nats.Msg) { heard(idsOf(m.Data)) })
	if err != nil {
		return nil, fmt.Errorf("hear %s: %w", topic, err)
	}
	_ = sub.SetPendingLimits(maxUnread, maxUnreadBytes) // fails only on a closed one
	if w.nc.IsConnected() {
		_ = w.nc.FlushTimeout(flushTime) // best effort
	}
	return sync.OnceFunc(func() { _ = sub.Unsubscribe() }), nil // fails only on a closed connection, which has none
}

// idsOf reads a notice. What is no whole id at its end is nothing.
func idsOf(body []byte) []uuid.UUID {
	ids := make([]uuid.UUID, len(body)/idSize)
	for i := range ids {
		copy(ids[i][:], body[i*idSize:])
	}
	return ids
}
