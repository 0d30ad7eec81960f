package engine_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what should come at once. Only one that fails waits so long.
const patience = 90 * time.Second

var quiet = slog.New(slog.DiscardHandler)

// bundle is a client on a schema of the test's own.
type bundle struct {
	*engine.Client
	t    testing.TB
	db   *pgtest.DB
	pool *pgxpool.Pool
}

func setup(t testing.TB) *bundle { return setupWith(t, engine.Config{}) }

func setupWith(t testing.TB, cfg engine.Config) *bundle {
	t.Helper()
	b := &bundle{t: t, db: pgtest.New(t)}
	b.pool = b.connect(b.db.URL)
	cfg.Schema, cfg.Logger = b.db.Schema, quiet
	b.Client = must(engine.NewClient(b.pool, cfg))(t)
	return b
}

func (b *bundle) connect(url string) *pgxpool.Pool {
	b.t.Helper()
	pool := must(engine.Connect(b.t.Context(), url, 6, false))(b.t)
	b.t.Cleanup(pool.Close)
	return pool
}

// another is a client of the same schema with a pool of its own, as another process has.
func (b *bundle) another(url string) *engine.Client {
	b.t.Helper()
	return must(engine.NewClient(b.connect(url), engine.Config{Schema: b.db.Schema, Logger: quiet}))(b.t)
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// running is a worker whose Run is going on.
type running struct {
	*engine.Worker
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// work runs a worker until the test ends, when it has to drain.
func (b *bundle) work(cfg engine.WorkerConfig) *running {
	b.t.Helper()
	return b.workAs(b.Client, cfg)
}

func (b *bundle) serve(ms ...*engine.Machine) *running {
	b.t.Helper()
	return b.work(engine.WorkerConfig{Machines: ms})
}

func (b *bundle) workAs(c *engine.Client, cfg engine.WorkerConfig) *running {
	b.t.Helper()
	if cfg.ReapInterval == 0 {
		cfg.ReapInterval = 20 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	r := &running{Worker: must(engine.NewWorker(c, cfg))(b.t), t: b.t, cancel: cancel, done: make(chan struct{})}
	if cfg.ShutdownTimeout == soon {
		engine.SetGrace(r.Worker, patience)
	}
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	b.t.Cleanup(func() { r.stop() })
	return r
}

// stop tells the worker to stop, and wants it to have given back all it held.
func (r *running) stop() {
	r.t.Helper()
	if err := r.stopped(); err != nil {
		r.t.Errorf("run: %v", err)
	}
}

// stopped tells the worker to stop, and returns what Run did.
func (r *running) stopped() error {
	r.t.Helper()
	r.cancel()
	receive(r.t, r.done)
	err := r.err
	r.err = nil
	return err
}

// receive takes from a channel that something is about to be sent to, or that is about to be closed.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func contains(t testing.TB, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) || want == "" {
		t.Errorf("%s: %q, want it to say %q", what, got, want)
	}
}

// begin starts an instance of a machine under a key.
func (b *bundle) begin(machine, key string) engine.Instance {
	b.t.Helper()
	return b.start(engine.NewInstance{Machine: machine, CorrelationKey: key})
}

func (b *bundle) start(n engine.NewInstance) engine.Instance {
	b.t.Helper()
	return must(b.Start(b.t.Context(), n))(b.t)
}

func (b *bundle) get(id uuid.UUID) engine.Instance {
	b.t.Helper()
	return must(b.Get(b.t.Context(), engine.ByID(id)))(b.t)
}

// until waits for an instance to be as it should.
func (b *bundle) until(id uuid.UUID, what string, ok func(engine.Instance) bool) (in engine.Instance) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if in = b.get(id); ok(in) {
			return in
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("never %s: %+v", what, in)
		}
	}
}

func (b *bundle) reaches(id uuid.UUID, status engine.Status) engine.Instance {
	b.t.Helper()
	return b.until(id, string(status), func(in engine.Instance) bool { return in.Status == status })
}

// ends waits for the end, and wants it to be this.
func (b *bundle) ends(id uuid.UUID, status engine.Status) engine.Instance {
	b.t.Helper()
	in := b.until(id, "ended", func(in engine.Instance) bool { return !in.Status.Live() })
	if in.Status != status {
		b.t.Fatalf("ended as %+v, want %s", in, status)
	}
	return in
}

// send signals a key, and wants the signal to be taken in.
func (b *bundle) send(key, name, dedup string) engine.Receipt {
	b.t.Helper()
	return must(b.Signal(b.t.Context(), engine.ByKey("", key), engine.Signal{Name: name, DedupKey: dedup, Payload: engine.MustJSON(dedup)}))(b.t)
}

func (b *bundle) accept(batch ...engine.Intake) []engine.Receipt {
	b.t.Helper()
	return must(b.Accept(b.t.Context(), batch))(b.t)
}

// exec and count run SQL of the test's own.
func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Pool.Exec(b.t.Context(), migrations.Qualify(sql, b.db.Schema), args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.db.Pool.QueryRow(b.t.Context(), migrations.Qualify(sql, b.db.Schema), args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// outbox is all that waits to be published, by id.
func (b *bundle) outbox() []engine.Publication {
	b.t.Helper()
	var all []int
	for shard := range 16 {
		all = append(all, shard)
	}
	return must(b.Publications(b.t.Context(), all, 0, 1000))(b.t)
}

func (b *bundle) published(kind engine.PublicationKind) (ps []engine.Publication) {
	b.t.Helper()
	for _, p := range b.outbox() {
		if p.Kind == kind {
			ps = append(ps, p)
		}
	}
	return ps
}

// raw is a machine whose steps take and leave the state as it is stored.
type (
	raw  = json.RawMessage
	step = engine.Step[raw]
)

// define makes a machine that begins at "begin" and, unless it says otherwise, retries at once.
func define(t testing.TB, d engine.Definition[raw]) *engine.Machine {
	t.Helper()
	if d.Name == "" {
		d.Name = "m"
	}
	if d.Start == "" {
		d.Start = "begin"
	}
	if d.Retry == (engine.RetryPolicy{}) {
		d.Retry = engine.RetryPolicy{Initial: time.Millisecond, Max: time.Millisecond}
	}
	return must(engine.Define(d))(t)
}

// steps makes the machine "m" of steps.
func steps(t testing.TB, steps map[string]step) *engine.Machine {
	t.Helper()
	return define(t, engine.Definition[raw]{Steps: steps})
}

// to is a step that comes to an outcome.
func to(o engine.Outcome) step {
	return func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) { return o, nil }
}

func failing(err error) step {
	return func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) { return engine.Outcome{}, err }
}

// diary notes the visits of a step, in order.
type diary struct {
	mu     sync.Mutex
	visits []engine.Visit[raw]
}

// around notes each visit before the step.
func (d *diary) around(s step) step {
	return func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		d.note(v)
		return s(ctx, v)
	}
}

func (d *diary) note(v *engine.Visit[raw]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visits = append(d.visits, *v)
}

func (d *diary) all() []engine.Visit[raw] {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]engine.Visit[raw]{}, d.visits...)
}

// names are those of signals, with a space between.
func names(sigs []engine.Signal) string {
	var all []string
	for _, s := range sigs {
		all = append(all, s.Name)
	}
	return strings.Join(all, " ")
}
