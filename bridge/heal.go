package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// maxStalls is how many sessions in a row may stall, without a message between, before the consumer itself is taken for the cause.
const maxStalls = 2

// beginAfter makes a new consumer begin after a sequence. One of a work queue has to begin at the first message, and what was acked is
// not there any more.
func beginAfter(cfg jetstream.ConsumerConfig, stream jetstream.Stream, seq uint64) jetstream.ConsumerConfig {
	if seq > 0 && stream.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, seq+1
	}
	return cfg
}

// doubt says what is wrong with a consumer that was found, or "".
func (c *consumer) doubt(info *jetstream.ConsumerInfo, cp engine.Checkpoint, known bool) string {
	switch {
	case cp.Rewound:
		return "the route was rewound"
	case c.stalls >= maxStalls:
		return fmt.Sprintf("has delivered nothing in %d sessions", c.stalls)
	case known && !sameTime(info.Created, cp.Consumer) && info.Created.After(cp.Consumer) && skips(info.Config, cp.Seq):
		return fmt.Sprintf("was made again by others and skips messages after %d", cp.Seq)
	default:
		return ""
	}
}

// skips reports whether a consumer may have begun later than after a sequence.
func skips(cfg jetstream.ConsumerConfig, seq uint64) bool {
	switch cfg.DeliverPolicy {
	case jetstream.DeliverAllPolicy:
		return false
	case jetstream.DeliverByStartSequencePolicy:
		return cfg.OptStartSeq > seq+1
	default:
		return true
	}
}

// rebuild makes the consumer again, from where the route had come to. Nil: it must not be, because the stream keeps messages only as
// long as a consumer wants them.
func (c *consumer) rebuild(ctx context.Context, stream jetstream.Stream, cons jetstream.Consumer, cp engine.Checkpoint, why string) (jetstream.Consumer, error) {
	info := stream.CachedInfo()
	if info.Config.Retention != jetstream.LimitsPolicy {
		c.log.Warn("a consumer is left as it is: without one the stream drops its messages", "stream", c.route.Stream, "consumer", c.route.durable, "retention", info.Config.Retention, "why", why)
		return nil, nil
	}
	from := cp.Seq
	if c.stalls >= maxStalls && !cp.Rewound { // its acks are good, whatever else is not
		from = max(from, cons.CachedInfo().AckFloor.Stream)
	}
	c.log.Warn("a consumer is made again", "stream", c.route.Stream, "consumer", c.route.durable, "after", from, "why", why)
	if err := stream.DeleteConsumer(ctx, c.route.durable); err != nil {
		return nil, err
	}
	c.stalls = 0
	return stream.CreateConsumer(ctx, beginAfter(c.route.consumerConfig(), stream, from))
}

// checkpoint writes down how far the consumer has come. What is not written now is with the next one; that the route was rewound meanwhile
// is the error.
func (c *consumer) checkpoint(ctx context.Context, b binding, info *jetstream.ConsumerInfo, saved uint64) (uint64, error) {
	floor := info.AckFloor.Stream
	if floor <= saved {
		return saved, nil
	}
	made := b.consumer.CachedInfo().Created
	err := c.journal.SaveCheckpoint(ctx, c.incarnation(b), engine.Checkpoint{Seq: floor, Consumer: made, First: made, Rewinds: b.rewinds})
	switch {
	case errors.Is(err, engine.ErrRewound):
		return saved, err
	case err != nil:
		c.log.Debug("checkpoint", "error", err)
		return saved, nil
	}
	return floor, nil
}

// sameTime compares with the precision of the journal.
func sameTime(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}
