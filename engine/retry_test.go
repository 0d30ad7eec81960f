package engine_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
)

var errStep = errors.New("the step broke")

// fast is a policy that does not keep a test waiting.
func fast(max int) engine.RetryPolicy {
	return engine.RetryPolicy{MaxAttempts: max, Initial: time.Millisecond, Max: time.Millisecond}
}

// MaxAttempts counts executions; each is told its number, and all are one visit.
func TestErrorIsRetried(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]step{
		"error": failing(errStep),
		"panic": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) { panic(errStep) },
		"nil": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			panic((*v).Awaited[0].Name + errStep.Error())
		},
		"goexit": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			runtime.Goexit() // as t.FailNow does
			return engine.Outcome{}, nil
		},
		"state of a failure does not count": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			v.State = raw(`"changed"`)
			return engine.Done(nil), errStep
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var d diary
			b.serve(define(t, engine.Definition[raw]{Retry: fast(3), Steps: map[string]step{"begin": d.around(fail)}}))
			in := b.ends(b.begin("m", "").ID, engine.StatusFailed)
			want := errStep.Error()
			if name == "goexit" {
				want = "the step ended its goroutine"
			}
			if name == "nil" {
				want = "panic: runtime error: index out of range"
			}
			contains(t, "reason", in.LastError, want)
			equal(t, "state", string(in.State), "{}")
			visits := d.all()
			equal(t, "executions", len(visits), 3)
			for i, v := range visits {
				equal(t, "attempt", v.Instance.Attempt, i)
				equal(t, "idempotency key", v.IdempotencyKey(), visits[0].IdempotencyKey())
			}
		})
	}
}

func TestTerminalErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{"begin": d.around(failing(engine.Terminal(errStep)))}))
	equal(t, "reason", b.ends(b.begin("m", "").ID, engine.StatusFailed).LastError, errStep.Error())
	equal(t, "executions", len(d.all()), 1)
	if engine.Terminal(nil) != nil || !errors.Is(engine.Terminal(errStep), errStep) {
		t.Error("Terminal does not wrap its error")
	}
}

// While an error waits for its retry, the instance says which error it was; success forgets it.
func TestLastError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := true
	b.serve(define(t, engine.Definition[raw]{
		Retry: engine.RetryPolicy{Initial: time.Hour, Max: time.Hour},
		Steps: map[string]step{"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			if broken {
				broken = false
				return engine.Outcome{}, errStep
			}
			return engine.Done(nil), nil
		}},
	}))
	id := b.begin("m", "").ID
	in := b.until(id, "failed once", func(in engine.Instance) bool { return in.LastError != "" || !in.Status.Live() })
	equal(t, "error", in.LastError, errStep.Error())
	equal(t, "status", in.Status, engine.StatusRunnable)
	equal(t, "attempt", in.Attempt, 1)
	equal(t, "waits", in.RunAt != nil, true)
	b.exec(`update pointsman.timers set run_at = now()`)
	in = b.ends(id, engine.StatusDone)
	equal(t, "error in the end", in.LastError, "")
}

// Only errors and lost leases use up MaxAttempts: a step may ask to be replayed as often as it likes, and what happened before an
// await is over.
func TestReplaysAndAwaitsDoNotUseUpAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	failOnce := func(next engine.Outcome) step {
		failed := false
		return func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.Attempt < 5 {
				return engine.Replay(0), nil
			}
			if !failed {
				failed = true
				return engine.Outcome{}, errStep
			}
			return next, nil
		}
	}
	b.serve(define(t, engine.Definition[raw]{Retry: fast(2), Steps: map[string]step{
		"begin": failOnce(engine.Await("after", "never").Within(time.Millisecond)),
		"after": failOnce(engine.Done(nil)),
	}}))
	equal(t, "attempt", b.ends(b.begin("m", "").ID, engine.StatusDone).Attempt, 7)
}

// The error handler may come to any outcome, sees the cause, and changes the state.
func TestOnError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handle func(v *engine.Visit[raw]) engine.Outcome
		status engine.Status
		step   string
		error  string
		runs   int
	}{
		"next":   {func(*engine.Visit[raw]) engine.Outcome { return engine.Next("end") }, engine.StatusDone, "end", "", 1},
		"await":  {func(*engine.Visit[raw]) engine.Outcome { return engine.Await("end", "s") }, engine.StatusAwaiting, "end", "", 1},
		"done":   {func(*engine.Visit[raw]) engine.Outcome { return engine.Done(nil) }, engine.StatusDone, "begin", "", 1},
		"stop":   {func(*engine.Visit[raw]) engine.Outcome { return engine.Stop("enough") }, engine.StatusFailed, "begin", "enough", 1},
		"replay": {func(*engine.Visit[raw]) engine.Outcome { return engine.Replay(time.Hour) }, engine.StatusRunnable, "begin", "panic: " + errStep.Error(), 1},
		"replay beyond any policy": {func(v *engine.Visit[raw]) engine.Outcome {
			if v.Instance.Attempt < 8 {
				return engine.Replay(0)
			}
			return engine.Done(nil)
		}, engine.StatusDone, "begin", "", 9},
		"panic":   {func(*engine.Visit[raw]) engine.Outcome { panic("no hands") }, engine.StatusFailed, "begin", "the error handler failed: panic: no hands; it was called for: panic: " + errStep.Error(), 1},
		"nothing": {func(*engine.Visit[raw]) engine.Outcome { return engine.Outcome{} }, engine.StatusFailed, "begin", "returned no outcome", 1},
		"unknown": {func(*engine.Visit[raw]) engine.Outcome { return engine.Next("nowhere") }, engine.StatusFailed, "begin", `has no step "nowhere"`, 1},
		"effects": {func(*engine.Visit[raw]) engine.Outcome { return engine.Done(nil).SetEvent("why", errStep.Error()) }, engine.StatusDone, "begin", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var d diary
			b.serve(define(t, engine.Definition[raw]{
				Retry: fast(1),
				Steps: map[string]step{
					"begin": d.around(func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) { panic(errStep) }),
					"end":   to(engine.Done(nil)),
				},
				OnError: func(_ context.Context, v *engine.Visit[raw], cause error) engine.Outcome {
					if cause == nil || string(v.State) == `"broken"` {
						t.Errorf("cause %v, state %s", cause, v.State)
					}
					v.State = raw(`"handled"`)
					return tt.handle(v)
				},
			}))
			id := b.begin("m", "").ID
			in := b.until(id, "handled", func(in engine.Instance) bool {
				return in.Status == tt.status && (in.Status != engine.StatusRunnable || in.Attempt > 0)
			})
			equal(t, "step", in.Step, tt.step)
			if tt.error != "" {
				contains(t, "reason", in.LastError, tt.error)
			} else {
				equal(t, "reason", in.LastError, "")
			}
			if !(name == "panic" || name == "nothing" || name == "unknown") {
				equal(t, "state", string(in.State), `"handled"`)
			}
			equal(t, "executions", len(d.all()), tt.runs)
			if name == "effects" {
				equal(t, "events", b.count(`select count(*) from pointsman.events where key = 'why'`), 1)
			}
		})
	}
}
