package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what should come at once. Only one that fails waits so long.
const patience = 90 * time.Second

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// bundle is a client on a database of the test's own.
type bundle struct {
	*engine.Client
	testing.TB
	db  *pgtest.DB
	log *logs
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{TB: t, db: pgtest.New(t), log: &logs{}}
	var err error
	if b.Client, err = engine.NewClient(b.db.Pool, engine.Config{Schema: b.db.Schema, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return b
}

// tell has the end of a new instance told to each URL, and returns the ids of the webhooks, in order.
func (b *bundle) tell(urls ...string) (ids []uuid.UUID) {
	b.Helper()
	for _, url := range urls {
		in, err := b.Start(b.Context(), engine.NewInstance{Machine: "m", NotifyURL: url, State: []byte(`{"n": 12345678901234567890}`)})
		if err == nil {
			_, err = b.Cancel(b.Context(), engine.ByID(in.ID), "enough")
		}
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, b.deliveryOf(in.ID))
	}
	return ids
}

func (b *bundle) deliveryOf(instance uuid.UUID) (id uuid.UUID) {
	b.Helper()
	sql := migrations.Qualify(`select id from pointsman.webhook_deliveries where source_id = $1`, b.db.Schema)
	if err := b.db.Pool.QueryRow(b.Context(), sql, instance).Scan(&id); err != nil {
		b.Fatal(err)
	}
	return id
}

func (b *bundle) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.db.Pool.Exec(b.Context(), migrations.Qualify(sql, b.db.Schema), args...); err != nil {
		b.Fatal(err)
	}
}

func (b *bundle) delivery(id uuid.UUID) engine.Delivery {
	b.Helper()
	d, err := b.Delivery(b.Context(), "", id)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// until a webhook is so.
func (b *bundle) until(id uuid.UUID, what string, so func(engine.Delivery) bool) engine.Delivery {
	b.Helper()
	var d engine.Delivery
	eventually(b, what, func() bool { d = b.delivery(id); return so(d) })
	return d
}

// attempted so many times.
func (b *bundle) attempted(id uuid.UUID, n int) engine.Delivery {
	b.Helper()
	return b.until(id, fmt.Sprintf("%d attempts", n), func(d engine.Delivery) bool { return d.Attempts == n })
}

func (b *bundle) delivered(ids ...uuid.UUID) {
	b.Helper()
	for _, id := range ids {
		b.until(id, "delivered", func(d engine.Delivery) bool { return d.Status == engine.DeliveryDelivered })
	}
}

// due makes one that waits for its next attempt due now.
func (b *bundle) due(s *Sender, id uuid.UUID) {
	b.Helper()
	b.exec(`update pointsman.webhook_deliveries set next_at = now() where id = $1`, id)
	s.Poke()
}

func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (b *bundle) config() Config {
	return Config{Deliveries: b.Client, AllowPrivate: true, Logger: slog.New(slog.NewTextHandler(b.log, nil)), Metrics: prometheus.NewRegistry()}
}

func (b *bundle) sender(cfg Config) *Sender {
	b.Helper()
	s, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// run a sender until the test ends, or stop is called.
func (b *bundle) run(s *Sender) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			b.Error("the sender does not stop")
		}
	})
	b.Cleanup(stop)
	return stop
}

// sending runs a sender with this configuration.
func (b *bundle) sending(cfg Config) *Sender {
	b.Helper()
	s := b.sender(cfg)
	b.run(s)
	return s
}

// receiver is an HTTP server, and what it got.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []received
	busy map[string]bool
	most int  // requests at once
	same bool // one webhook was there twice at once
}

type received struct {
	id     string
	path   string
	header http.Header
	body   []byte
}

// newReceiver answers with 200, unless answer does.
func newReceiver(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := unstarted(answer)
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func unstarted(answer http.HandlerFunc) *receiver {
	r := &receiver{busy: map[string]bool{}}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		id := req.Header.Get("webhook-id")
		r.mu.Lock()
		r.got = append(r.got, received{id, req.URL.Path, req.Header.Clone(), body})
		r.same = r.same || r.busy[id]
		r.busy[id] = true
		r.most = max(r.most, len(r.busy))
		r.mu.Unlock()
		defer func() { r.mu.Lock(); defer r.mu.Unlock(); delete(r.busy, id) }()
		if answer != nil {
			answer(w, req)
		}
	}))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	return r
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

func (r *receiver) count(path string) (n int) {
	for _, g := range r.all() {
		if g.path == path {
			n++
		}
	}
	return n
}

// logs can be read while they are written.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}
