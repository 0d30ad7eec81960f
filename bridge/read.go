package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/tracing"
)

// delivery is a message in hand, with what the route made of it.
type delivery struct {
	acker
	*message
	mapping
	span *tracing.Span // until it is settled
}

// acker answers for a message to its consumer.
type acker interface {
	Ack() error
	NakWithDelay(delay time.Duration) error
	InProgress() error
}

// reader is the first part of a session: it maps messages one by one, in the order of the stream.
type reader struct {
	*consumer
	binding binding
	ctx     context.Context // of the session
	out     chan delivery
	gone    chan struct{} // closed when nothing more is to be read
	failed  chan error

	order      *order // nil: messages go on as they come
	parked     []delivery
	stuck      chan struct{} // something is parked
	halt       func()        // nothing more is pulled over the subscription; nil: no more than what was asked for comes
	patience   *time.Timer
	last       uint64 // consumer sequence
	reconnects uint64
	broken     bool
}

func newReader(ctx context.Context, c *consumer, b binding) *reader {
	c.waiting.Store(time.Now().UnixNano())
	c.slow.Store(false)
	c.full.Store(false)
	c.heard.Store(false)
	c.gaveUp = false
	r := &reader{
		consumer: c, binding: b, ctx: ctx, reconnects: c.conn.Stats().Reconnects,
		out: make(chan delivery), gone: make(chan struct{}), failed: make(chan error, 1),
		stuck: make(chan struct{}, 1), patience: time.NewTimer(c.route.ackWait),
	}
	if c.route.Ordered {
		r.order = newOrder()
	}
	return r
}

// fail ends the session; the first failure counts.
func (r *reader) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// read a message and pass it on. While nobody takes it the subscription stands still, and nothing more is pulled.
func (r *reader) read(a acker, m *message, consumerSequence uint64) {
	r.waiting.Store(0)
	r.heard.Store(true)
	defer func() { r.waiting.Store(time.Now().UnixNano()) }()
	if r.broken {
		return // not acked, so it comes again in the next session
	}
	if err := r.locate(m, consumerSequence); err != nil {
		r.broken = true
		r.fail(err)
		return
	}
	d := delivery{acker: a, message: m, mapping: r.route.mapMessage(m)}
	d.startSpan(r.consumer)
	if r.order != nil && r.order.keep(d) {
		return
	}
	r.pass(d)
}

// pass a message on. When nobody takes it for long it is parked, with all that has come after it: nobody could extend the acks of those
// that wait in the subscription.
func (r *reader) pass(d delivery) {
	if len(r.parked) > 0 {
		r.parked = append(r.parked, d)
		return
	}
	r.patience.Reset(r.route.ackWait / 3)
	select {
	case r.out <- d:
	case <-r.gone:
	case <-r.patience.C:
		_ = d.InProgress()
		r.parked = append(r.parked, d)
		r.slow.Store(true)
		if r.halt != nil {
			r.halt()
		}
		r.stuck <- struct{}{}
	}
}

// unpark passes on what is parked, when nothing more can come.
func (r *reader) unpark() {
	r.passAll(r.parked)
	r.parked = nil
	r.slow.Store(false)
	select {
	case <-r.stuck:
	default:
	}
}

// passAll passes messages on, and extends their acks meanwhile.
func (r *reader) passAll(ds []delivery) {
	if len(ds) == 0 {
		return
	}
	r.waiting.Store(0)
	defer func() { r.waiting.Store(time.Now().UnixNano()) }()
	inProgress(ds)
	tick := time.NewTicker(r.route.ackWait / 3)
	defer tick.Stop()
	for len(ds) > 0 {
		select {
		case r.out <- ds[0]:
			ds = ds[1:]
		case <-r.gone:
			return
		case <-tick.C:
			inProgress(ds)
		}
	}
}

// locate says where a message stands, and where it stood first.
func (r *reader) locate(m *message, consumerSequence uint64) (err error) {
	if r.last == 0 {
		r.report(nil)
	}
	if r.route.Existing != "" {
		r.last = consumerSequence
		// Without a right to ask for the stream, the time of the message stands for the stream's: it tells incarnations apart as well.
		// And without one to ask for the consumer, any message may have been read before.
		m.created, m.seenBefore = m.stored, true
		m.origin = engine.Origin{Stream: m.stream, Created: m.created, Sequence: m.sequence}
		return nil
	}
	// The consumer's own sequence only grows, as long as it is the same consumer. When it does not, or after the connection was
	// away, stream or consumer may have been made again, and what was just read would be taken for the old stream's, or for new.
	if n := r.conn.Stats().Reconnects; n != r.reconnects || consumerSequence <= r.last {
		if err := r.verify(); err != nil {
			return err
		}
		if consumerSequence <= r.last {
			return errMadeAgain
		}
		r.reconnects = n
	}
	if r.order != nil {
		if err := r.order.follows(consumerSequence); err != nil {
			return err
		}
	}
	r.last = consumerSequence
	m.created, m.mirrors = r.binding.created, r.binding.mirrors
	m.seenBefore = m.deliveries > 1 || m.stored.Before(r.binding.since)
	m.origin, err = retry(r.ctx, r.report, func() (engine.Origin, error) { return r.origins.of(r.ctx, m) })
	return err
}

// verify that stream and consumer are still those of the binding.
func (r *reader) verify() error {
	created, err := retry(r.ctx, r.report, func() (time.Time, error) {
		s, err := r.js.Stream(r.ctx, r.route.Stream)
		if err != nil {
			return time.Time{}, fmt.Errorf("stream %s: %w", r.route.Stream, err)
		}
		return s.CachedInfo().Created, nil
	})
	if err != nil {
		return err
	}
	if !created.Equal(r.binding.created) {
		return fmt.Errorf("stream %s was made again", r.route.Stream)
	}
	made, err := retry(r.ctx, r.report, func() (time.Time, error) {
		c, err := r.js.Consumer(r.ctx, r.route.Stream, r.route.durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return time.Time{}, nil // it is gone
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("consumer %s: %w", r.route.durable, err)
		}
		return c.CachedInfo().Created, nil
	})
	if err != nil {
		return err
	}
	if !sameTime(made, r.binding.consumer.CachedInfo().Created) {
		return errMadeAgain
	}
	return nil
}
