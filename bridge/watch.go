package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	watchEvery = 5 * time.Second
	// stallAfter is how long messages may wait for a consumer that waits for messages. Servers had faults that leave a consumer so;
	// asking anew over a new subscription cures it.
	stallAfter = 30 * time.Second
)

// watch measures the route's lag, and ends the session of a consumer that is gone or stands still.
func (c *consumer) watch(ctx context.Context, b binding) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
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
		if since := c.waiting.Load(); since != 0 && stalled(info, time.Since(time.Unix(0, since))) {
			return fmt.Errorf("stalled: %d messages wait and none is delivered", info.NumPending)
		}
	}
}

// stalled says whether a consumer keeps messages from a bridge that has waited for one so long.
func stalled(info *jetstream.ConsumerInfo, waited time.Duration) bool {
	full := info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending
	return waited > stallAfter && info.NumPending > 0 && !full && !info.Paused
}
