package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// pace of a watch.
type pace struct {
	every time.Duration
	// stall is how long messages may wait for a consumer that waits for messages. Servers had faults that leave a consumer so; asking
	// anew over a new subscription cures most.
	stall time.Duration
	ack   time.Duration // that a stream may take for one
}

var defaultPace = pace{every: 5 * time.Second, stall: 30 * time.Second, ack: publishTimeout}

// errMadeAgain: the consumer is not the one that the session began with, so what it gives may have been read before.
var errMadeAgain = errors.New("the consumer was made again")

var errStalled = errors.New("stalled: none is delivered")

// watch measures the route's lag, writes down how far it has come, and ends the session of a consumer that is gone or stands still.
func (c *consumer) watch(ctx context.Context, b binding) error {
	tick := time.NewTicker(c.pace.every/2 + rand.N(c.pace.every/2)) // routes that began at one time ask one after the other
	defer tick.Stop()
	var saved uint64
	var still standstill
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(c.pace.every)
		}
		info, err := b.consumer.Info(ctx)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		if err != nil {
			continue // an outage shows elsewhere
		}
		c.metrics.pending.Set(float64(info.NumPending))
		c.metrics.ackPending.Set(float64(info.NumAckPending))
		c.full.Store(full(info))
		if !sameTime(info.Created, b.consumer.CachedInfo().Created) {
			return errMadeAgain
		}
		if saved, err = c.checkpoint(ctx, b, info, saved); err != nil {
			return err
		}
		if still.looked(info, c.waiting.Load(), time.Now()) > c.pace.stall {
			return fmt.Errorf("%w: %d messages wait", errStalled, info.NumPending)
		}
	}
}

// standstill is since when messages were seen to wait for a bridge that waits for one.
type standstill struct{ since time.Time }

// looked says for how long they have been. waiting is since when the bridge waits, in unix nanoseconds; 0: it does not. Messages that came a
// moment ago to a bridge that has waited for long do not stand still, nor do those that a pause of the consumer has just let go.
func (s *standstill) looked(info *jetstream.ConsumerInfo, waiting int64, now time.Time) time.Duration {
	if waiting == 0 || info.NumPending == 0 || full(info) || info.Paused {
		s.since = time.Time{}
		return 0
	}
	if s.since.Before(time.Unix(0, waiting)) {
		s.since = now
	}
	return now.Sub(s.since)
}

// full says whether a consumer gives no more before some are acked.
func full(info *jetstream.ConsumerInfo) bool {
	return info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending
}
