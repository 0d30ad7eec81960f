package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// All of these tests are in one project and queue, with one machine version, unless they are about that.
const (
	project = "p"
	queue   = "q"
	machine = "m"
)

var (
	known   = []string{machine + "@1"}
	publish = []string{"done", "failed", "canceled"}
)

// fixture is a store on a schema of the test's own, with calls that fail the test instead of returning an error.
type fixture struct {
	*Store
	t      testing.TB
	db     *pgtest.DB
	schema string
}

func setup(t testing.TB) *fixture { return setupTuned(t, false) }

func setupTuned(t testing.TB, pooler bool) *fixture {
	t.Helper()
	db := pgtest.New(t)
	cfg := must(pgxpool.ParseConfig(db.URL))(t)
	Tune(cfg, pooler)
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	return &fixture{Store: must(New(pool, db.Schema))(t), t: t, db: db, schema: db.Schema}
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

// signal is one to a key.
func signal(key, name, dedup string) Signal {
	payload := []byte(`{"d": "` + dedup + `"}`)
	return Signal{Key: key, Kind: "signal", Name: name, Payload: payload, DedupKey: dedup, Dedup: SignalDedup(dedup), Hash: SignalHash("signal", name, payload)}
}

func signalID(id uuid.UUID, name, dedup string) Signal {
	g := signal("", name, dedup)
	g.ID = id
	return g
}

// again is the same message, redelivered under another dedup key.
func again(g Signal, dedup string) Signal {
	g.DedupKey, g.Dedup, g.Recheck = dedup, SignalDedup(dedup), true
	return g
}

func sourced(g Signal, seq uint64) Signal {
	source := Source("r", "S", time.Unix(1, 0), seq)
	g.Source = &source
	return g
}

func newInstance(key string) NewInstance {
	return NewInstance{ID: uuid.Must(uuid.NewV7()), CorrelationKey: key, Machine: machine, Version: 1, Step: "begin", Queue: queue, State: []byte(`{"n": 0}`)}
}

func (f *fixture) begin(ns ...NewInstance) []Start {
	f.t.Helper()
	return must(f.tryBegin(f.t.Context(), ns...))(f.t)
}

func (s *Store) tryBegin(ctx context.Context, ns ...NewInstance) (started []Start, err error) {
	var scopes []uuid.UUID
	for _, n := range ns {
		scopes = append(scopes, n.Locks(project)...)
	}
	err = s.InScopes(ctx, scopes, func(tx *Store) (err error) {
		started, err = tx.Start(ctx, project, ns)
		return err
	})
	return started, err
}

// started begins an instance for each key.
func (f *fixture) started(keys ...string) []uuid.UUID {
	f.t.Helper()
	var ns []NewInstance
	for _, key := range keys {
		ns = append(ns, newInstance(key))
	}
	var ids []uuid.UUID
	for i, st := range f.begin(ns...) {
		if st.Verdict != Started || st.Queue != queue {
			f.t.Fatalf("start %s: %+v", keys[i], st)
		}
		ids = append(ids, ns[i].ID)
	}
	return ids
}

// fast delivers by key and slow what misses, as an acceptance that holds does; both tell what the statements said.
func (f *fixture) fast(sigs ...Signal) []Delivery {
	f.t.Helper()
	return must(f.Deliver(f.t.Context(), project, sigs[0].Key == "", sigs))(f.t)
}

func (f *fixture) slow(sigs ...Signal) []Delivery {
	f.t.Helper()
	return must(f.trySlow(f.t.Context(), nil, sigs...))(f.t)
}

// trySlow is the slow transaction as the engine composes it: what has no live target is held, or starts its target.
func (s *Store) trySlow(ctx context.Context, starts map[string]NewInstance, sigs ...Signal) (out []Delivery, err error) {
	byID := sigs[0].Key == ""
	var scopes []uuid.UUID
	for _, g := range sigs {
		if !byID {
			scopes = append(scopes, KeyScope(project, g.Key))
		}
	}
	err = s.InScopes(ctx, scopes, func(tx *Store) (err error) {
		if out, err = tx.DeliverSlow(ctx, project, byID, sigs); err != nil {
			return err
		}
		missing, at := missed(sigs, out)
		verdicts, err := tx.Nobody(ctx, project, byID, missing)
		if err != nil {
			return err
		}
		var ns []NewInstance
		var waiting []Signal
		var held []Hold
		var waitingAt []int
		for k, v := range verdicts {
			g := missing[k]
			n, start := starts[g.Key]
			switch {
			case v.Verdict != Missing || byID:
			case start:
				ns, waiting, waitingAt = append(ns, n), append(waiting, g), append(waitingAt, at[k])
			default:
				held = append(held, Hold{Signal: g, For: time.Hour, Original: &Original{Route: "r"}, Body: g.Payload})
				v.Verdict = Held
			}
			out[at[k]] = v
		}
		if len(ns) > 0 {
			if _, err := tx.Start(ctx, project, ns); err != nil {
				return err
			}
			ds, err := tx.DeliverSlow(ctx, project, false, waiting)
			if err != nil {
				return err
			}
			for k, d := range ds {
				out[waitingAt[k]] = d
			}
		}
		return tx.Hold(ctx, project, held)
	})
	return out, err
}

func missed(sigs []Signal, ds []Delivery) (missing []Signal, at []int) {
	for i, d := range ds {
		if d.Verdict == Missing {
			missing, at = append(missing, sigs[i]), append(at, i)
		}
	}
	return missing, at
}

func (f *fixture) pick(n int) []Work {
	f.t.Helper()
	return must(f.Pick(f.t.Context(), queue, "", "w", known, n, time.Minute))(f.t)
}

// picked is the one instance that is ready.
func (f *fixture) picked() Work {
	f.t.Helper()
	works := f.pick(8)
	if len(works) != 1 {
		f.t.Fatalf("picked %d, want 1", len(works))
	}
	return works[0]
}

// outcome is what the step of w came to.
func outcome(w Work, kind string) Outcome {
	return Outcome{
		ID: w.ID, Project: w.Project, Rev: w.Rev, Token: w.Token, Timed: w.Timed, PartitionKey: w.PartitionKey, UniqueScope: w.UniqueScope, Notifies: w.Notifies, Kind: kind, Ran: w.Step, Attempt: w.Attempt,
		Progress: kind == OutcomeNext || kind == OutcomeDone,
	}
}

func await(w Work, tags ...string) Outcome {
	o := outcome(w, OutcomeAwait)
	o.Awaits, o.Progress = tags, true
	return o
}

// consuming is o, with all that the inbox of w holds consumed.
func consuming(o Outcome, w Work) Outcome {
	for _, g := range w.Inbox {
		o.Consumed = append(o.Consumed, g.ID)
	}
	return o
}

// commit settles outcomes, the last of their leases, and wants all of them to pass.
func (f *fixture) commit(os ...Outcome) *Settled {
	f.t.Helper()
	settled := must(f.tryCommit(f.t.Context(), os...))(f.t)
	if len(settled.Passed) != len(os) {
		f.t.Fatalf("%d of %d outcomes passed", len(settled.Passed), len(os))
	}
	return settled
}

func (s *Store) tryCommit(ctx context.Context, os ...Outcome) (*Settled, error) {
	var last []uuid.UUID
	for _, o := range os {
		if !slices.Contains(last, o.Token) {
			last = append(last, o.Token)
		}
	}
	return s.Commit(ctx, os, Group{Last: last, Publish: publish})
}

// parked starts an instance and has it await the tags.
func (f *fixture) parked(key string, tags ...string) uuid.UUID {
	f.t.Helper()
	id := f.started(key)[0]
	f.commit(await(f.picked(), tags...))
	return id
}

// ended starts an instance and ends it.
func (f *fixture) ended(key string) uuid.UUID {
	f.t.Helper()
	id := f.started(key)[0]
	f.commit(outcome(f.picked(), OutcomeDone))
	return id
}

// exec runs SQL of the test's own.
func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.db.Pool.Exec(f.t.Context(), migrations.Qualify(sql, f.schema), args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

// rows returns what a query finds, its columns with a space and its rows with a comma between.
func (f *fixture) rows(sql string, args ...any) string {
	f.t.Helper()
	rows, err := f.db.Pool.Query(f.t.Context(), migrations.Qualify(sql, f.schema), args...)
	if err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		values, err := r.Values()
		return strings.TrimSuffix(fmt.Sprintln(values...), "\n"), err
	})
	if err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(all, ",")
}

// want compares what a query finds.
func (f *fixture) want(want, sql string, args ...any) {
	f.t.Helper()
	if got := f.rows(sql, args...); got != want {
		f.t.Errorf("%s: %q, want %q", sql, got, want)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
