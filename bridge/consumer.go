package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// binding is a route's consumer as a session found or made it; zero for one that others made, of which nothing is asked.
type binding struct {
	consumer jetstream.Consumer
	created  time.Time // of the stream: its incarnation
	mirrors  string    // the stream that this one is a mirror of
	since    time.Time // when the consumer was created: what the stream had before may have been read by another before it
}

// bind finds the route's stream and consumer, and makes or updates the consumer.
func (c *consumer) bind(ctx context.Context) (binding, error) {
	if c.route.Existing != "" {
		return binding{}, nil
	}
	stream, err := c.js.Stream(ctx, c.route.Stream)
	if err != nil {
		return binding{}, fmt.Errorf("stream %s: %w", c.route.Stream, err)
	}
	cons, err := ensureConsumer(ctx, stream, c.route.consumerConfig())
	if err != nil {
		return binding{}, fmt.Errorf("consumer %s of stream %s: %w", c.route.durable, c.route.Stream, err)
	}
	b := binding{consumer: cons, created: stream.CachedInfo().Created, since: cons.CachedInfo().Created}
	if m := stream.CachedInfo().Config.Mirror; m != nil && m.External == nil {
		b.mirrors = m.Name
	}
	return b, nil
}

// ensureConsumer returns the durable consumer, made if absent, updated if it differs in what may be changed in place. Where it began
// to read is left as it is: it may have been rewound.
func ensureConsumer(ctx context.Context, stream jetstream.Stream, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	cons, err := stream.Consumer(ctx, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return stream.CreateConsumer(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	have := cons.CachedInfo().Config
	if err := checkConsumer(have); err != nil {
		return nil, err
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
