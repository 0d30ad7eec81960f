package bridge

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should come at once. Only one that fails waits so long.
const patience = 90 * time.Second

// bundle is a server, an inbox, and what a test wants to know of a bridge between them.
type bundle struct {
	*testing.T
	server  *natstest.Server
	conn    *nats.Conn
	js      jetstream.JetStream
	space   subjects.Space
	inbox   *memInbox
	outbox  *memOutbox
	journal *memJournal
	reg     *prometheus.Registry
	log     *logBuffer
	bridge  *Bridge
}

func setup(t *testing.T, keys ...string) *bundle {
	t.Helper()
	t.Parallel()
	b := &bundle{T: t, server: natstest.Start(t), inbox: newMemInbox(keys...), outbox: newMemOutbox(), journal: newMemJournal(), log: &logBuffer{}}
	b.conn = b.server.Conn(t)
	var err error
	if b.js, err = jetstream.New(b.conn); err != nil {
		t.Fatal(err)
	}
	if b.space, err = subjects.New(""); err != nil {
		t.Fatal(err)
	}
	return b
}

// orders is a route from the stream ORDERS, which b makes.
func (b *bundle) orders() Route {
	b.Helper()
	b.stream("ORDERS", "orders.>")
	return ordersRoute()
}

func ordersRoute() Route {
	return Route{
		Name: "orders", Stream: "ORDERS", Subjects: []string{"orders.>"},
		Signal: "{{headers[?'name'].orValue('paid')}}", CorrelationKeys: []string{"{{payload.key}}"},
	}
}

func (b *bundle) stream(name string, filters ...string) jetstream.Stream {
	b.Helper()
	s, err := b.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: name, Subjects: filters})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bundle) config(routes ...Route) Config {
	b.reg = prometheus.NewRegistry()
	return Config{
		Conn: b.conn, JetStream: b.js, Subjects: b.space, Inbox: b.inbox, Journal: b.journal, Routes: routes, NoSignalsRoute: true,
		ManageStreams: true, ShutdownTimeout: 30 * time.Second, Metrics: b.reg,
		Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	}
}

// reads counts the messages that a bridge has read: the server counts one as delivered before it sends it.
func reads(cfg *Config) (n func() int) {
	spans := tracetest.NewSpanRecorder()
	cfg.Tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return func() int { return len(spans.Started()) }
}

// run a bridge until stop is called, or the test ends.
func (b *bundle) run(cfg Config) (stop func()) {
	b.Helper()
	return b.runWith(cfg, func(*Bridge) {})
}

// runWith runs a bridge that was changed.
func (b *bundle) runWith(cfg Config, change func(*Bridge)) (stop func()) {
	b.Helper()
	var err error
	if b.bridge, err = New(cfg); err != nil {
		b.Fatal(err)
	}
	change(b.bridge)
	bridge := b.bridge
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := bridge.Run(ctx); err != nil {
			b.Errorf("Run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			b.Error("Run did not return")
		}
	})
	b.Cleanup(stop)
	if cfg.ManageStreams { // a server that is stopped while it makes a stream leaks goroutines
		b.eventually("streams are made", func() bool { return !strings.Contains(fmt.Sprint(bridge.Ready()), partStreams+": ") })
	}
	return stop
}

func (b *bundle) publish(subject, body string, headers ...string) *jetstream.PubAck {
	b.Helper()
	msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for pair := range slices.Chunk(headers, 2) {
		msg.Header.Set(pair[0], pair[1])
	}
	ack, err := b.js.PublishMsg(b.Context(), msg)
	if err != nil {
		b.Fatal(err)
	}
	return ack
}

// inboxHas waits until the inbox is as wanted.
func (b *bundle) inboxHas(what string, f func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if !b.inbox.until(ctx, f) {
		b.Fatalf("inbox has not: %s; ready: %v; log:\n%s", what, b.bridge.Ready(), b.log)
	}
}

func (b *bundle) signals(n int) {
	b.Helper()
	b.inboxHas(fmt.Sprintf("%d signals", n), func() bool { return len(b.inbox.signals) >= n })
	b.inbox.mu.Lock()
	defer b.inbox.mu.Unlock()
	if got := len(b.inbox.signals); got != n {
		b.Fatalf("%d signals, want %d", got, n)
	}
}

// eventually asks a server until it says so: there is no signal to wait for.
func (b *bundle) eventually(what string, f func() bool) {
	b.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("never: %s; ready: %v; log:\n%s", what, b.bridge.Ready(), b.log)
		}
	}
}

// acked waits until the consumer of a route has nothing left.
func (b *bundle) acked(stream, consumer string, floor uint64) {
	b.Helper()
	var last jetstream.ConsumerInfo
	b.eventually(fmt.Sprintf("ack floor %d of %s", floor, consumer), func() bool {
		c, err := b.js.Consumer(b.Context(), stream, consumer)
		if err != nil {
			return false
		}
		last = *c.CachedInfo()
		return last.AckFloor.Stream >= floor && last.NumAckPending == 0 && last.NumPending == 0
	})
}

// deadLetters returns what the stream of dead letters has.
func (b *bundle) deadLetters(n int) []*jetstream.RawStreamMsg {
	b.Helper()
	var s jetstream.Stream
	b.eventually(fmt.Sprintf("%d dead letters", n), func() bool {
		var err error
		s, err = b.js.Stream(b.Context(), b.space.DeadLettersStream())
		return err == nil && s.CachedInfo().State.Msgs >= uint64(n)
	})
	if got := s.CachedInfo().State.Msgs; got != uint64(n) {
		b.Fatalf("%d dead letters, want %d", got, n)
	}
	var all []*jetstream.RawStreamMsg
	for seq := range uint64(n) {
		m, err := s.GetMsg(b.Context(), seq+1)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// counted checks the counter of a route's fate.
func (b *bundle) counted(route string, f fate, want float64) {
	b.Helper()
	b.bridge.mu.Lock()
	routes := slices.Clone(b.bridge.routes)
	b.bridge.mu.Unlock()
	for _, c := range routes {
		if c.route.Name == route {
			b.eventually(fmt.Sprintf("%v counted %s", want, f), func() bool { return testutil.ToFloat64(c.metrics.fates[f]) == want })
			return
		}
	}
	b.Fatalf("no route %s", route)
}

func (b *bundle) ready() {
	b.Helper()
	b.eventually("ready", func() bool { return b.bridge.Ready() == nil })
}

// logBuffer is a log that a test reads.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte("\n"))
}
