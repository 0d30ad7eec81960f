package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pointsman/pointsman/engine"
)

// acceptTimeout bounds one attempt, so that a Postgres which is cut off without a word is an outage and not a silence.
const acceptTimeout = 30 * time.Second

// silence is how long an attempt may take before readiness knows of it.
const silence = 5 * time.Second

// takeNext waits for a turn, and takes the batch that has gathered by then.
func (c *consumer) takeNext(ctx, work context.Context, batches <-chan []delivery) {
	over := c.turn(ctx)
	c.take(ctx, work, <-batches, over)
}

// turn waits for one, which is for one attempt. The one after ctx is cancelled waits for none: whoever has the turns may need them for long.
func (c *consumer) turn(ctx context.Context) (over func()) {
	select {
	case c.turns <- struct{}{}:
		return func() { <-c.turns }
	case <-ctx.Done():
		return func() {}
	}
}

// take has a batch taken in and settles it. After ctx is cancelled an attempt is made, but no other. over gives the turn back.
func (c *consumer) take(ctx, work context.Context, batch []delivery, over func()) {
	release := c.keepAlive(batch)
	defer release()
	flawed(batch)

	intakes := make([]engine.Intake, 0, len(batch))
	for _, d := range batch {
		intakes = append(intakes, d.intakes...)
	}
	var receipts []engine.Receipt
	switch {
	case len(intakes) == 0:
		over()
	case c.gaveUp:
		over()
		c.letGo(batch)
		return
	default:
		start := time.Now()
		var err error
		if receipts, err = c.accept(ctx, work, intakes, over); err != nil {
			c.gaveUp = true
			c.letGo(batch)
			return
		}
		c.metrics.batch.Observe(time.Since(start).Seconds())
	}
	c.settle(work, batch, receipts)
}

// accept offers the same intakes until they are committed: an outage holds this batch, counts for no message, and pulls no other. The first
// attempt has a turn; each other waits for one of its own.
func (c *consumer) accept(ctx, work context.Context, intakes []engine.Intake, over func()) ([]engine.Receipt, error) {
	report := func(err error) { c.health.report(partInbox(c.route.Name), err) }
	silent := false
	receipts, err := retry(ctx, report, func() ([]engine.Receipt, error) {
		if over == nil {
			over = c.turn(ctx)
		}
		defer func() { over(); over = nil }()
		actx, cancel := context.WithTimeout(work, acceptTimeout)
		defer cancel()
		defer sayWhenSilent(func() { silent = true; report(fmt.Errorf("accept: no answer in %s", silence)) })()
		if c.route.Ordered {
			return c.acceptOrdered(actx, intakes)
		}
		receipts, err := c.inbox.Accept(actx, intakes)
		if err != nil {
			return nil, fmt.Errorf("accept: %w", err)
		}
		if len(receipts) != len(intakes) {
			return nil, fmt.Errorf("accept: %d receipts for %d intakes", len(receipts), len(intakes))
		}
		return receipts, nil
	})
	if silent && err == nil {
		report(nil)
	}
	return receipts, err
}

// sayWhenSilent says that an attempt takes long, until the returned function is called.
func sayWhenSilent(say func()) (over func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-time.After(silence):
			say()
		case <-done:
		}
	})
	return func() { close(done); waiting.Wait() }
}

// acceptOrdered keeps what failed for now in its place: all of the batch is offered again.
func (c *consumer) acceptOrdered(ctx context.Context, intakes []engine.Intake) ([]engine.Receipt, error) {
	receipts, err := c.inbox.AcceptOrdered(ctx, c.fence, intakes)
	switch {
	case errors.Is(err, engine.ErrFenced):
		return nil, backoff.Permanent(err)
	case err != nil:
		return nil, fmt.Errorf("accept: %w", err)
	case len(receipts) != len(intakes):
		return nil, fmt.Errorf("accept: %d receipts for %d intakes", len(receipts), len(intakes))
	}
	for _, r := range receipts {
		if r.Result == engine.Failed {
			return nil, fmt.Errorf("accept: %s", r.Reason)
		}
	}
	return receipts, nil
}

// letGo gives a batch back that could not be taken in before the end, a little later so that the copy that follows is up.
func (c *consumer) letGo(batch []delivery) {
	for _, d := range batch {
		_ = d.NakWithDelay(time.Second) // if it is lost, AckWait brings the message again
	}
}

// keepAlive extends the acks of a batch until stop is called.
func (c *consumer) keepAlive(batch []delivery) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(c.route.ackWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				inProgress(batch)
			case <-done:
				return
			}
		}
	})
	return func() { close(done); running.Wait() }
}
