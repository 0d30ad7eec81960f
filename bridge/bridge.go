package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

// Inbox takes in what routes make of messages; an [engine.Client] is one.
type Inbox interface {
	// Accept commits the batch and returns a receipt for each intake, in order. On an error nothing of the batch may be acked, and
	// all of it is offered again.
	Accept(ctx context.Context, batch []engine.Intake) ([]engine.Receipt, error)
	// AcceptOrdered is Accept in the order of the batch, under a fence. Its loss is [engine.ErrFenced].
	AcceptOrdered(ctx context.Context, f engine.Fence, batch []engine.Intake) ([]engine.Receipt, error)
}

// Config of a [Bridge]. Conn, JetStream, Subjects, Inbox and Journal are required.
type Config struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream // of Conn
	Subjects  subjects.Space
	Inbox     Inbox
	Journal   Journal
	Outbox    engine.Outbox // nil: no relay

	Routes []Route
	// MaxBatches are taken in at the same time at most, of all routes. Each takes a connection of the Inbox; others wait, and grow. Zero: 8.
	MaxBatches     int
	NoSignalsRoute bool // switches the built-in route [subjects.SignalsRoute] off

	// ManageStreams creates the streams of Subjects where they are absent, with this many Replicas (zero: 1).
	ManageStreams bool
	Replicas      int

	ShutdownTimeout time.Duration // for what is in hand when Run is cancelled; zero: 30s
	Logger          *slog.Logger  // zero: slog.Default
	Metrics         prometheus.Registerer
	Tracing         trace.TracerProvider // of the spans of messages; zero: none

	pace pace // zero: defaultPace
}

// Bridge runs routes and a relay. Make it with [New].
type Bridge struct {
	cfg     Config
	health  *health
	metrics *metrics
	owner   string
	origins *origins
	letters *deadLetters
	pauses  *pauses
	turns   chan struct{}
	relay   *relay

	reloading sync.Mutex // one Reload at a time
	mu        sync.Mutex // guards what follows
	routes    []*consumer
	start     func(*consumer) // while Run takes messages; called under mu
}

// New checks the configuration, the expressions of every route included, and talks to nobody.
func New(cfg Config) (*Bridge, error) {
	if cfg.Conn == nil || cfg.JetStream == nil || cfg.Inbox == nil || cfg.Journal == nil || cfg.Subjects == (subjects.Space{}) {
		return nil, errors.New("bridge: Conn, JetStream, Subjects, Inbox and Journal are required")
	}
	if cfg.ShutdownTimeout < 0 || cfg.Replicas < 0 || cfg.MaxBatches < 0 {
		return nil, errors.New("bridge: ShutdownTimeout, Replicas and MaxBatches must not be negative")
	}
	if cfg.MaxBatches == 0 {
		cfg.MaxBatches = 8
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = 30 * time.Second
	}
	setDefault(&cfg.pace, defaultPace)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	routes, err := compileRoutes(cfg)
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}

	b := &Bridge{
		cfg: cfg, health: newHealth(cfg.Logger), metrics: m, owner: uuid.NewString(), origins: newOrigins(cfg.JetStream),
		letters: &deadLetters{conn: cfg.Conn, js: cfg.JetStream, space: cfg.Subjects}, pauses: newPauses(bounded{cfg.Journal}), turns: make(chan struct{}, cfg.MaxBatches),
	}
	if cfg.ManageStreams {
		b.health.expect(partStreams)
	}
	for _, rt := range routes {
		b.health.expect(partRoute(rt.Name))
		b.routes = append(b.routes, b.consumer(rt))
	}
	if cfg.Outbox != nil {
		b.health.expect(partRelay)
		var err error
		if b.relay, err = newRelay(cfg, b.health, m); err != nil {
			return nil, fmt.Errorf("bridge: %w", err)
		}
	}
	return b, nil
}

func (b *Bridge) consumer(rt *route) *consumer {
	return &consumer{
		route: rt, conn: b.cfg.Conn, js: b.cfg.JetStream, inbox: b.cfg.Inbox, origins: b.origins, letters: b.letters, journal: bounded{b.cfg.Journal},
		owner: b.owner, pauses: b.pauses, turns: b.turns, pace: b.cfg.pace, health: b.health, tracing: tracing.New(b.cfg.Tracing), metrics: b.metrics.route(rt.Name), log: b.cfg.Logger.With("route", rt.Name),
	}
}

// flushTimeout bounds the wait for the server to have the last acks.
const flushTimeout = 5 * time.Second

// Run carries messages until ctx is cancelled. Then it pulls no more, settles what is in hand within ShutdownTimeout, and returns
// nil. What is not settled by then is not acked, and comes again to another copy. A lost NATS or Postgres is waited for.
func (b *Bridge) Run(ctx context.Context) error {
	work, cancel := outlive(ctx, b.cfg.ShutdownTimeout)
	defer cancel()

	var parts sync.WaitGroup
	streams := make(chan struct{}) // are there, or are others' to make
	if b.cfg.ManageStreams {
		parts.Go(func() { defer close(streams); b.ensureStreams(ctx) })
	} else {
		close(streams)
	}
	parts.Go(func() {
		b.pauses.run(ctx, min(pausePoll, b.cfg.pace.every), func(err error) { b.health.report(partPauses, err) })
	})
	if b.relay != nil {
		parts.Go(func() { b.relay.run(ctx, work) })
	}
	b.begin(func(c *consumer) {
		routeCtx, stop := context.WithCancel(ctx)
		c.stop, c.settled = stop, make(chan struct{})
		parts.Go(func() {
			defer close(c.settled)
			defer stop()
			b.runRoute(routeCtx, c, streams)
		})
	})
	<-ctx.Done()
	b.begin(nil)
	parts.Wait()

	// Acks are fire and forget: without the flush those of the last batch could die with the connection.
	if b.cfg.Conn.IsConnected() {
		flush, cancel := context.WithTimeout(work, flushTimeout)
		defer cancel()
		if err := b.cfg.Conn.FlushWithContext(flush); err != nil {
			b.cfg.Logger.Warn("flush of the last acks", "error", err)
		}
	}
	return nil
}

// begin starts the routes, and from now on those that a reload brings; with nil none are started any more.
func (b *Bridge) begin(start func(*consumer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.start = start
	if start == nil {
		return
	}
	for _, c := range b.routes {
		start(c)
	}
}

// runRoute until ctx is cancelled and what is in hand then is settled.
func (b *Bridge) runRoute(ctx context.Context, c *consumer, streams <-chan struct{}) {
	if c.route.builtin {
		select {
		case <-streams:
		case <-ctx.Done():
		}
	}
	work, cancel := outlive(ctx, b.cfg.ShutdownTimeout)
	defer cancel()
	c.run(ctx, work)
}

// ensureStreams makes the streams of pointsman where they are absent, however long it takes to reach the server.
func (b *Bridge) ensureStreams(ctx context.Context) {
	_, err := retry(ctx, func(err error) { b.health.report(partStreams, err) }, func() (struct{}, error) {
		return struct{}{}, natsio.EnsureStreams(ctx, b.cfg.JetStream, b.cfg.Subjects, max(1, b.cfg.Replicas))
	})
	if err == nil { // else it is the end of ctx
		b.health.report(partStreams, nil)
	}
}

// Ready is nil when the connection stands and every part can do its work; else it says which cannot, and why.
func (b *Bridge) Ready() error {
	if !b.cfg.Conn.IsConnected() {
		return errors.Join(fmt.Errorf("nats: %s", b.cfg.Conn.Status()), b.health.err())
	}
	return b.health.err()
}

// Poke tells the relay that the outbox may have something new. It never blocks; correctness does not depend on it.
func (b *Bridge) Poke() {
	if b.relay != nil {
		b.relay.poke()
	}
}

// outlive returns a context that is cancelled only when grace has passed since ctx was.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, func() { cancel(fmt.Errorf("shutdown: not settled within %s", grace)) })
		context.AfterFunc(work, func() { timer.Stop() })
	})
	return work, func() { stop(); cancel(context.Canceled) }
}
