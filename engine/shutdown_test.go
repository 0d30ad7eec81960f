package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// soon is a ShutdownTimeout that is over at once. What is told to stop then may take its time all the same.
const soon = time.Millisecond

// Run, told to stop, takes no more, waits for the steps that run, commits what they come to, and returns nil.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}, 3), make(chan struct{})
	w := b.work(engine.WorkerConfig{Queues: map[string]int{"default": 3}, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(ctx context.Context, _ *engine.Visit[raw]) (engine.Outcome, error) {
			entered <- struct{}{}
			<-leave
			return engine.Done(1), ctx.Err()
		},
	})}})
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, b.begin("m", "").ID)
	}
	for range 3 {
		receive(t, entered)
	}
	waiting := b.begin("m", "").ID
	w.cancel()
	close(leave)
	w.stop()
	for _, id := range ids {
		equal(t, "status", b.get(id).Status, engine.StatusDone)
	}
	equal(t, "what was not picked", b.get(waiting).Status, engine.StatusRunnable)
	equal(t, "leases", b.count(`select count(*) from pointsman.leases`), 0)
}

// What outlasts ShutdownTimeout is canceled with a cause; its error is no attempt, and it is at once ready for another worker. What it
// comes to without an error counts.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(ctx context.Context) (engine.Outcome, error)
		status engine.Status
	}{
		"error":   {func(ctx context.Context) (engine.Outcome, error) { return engine.Outcome{}, ctx.Err() }, engine.StatusRunnable},
		"panic":   {func(context.Context) (engine.Outcome, error) { panic("stopped") }, engine.StatusRunnable},
		"outcome": {func(context.Context) (engine.Outcome, error) { return engine.Done(nil), nil }, engine.StatusDone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			entered, cause := make(chan struct{}), make(chan error, 1)
			m := define(t, engine.Definition[raw]{
				Retry: fast(1),
				Steps: map[string]step{
					"begin": to(engine.Await("woken", "s").Within(time.Hour)),
					"woken": func(ctx context.Context, _ *engine.Visit[raw]) (engine.Outcome, error) {
						close(entered)
						<-ctx.Done()
						cause <- context.Cause(ctx)
						return tt.end(ctx)
					},
				},
			})
			w := b.work(engine.WorkerConfig{ShutdownTimeout: soon, Machines: []*engine.Machine{m}})
			id := b.parked("k")
			b.send("k", "s", "d")
			receive(t, entered)
			w.stop()
			if err := receive(t, cause); !errors.Is(err, engine.ErrShutdown) {
				t.Errorf("cause: %v", err)
			}
			in := b.get(id)
			equal(t, "status", in.Status, tt.status)
			equal(t, "attempt", in.Attempt, 0)
			equal(t, "leases", b.count(`select count(*) from pointsman.leases`), 0)
			if tt.status == engine.StatusDone {
				return
			}
			b.serve(define(t, engine.Definition[raw]{Steps: map[string]step{"begin": to(engine.Stop("")), "woken": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				return engine.Done(names(v.Awaited)), nil
			}}}))
			equal(t, "awaited again", string(b.ends(id, engine.StatusDone).Result), `"s"`)
			equal(t, "timers", b.count(`select count(*) from pointsman.timers`), 0)
		})
	}
}

// A step that heeds nothing is left behind, and Run says so; the others are given back all the same.
func TestStepThatDoesNotStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave, left := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	w := b.work(engine.WorkerConfig{ShutdownTimeout: 5 * time.Second, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			defer close(left)
			entered <- struct{}{}
			<-leave
			return engine.Done(nil), nil
		},
		"good": func(ctx context.Context, _ *engine.Visit[raw]) (engine.Outcome, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return engine.Outcome{}, ctx.Err()
		},
	})}})
	bad, good := b.begin("m", "").ID, b.start(engine.NewInstance{Machine: "m", Start: "good"}).ID
	receive(t, entered)
	receive(t, entered)
	err := w.stopped()
	if err == nil {
		t.Fatal("Run says that all is well")
	}
	contains(t, "error", err.Error(), "steps of 1 instances did not stop within")
	equal(t, "the good one", b.get(good).Status, engine.StatusRunnable)
	equal(t, "the bad one", b.get(bad).Status, engine.StatusExecuting)
	close(leave)
	receive(t, left)
}

// A database that stays away does not keep Run: it says what it could not give back.
func TestShutdownWithoutDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	px := newProxy(t, b.db.URL)
	entered, leave := make(chan struct{}), make(chan struct{})
	w := b.workAs(b.another(px.URL), engine.WorkerConfig{ShutdownTimeout: 5 * time.Second, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			close(entered)
			<-leave
			return engine.Done(nil), nil
		},
	})}})
	b.begin("m", "")
	receive(t, entered)
	px.Cut(true)
	close(leave)
	err := w.stopped()
	if err == nil {
		t.Fatal("Run says that all is well")
	}
	contains(t, "error", err.Error(), "1 instances could not be given back")
}

// A worker that is stopped before there ever was a database has nothing to say, and one that is started before waits for it.
func TestRunBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	px := newProxy(t, b.db.URL)
	px.Cut(true)
	m := steps(t, map[string]step{"begin": to(engine.Done(nil))})
	w := b.workAs(b.another(px.URL), engine.WorkerConfig{Machines: []*engine.Machine{m}})
	eventually(t, "not ready", func() bool { return w.Ready() != nil })
	contains(t, "why", w.Ready().Error(), "register: ")
	w.stop()
	w = b.workAs(b.another(px.URL), engine.WorkerConfig{Machines: []*engine.Machine{m}})
	eventually(t, "not ready", func() bool { return w.Ready() != nil })
	id := b.begin("m", "").ID
	px.Cut(false)
	b.ends(id, engine.StatusDone)
	eventually(t, "ready", func() bool { return w.Ready() == nil })
}

// Run may be called again.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int32
	w := must(engine.NewWorker(b.Client, engine.WorkerConfig{Machines: []*engine.Machine{steps(t, map[string]step{"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
		runs.Add(1)
		return engine.Done(nil), nil
	}})}}))(t)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		id := b.begin("m", "").ID
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		b.ends(id, engine.StatusDone)
		cancel()
		if err := receive(t, done); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "runs", runs.Load(), 2)
}
