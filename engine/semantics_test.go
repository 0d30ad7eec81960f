package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/migrations"
)

// What docs/semantics.md names of the spec, and no test of one concern was about.

// gate holds executions of a step until it is opened.
type gate struct {
	entered chan engine.Visit[raw]
	leave   chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan engine.Visit[raw], 100), leave: make(chan struct{})}
}

func (g *gate) around(s step) step {
	return func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		g.entered <- *v
		<-g.leave
		return s(ctx, v)
	}
}

// handled is a machine whose step "act" fails, and whose handler then comes to an outcome, once.
func handled(t *testing.T, d *diary, o engine.Outcome) *engine.Machine {
	done := false
	return define(t, engine.Definition[raw]{
		Steps: map[string]step{
			"begin": to(engine.Await("act", "s")),
			"act": d.around(func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
				if done {
					return engine.Done(nil), nil
				}
				return engine.Outcome{}, errStep
			}),
			"after": d.around(to(engine.Await("act", "never"))),
		},
		OnError: func(context.Context, *engine.Visit[raw], error) engine.Outcome {
			done = true
			return o
		},
	})
}

// What a handler comes to takes effect as if its step had: the effects commit with it, a next consumes what was awaited and nothing
// else, a replay and an await keep it, an end clears the inbox.
func TestOnErrorOutcomesAreFull(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		outcome engine.Outcome
		status  engine.Status
		step    string
		attempt int
		inbox   int
	}{
		"next":   {engine.Next("after"), engine.StatusAwaiting, "act", 0, 1},
		"replay": {engine.Replay(time.Hour), engine.StatusRunnable, "act", 1, 2},
		"await":  {engine.Await("", "s"), engine.StatusAwaiting, "act", 0, 2},
		"done":   {engine.Done("handled"), engine.StatusDone, "act", 0, 0},
		"stop":   {engine.Stop("handled"), engine.StatusFailed, "act", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var d diary
			o := tt.outcome.SetEvent("why", "x").Publish("s", 1, nil).Signal(engine.ByKey("", "nobody"), engine.Signal{Name: "s"}).
				Start(engine.NewInstance{Machine: "idle", CorrelationKey: "started"})
			w := b.serve(handled(t, &d, o))
			id := b.parked("k")
			b.send("k", "other", "1")
			b.send("k", "s", "2")
			eventually(t, "its effects", func() bool { return b.count(`select count(*) from pointsman.events where instance_id = $1`, id) == 1 })
			if name == "next" {
				eventually(t, "the step after", func() bool { return len(d.all()) == 2 && b.get(id).Status == engine.StatusAwaiting })
			}
			w.stop() // an await that spun would have run again by now, or run into the end of it
			in := b.get(id)
			equal(t, "instance", fmt.Sprint(in.Status, " ", in.Step, " ", in.Attempt, " ", in.InboxCount), fmt.Sprint(tt.status, " ", tt.step, " ", tt.attempt, " ", tt.inbox))
			equal(t, "publications", len(b.published(engine.PublishMessage)), 1)
			equal(t, "held signals", b.count(`select count(*) from pointsman.held`), 1)
			equal(t, "started", must(b.Get(t.Context(), engine.ByKey("", "started")))(t).Machine, "idle")
			equal(t, "executions of the step", len(d.all()), map[bool]int{true: 2, false: 1}[name == "next"])
		})
	}
}

// A handler is told what the step was: instance, machine and version, step, attempt, the state before it, what was awaited.
func TestOnErrorContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	type call struct {
		visit engine.Visit[raw]
		cause error
	}
	calls := make(chan call, 2)
	b.serve(define(t, engine.Definition[raw]{
		Version: 3,
		Steps: map[string]step{
			"begin": to(engine.Await("act", "s")),
			"act": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				v.State = raw(`"lost"`)
				return engine.Outcome{}, errStep
			}),
		},
		OnError: func(_ context.Context, v *engine.Visit[raw], cause error) engine.Outcome {
			calls <- call{*v, cause}
			if v.Instance.Attempt == 0 {
				return engine.Replay(0)
			}
			return engine.Done(nil)
		},
	}))
	id := b.start(engine.NewInstance{Machine: "m", Version: 3, CorrelationKey: "k", State: raw(`"kept"`)}).ID
	b.send("k", "s", "1")
	b.ends(id, engine.StatusDone)
	for attempt, visit := range d.all() {
		c := receive(t, calls)
		in := c.visit.Instance
		equal(t, "context", fmt.Sprint(in.ID, in.Machine, in.Version, in.Step, in.Attempt, in.CorrelationKey, string(c.visit.State), names(c.visit.Awaited), names(c.visit.Inbox)),
			fmt.Sprint(id, "m", 3, "act", attempt, "k", `"kept"`, "s", "s"))
		equal(t, "cause", c.cause, errStep)
		equal(t, "idempotency key", c.visit.IdempotencyKey(), visit.IdempotencyKey())
	}
}

// A handler that ends its goroutine, as FailNow of a test does, has failed like one that panics.
func TestOnErrorThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.serve(define(t, engine.Definition[raw]{
		Steps: map[string]step{"begin": failing(errStep), "exits": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			runtime.Goexit()
			panic("unreachable")
		}},
		OnError: func(context.Context, *engine.Visit[raw], error) engine.Outcome {
			runtime.Goexit()
			panic("unreachable")
		},
	}))
	for start, cause := range map[string]string{"begin": errStep.Error(), "exits": "the step ended its goroutine"} {
		in := b.ends(b.start(engine.NewInstance{Machine: "m", Start: start}).ID, engine.StatusFailed)
		equal(t, "reason", in.LastError, "the error handler failed: it ended its goroutine; it was called for: "+cause)
	}
	w.stop()
}

// While a step runs nothing of its instance is locked: the pick has committed, and no transaction spans user code.
func TestStepRunsOutsideOfTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := newGate()
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("act", "s")), "act": g.around(to(engine.Done(nil)))}))
	id := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "k", PartitionKey: "P", UniqueKey: "U"}).ID
	b.send("k", "s", "1")
	receive(t, g.entered)
	tx := must(b.db.Pool.Begin(t.Context()))(t)
	for _, table := range []string{"instances where id = $1", "signals where instance_id = $1", "unique_keys where instance_id = $1", "running_keys where instance_id = $1", "leases where $1 = any(ids)"} {
		tag := must(tx.Exec(t.Context(), migrations.Qualify("select from pointsman."+table+" for update nowait", b.db.Schema), id))(t)
		equal(t, "rows of "+table, tag.RowsAffected(), 1)
	}
	must(0, tx.Rollback(t.Context()))(t)
	close(g.leave)
	b.ends(id, engine.StatusDone)
}

// A wake changes the status and nothing else: not the state, attempt, step or inbox, so that to do it twice would do no harm.
func TestWakeChangesNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.serve(steps(t, map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.Attempt == 0 {
				return engine.Replay(0), nil
			}
			return engine.Await("act", "s").Within(time.Hour), nil
		},
		"act": to(engine.Done(nil)),
	}))
	signaled, late := b.parked("signaled"), b.parked("late")
	w.stop()
	b.exec(`create table pointsman.before as select * from pointsman.instances`)
	b.send("signaled", "s", "1")
	b.exec(`update pointsman.timers set run_at = now() where instance_id = $1`, late)
	reaper := b.work(engine.WorkerConfig{}) // without machines it does only what is due
	b.reaches(late, engine.StatusRunnable)
	reaper.stop()
	const changed = `select count(*) from pointsman.instances i join pointsman.before b using (id)
		where id = $1 and b.parked and not i.parked and to_jsonb(i) - 'parked' - 'timed_out' = to_jsonb(b) - 'parked' - 'timed_out' and i.timed_out = $2`
	equal(t, "woken by a signal", b.count(changed, signaled, false), 1)
	equal(t, "woken by its deadline", b.count(changed, late, true), 1)
	equal(t, "inbox", b.get(signaled).InboxCount, 1)
	b.exec(`drop table pointsman.before`)
}

// What a step starts is an instance like any other: it goes on when its parent ends or is canceled, and its own end is nothing to the
// parent.
func TestStartedInstancesAreIndependent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	idle := to(engine.Await("end", "s"))
	b.serve(
		define(t, engine.Definition[raw]{Name: "child", Steps: map[string]step{"begin": idle, "end": to(engine.Stop("broken"))}}),
		steps(t, map[string]step{
			"begin": to(engine.Await("end", "s").Start(engine.NewInstance{Machine: "child", CorrelationKey: "child of k"})),
			"end":   to(engine.Done(nil)),
			"ends":  to(engine.Done(nil).Start(engine.NewInstance{Machine: "child", CorrelationKey: "orphan"})),
		}),
	)
	child := func(key string) engine.Instance {
		return b.reaches(must(b.Get(t.Context(), engine.ByKey("", key)))(t).ID, engine.StatusAwaiting)
	}
	parent := b.parked("k")
	first := child("child of k").ID
	b.send("child of k", "s", "1")
	b.ends(first, engine.StatusFailed)
	equal(t, "parent of a failed one", b.get(parent).Status, engine.StatusAwaiting)

	b.ends(b.start(engine.NewInstance{Machine: "m", Start: "ends"}).ID, engine.StatusDone)
	equal(t, "whose parent is done", child("orphan").Status, engine.StatusAwaiting)
	other := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "other"}).ID
	b.reaches(other, engine.StatusAwaiting)
	second := child("child of k").ID
	must(b.Cancel(t.Context(), engine.ByID(other), ""))(t)
	equal(t, "whose parent is canceled", b.get(second).Status, engine.StatusAwaiting)
}

// A step whose worker is lost is handed again what its await came to: the signals, or the time-out.
func TestLostLeaseKeepsWhatWasHanded(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"signal": "false s", "time-out": "true "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			g := newGate()
			w := b.serve(steps(t, map[string]step{"begin": to(engine.Await("act", "s").Within(time.Hour)), "act": g.around(to(engine.Done(nil)))}))
			id := b.parked("k")
			if name == "signal" {
				b.send("k", "s", "1")
			} else {
				b.exec(`update pointsman.timers set run_at = now()`)
			}
			for attempt := range 2 {
				v := receive(t, g.entered)
				equal(t, "handed", fmt.Sprint(v.TimedOut, " ", names(v.Awaited)), want)
				equal(t, "attempt", v.Instance.Attempt, attempt)
				if attempt == 0 {
					b.exec(`update pointsman.leases set expires_at = now() - interval '1 hour'`)
				}
			}
			close(g.leave)
			b.ends(id, engine.StatusDone)
			w.stop()
			equal(t, "executions that counted", b.count(`select count(*) from pointsman.history where instance_id = $1 and step = 'act'`, id), 1)
		})
	}
}

// A deadline and a delay are at least this long, by the clock of the database.
func TestNothingIsEarly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const delay = 60 * time.Millisecond
	once := func(o engine.Outcome) step {
		return func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.TimedOut || v.Instance.Attempt > 0 {
				return engine.Done(nil), nil
			}
			return o, nil
		}
	}
	b.serve(steps(t, map[string]step{"begin": once(engine.Await("", "s").Within(delay)), "sleep": once(engine.Await("").Within(delay)), "replay": once(engine.Replay(delay))}))
	for _, start := range []string{"begin", "sleep", "replay"} {
		id := b.start(engine.NewInstance{Machine: "m", Start: start}).ID
		b.ends(id, engine.StatusDone)
		equal(t, start, b.count(`select count(*) from pointsman.history a join pointsman.history b using (instance_id)
			where instance_id = $1 and a.outcome <> 'done' and b.outcome = 'done' and b.at - a.at >= $2`, id, delay), 1)
	}
}

// The n-th retry comes after Initial * Factor^(n-1), at most Max, give or take a fifth; MaxAttempts counts executions.
func TestRetryDelays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(define(t, engine.Definition[raw]{
		Retry: engine.RetryPolicy{MaxAttempts: 4, Initial: time.Hour, Factor: 2, Max: 3 * time.Hour},
		Steps: map[string]step{"begin": d.around(failing(errStep))},
	}))
	id := b.begin("m", "").ID
	for i, want := range []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour} {
		in := b.until(id, "failed again", func(in engine.Instance) bool { return in.Attempt == i+1 })
		if got := in.RunAt.Sub(in.UpdatedAt); got < want*8/10-time.Second || got > want*12/10+time.Second {
			t.Errorf("retry %d comes after %s, want %s give or take a fifth", i+1, got, want)
		}
		b.exec(`update pointsman.timers set run_at = now()`)
	}
	b.ends(id, engine.StatusFailed)
	equal(t, "executions", len(d.all()), 4)
}

// Different partition keys run side by side.
func TestPartitionKeysRunSideBySide(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := newGate()
	b.serve(steps(t, map[string]step{"begin": g.around(to(engine.Done(nil)))}))
	ids := must(b.StartAll(t.Context(), []engine.NewInstance{{Machine: "m", PartitionKey: "a"}, {Machine: "m", PartitionKey: "b"}, {Machine: "m"}}, true))(t)
	b.Wake("default")
	for range ids {
		receive(t, g.entered) // none has left
	}
	close(g.leave)
	for _, r := range ids {
		b.ends(r.InstanceID, engine.StatusDone)
	}
}

// A unique key is kept as it was given, and compared byte by byte; one with a time in it is unique in a window.
func TestUniqueKeyIsVerbatim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keys := []string{"key", "Key", " key", "key ", "ke\u0301y", "k\u00e9y", "nightly:2024-06-01", "nightly:2024-06-02", `a"b\c{`}
	for _, key := range keys {
		in := b.start(engine.NewInstance{Machine: "m", UniqueKey: key})
		equal(t, "as read", b.get(in.ID).UniqueKey, key)
	}
	for _, key := range keys {
		if _, err := b.Start(t.Context(), engine.NewInstance{Machine: "m", UniqueKey: key}); engine.Code(err) != "conflict" {
			t.Errorf("a second %q: %v", key, err)
		}
	}
	b.start(engine.NewInstance{Machine: "m"}) // none is no key
	b.start(engine.NewInstance{Machine: "m"})
}

// A step may await one thing and decide by all that the inbox holds. What it did not await stays until an await of its own.
func TestStepDecidesByTheWholeInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("look", "tick")),
		"look": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if names(v.Inbox) == "a b tick" {
				return engine.Next("rest"), nil
			}
			return engine.Next("begin"), nil
		}),
		"rest": to(engine.Await("end", "a")),
		"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(names(v.Awaited) + " of " + names(v.Inbox)), nil
		},
	}))
	id := b.parked("k")
	b.send("k", "tick", "1")
	eventually(t, "looked", func() bool { return len(d.all()) == 1 && b.get(id).Status == engine.StatusAwaiting })
	b.send("k", "a", "2")
	b.send("k", "b", "3")
	equal(t, "woken by neither", b.get(id).Status, engine.StatusAwaiting)
	b.send("k", "tick", "4")
	equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"a of a b"`)
}

// Where a signal comes for an instance in whatever status, it is taken in at once or refused with the end.
func TestSignalInEveryStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := newGate()
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("act", "go")), "act": g.around(to(engine.Next("rest"))), "rest": to(engine.Await("end", "s")), "end": to(engine.Done(nil))}))
	runnable := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "later", RunAt: time.Now().Add(time.Hour)}).ID
	b.send("later", "s", "1")
	equal(t, "inbox of one that has not begun", b.get(runnable).InboxCount, 1)
	id := b.parked("k")
	b.send("k", "go", "2")
	receive(t, g.entered)
	b.send("k", "s", "3") // while it executes
	close(g.leave)
	in := b.ends(id, engine.StatusDone)
	_, err := b.Signal(t.Context(), engine.ByKey("", "k"), engine.Signal{Name: "s"})
	var ended *engine.NoTargetError
	if !errors.As(err, &ended) || ended.Ended.ID != id || ended.Ended.Status != engine.StatusDone || !ended.Ended.At.Equal(*in.FinishedAt) {
		t.Errorf("after its end: %v", err)
	}
	equal(t, "inbox of the ended", b.count(`select count(*) from pointsman.signals where instance_id = $1`, id), 0)
}

// A machine may do without a history. Nothing else is different.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := map[string]step{"begin": to(engine.Await("end", "s")), "end": to(engine.Done(nil))}
	b.serve(define(t, engine.Definition[raw]{Name: "without", NoHistory: true, Steps: all}), define(t, engine.Definition[raw]{Name: "with", Steps: all}))
	for machine, rows := range map[string]int{"without": 0, "with": 2} {
		id := b.begin(machine, machine).ID
		b.send(machine, "s", "d")
		b.ends(id, engine.StatusDone)
		equal(t, machine, b.count(`select count(*) from pointsman.history where instance_id = $1`, id), rows)
	}
}
