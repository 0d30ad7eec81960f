package bridge

import (
	"context"
	"time"
)

// routeTTL is how long an ordered route stays a bridge's that says nothing: a bridge that was killed keeps it from the others for so long.
const routeTTL = 5 * time.Second

// whileOurs calls run whenever this bridge holds the route, with a context that ends when it does not hold it any more. A bridge that
// takes messages in later than that is stopped by the fence, not by the clock.
func (c *consumer) whileOurs(ctx, work context.Context, run func(ctx, work context.Context)) {
	for ctx.Err() == nil {
		held, err := retry(ctx, c.reportTrouble, func() (bool, error) { return c.hold(ctx) })
		if err != nil {
			return // ctx is done
		}
		c.standingBy.Store(!held)
		if !held {
			c.report(nil) // somebody reads it
			select {
			case <-time.After(routeTTL / 5):
			case <-ctx.Done():
			}
			continue
		}
		ours, lost := context.WithCancel(ctx)
		kept := make(chan struct{})
		go func() { defer close(kept); defer lost(); c.keepHold(ours) }()
		run(ours, work)
		lost()
		<-kept
		if ctx.Err() == nil {
			c.standBy()
		}
	}
	release, cancel := context.WithTimeout(work, flushTimeout)
	defer cancel()
	if err := c.journal.ReleaseRoute(release, c.route.Name, c.owner); err != nil {
		c.log.Debug("release route", "error", err)
	}
}

// standBy: what kept a batch from being taken in troubles whoever reads the route next, and not this bridge.
func (c *consumer) standBy() {
	c.health.report(partInbox(c.route.Name), nil)
	c.health.report(partDeadLetters(c.route.Name), nil)
}

func (c *consumer) hold(ctx context.Context) (held bool, err error) {
	call, cancel := context.WithTimeout(ctx, routeTTL)
	defer cancel()
	c.fence, held, err = c.journal.HoldRoute(call, c.route.Name, c.owner, routeTTL)
	return held, err
}

// keepHold returns when ctx is done, or the route is not this bridge's any more. A journal that is away is waited for as long as nobody
// else can hold the route; then what is in hand waits for it too.
func (c *consumer) keepHold(ctx context.Context) {
	sure := time.Now()
	tick := time.NewTicker(routeTTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, routeTTL/2)
		begin := time.Now()
		fence, held, err := c.journal.HoldRoute(call, c.route.Name, c.owner, routeTTL)
		cancel()
		switch {
		case err == nil && (!held || fence != c.fence):
			c.log.Warn("an ordered route is another bridge's now")
			return
		case err == nil:
			sure = begin
		case time.Since(sure) > routeTTL:
			return
		}
	}
}
