package engine_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// Each outcome, from a step that had already failed twice: what it does to status, step, state, attempt and visit.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	later := time.Hour
	tests := []struct {
		name    string
		outcome engine.Outcome
		status  engine.Status
		step    string
		attempt int
		result  string
		reason  string
		visit   string // of an execution that follows at once
	}{
		{name: "next", outcome: engine.Next("last"), status: engine.StatusExecuting, step: "last", attempt: 0, visit: "1"},
		{name: "next to itself", outcome: engine.Next("begin"), status: engine.StatusExecuting, step: "begin", attempt: 0, visit: "1"},
		{name: "replay", outcome: engine.Replay(0), status: engine.StatusExecuting, step: "begin", attempt: 3, visit: "0"},
		{name: "replay later", outcome: engine.Replay(later), status: engine.StatusRunnable, step: "begin", attempt: 3},
		{name: "await", outcome: engine.Await("last", "s"), status: engine.StatusAwaiting, step: "last", attempt: 2},
		{name: "await within", outcome: engine.Await("", "s", "r").Within(later), status: engine.StatusAwaiting, step: "begin", attempt: 2},
		{name: "sleep", outcome: engine.Await("last").Within(later), status: engine.StatusAwaiting, step: "last", attempt: 2},
		{name: "await consuming", outcome: engine.Await("last", "s").Consuming(), status: engine.StatusAwaiting, step: "last", attempt: 0},
		{name: "done", outcome: engine.Done(map[string]int{"n": 1}), status: engine.StatusDone, step: "begin", attempt: 2, result: `{"n": 1}`},
		{name: "done with nothing", outcome: engine.Done(nil), status: engine.StatusDone, step: "begin", attempt: 2, result: "null"},
		{name: "stop", outcome: engine.Stop("no\x00t today"), status: engine.StatusFailed, step: "begin", attempt: 2, reason: "no\uFFFDt today"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			after, seen := make(chan engine.Visit[raw], 1), make(chan struct{})
			decided := false
			run := func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				switch {
				case decided:
					after <- *v
					<-seen
					return engine.Done(nil), nil
				case v.Instance.Attempt < 2:
					return engine.Outcome{}, errors.New("not yet")
				}
				decided = true
				v.State = raw(`{"left": true}`)
				return tt.outcome, nil
			}
			b.serve(steps(t, map[string]step{"begin": run, "last": run}))
			t.Cleanup(func() { close(seen) })
			id := b.begin("m", "").ID
			if tt.visit != "" {
				v := receive(t, after)
				equal(t, "idempotency key", v.IdempotencyKey(), id.String()+"-"+tt.visit)
			}
			in := b.until(id, "so", func(in engine.Instance) bool { return string(in.State) == `{"left": true}` })
			if tt.status == engine.StatusExecuting {
				equal(t, "lease", in.Lease != nil, true)
			}
			equal(t, "status", in.Status, tt.status)
			equal(t, "step", in.Step, tt.step)
			equal(t, "attempt", in.Attempt, tt.attempt)
			equal(t, "result", string(in.Result), tt.result)
			equal(t, "finished", in.FinishedAt != nil, !in.Status.Live())
			if tt.reason != "" {
				equal(t, "reason", in.LastError, tt.reason)
			}
			if tt.name == "replay later" {
				equal(t, "run at", in.RunAt.After(time.Now().Add(later/2)), true)
			}
			if strings.Contains(tt.name, "within") {
				equal(t, "deadline", in.Deadline.After(time.Now().Add(later/2)), true)
				equal(t, "awaits", strings.Join(in.Awaits, " "), "s r")
			}
		})
	}
}

// A mistake in an outcome is an error of the step, and says what is wrong.
func TestWrongOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many, bulk := engine.Done(nil), engine.Done(nil)
	for range engine.MaxEffects + 1 {
		many = many.Signal(engine.ByKey("", "k"), engine.Signal{Name: "s"})
	}
	for range engine.MaxEffectBytes>>20 + 1 {
		bulk = bulk.Publish("s", make([]byte, 1<<20), nil)
	}
	long := strings.Repeat("x", 1<<20)
	tests := map[string]struct {
		outcome engine.Outcome
		reason  string
	}{
		"none":              {engine.Outcome{}, "returned no outcome"},
		"unknown next":      {engine.Next("nowhere"), `has no step "nowhere"`},
		"unknown await":     {engine.Await("nowhere", "s"), `has no step "nowhere"`},
		"await of nothing":  {engine.Await(""), "waits for no signal and has no deadline"},
		"bad name":          {engine.Await("", "a b"), "signal: "},
		"within of done":    {engine.Done(nil).Within(time.Hour), "wants an await"},
		"within nothing":    {engine.Await("", "s").Within(0), "wants an await and a time above 0"},
		"consuming next":    {engine.Next("begin").Consuming(), "only an await"},
		"result":            {engine.Done(make(chan int)), "unsupported type"},
		"result of NaN":     {engine.Done(math.NaN()), "unsupported value"},
		"result with null":  {engine.Done("a\x00b"), `has \u0000`},
		"long result":       {engine.Done(long), "result: is too long"},
		"event key":         {engine.Done(nil).SetEvent("", 1), "event: is empty"},
		"event value":       {engine.Done(nil).SetEvent("k", "\x00"), `event k: has \u0000`},
		"signal to nobody":  {engine.Done(nil).Signal(engine.Ref{}, engine.Signal{Name: "s"}), "neither a key nor an id"},
		"signal to bad key": {engine.Done(nil).Signal(engine.ByKey("", "\n"), engine.Signal{Name: "s"}), "correlation_key: "},
		"signal payload":    {engine.Done(nil).Signal(engine.ByKey("", "k"), engine.Signal{Name: "s", Payload: raw(`{`)}), "payload: is not JSON"},
		"start":             {engine.Done(nil).Start(engine.NewInstance{Machine: "a.b"}), "machine: "},
		"publish nowhere":   {engine.Done(nil).Publish("", 1, nil), "subject: is empty"},
		"publish long":      {engine.Done(nil).Publish("s", []byte(long+"x"), nil), "data: has 1048577 bytes"},
		"too many effects":  {many, "1001 effects: at most 1000"},
		"too much":          {bulk, "effects of 34603008 bytes: at most 33554432"},
	}
	ids := map[string]uuid.UUID{}
	all := map[string]step{}
	for name, tt := range tests {
		all[strings.ReplaceAll(name, " ", "_")] = to(tt.outcome)
	}
	all["begin"] = to(engine.Done(nil))
	b.serve(define(t, engine.Definition[raw]{Steps: all, Retry: engine.RetryPolicy{MaxAttempts: 1}}))
	for name := range tests {
		ids[name] = b.start(engine.NewInstance{Machine: "m", Start: strings.ReplaceAll(name, " ", "_")}).ID
	}
	for name, tt := range tests {
		contains(t, name, b.ends(ids[name], engine.StatusFailed).LastError, tt.reason)
	}
	equal(t, "held", b.count(`select count(*) from pointsman.held`), 0)
}

// What a machine's state cannot be is an error of the step too.
func TestStateThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type state struct{ V any }
	broken := func(v any) engine.Step[state] {
		return func(_ context.Context, visit *engine.Visit[state]) (engine.Outcome, error) {
			visit.State.V = v
			return engine.Done(nil), nil
		}
	}
	b.serve(must(engine.Define(engine.Definition[state]{Name: "m", Start: "func", Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]engine.Step[state]{
		"func": broken(func() {}), "null": broken("\x00"), "long": broken(strings.Repeat("x", 1<<20)),
	}}))(t))
	for start, reason := range map[string]string{"func": "state: json: unsupported type", "null": `state: has \u0000`, "long": "state: is too long"} {
		in := b.ends(b.start(engine.NewInstance{Machine: "m", Start: start}).ID, engine.StatusFailed)
		contains(t, start, in.LastError, reason)
		equal(t, "state", string(in.State), "{}")
	}
}

// One outcome that Postgres does not take fails its own instance, with the reason, and no other of its group.
func TestPoisonFailsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 200
	poison := engine.Done(nil).Publish("a\x00b", 1, nil).Signal(engine.ByKey("", "nobody"), engine.Signal{Name: "s"})
	arrived, together := make(chan struct{}, n), make(chan struct{})
	hold := func(o engine.Outcome) step {
		return func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			arrived <- struct{}{}
			<-together
			return o, nil
		}
	}
	b.work(engine.WorkerConfig{Machines: []*engine.Machine{steps(t, map[string]step{"begin": hold(engine.Done(1)), "poison": hold(poison)})}, Queues: map[string]int{"default": n}})
	var good []uuid.UUID
	for range n - 1 {
		good = append(good, b.begin("m", "").ID)
	}
	bad := b.start(engine.NewInstance{Machine: "m", Start: "poison"}).ID
	for range n {
		receive(t, arrived)
	}
	close(together)
	contains(t, "reason", b.ends(bad, engine.StatusFailed).LastError, `the outcome done of step "poison" cannot be stored: commit outcomes: ERROR`)
	for _, id := range good {
		b.ends(id, engine.StatusDone)
	}
	equal(t, "effects of the poison", b.count(`select count(*) from pointsman.held`), 0)
	eventually(t, "no lease is left", func() bool { return b.count(`select count(*) from pointsman.leases`) == 0 })
}
