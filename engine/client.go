package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/migrations"
)

// Config of a [Client]. The zero value is usable.
type Config struct {
	Schema   string                // zero: "pointsman"
	Outcomes []Status              // which ends are published; nil: done, failed and canceled
	Waker    Waker                 // carries pokes and notices to other processes; nil: they poll
	WaitPoll time.Duration         // how long a wait goes without a look where no notice comes, growing to five times that; zero: 1s
	Logger   *slog.Logger          // zero: slog.Default
	Metrics  prometheus.Registerer // zero: none
	Tracing  trace.TracerProvider  // of the spans of steps; zero: none

	// AskValidator makes a validator that asks the program which has one, for updates that are validated elsewhere; nil: such updates fail.
	// Package remote has one over NATS.
	AskValidator    func(machine, update string) Validator
	ValidateTimeout time.Duration // how long a validator may take; zero: 10s

	// MaxActiveTriggers is how many triggers of one project may wait for an event at once; zero: any number. All programs should say the same.
	MaxActiveTriggers int
	KeepDedup         time.Duration // for how long the events of messages are known after their trigger is purged; zero: 168h, as of [Retention]
}

// Waker carries best-effort pokes ("work may be waiting in this queue") and notices ("these instances have changed") between processes.
// Correctness never depends on it. Package wake has one over core NATS.
type Waker interface {
	// Wake pokes whoever listens to the queues. It does not block.
	Wake(queues []string)
	// Listen calls poke, from any goroutine, until it is stopped.
	Listen(queues []string, poke func(queue string)) (stop func(), err error)
	// Tell gives notice of these ids to whoever hears the topic. It does not block, and does not keep the slice.
	Tell(topic string, ids []uuid.UUID)
	// Hear calls heard, from any goroutine, until it is stopped. It returns when what others tell from then on is on its way here.
	Hear(topic string, heard func(ids []uuid.UUID)) (stop func(), err error)
}

// Client starts, signals, updates, reads, cancels, retries, pauses and resumes instances. It is safe for concurrent use.
type Client struct {
	store   *store.Store
	publish []string
	waker   Waker
	log     *slog.Logger
	metrics *metrics
	tracing *tracing.Tracer
	waits   *waits[Instance]
	watched *waits[Trigger]

	maxTriggers int
	keepDedup   time.Duration

	validators      validators
	askValidator    func(machine, update string) Validator
	validateTimeout time.Duration

	mu    sync.Mutex
	pokes map[*Worker]struct{} // of this process
}

// Connect opens a pool that suits the engine's statements. Behind a pooler in transaction mode pass pooler. A maxConns of 0 is 16.
// It does not wait for the database to answer.
func Connect(ctx context.Context, url string, maxConns int, pooler bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	if maxConns > 0 {
		cfg.MaxConns = int32(maxConns)
	}
	if cfg.PingTimeout == 0 {
		cfg.PingTimeout = pingTimeout
	}
	store.Tune(cfg, pooler)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// pingTimeout bounds the ping of a connection that was idle. Where the network has dropped connections without a word, each attempt of
// a caller else spends all its time on one of them.
const pingTimeout = 3 * time.Second

// NewClient returns a client of the database, whose schema has to be there (package migrations). The pool should come from
// [Connect].
func NewClient(db *pgxpool.Pool, cfg Config) (*Client, error) {
	st, err := store.New(db, cfg.Schema)
	if err != nil {
		return nil, err
	}
	c := &Client{
		store: st, publish: []string{string(StatusDone), string(StatusFailed), string(StatusCanceled)}, waker: cfg.Waker, log: cfg.Logger, tracing: tracing.New(cfg.Tracing), pokes: map[*Worker]struct{}{},
		validators: validators{all: map[validated]Validator{}}, askValidator: cfg.AskValidator, validateTimeout: cmp.Or(cfg.ValidateTimeout, defaultValidateTimeout),
	}
	if cfg.Outcomes != nil {
		c.publish = []string{}
		for _, s := range cfg.Outcomes {
			if s.Live() {
				return nil, fmt.Errorf("outcomes: %q is no end: want done, failed or canceled", s)
			}
			c.publish = append(c.publish, string(s))
		}
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if cfg.WaitPoll < 0 {
		return nil, fmt.Errorf("wait poll %s: is below 0", cfg.WaitPoll)
	}
	if cfg.ValidateTimeout < 0 {
		return nil, fmt.Errorf("validate timeout %s: is below 0", cfg.ValidateTimeout)
	}
	if cfg.MaxActiveTriggers < 0 || cfg.KeepDedup < 0 {
		return nil, fmt.Errorf("max active triggers %d, keep dedup %s: is below 0", cfg.MaxActiveTriggers, cfg.KeepDedup)
	}
	c.maxTriggers, c.keepDedup = cfg.MaxActiveTriggers, cmp.Or(cfg.KeepDedup, keepDedup)
	poll := cmp.Or(cfg.WaitPoll, time.Second)
	c.waits, c.watched = newWaits(instances(st), cfg.Waker, poll, c.log), newWaits(triggers(st), cfg.Waker, poll, c.log)
	c.metrics, err = newMetrics(cfg.Metrics, st.Unguarded, func() int64 { return c.waits.size() + c.watched.size() })
	return c, err
}

// CheckSchema says whether the database has the schema that this build needs.
func CheckSchema(ctx context.Context, db *pgxpool.Pool, schema string) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	version, err := migrations.Current(ctx, conn.Conn(), schema)
	if err != nil {
		return err
	}
	if version < migrations.Version {
		return &SchemaError{Have: version, Need: migrations.Version}
	}
	return nil
}

// SchemaError: the database schema is older than this build needs.
type SchemaError struct{ Have, Need int }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the database schema is at version %d and this build needs %d: run pointsman migrate up", e.Have, e.Need)
}

// Get returns an instance: by id, or the one that has the key now, or else had it last. The error is [ErrNotFound] where there is
// none.
func (c *Client) Get(ctx context.Context, ref Ref) (Instance, error) { return get(ctx, c.store, ref) }

// GetTx is Get inside a transaction of the caller's.
func (c *Client) GetTx(ctx context.Context, tx pgx.Tx, ref Ref) (Instance, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Instance{}, err
	}
	return get(ctx, st, ref)
}

func get(ctx context.Context, st *store.Store, ref Ref) (Instance, error) {
	if err := checkRef(ref); err != nil {
		return Instance{}, err
	}
	var in store.Instance
	var found bool
	var err error
	ref = ref.named()
	if ref.key != "" {
		in, found, err = st.GetByKey(ctx, ref.project, ref.key)
	} else {
		in, found, err = st.Get(ctx, ref.project, ref.id)
	}
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Instance{}, fmt.Errorf("get: %w", err)
	}
	return snapshot(in), nil
}

func snapshot(in store.Instance) Instance {
	out := Instance{
		ID: in.ID, Project: in.Project, Machine: in.Machine, Version: in.Version, Status: Status(in.Status), Step: in.Step, Attempt: in.Attempt,
		CorrelationKey: in.CorrelationKey, Queue: in.Queue, Priority: in.Priority, PartitionKey: in.PartitionKey, UniqueKey: in.UniqueKey, UniqueScope: statuses(in.UniqueKey, in.UniqueScope), State: in.State, Awaits: in.Awaits, Deadline: in.Deadline, RunAt: in.RunAt,
		Result: in.Result, LastError: in.LastError, Paused: in.Paused, InboxCount: in.InboxCount,
		InsertedAt: in.InsertedAt, UpdatedAt: in.UpdatedAt, FinishedAt: in.FinishedAt, ParentID: in.ParentID,
	}
	if in.LeaseExpiresAt != nil {
		out.Lease = &Lease{Worker: in.LeaseWorker, ExpiresAt: *in.LeaseExpiresAt}
	}
	return out
}

// Wake pokes the workers of these queues, here and in other processes. Only who uses a Tx method has a use for it: after the
// commit it spares the worker's poll interval.
func (c *Client) Wake(queues ...string) {
	queues = slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return q == "" })
	if len(queues) == 0 {
		return
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	c.mu.Lock()
	for w := range c.pokes {
		w.poke(queues...)
	}
	c.mu.Unlock()
	if c.waker != nil {
		c.waker.Wake(queues)
	}
}

func (c *Client) attach(w *Worker) (detach func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pokes[w] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pokes, w)
	}
}
