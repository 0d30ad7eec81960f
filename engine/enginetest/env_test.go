package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// notes is the state of most machines here: what their steps want to be remembered.
type notes []string

type step = engine.Step[notes]

func define(t testing.TB, d engine.Definition[notes]) *engine.Machine {
	t.Helper()
	if d.Name == "" {
		d.Name = "m"
	}
	if d.Start == "" {
		d.Start = "begin"
	}
	m, err := engine.Define(d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// to is a step that comes to an outcome.
func to(o engine.Outcome) step {
	return func(context.Context, *engine.Visit[notes]) (engine.Outcome, error) { return o, nil }
}

// noting is a step that notes something about its visit before it comes to an outcome.
func noting(o engine.Outcome, what func(*engine.Visit[notes]) any) step {
	return func(_ context.Context, v *engine.Visit[notes]) (engine.Outcome, error) {
		v.State = append(v.State, fmt.Sprint(what(v)))
		return o, nil
	}
}

func begin(env *enginetest.Env, n engine.NewInstance) *enginetest.Instance {
	n.Machine, n.State = "m", engine.MustJSON(notes{})
	return env.Start(n)
}

// only is an Env with one machine, and one instance of it.
func only(t testing.TB, d engine.Definition[notes]) (*enginetest.Env, *enginetest.Instance) {
	t.Helper()
	env := enginetest.New(t, define(t, d))
	return env, begin(env, engine.NewInstance{})
}

func wantNotes(t testing.TB, in *enginetest.Instance, want string) {
	t.Helper()
	if got := strings.Join(enginetest.State[notes](in), " "); got != want {
		t.Errorf("notes %q, want %q\n%s", got, want, in.Describe())
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// mayFail is a test whose failure is a text.
type mayFail struct {
	testing.TB
	failure string
}

func (f *mayFail) Helper() {}

func (f *mayFail) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// wantFailure runs a part of a test that has to fail, and wants it to say all of this.
func wantFailure(t *testing.T, part func(t testing.TB), says ...string) {
	t.Helper()
	f := &mayFail{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); part(f) }()
	<-done
	if f.failure == "" {
		t.Error("did not fail")
	}
	for _, text := range says {
		if !strings.Contains(f.failure, text) {
			t.Errorf("the failure does not say %q:\n%s", text, f.failure)
		}
	}
}

func TestParkedForeverIsSaid(t *testing.T) {
	t.Parallel()
	wantFailure(t, func(t testing.TB) {
		env, in := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Await("", "payment"))}})
		in.SignalOnce("d1", "item", map[string]string{"sku": "cup"})
		env.Drain()
		env.Advance(1000 * time.Hour)
		in.Expect(engine.StatusDone)
	}, "is awaiting_signal, want done", "awaits [payment], without a deadline: only a signal wakes it", `inbox     item {"sku": "cup"} ("d1")`, "begin  0        await    0")
}

func TestLoopIsReported(t *testing.T) {
	t.Parallel()
	wantFailure(t, func(t testing.TB) {
		env, _ := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Next("again")), "again": to(engine.Next("begin"))}})
		env.MaxSteps = 25
		env.Drain()
	}, "25 steps of one instance ran", `executing in step "again"`, "… 5 before", "again  0        next     0\n            begin  0        next     0")
}

func TestLoopThroughTimeIsReported(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Await("").Within(time.Second))}})
	env.MaxSteps = 10
	env.Drain()
	equal(t, "steps before", in.Steps(), "begin")
	wantFailure(t, func(f testing.TB) { env.On(f).Advance(time.Hour) }, "10 steps of one instance ran", "attempt 0")
}

func TestEndlessStartsAreReported(t *testing.T) {
	t.Parallel()
	wantFailure(t, func(t testing.TB) {
		another := engine.NewInstance{Machine: "m", State: engine.MustJSON(notes{})}
		env, _ := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Done(nil).Start(another))}})
		env.MaxSteps = 2
		env.Drain()
	}, "20 steps of 21 instances ran")
}

func TestStepThatDoesNotReturnIsReported(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	left := make(chan struct{})
	for name, stays := range map[string]step{
		"heeds its context": func(ctx context.Context, _ *engine.Visit[notes]) (engine.Outcome, error) {
			<-ctx.Done()
			return engine.Outcome{}, ctx.Err()
		},
		"heeds nothing": func(context.Context, *engine.Visit[notes]) (engine.Outcome, error) {
			defer close(left)
			<-release
			return engine.Done(nil), nil
		},
	} {
		wantFailure(t, func(t testing.TB) {
			env, _ := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": stays}})
			env.StepTimeout = 20 * time.Millisecond
			env.Drain()
		}, `step "begin" did not return within 20ms`, "leased to enginetest")
		t.Log(name)
	}
	close(release)
	<-left
}

// Nobody here runs the other machine; that is no failure of the test, but said where its instance is expected to be something.
func TestUnknownMachineRests(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, define(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Done(nil).Start(engine.NewInstance{Machine: "other"}))}}))
	in := begin(env, engine.NewInstance{})
	env.Drain()
	in.Expect(engine.StatusDone)
	wantFailure(t, func(f testing.TB) {
		env.On(f).Instances("other")[0].Expect(engine.StatusDone)
	}, "is runnable, want done", "of the machine other@1, which New was not given")
}

func TestCrash(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[notes]) (engine.Outcome, error) {
			v.State = append(v.State, v.IdempotencyKey(), fmt.Sprint(v.Instance.Attempt))
			return engine.Next("end").Publish("a", "b", nil), nil
		},
		"end": to(engine.Done(nil)),
	}})
	equal(t, "crashed", env.Crash().ID, in.ID)
	env.Drain()
	in.Expect(engine.StatusExecuting)
	wantNotes(t, in, "")
	env.Advance(enginetest.Lease)
	in.Expect(engine.StatusDone)
	wantNotes(t, in, in.ID.String()+"-0 1")
	equal(t, "steps", in.Steps(), "begin end")
	equal(t, "published", len(env.Published()), 1)
	wantFailure(t, func(f testing.TB) { env.On(f).Crash() }, "no step may run")
}

// A step that kills its worker each time is not run for ever.
func TestCrashesCount(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Retry: engine.RetryPolicy{MaxAttempts: 2}, Steps: map[string]step{"begin": to(engine.Done(nil))}})
	for range 2 {
		env.Crash()
		in.Expect(engine.StatusExecuting)
		// Not by Advance: that drains, and what is drained does not crash.
		env.Expire()
	}
	env.Drain()
	in.ExpectFailed("2 executions and no outcome")
}

// Of two with one partition key the second waits while the first is leased, by whomever.
func TestPartitionKeys(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, define(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Done(nil))}}))
	first, second := begin(env, engine.NewInstance{PartitionKey: "k"}), begin(env, engine.NewInstance{PartitionKey: "k"})
	other := begin(env, engine.NewInstance{PartitionKey: "o", Priority: 1})
	equal(t, "crashed", env.Crash().ID, first.ID)
	env.Drain()
	other.Expect(engine.StatusDone)
	second.Expect(engine.StatusRunnable)
	env.Advance(enginetest.Lease)
	first.Expect(engine.StatusDone)
	if !strings.Contains(second.Describe(), string(engine.StatusDone)) {
		t.Error(second.Describe())
	}
}

func TestDelayedStart(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, define(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Done(nil))}}))
	in := begin(env, engine.NewInstance{RunAt: time.Now().Add(24 * time.Hour)})
	env.Advance(23 * time.Hour)
	in.Expect(engine.StatusRunnable)
	if !strings.Contains(in.Describe(), "runs at ") {
		t.Error(in.Describe())
	}
	env.Advance(time.Hour)
	in.Expect(engine.StatusDone)
}

func TestRetryBackoff(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{
		Retry: engine.RetryPolicy{MaxAttempts: 10, Initial: time.Hour, Max: 4 * time.Hour},
		Steps: map[string]step{"begin": func(_ context.Context, v *engine.Visit[notes]) (engine.Outcome, error) {
			if v.Instance.Attempt < 3 {
				return engine.Outcome{}, errors.New("the card is declined")
			}
			return engine.Done(nil), nil
		}},
	})
	env.Drain()
	equal(t, "error", in.Expect(engine.StatusRunnable).LastError, "the card is declined")
	env.Advance(30 * time.Minute)
	equal(t, "attempts after half an hour", in.Get().Attempt, 1)
	env.Advance(time.Hour)
	equal(t, "attempts after an hour and a half", in.Get().Attempt, 2)
	env.Advance(12 * time.Hour) // one of 2 hours, one of 4, 20 % more at most
	in.Expect(engine.StatusDone)
	equal(t, "steps", in.Steps(), "begin begin begin begin")
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{
		"begin": to(engine.Await("late", "never").Within(24 * time.Hour)),
		"late":  noting(engine.Done(nil), func(v *engine.Visit[notes]) any { return v.TimedOut }),
	}})
	env.Drain()
	env.Advance(23 * time.Hour)
	in.ExpectAwaiting("never")
	wantFailure(t, func(f testing.TB) { env.On(f).Instance(engine.ByID(in.ID)).ExpectAwaiting("other") }, "awaits [never], want [other]")
	env.Advance(time.Hour)
	in.Expect(engine.StatusDone)
	wantNotes(t, in, "true")
}

// A deadline that a deadline leads to is within the time that passes, if it is.
func TestAdvanceGoesFromTimeToTime(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Await("hourly").Within(time.Hour)), "hourly": to(engine.Await("").Within(time.Hour))}})
	env.Drain()
	env.Advance(24*time.Hour + 30*time.Minute)
	equal(t, "steps in a day", len(in.History()), 25)
	in.ExpectAwaiting()
}

// Drain lets no time pass, whatever the clock on the wall says.
func TestDrainIsNow(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Await("late", "never").Within(time.Microsecond)), "late": to(engine.Done(nil))}})
	env.Drain()
	for over := false; !over; { // begins after the await has committed, so it ends
		if err := env.Pool.QueryRow(t.Context(), `select now() > (select due_at from instances)`).Scan(&over); err != nil {
			t.Fatal(err)
		}
	}
	env.Drain()
	in.ExpectAwaiting("never")
	env.Advance(0)
	in.Expect(engine.StatusDone)
}

// What a step sees of the database has grown older, and the clock is the clock.
func TestTimesThatStepsSee(t *testing.T) {
	t.Parallel()
	old := func(at time.Time) string { return time.Since(at).Round(time.Hour).String() }
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{
		"begin": to(engine.Await("late", "s").Within(48 * time.Hour)),
		"late": noting(engine.Done(nil), func(v *engine.Visit[notes]) any {
			return fmt.Sprint(old(v.Instance.InsertedAt), " ", old(v.Inbox[0].InsertedAt))
		}),
	}})
	env.Drain()
	env.Advance(24 * time.Hour)
	in.Signal("other", nil)
	env.Advance(24 * time.Hour)
	in.Expect(engine.StatusDone)
	wantNotes(t, in, "48h0m0s 24h0m0s")
	equal(t, "history", old(in.History()[0].At), "48h0m0s")
}

// What came together is handed out together.
func TestPack(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{
		"begin": to(engine.Await("pack", "a", "b")),
		"pack": noting(engine.Done(nil), func(v *engine.Visit[notes]) any {
			return v.Awaited[0].Name + string(v.Awaited[0].Payload) + v.Awaited[1].Name + string(v.Awaited[1].Payload)
		}),
	}})
	env.Drain()
	in.Signal("b", 1)
	in.Signal("a", 2)
	equal(t, "inbox", len(in.Inbox()), 2)
	env.Drain()
	wantNotes(t, in, "b1a2")
	equal(t, "steps", in.Steps(), "begin pack")
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	env, in := only(t, engine.Definition[notes]{Steps: map[string]step{
		"begin": to(engine.Await("got", "s")),
		"got":   to(engine.Await("got", "s").Consuming()),
	}})
	env.Drain()
	equal(t, "first", in.SignalOnce("d", "s", 1), engine.Delivered)
	equal(t, "second", in.SignalOnce("d", "s", 1), engine.Duplicate)
	env.Drain()
	equal(t, "after it was consumed", in.SignalOnce("d", "s", 1), engine.Duplicate)
	equal(t, "with another payload", in.SignalOnce("d", "s", 2), engine.Conflict)
	env.Drain()
	equal(t, "steps", in.Steps(), "begin got")
}

func TestEffects(t *testing.T) {
	t.Parallel()
	child := engine.NewInstance{Machine: "child", CorrelationKey: "c", State: engine.MustJSON(notes{"born"})}
	parent := define(t, engine.Definition[notes]{Steps: map[string]step{"begin": to(engine.Done(7).
		SetEvent("progress", map[string]int{"percent": 100}).
		Start(child).
		Signal(engine.ByKey("", "c"), engine.Signal{Name: "go", Payload: engine.MustJSON("now")}).
		Publish("orders.1", map[string]int{"n": 1}, map[string][]string{"X-Kind": {"one"}}))}})
	env := enginetest.New(t, parent, define(t, engine.Definition[notes]{Name: "child", Queue: "another", Steps: map[string]step{
		"begin": to(engine.Await("end", "go")),
		"end":   noting(engine.Done(nil), func(v *engine.Visit[notes]) any { return string(v.Awaited[0].Payload) }),
	}}))
	in := begin(env, engine.NewInstance{})
	env.Drain()
	equal(t, "result", enginetest.Result[int](in), 7)
	equal(t, "event", enginetest.Event[map[string]int](in, "progress")["percent"], 100)
	started := env.Instance(engine.ByKey("", "c"))
	started.Expect(engine.StatusDone)
	wantNotes(t, started, `born "now"`)
	equal(t, "instances", len(env.Instances("")), 2)
	equal(t, "children", env.Instances("child")[0].ID, started.ID)
	published := env.Published()
	if len(published) != 1 {
		t.Fatalf("published %v", published)
	}
	equal(t, "published", fmt.Sprint(published[0].Subject, string(published[0].Body), published[0].Headers), `orders.1{"n":1}map[X-Kind:[one]]`)
	equal(t, "all there is to publish", len(env.Outbox()), 3) // an outcome each
	again := func(f testing.TB) *enginetest.Instance { return env.On(f).Instance(engine.ByID(in.ID)) }
	wantFailure(t, func(f testing.TB) { again(f).Signal("late", nil) }, "signal late: no_target", "done in step", "result    7", `event     progress {"percent": 100}`)
	wantFailure(t, func(f testing.TB) { enginetest.Event[int](again(f), "other") }, `event "other": not found`)
	wantFailure(t, func(f testing.TB) { enginetest.Result[string](again(f)) }, "result: json: cannot unmarshal number")
	wantFailure(t, func(f testing.TB) { env.On(f).Instance(engine.ByKey("", "nobody")) }, "instance nobody: get: not found")
}

// A signal for a key that nobody comes to have is a dead letter after its time.
func TestHoldsRunOut(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t)
	receipts, err := env.Client.Accept(t.Context(), []engine.Intake{{
		To: engine.ByKey("", "nobody"), Name: "s", OnMissing: engine.MissingHold, HoldFor: time.Hour, Message: &engine.Message{Route: "r"},
	}})
	if err != nil || receipts[0].Result != engine.Held {
		t.Fatal(receipts, err)
	}
	env.Advance(30 * time.Minute)
	equal(t, "dead letters", len(env.Outbox()), 0)
	env.Advance(30 * time.Minute)
	equal(t, "dead letters", len(env.Outbox()), 1)
	equal(t, "kind", env.Outbox()[0].Kind, engine.PublishDeadLetter)
}

func TestTimeDoesNotGoBack(t *testing.T) {
	t.Parallel()
	wantFailure(t, func(t testing.TB) { enginetest.New(t).Advance(-time.Second) }, "time only goes forward")
}
