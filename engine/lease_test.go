package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/store"
)

// beat is a heartbeat that comes often, and whose answer may take a while.
const beat = 500 * time.Millisecond

// A worker that is cut off from the database is as good as dead: another takes its instance over after the lease, with attempt + 1 and
// no call of the error handler. The first one's step is told, and what it comes to is refused.
func TestWorkerCrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	px := newProxy(t, b.db.URL)
	entered, cause, leave := make(chan struct{}), make(chan error, 1), make(chan struct{})
	machine := func(s step) *engine.Machine {
		return define(t, engine.Definition[raw]{Steps: map[string]step{"begin": s}, OnError: func(context.Context, *engine.Visit[raw], error) engine.Outcome {
			t.Error("the error handler was called")
			return engine.Stop("handled")
		}})
	}
	firstKey := make(chan string, 1)
	// It takes its lease for lost by its own clock; the database is told that the time is over.
	dead := b.workAs(b.another(px.URL), engine.WorkerConfig{Name: "first", Lease: 10 * time.Second, Heartbeat: beat, Machines: []*engine.Machine{machine(func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		firstKey <- v.IdempotencyKey()
		close(entered)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-leave
		return engine.Done("first").Publish("s", 1, nil), nil
	})}})
	id := b.begin("m", "k").ID
	receive(t, entered)
	equal(t, "lease of", b.get(id).Lease.Worker, "first")
	px.Cut(true)
	b.exec(`update pointsman.leases set expires_at = now() - interval '1 hour'`)
	second := make(chan engine.Visit[raw], 1)
	b.work(engine.WorkerConfig{Name: "second", Machines: []*engine.Machine{machine(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		second <- *v
		return engine.Done("second"), nil
	})}})
	v := receive(t, second)
	equal(t, "attempt", v.Instance.Attempt, 1)
	equal(t, "idempotency key", v.IdempotencyKey(), receive(t, firstKey))
	if err := receive(t, cause); !errors.Is(err, engine.ErrLeaseLost) {
		t.Errorf("cause: %v", err)
	}
	equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"second"`)
	px.Cut(false)
	close(leave)
	dead.stop()
	equal(t, "result after the late commit", string(b.get(id).Result), `"second"`)
	equal(t, "late effects", len(b.published(engine.PublishMessage)), 0)
}

// A step that kills its worker each time is not run for ever: MaxAttempts counts its lost leases, but not those that it shared with
// others, of which one may be to blame.
func TestLostLeasesCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 3
	var d diary
	leave := make(chan struct{})
	killer := define(t, engine.Definition[raw]{Retry: fast(2), Steps: map[string]step{"begin": d.around(func(ctx context.Context, _ *engine.Visit[raw]) (engine.Outcome, error) {
		select {
		case <-leave:
			return engine.Done(nil), nil
		case <-ctx.Done():
			return engine.Outcome{}, ctx.Err()
		}
	})}})
	for range n {
		b.begin("m", "")
	}
	w := b.work(engine.WorkerConfig{Machines: []*engine.Machine{killer}, Heartbeat: 20 * time.Millisecond})
	lose := func() { // the worker finds its leases gone, and cannot extend them before they are swept
		b.exec(`update pointsman.leases set token = gen_random_uuid(), expires_at = now() - interval '1 hour'`)
	}
	for round := 1; round <= 2; round++ { // of a shared lease none is to blame, and of several at once neither
		eventually(t, "all execute", func() bool { return len(d.all()) == round*n })
		equal(t, "leases", b.count(`select count(*) from pointsman.leases where expires_at > now()`), map[int]int{1: 1, 2: n}[round])
		lose()
	}
	for round := 1; round <= 2*n; round++ { // one at a time: that is two of each that count
		eventually(t, "one executes", func() bool { return len(d.all()) == 2*n+round })
		equal(t, "leases", b.count(`select count(*) from pointsman.leases where alone and expires_at > now()`), 1)
		lose()
	}
	eventually(t, "all failed", func() bool {
		return b.count(`select count(*) from pointsman.instances where status = 'failed' and attempt = 4 and last_error like '%2 executions and no outcome%'`) == n
	})
	close(leave)
	w.stop()
	equal(t, "executions", len(d.all()), 4*n)
}

// A heartbeat keeps a step that takes longer than its lease, and does not take what this worker itself has moved on for lost.
func TestHeartbeatKeepsLongSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	leave, long := make(chan struct{}), make(chan context.Context, 1)
	again := make(chan context.Context, 1)
	m := steps(t, map[string]step{
		"begin": func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.CorrelationKey != "long" {
				return engine.Next("again"), nil
			}
			long <- ctx
			<-leave
			return engine.Done(nil), nil
		},
		"again": func(ctx context.Context, _ *engine.Visit[raw]) (engine.Outcome, error) { // what shared a lease with the long one, in a lease of its own
			again <- ctx
			<-leave
			return engine.Done(nil), nil
		},
	})
	one, two := b.begin("m", "long").ID, b.begin("m", "").ID // one pick has both
	b.work(engine.WorkerConfig{Lease: 10 * time.Minute, Heartbeat: beat, Machines: []*engine.Machine{m}})
	contexts := []context.Context{receive(t, long), receive(t, again)}
	for range 3 { // the answer to one heartbeat is heeded before the next
		b.exec(`update pointsman.leases set expires_at = expires_at - interval '9 minutes'`)
		eventually(t, "all leases are extended", func() bool {
			return b.count(`select count(*) from pointsman.leases where expires_at < now() + interval '5 minutes'`) == 0
		})
	}
	for i, ctx := range contexts {
		if ctx.Err() != nil {
			t.Errorf("%d was told to stop: %v", i, context.Cause(ctx))
		}
	}
	close(leave)
	for _, id := range []string{one.String(), two.String()} {
		equal(t, id, b.count(`select attempt from pointsman.instances where id = $1`, id), 0)
	}
	b.ends(one, engine.StatusDone)
	b.ends(two, engine.StatusDone)
}

// The answer to a commit that leased the next step at once is lost: the worker that tries again gives back what nobody executes, and no
// lease has to run out.
func TestLostAnswerOfARunAhead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	px := newProxy(t, b.db.URL)
	entered, leave, attempt := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	m := steps(t, map[string]step{
		"begin": to(engine.Next("on")), "on": to(engine.Next("further")), // the first was picked, and others may have been to be picked then
		"further": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			close(entered)
			<-leave
			v.State = raw(`{"mark": "lose the answer to this"}`)
			return engine.Next("last"), nil
		},
		"last": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			attempt <- v.Instance.Attempt
			return engine.Done(nil), nil
		},
	})
	id := b.begin("m", "k").ID
	b.workAs(b.another(px.URL), engine.WorkerConfig{Machines: []*engine.Machine{m}, PollInterval: time.Minute})
	receive(t, entered)
	px.Lose("lose the answer to this")
	close(leave)
	b.until(id, "the commit", func(in engine.Instance) bool { return in.Step == "last" })
	px.Lose("")
	px.Cut(true)
	px.Cut(false)
	equal(t, "attempt", receive(t, attempt), 0)
	b.ends(id, engine.StatusDone)
}

// The database goes away and comes back, in the middle of everything: the worker says so, survives, and loses nothing.
func TestDatabaseAwayAndBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	px := newProxy(t, b.db.URL)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	w := b.workAs(b.another(px.URL), engine.WorkerConfig{Lease: time.Hour, Heartbeat: beat, PollInterval: 10 * time.Millisecond, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			entered <- struct{}{}
			<-leave
			return engine.Done("survived").Publish("s", 1, nil), nil
		},
		"end": to(engine.Done(nil)),
	})}})
	id := b.begin("m", "").ID
	receive(t, entered)
	eventually(t, "ready", func() bool { return w.Ready() == nil })
	px.Cut(true)
	parts := map[string]bool{}
	eventually(t, "all parts say so", func() bool {
		for _, part := range []string{"pick", "sweep", "heartbeat"} {
			if err := w.Ready(); err != nil && strings.Contains(err.Error(), part+": ") {
				parts[part] = true
			}
		}
		return len(parts) == 3
	})
	close(leave)
	eventually(t, "the commit too", func() bool { return w.Ready() != nil && strings.Contains(w.Ready().Error(), "commit: ") })
	px.Cut(false)
	eventually(t, "it is over", func() bool { return w.Ready() == nil })
	in := b.ends(id, engine.StatusDone)
	equal(t, "attempt", in.Attempt, 0)
	equal(t, "publications", len(b.published(engine.PublishMessage)), 1)
	b.ends(b.start(engine.NewInstance{Machine: "m", Start: "end"}).ID, engine.StatusDone)
}

// One instance that somebody has locked keeps nobody else waiting, and commits when it can; nothing is left of the lease they shared.
func TestLockedInstanceIsSetAside(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 10
	locked := b.begin("m", "locked").ID
	for range n - 1 {
		b.begin("m", "")
	}
	cfg := must(pgxpool.ParseConfig(b.db.URL))(t)
	store.Tune(cfg, false)
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = "1s"
	impatient := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(impatient.Close)
	arrived, first, others := make(chan struct{}, n), make(chan struct{}), make(chan struct{})
	c := must(engine.NewClient(impatient, engine.Config{Schema: b.db.Schema, Logger: quiet}))(t)
	w := b.workAs(c, engine.WorkerConfig{Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			arrived <- struct{}{}
			if v.Instance.CorrelationKey == "locked" {
				<-first
			} else {
				<-others
			}
			return engine.Done(nil), nil
		},
		"end": to(engine.Done(nil)),
	})}})
	for range n {
		receive(t, arrived)
	}
	tx := must(b.db.Pool.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // of a test that failed
	must(tx.Exec(t.Context(), fmt.Sprintf("select from %s.instances where id = '%s' for update", b.db.Schema, locked)))(t)
	close(first)
	eventually(t, "its commit waits", func() bool {
		return b.count(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%commit%' || $1 || '%'`, b.db.Schema) > 0
	})
	close(others)
	eventually(t, "the others are done", func() bool { return b.count(`select count(*) from pointsman.instances where status = 'done'`) == n-1 })
	b.ends(b.start(engine.NewInstance{Machine: "m", Start: "end"}).ID, engine.StatusDone)
	equal(t, "the locked one", b.get(locked).Status, engine.StatusExecuting)
	eventually(t, "ready", func() bool { return w.Ready() == nil })
	must(0, tx.Rollback(t.Context()))(t)
	b.ends(locked, engine.StatusDone)
	eventually(t, "no lease is left", func() bool { return b.count(`select count(*) from pointsman.leases`) == 0 })
}
