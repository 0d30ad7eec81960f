package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
)

// The step that failed runs again as the same visit, and is handed again what it was handed.
func TestRetryOfAFailed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	var mended atomic.Bool
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("ship", "go")),
		"ship": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if !mended.Load() {
				return engine.Stop("broken"), nil
			}
			return engine.Done(len(v.Awaited)), nil
		}),
	}))
	id := b.begin("m", "k").ID
	b.reaches(id, engine.StatusAwaiting)
	b.send("k", "aside", "1")
	b.send("k", "go", "2")
	b.ends(id, engine.StatusFailed)
	mended.Store(true)
	in := must(b.Retry(t.Context(), engine.ByKey("", "k")))(t)
	equal(t, "retried", fmt.Sprint(in.ID == id, in.Status.Live(), in.LastError, in.FinishedAt == nil), "true truebrokentrue")
	done := b.ends(id, engine.StatusDone)
	equal(t, "after it", fmt.Sprint(string(done.Result), done.LastError), "1")
	visits := d.all()
	equal(t, "visits", len(visits), 2)
	first, second := visits[0], visits[1]
	equal(t, "idempotency key", second.IdempotencyKey(), first.IdempotencyKey())
	equal(t, "awaited", fmt.Sprint(second.Awaited), fmt.Sprint(first.Awaited))
	equal(t, "inbox", names(second.Inbox), "aside go")
	ends := b.published(engine.PublishOutcome)
	equal(t, "ends", len(ends), 2)
	equal(t, "of one id", ends[0].MsgID == ends[1].MsgID, false)
}

func TestRetryRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.begin("unserved", "k").ID
	refused := func(what string, holder uuid.UUID, says string) {
		t.Helper()
		_, err := b.Retry(t.Context(), engine.ByID(id))
		var conflict *engine.ConflictError
		if !errors.As(err, &conflict) || conflict.ID != holder {
			t.Fatalf("%s: %v", what, err)
		}
		contains(t, what, err.Error(), says)
	}
	refused("live", id, "is runnable: only a failed or canceled one can be retried")
	must(b.Cancel(t.Context(), engine.ByID(id), ""))(t)
	other := b.begin("unserved", "k").ID
	refused("taken", other, `the correlation key "k" is held by instance `+other.String())
	equal(t, "status", b.get(id).Status, engine.StatusCanceled)
	if _, err := b.Retry(t.Context(), engine.ByID(uuid.New())); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
}

// A step that executes goes on, and counts; what follows waits for the resume.
func TestPauseWhileExecuting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	w := b.serve(steps(t, map[string]step{
		"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			close(entered)
			<-leave
			return engine.Next("end"), nil
		},
		"end": to(engine.Done("end")),
	}))
	id := b.begin("m", "").ID
	receive(t, entered)
	in := must(b.Pause(t.Context(), engine.ByID(id)))(t)
	equal(t, "paused", fmt.Sprint(in.Status, in.Paused), "executingtrue")
	close(leave)
	b.until(id, "committed", func(in engine.Instance) bool { return in.Step == "end" })
	w.stop()
	in = b.get(id)
	equal(t, "after its step", fmt.Sprint(in.Status, in.Paused), "runnabletrue")
	b.serve(steps(t, map[string]step{"end": to(engine.Done("end")), "begin": to(engine.Stop("again"))}))
	in = must(b.Resume(t.Context(), engine.ByID(id)))(t)
	equal(t, "resumed", in.Paused, false)
	b.ends(id, engine.StatusDone)
	for what, do := range map[string]func(context.Context, engine.Ref) (engine.Instance, error){"paused": b.Pause, "resumed": b.Resume} {
		_, err := do(t.Context(), engine.ByID(id))
		equal(t, what, engine.Code(err), "conflict")
		contains(t, what, err.Error(), "is done: only one that has not ended can be "+what)
		if _, err := do(t.Context(), engine.ByKey("", "nobody")); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("nobody %s: %v", what, err)
		}
	}
}

// A signal that came meanwhile, and a deadline that has passed, count when it is resumed.
func TestResumeOfAParked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("end", "go")),
		"sleep": to(engine.Await("end", "go").Within(time.Hour)),
		"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(fmt.Sprint(v.TimedOut, len(v.Awaited))), nil
		},
	}))
	signaled := b.begin("m", "signaled").ID
	late := b.start(engine.NewInstance{Machine: "m", Start: "sleep", CorrelationKey: "late"}).ID
	for _, id := range []uuid.UUID{signaled, late} {
		b.reaches(id, engine.StatusAwaiting)
		must(b.Pause(t.Context(), engine.ByID(id)))(t)
	}
	b.send("signaled", "go", "1")
	b.exec(`update pointsman.instances set due_at = now() where id = $1`, late)
	b.exec(`update pointsman.timers set run_at = now() where instance_id = $1`, late)
	eventually(t, "the timer is swept", func() bool { return b.count(`select count(*) from pointsman.timers`) == 0 })
	for id, want := range map[uuid.UUID]string{signaled: `"false 1"`, late: `"true 0"`} {
		equal(t, "while it is paused", b.get(id).Status, engine.StatusAwaiting)
		must(b.Resume(t.Context(), engine.ByID(id)))(t)
		equal(t, "result", string(b.ends(id, engine.StatusDone).Result), want)
	}
}

// What a resume or a pause let happen before its answer was read does not make the answer a refusal.
func TestEndsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("end", "go")),
		"end":   to(engine.Done("end")),
		"busy": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			close(entered)
			<-leave
			return engine.Done("end"), nil
		},
	}))
	parked := b.begin("m", "k").ID
	b.reaches(parked, engine.StatusAwaiting)
	must(b.Pause(t.Context(), engine.ByID(parked)))(t)
	b.send("k", "go", "1")
	busy := b.start(engine.NewInstance{Machine: "m", Start: "busy"}).ID
	receive(t, entered)
	for verb, c := range map[string]struct {
		id  uuid.UUID
		let func()
	}{"resume": {parked, func() {}}, "pause": {busy, func() { close(leave) }}} {
		cfg := b.pool.Config()
		cfg.ConnConfig.Tracer = &secondRead{before: func() { c.let(); b.ends(c.id, engine.StatusDone) }}
		pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
		t.Cleanup(pool.Close)
		client := must(engine.NewClient(pool, engine.Config{Schema: b.db.Schema}))(t)
		do := client.Resume
		if verb == "pause" {
			do = client.Pause
		}
		in, err := do(t.Context(), engine.ByID(c.id))
		equal(t, verb, fmt.Sprintf("%s %v", in.Status, err), "done <nil>")
	}
}

// secondRead does something before an instance is read for the second time: an operation reads it first to find it, then to answer.
type secondRead struct {
	before func()
	reads  int
}

func (r *secondRead) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "/* get */") {
		if r.reads++; r.reads == 2 {
			r.before()
		}
	}
	return ctx
}

func (r *secondRead) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// With the caller's transaction they are undone.
func TestOperateTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	canceled := b.begin("unserved", "canceled").ID
	must(b.Cancel(t.Context(), engine.ByID(canceled), ""))(t)
	live := b.begin("unserved", "live").ID
	for _, keep := range []bool{false, true} {
		tx := must(b.pool.Begin(t.Context()))(t)
		equal(t, "paused", must(b.PauseTx(t.Context(), tx, engine.ByID(live)))(t).Paused, true)
		equal(t, "resumed", must(b.ResumeTx(t.Context(), tx, engine.ByID(live)))(t).Paused, false)
		must(b.PauseTx(t.Context(), tx, engine.ByID(live)))(t)
		equal(t, "retried", must(b.RetryTx(t.Context(), tx, engine.ByID(canceled)))(t).Status, engine.StatusRunnable)
		end := tx.Rollback
		if keep {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "kept", fmt.Sprint(b.get(live).Paused, b.get(canceled).Status.Live()), fmt.Sprint(keep, keep))
	}
}
