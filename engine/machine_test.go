package engine_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
)

func TestDefine(t *testing.T) {
	t.Parallel()
	ok := to(engine.Done(nil))
	good := func() engine.Definition[raw] {
		return engine.Definition[raw]{Name: "m", Start: "begin", Steps: map[string]step{"begin": ok}}
	}
	tests := map[string]struct {
		change func(*engine.Definition[raw])
		want   string // "": accepted
	}{
		"good":           {func(*engine.Definition[raw]) {}, ""},
		"any step":       {func(d *engine.Definition[raw]) { d.Steps, d.Any = nil, ok }, ""},
		"no name":        {func(d *engine.Definition[raw]) { d.Name = "" }, "machine: is empty"},
		"name of two":    {func(d *engine.Definition[raw]) { d.Name = "a.b" }, "one token of a subject"},
		"version":        {func(d *engine.Definition[raw]) { d.Version = -1 }, "version: is not between"},
		"high version":   {func(d *engine.Definition[raw]) { d.Version = math.MaxInt32 + 1 }, "version: is not between"},
		"no start":       {func(d *engine.Definition[raw]) { d.Start = "" }, `start: is "", which is no step`},
		"other start":    {func(d *engine.Definition[raw]) { d.Start = "other" }, `start: is "other", which is no step`},
		"any, no start":  {func(d *engine.Definition[raw]) { d.Start, d.Any = "", ok }, `start: is "", which is no step`},
		"bad step":       {func(d *engine.Definition[raw]) { d.Steps["a b"] = ok }, `step: "a b" has ' '`},
		"step of nil":    {func(d *engine.Definition[raw]) { d.Steps["nil"] = nil }, "step nil: has no code"},
		"negative tries": {func(d *engine.Definition[raw]) { d.Retry.MaxAttempts = -1 }, "retry: want max attempts of 1 or more"},
		"max below":      {func(d *engine.Definition[raw]) { d.Retry.Max = time.Millisecond }, "0 <= initial <= max"},
		"factor":         {func(d *engine.Definition[raw]) { d.Retry.Factor = 0.5 }, "a factor of 1 or more"},
		"factor of NaN":  {func(d *engine.Definition[raw]) { d.Retry.Factor = math.NaN() }, "a factor of 1 or more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := good()
			tt.change(&d)
			m, err := engine.Define(d)
			if tt.want == "" {
				if err != nil || m.Name() != "m" || m.Version() != 1 {
					t.Fatalf("%+v, %v", m, err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			contains(t, "error", err.Error(), tt.want)
		})
	}
}

func TestDefineNamesAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := engine.Define(engine.Definition[raw]{Version: -1})
	for _, want := range []string{"machine: is empty", "version: ", "start: "} {
		contains(t, "error", err.Error(), want)
	}
}

// A typed state goes from step to step, and a visit has what the step needs to know.
func TestVisit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type state struct {
		Order string `json:"order"`
		Seen  []string
	}
	visits := make(chan engine.Visit[state], 3)
	visit := func(o engine.Outcome) engine.Step[state] {
		return func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
			visits <- *v
			v.State.Seen = append(v.State.Seen, v.Instance.Step)
			return o, nil
		}
	}
	b.serve(must(engine.Define(engine.Definition[state]{Name: "m", Version: 3, Start: "a", Steps: map[string]engine.Step[state]{
		"a": visit(engine.Next("b")), "b": visit(engine.Await("c", "go")), "c": visit(engine.Done(nil)),
	}}))(t))
	id := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "k", Version: 3, Priority: 7, State: raw(`{"order":"o1"}`)}).ID
	first := receive(t, visits)
	in := first.Instance
	equal(t, "project", in.Project, "default")
	equal(t, "machine", in.Machine, "m")
	equal(t, "version", in.Version, 3)
	equal(t, "status", in.Status, engine.StatusExecuting)
	equal(t, "step", in.Step, "a")
	equal(t, "key", in.CorrelationKey, "k")
	equal(t, "queue", in.Queue, "default")
	equal(t, "priority", in.Priority, 7)
	equal(t, "order", first.State.Order, "o1")
	second := receive(t, visits)
	equal(t, "seen", len(second.State.Seen), 1)
	equal(t, "keys differ", first.IdempotencyKey() != second.IdempotencyKey(), true)
	b.send("k", "go", "d")
	third := receive(t, visits)
	equal(t, "awaited", names(third.Awaited), "go")
	equal(t, "inbox", names(third.Inbox), "go")
	var payload string
	if err := third.Awaited[0].Decode(&payload); err != nil || payload != "d" {
		t.Errorf("payload %q, %v", payload, err)
	}
	equal(t, "dedup key", third.Awaited[0].DedupKey, "d")
	equal(t, "kind", third.Awaited[0].Kind, engine.KindSignal)
	equal(t, "keys differ", second.IdempotencyKey() != third.IdempotencyKey(), true)
	equal(t, "state", string(b.ends(id, engine.StatusDone).State), `{"Seen": ["a", "b", "c"], "order": "o1"}`)
}

// What cannot run fails the instance and says why, at once: no retry cures it.
func TestCannotRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type state struct{ N int }
	done := func(context.Context, *engine.Visit[state]) (engine.Outcome, error) { return engine.Done(nil), nil }
	handled := func(context.Context, *engine.Visit[state], error) engine.Outcome { return engine.Replay(0) }
	b.serve(
		must(engine.Define(engine.Definition[state]{Name: "plain", Start: "begin", Steps: map[string]engine.Step[state]{"begin": done}}))(t),
		must(engine.Define(engine.Definition[state]{Name: "handled", Start: "begin", Steps: map[string]engine.Step[state]{"begin": done}, OnError: handled}))(t),
	)
	for _, tt := range []struct {
		n    engine.NewInstance
		want string
	}{
		{engine.NewInstance{Machine: "plain", Start: "nowhere"}, `machine plain version 1 has no step "nowhere"`},
		{engine.NewInstance{Machine: "plain", State: raw(`{"N":"one"}`)}, "the state does not fit the machine: json: cannot unmarshal string"},
		{engine.NewInstance{Machine: "plain", State: raw(`[]`)}, "the state does not fit the machine"},
		{engine.NewInstance{Machine: "handled", State: raw(`[]`)}, "the state does not fit the machine"},
	} {
		in := b.ends(b.start(tt.n).ID, engine.StatusFailed)
		contains(t, "reason", in.LastError, tt.want)
		equal(t, "attempt", in.Attempt, 0)
	}
}

// A machine with Any runs every step that it has no code of its own for.
func TestAnyStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(define(t, engine.Definition[raw]{
		Steps: map[string]step{"named": to(engine.Done("named"))},
		Any: func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.Step == "other.step" {
				return engine.Next("named"), nil
			}
			return engine.Next("other.step"), nil
		},
	}))
	equal(t, "result", string(b.ends(b.begin("m", "").ID, engine.StatusDone).Result), `"named"`)
}

func TestMustJSON(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(define(t, engine.Definition[raw]{Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]step{"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
		return engine.Done(engine.MustJSON(func() {})), nil
	}}}))
	contains(t, "reason", b.ends(b.begin("m", "").ID, engine.StatusFailed).LastError, "panic: json: unsupported type: func()")
}

func TestCode(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"invalid":     errors.Join(errors.New("x"), &engine.InvalidError{Field: "f"}),
		"too_large":   &engine.InvalidError{Field: "state", Reason: "is too long: 2 bytes, at most 1 are allowed"},
		"conflict":    &engine.ConflictError{},
		"no_target":   &engine.NoTargetError{},
		"not_found":   engine.ErrNotFound,
		"unavailable": errors.New("whatever"),
	} {
		equal(t, err.Error(), engine.Code(err), want)
	}
}
