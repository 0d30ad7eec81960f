package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// binding is a route's consumer as a session found or made it; zero for one that others made, of which nothing is asked.
type binding struct {
	consumer jetstream.Consumer
	created  time.Time // of the stream: its incarnation
	mirrors  string    // the stream that this one is a mirror of
	rewinds  int64     // of the route when it was bound
	since    time.Time // what the stream had before may have been read by another consumer of the route; zero: there was none
}

// bind finds the route's stream and consumer, and makes or updates the consumer. A new one begins where the route had come to in this
// incarnation of the stream, and what that was is written down before anything is read.
func (c *consumer) bind(ctx context.Context) (binding, error) {
	if c.route.Existing != "" {
		return binding{}, nil
	}
	stream, err := c.js.Stream(ctx, c.route.Stream)
	if err != nil {
		return binding{}, fmt.Errorf("stream %s: %w", c.route.Stream, err)
	}
	b := binding{created: stream.CachedInfo().Created}
	if m := stream.CachedInfo().Config.Mirror; m != nil && m.External == nil {
		b.mirrors = m.Name
	}
	cp, known, err := c.journal.Checkpoint(ctx, c.incarnation(b))
	if err != nil {
		return binding{}, fmt.Errorf("checkpoint: %w", err)
	}
	if b.consumer, err = c.ensureConsumer(ctx, stream, cp, known); err != nil {
		return binding{}, fmt.Errorf("consumer %s of stream %s: %w", c.route.durable, c.route.Stream, err)
	}
	made := b.consumer.CachedInfo().Created
	if !known {
		cp.First = made
	}
	if !sameTime(made, cp.First) {
		b.since = made
	}
	cp.Consumer, b.rewinds = made, cp.Rewinds
	if err := c.journal.SaveCheckpoint(ctx, c.incarnation(b), cp); err != nil {
		return binding{}, fmt.Errorf("checkpoint: %w", err)
	}
	return b, nil
}

// ensureConsumer returns the durable consumer, made if absent, updated if it differs in what may be changed in place. Where it began
// to read is left as it is: it may have been rewound.
func (c *consumer) ensureConsumer(ctx context.Context, stream jetstream.Stream, cp engine.Checkpoint, known bool) (jetstream.Consumer, error) {
	want := c.route.consumerConfig()
	cons, err := stream.Consumer(ctx, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return stream.CreateConsumer(ctx, beginAfter(want, stream, cp.Seq))
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) && cp.Rewound {
		if rebuilt, e := c.rebuild(ctx, stream, nil, cp, err.Error()); rebuilt != nil || e != nil {
			return rebuilt, e
		}
	}
	if err != nil {
		return nil, err
	}
	have := cons.CachedInfo().Config
	unfit := checkConsumer(have)
	if unfit != nil && !cp.Rewound {
		return nil, unfit
	}
	if why := c.doubt(cons.CachedInfo(), cp, known); why != "" {
		if rebuilt, err := c.rebuild(ctx, stream, cons, cp, why); rebuilt != nil || err != nil {
			return rebuilt, err
		}
	}
	if unfit != nil {
		return nil, unfit
	}
	next := have
	next.Description, next.AckWait, next.BackOff = want.Description, want.AckWait, nil
	next.MaxDeliver, next.MaxAckPending = want.MaxDeliver, want.MaxAckPending
	if !slices.Equal(filters(have), filters(want)) {
		next.FilterSubject, next.FilterSubjects = want.FilterSubject, want.FilterSubjects
	}
	if !sameConsumer(have, next) {
		return stream.UpdateConsumer(ctx, next)
	}
	return cons, nil
}

// checkConsumer refuses a consumer that a route cannot use and that cannot be turned into one that it can.
func checkConsumer(cfg jetstream.ConsumerConfig) error {
	if cfg.DeliverSubject != "" {
		return errors.New("is a push consumer; a route needs a pull consumer")
	}
	if cfg.AckPolicy != jetstream.AckExplicitPolicy {
		return fmt.Errorf("has ack policy %q; a route needs explicit acks", cfg.AckPolicy)
	}
	return nil
}

func sameConsumer(a, b jetstream.ConsumerConfig) bool {
	return a.Description == b.Description && a.AckWait == b.AckWait && len(a.BackOff) == len(b.BackOff) &&
		a.MaxDeliver == b.MaxDeliver && a.MaxAckPending == b.MaxAckPending && slices.Equal(filters(a), filters(b))
}

// filters of a consumer, sorted; the server writes one as FilterSubject and several as FilterSubjects.
func filters(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return slices.Sorted(slices.Values(cfg.FilterSubjects))
}

// consumerConfig is the durable consumer that a route wants.
func (rt *route) consumerConfig() jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Durable:       rt.durable,
		Description:   "pointsman route " + rt.Name,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       rt.ackWait,
		// The server's count cannot tell an outage from a bad message, and strands what exceeds it. The bridge counts itself.
		MaxDeliver:    -1,
		MaxAckPending: rt.maxAckPending,
	}
	if len(rt.Subjects) == 1 {
		cfg.FilterSubject = rt.Subjects[0]
	} else {
		cfg.FilterSubjects = rt.Subjects
	}
	return cfg
}
