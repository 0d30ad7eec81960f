package enginetest

import (
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/internal/byhand"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/internal/store"
)

// Lease is how long an instance belongs to a worker that has crashed ([Env.Crash]).
const Lease = time.Minute

// maxConns is how many connections the pool of an Env has.
const maxConns = 6

// Main runs the tests of a package and stops the private Postgres, if they started one. It does not return.
func Main(m *testing.M) { os.Exit(pgtest.RunUnchecked(m)) }

// Env is a database schema for one test, and the machines that run in it. Its methods fail the test instead of returning an error. It is for
// the test's own goroutine.
type Env struct {
	Client *engine.Client // for whatever Env has no method for
	Pool   *pgxpool.Pool  // its search path is Schema, so that tables of the test's own are apart too
	Schema string         // of the engine's tables; no other test's

	// MaxSteps is how many steps of one instance may run in one Drain or Advance, and a tenth of how many may run in it altogether: more
	// is taken for a loop without an end. New sets it to 1,000.
	MaxSteps int
	// StepTimeout is how long one execution of a step may take by the clock on the wall; then its context is canceled and the test
	// fails. New sets it to a minute.
	StepTimeout time.Duration
	// Kill is asked after each step that Drain or Advance runs: true is a worker that is killed before the commit, as by [Env.Crash]. One that
	// says so once, of the next step in each of many runs, kills at every transition of a machine. nil: no worker is killed.
	Kill func() bool

	t      testing.TB
	store  *store.Store
	worker byhand.Worker
	known  map[string]bool // machine@version
}

// New returns a migrated schema that is dropped when the test has ended, with these machines known in it. Tests with an Env each may be
// parallel.
func New(t testing.TB, machines ...*engine.Machine) *Env {
	t.Helper()
	db := pgtest.New(t)
	e := &Env{Schema: db.Schema, MaxSteps: 1000, StepTimeout: time.Minute, t: t, known: map[string]bool{}}
	var err error
	e.Pool, err = engine.Connect(t.Context(), searching(t, db), maxConns, false)
	e.must(err)
	t.Cleanup(e.Pool.Close)
	log := slog.New(slog.DiscardHandler)
	e.Client, err = engine.NewClient(e.Pool, engine.Config{Schema: db.Schema, Logger: log})
	e.must(err)
	e.store, err = store.New(e.Pool, db.Schema)
	e.must(err)
	w, err := engine.NewWorker(e.Client, engine.WorkerConfig{Machines: machines, Name: "enginetest", Lease: Lease, Logger: log})
	e.must(err)
	e.worker = byhand.Of(w)
	e.must(e.worker.Register(t.Context()))
	for _, m := range machines {
		e.known[m.Name()+"@"+strconv.Itoa(m.Version())] = true
	}
	return e
}

// searching is the URL of a database with its schema as the search path.
func searching(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatalf("enginetest: %v", err)
	}
	query := u.Query()
	query.Set("search_path", db.Schema)
	u.RawQuery = query.Encode()
	return u.String()
}

func (e *Env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("enginetest: %v", err)
	}
}

// Start starts an instance. It does not run before [Env.Drain].
func (e *Env) Start(n engine.NewInstance) *Instance {
	e.t.Helper()
	in, err := e.Client.Start(e.t.Context(), n)
	e.must(err)
	return &Instance{ID: in.ID, env: e}
}

// Instance is one that was not started by [Env.Start]: by an effect of a step, or by a client. The test fails where there is none.
func (e *Env) Instance(ref engine.Ref) *Instance {
	e.t.Helper()
	in, err := e.Client.Get(e.t.Context(), ref)
	if err != nil {
		e.t.Fatalf("enginetest: instance %s%s: %v", ref.Key(), idOf(ref), err)
	}
	return &Instance{ID: in.ID, env: e}
}

func idOf(ref engine.Ref) string {
	if ref.ID() == uuid.Nil {
		return ""
	}
	return ref.ID().String()
}

// Instances are all of a machine ("": of all machines) in the default project, the oldest first.
func (e *Env) Instances(machine string) (all []*Instance) {
	e.t.Helper()
	for before, more := uuid.Nil, true; more; more = before != uuid.Nil {
		page, next, err := e.Client.List(e.t.Context(), engine.Filter{Machine: machine}, before, 1000)
		e.must(err)
		for _, in := range page {
			all = append(all, &Instance{ID: in.ID, env: e})
		}
		before = next
	}
	slices.Reverse(all)
	return all
}

// Outbox is all that has been committed to be published, by id: messages, outcomes, replies and dead letters. Nothing publishes it, and
// nothing takes it away.
func (e *Env) Outbox() (all []engine.Publication) {
	e.t.Helper()
	const page = 1000
	for after, n := int64(0), page; n == page; {
		rows, err := e.Client.Publications(e.t.Context(), store.Shards(), after, page)
		e.must(err)
		if n = len(rows); n > 0 {
			after = rows[n-1].ID
		}
		all = append(all, rows...)
	}
	return all
}

// Published are the messages that steps have published, by [engine.Outcome.Publish].
func (e *Env) Published() []engine.Publication {
	e.t.Helper()
	return slices.DeleteFunc(e.Outbox(), func(p engine.Publication) bool { return p.Kind != engine.PublishMessage })
}
