package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// Place in a stream: the message with a sequence, or the first one that was stored at a time or later.
type Place struct {
	Seq  uint64 // 0: by Time
	Time time.Time
}

// Rewound says where a route reads on.
type Rewound struct {
	Stream  string
	Seq     uint64 // the first that comes again, if the stream still has it
	Pending uint64 // messages that come
}

// Rewind makes a route read again from a place on. It sets the checkpoint back and makes the consumer again, in this order, so that who
// dies between leaves the rest to the next bridge that binds; bridges that run notice that their consumer is gone, and read on with the
// new one. What was taken in is a duplicate, what they had in hand too. Of several rewinds at once the one that goes back furthest holds.
//
// The error is an [engine.InvalidError] where the place is one that the route has not come to, which would be a leap, and where the stream
// does not keep what was acked, or the consumer is made by others.
func (o *Operator) Rewind(ctx context.Context, name string, to Place) (Rewound, error) {
	rt, stream, seq, err := o.place(ctx, name, to)
	if err != nil {
		return Rewound{}, err
	}
	c := o.consumer(rt)
	if err := c.setBack(ctx, stream, seq-1); err != nil {
		return Rewound{}, err
	}
	b, err := c.remake(ctx)
	if err != nil {
		return Rewound{}, fmt.Errorf("the checkpoint is set back, and the next bridge that starts makes the consumer: %w", err)
	}
	return Rewound{Stream: rt.Stream, Seq: seq, Pending: b.consumer.CachedInfo().NumPending}, nil
}

// place finds the route, its stream, and the sequence of a place in it.
func (o *Operator) place(ctx context.Context, name string, to Place) (*route, jetstream.Stream, uint64, error) {
	rt, err := o.route(name)
	if err != nil {
		return nil, nil, 0, err
	}
	if rt.Existing != "" {
		return nil, nil, 0, &engine.InvalidError{Field: "name", Reason: fmt.Sprintf("%s reads the consumer %s, which others made: they have to make it again", name, rt.Existing)}
	}
	if to.Seq == 0 && to.Time.IsZero() || to.Seq != 0 && !to.Time.IsZero() {
		return nil, nil, 0, &engine.InvalidError{Field: "to_seq", Reason: "or to_time is required: one of them"}
	}
	stream, err := o.js.Stream(ctx, rt.Stream)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("stream %s: %w", rt.Stream, err)
	}
	if kept := stream.CachedInfo().Config.Retention; kept != jetstream.LimitsPolicy {
		return nil, nil, 0, &engine.InvalidError{Field: "name", Reason: fmt.Sprintf("%s reads %s, whose retention is %s: it does not keep what was acked, and drops what its consumer has not, while that is made again", name, rt.Stream, kept)}
	}
	seq := to.Seq
	if seq == 0 {
		if seq, err = sequenceAt(ctx, stream, to.Time); err != nil {
			return nil, nil, 0, fmt.Errorf("stream %s: %w", rt.Stream, err)
		}
	}
	return rt, stream, seq, nil
}

// sequenceAt is that of the first message that was stored at a time or later; after the last one where there is none. The server tells it
// to a consumer that begins there.
func sequenceAt(ctx context.Context, stream jetstream.Stream, at time.Time) (uint64, error) {
	c, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true,
		InactiveThreshold: 5 * time.Second,
	})
	if err != nil {
		return 0, err
	}
	return c.CachedInfo().Delivered.Stream + 1, stream.DeleteConsumer(ctx, c.CachedInfo().Name)
}

// setBack sets the checkpoint back to after a sequence that the route has come to.
func (c *consumer) setBack(ctx context.Context, stream jetstream.Stream, after uint64) error {
	in := c.incarnation(binding{created: stream.CachedInfo().Created})
	for {
		cp, known, err := c.journal.Checkpoint(ctx, in)
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		reached, err := c.reached(ctx, stream, cp, known)
		if err != nil {
			return err
		}
		if after > reached {
			return &engine.InvalidError{Field: "to_seq", Reason: fmt.Sprintf("or to_time is sequence %d of %s, and the route has come to %d: a rewind does not skip messages", after+1, c.route.Stream, reached)}
		}
		if !known || after > cp.Seq { // the journal follows the consumer by some seconds
			next := engine.Checkpoint{Seq: after, Consumer: cp.Consumer, First: cp.First, Rewinds: cp.Rewinds}
			if !known {
				next.Consumer, next.First = neverMade, neverMade
			}
			if err := c.journal.SaveCheckpoint(ctx, in, next); errors.Is(err, engine.ErrRewound) {
				continue
			} else if err != nil {
				return fmt.Errorf("checkpoint: %w", err)
			}
		}
		done, err := c.journal.Rewind(ctx, in, after)
		if err != nil {
			return fmt.Errorf("rewind: %w", err)
		}
		if done {
			return nil
		}
	}
}

// neverMade stands for a first consumer that is not known: any message may have been read before.
var neverMade = time.Unix(0, 0)

// reached is how far a route has come at least: every message up to there has its fate, or is gone.
func (c *consumer) reached(ctx context.Context, stream jetstream.Stream, cp engine.Checkpoint, known bool) (uint64, error) {
	reached := cp.Seq
	if first := stream.CachedInfo().State.FirstSeq; first > 0 {
		reached = max(reached, first-1)
	}
	cons, err := stream.Consumer(ctx, c.route.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrNotPullConsumer) {
		return reached, nil
	}
	if err != nil {
		return 0, fmt.Errorf("consumer %s: %w", c.route.durable, err)
	}
	if info := cons.CachedInfo(); checkConsumer(info.Config) == nil && c.doubt(info, cp, known) == "" {
		reached = max(reached, info.AckFloor.Stream)
	}
	return reached, nil
}

// remake binds as a bridge does, which makes the consumer of a route again that was set back. Others may do the same meanwhile.
func (c *consumer) remake(ctx context.Context) (binding, error) {
	last := error(nil)
	b, err := retry(ctx, func(err error) { last = err }, func() (binding, error) { return c.bind(ctx) })
	if err != nil {
		return b, errors.Join(last, err)
	}
	return b, nil
}
