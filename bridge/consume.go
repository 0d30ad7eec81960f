package bridge

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/tracing"
)

// consumer runs one route: it reads the stream, gathers batches, has them taken in, and settles them.
//
// Three goroutines pass the messages on, so that the next batch is read and mapped while one is being taken in: read → gather →
// take. The last two hold at most one batch each, and the subscription buffers at most one more. A batch that waits for its turn among
// those of other routes is still open: where there are many routes, each has few messages at a time.
type consumer struct {
	route   *route
	conn    *nats.Conn
	js      jetstream.JetStream
	inbox   Inbox
	origins *origins
	letters *deadLetters

	journal Journal
	owner   string // this bridge, for ordered routes
	pauses  *pauses
	pace    pace
	turns   chan struct{} // of all routes: one for each batch that is being taken in
	health  *health
	metrics *routeMetrics
	tracing *tracing.Tracer
	log     *slog.Logger

	stop    context.CancelFunc // nil until it is started
	settled chan struct{}      // closed when it has stopped, and what was in hand is settled

	stalls     int          // sessions that stalled since the last message; the goroutine of run owns it
	heard      atomic.Bool  // a message in this session
	slow       atomic.Bool  // what was read is parked, and nothing is pulled
	full       atomic.Bool  // the consumer gives no more before some are acked
	waiting    atomic.Int64 // since when the route waits for a message, in unix nanoseconds; 0: it does not
	standingBy atomic.Bool  // another bridge reads this ordered route
	gaveUp     bool         // a batch could not be taken in before the end; the goroutine that takes owns it
	fence      engine.Fence // of an ordered route, set before each session
}

// run keeps a session open until ctx is cancelled; work outlives ctx for what is in hand then.
func (c *consumer) run(ctx, work context.Context) {
	if c.route.Ordered && !c.route.Paused {
		c.whileOurs(ctx, work, c.sessions)
		return
	}
	c.sessions(ctx, work)
}

// sessions follow one another until ctx is cancelled.
func (c *consumer) sessions(ctx, work context.Context) {
	for short := 0; ; {
		b, err := retry(ctx, c.reportTrouble, func() (binding, error) { return c.bind(ctx) })
		if err != nil {
			return // ctx is done
		}
		if c.route.Paused {
			c.report(nil)
			<-ctx.Done() // with its consumer in place: a stream that keeps only what is wanted keeps this
			return
		}
		if resumed, _ := c.pauses.is(c.route.Name, false); !resumed {
			c.report(nil)
			if !c.pauses.until(ctx, c.route.Name, false) {
				return
			}
			continue // much may have happened to the consumer meanwhile
		}
		began := time.Now()
		paused, err := c.pauses.whileResumed(ctx, c.route.Name, func(ctx context.Context) error { return c.session(ctx, work, b, short > 0) })
		if ctx.Err() != nil {
			return
		}
		if paused {
			c.standBy()
			short = 0
			continue
		}
		switch {
		case errors.Is(err, errStalled):
			c.stalls++
		case c.heard.Load():
			c.stalls = 0
		}
		if short++; time.Since(began) > provenAfter {
			short = 0
		}
		if err != nil {
			c.report(err)
		}
		select {
		case <-time.After(doubling(firstSessionPause, lastSessionPause, short)):
		case <-ctx.Done():
			return
		}
	}
}

// A session that ends as soon as it begins is begun anew ever more slowly, and is not taken for a cure of what ended the one before
// until it has lasted, or has brought a message.
const (
	firstSessionPause = 50 * time.Millisecond
	lastSessionPause  = 5 * time.Second
	provenAfter       = 15 * time.Second
)

// report what keeps the route from reading.
func (c *consumer) report(err error) { c.health.report(partRoute(c.route.Name), err) }

// reportTrouble and not its end: what comes next decides.
func (c *consumer) reportTrouble(err error) {
	if err != nil {
		c.report(err)
	}
}

// session consumes over one binding until ctx is cancelled (nil) or the binding does not hold any more.
func (c *consumer) session(ctx, work context.Context, b binding, doubtful bool) error {
	g, gctx := errgroup.WithContext(work)
	r := newReader(gctx, c, b)
	pull := r.consume
	if c.route.Existing != "" {
		pull = r.pullExisting
	}
	batches := newCounter()
	g.Go(func() error {
		defer close(r.gone)
		return pull(ctx, work)
	})
	g.Go(func() error {
		c.gather(r.out, r.gone, batches)
		return nil
	})
	g.Go(func() error {
		for range batches.may {
			c.takeNext(ctx, work, batches.out)
		}
		return errSessionOver
	})
	g.Go(func() error { c.prove(gctx, doubtful); return nil })
	if c.route.Existing == "" {
		g.Go(func() error { return c.watch(gctx, b) })
	}
	if r.order != nil {
		g.Go(func() error { return r.order.wait(ctx, b, r) })
	}
	if err := g.Wait(); !errors.Is(err, errSessionOver) {
		return err
	}
	return nil
}

// prove reports the session as well, when it is to be believed.
func (c *consumer) prove(ctx context.Context, doubtful bool) {
	if doubtful {
		select {
		case <-time.After(provenAfter):
		case <-ctx.Done():
			return
		}
	}
	c.report(nil)
}

// errSessionOver ends the other goroutines of a session when all that was read is settled.
var errSessionOver = errors.New("session over")
