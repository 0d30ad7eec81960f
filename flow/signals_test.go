package flow_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// asleep runs something that should wake nobody, and something that should.
func asleep(t *testing.T, env *enginetest.Env, in *enginetest.Instance, what func()) {
	t.Helper()
	before := in.Steps()
	what()
	env.Drain()
	in.Expect(engine.StatusAwaiting)
	equal(t, "transitions", in.Steps(), before)
}

// A signal that does not pass leaves the flow asleep, and in the inbox for a step that takes any.
func TestSignalWithACondition(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: large, type: wait_for_signal, signal: paid, where: {paid: '$.amount >= 100 && $.currency == "EUR"'}}
      - {ref: any, type: wait_for_signal, signal: paid, depends_on: [large]}
      - {ref: both, type: set_event, key: k, value: ["{{steps.large.output.amount}}", "{{steps.any.output}}"], depends_on: [large, any]}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	for _, payload := range []string{`{"amount": 99, "currency": "EUR"}`, `{"amount": 100}`, `null`, `{"amount": "200", "currency": "EUR"}`} {
		asleep(t, env, in, func() { in.Signal("paid", json.RawMessage(payload)) })
	}
	in.Signal("paid", json.RawMessage(`{"amount": 1e2, "currency": "EUR"}`))
	env.Drain()
	same(t, "result", done(in), `{"both": [100, {"amount": 99, "currency": "EUR"}]}`)
	equal(t, "transitions", in.Steps(), "flow:begin large")
}

// What is in the inbox when the step begins to wait is judged too.
func TestConditionOnWhatIsThere(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: go, type: wait_for_signal, signal: go}
      - {ref: seven, type: wait_for_signal, signal: n, where: {n: $ == 7}, depends_on: [go]}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	in.Signal("n", 1)
	in.Signal("n", 7)
	in.Signal("n", 7)
	in.Signal("go", 1)
	env.Drain()
	same(t, "result", done(in), `{"seven": 7}`)
	equal(t, "transitions", in.Steps(), "flow:begin go")
}

// Several signals are waited for together: the flow sleeps until enough of them are there, whatever comes twice.
func TestSeveralSignals(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: all
    steps: [{ref: a, type: wait_for_signal, signals: [x, y, z], need: all, where: {z: $ > 5}}]
  - name: two
    steps:
      - {ref: a, type: wait_for_signal, signals: [x, y, z], need: 2}
      - {ref: rest, type: wait_for_signal, signal: x, depends_on: [a]}
  - name: any
    steps: [{ref: a, type: wait_for_signal, signals: [x, y]}]
`)...)
	all, two, one := start(env, "all", `{}`), start(env, "two", `{}`), start(env, "any", `{}`)
	env.Drain()
	for _, s := range []struct {
		name string
		n    int
	}{{"y", 1}, {"z", 2}, {"y", 3}, {"w", 4}, {"x", 5}} {
		asleep(t, env, all, func() { all.Signal(s.name, s.n) })
	}
	all.Signal("z", 6)
	env.Drain()
	same(t, "all", done(all), `{"a": [{"name": "y", "payload": 1}, {"name": "x", "payload": 5}, {"name": "z", "payload": 6}]}`)
	equal(t, "transitions", all.Steps(), "flow:begin a")
	for i := range 3 {
		asleep(t, env, two, func() { two.Signal("x", i) })
	}
	two.Signal("z", 9)
	env.Drain()
	same(t, "two", done(two), `{"rest": 1}`)
	one.Signal("y", 1)
	env.Drain()
	same(t, "any", done(one), `{"a": [{"name": "y", "payload": 1}]}`)
}

// Conditions of steps that wait at once are each for their own: a signal goes to the step that it is for, and one that is for none wakes nobody.
func TestConditionsOfSeveralSteps(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: small, type: wait_for_signal, signal: n, where: {n: $ < 10}}
      - {ref: large, type: wait_for_signal, signal: n, where: {n: $ > 100}}
      - {ref: event, type: wait_for_event, event_key: "e-{{instance.id}}"}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	asleep(t, env, in, func() { in.Signal("n", 50) })
	in.Signal("n", 500)
	env.Drain()
	equal(t, "steps", fmt.Sprint(statuses(in.Get())), fmt.Sprint(map[string]string{"small": "waiting", "large": "done", "event": "waiting"}))
	asleep(t, env, in, func() { in.Signal("n", 600) }) // nobody waits for it any more
	event(t, env, "e-"+in.ID.String(), `1`)
	env.Drain()
	in.Signal("n", 5)
	env.Drain()
	same(t, "result", done(in), `{"small": 5, "large": 500, "event": 1}`)
	equal(t, "transitions", len(in.History()), 4)
}

// Several signals of one step beside others: a visit takes what is there for it, and the rest is then all that wakes.
func TestSeveralSignalsBesideOthers(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: pack, type: wait_for_signal, signals: [x, y, z], need: all, timeout: 1h, on_failure: continue}
      - {ref: word, type: wait_for_signal, signal: word}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	in.Signal("x", 1)
	env.Drain()
	in.Signal("word", "w")
	env.Drain()
	asleep(t, env, in, func() { in.Signal("x", 2) })
	asleep(t, env, in, func() { in.Signal("y", 3) })
	late := start(env, "f", `{}`)
	env.Drain()
	in.Signal("z", 4)
	env.Drain()
	same(t, "result", done(in), `{"pack": [{"name": "x", "payload": 1}, {"name": "y", "payload": 3}, {"name": "z", "payload": 4}], "word": "w"}`)

	env.Advance(50 * time.Minute)
	late.Signal("word", "w") // from here on the pack is waited for alone, for what is left of its hour
	env.Drain()
	late.Expect(engine.StatusAwaiting)
	env.Advance(11 * time.Minute)
	same(t, "late", done(late), `{"pack": null, "word": "w"}`)
	equal(t, "error", stepError(t, late, "pack"), "not 3 of the signals x, y, z within 1h0m0s")
}

// Behind a long inbox of what is of no use nothing is missed.
func TestSignalsBehindALongInbox(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: pack, type: wait_for_signal, signals: [x, y], need: all, where: {y: $ == 7}}
      - {ref: event, type: wait_for_event, event_key: "e-{{instance.id}}"}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	batch := make([]engine.Intake, 0, 2200)
	for range 1100 {
		batch = append(batch, engine.Intake{To: engine.ByID(in.ID), Name: "x", Payload: json.RawMessage("1")}, engine.Intake{To: engine.ByID(in.ID), Name: "y", Payload: json.RawMessage("1")})
	}
	if _, err := env.Client.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	asleep(t, env, in, func() {})
	event(t, env, "e-"+in.ID.String(), `1`)
	env.Drain()
	equal(t, "event", statuses(in.Get())["event"], "done")
	in.Signal("y", 7)
	env.Drain()
	same(t, "result", done(in), `{"event": 1, "pack": [{"name": "x", "payload": 1}, {"name": "y", "payload": 7}]}`)
}

func stepError(t *testing.T, in *enginetest.Instance, ref string) string {
	t.Helper()
	var state struct {
		Steps map[string]struct{ Error string }
	}
	if err := json.Unmarshal(in.Get().State, &state); err != nil {
		t.Fatal(err)
	}
	return state.Steps[ref].Error
}

// What is enough for a step goes to it, whoever else has a use for a part of it.
func TestEnoughGoesFirst(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: a, type: wait_for_signal, signals: [x, y], need: all}
      - {ref: b, type: wait_for_signal, signals: [x, z], need: all}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	asleep(t, env, in, func() { in.Signal("x", 1) })
	in.Signal("z", 2)
	env.Drain()
	equal(t, "steps", statuses(in.Get()), map[string]string{"a": "waiting", "b": "done"})
	in.Signal("y", 3)
	in.Signal("x", 4)
	env.Drain()
	same(t, "result", done(in), `{"a": [{"name": "y", "payload": 3}, {"name": "x", "payload": 4}], "b": [{"name": "x", "payload": 1}, {"name": "z", "payload": 2}]}`)
}

// However steps wait beside each other and signals come: none sleeps on what is enough for it, and none has what its condition refuses.
func TestNoStepSleepsOnItsSignals(t *testing.T) {
	someChecks(t)
	env := enginetest.New(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		name := fmt.Sprintf("w%d", n)
		names := []string{"x", "y", "z"}
		type waiter struct {
			names []string
			need  int
			above map[string]int // what payloads have to be
		}
		waiters := make([]waiter, rapid.IntRange(1, 4).Draw(r, "steps"))
		text := fmt.Sprintf("flows:\n  - name: %[1]s\n    steps:\n      - {ref: end, type: wait_for_event, event_key: \"end:%[1]s\"}\n", name)
		for i := range waiters {
			w := &waiters[i]
			w.names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(r, "names")
			w.need, w.above = rapid.IntRange(1, len(w.names)).Draw(r, "need"), map[string]int{}
			where := ""
			for _, name := range w.names {
				if rapid.Bool().Draw(r, "where") {
					w.above[name] = rapid.IntRange(0, 3).Draw(r, "above")
					where += fmt.Sprintf("%s: $ > %d, ", name, w.above[name])
				} else {
					w.above[name] = -1
				}
			}
			text += fmt.Sprintf("      - {ref: s%d, type: wait_for_signal, signals: [%s], need: %d, where: {%s}}\n", i, strings.Join(w.names, ", "), w.need, where)
		}
		r.Log(text)
		stop := env.Serve(engine.WorkerConfig{Machines: machines(t, nil, text), PollInterval: 5 * time.Millisecond})
		defer stop()
		in := start(env, name, `{}`)
		check := func() {
			in.Until("at rest", func(got engine.Instance) bool {
				return got.Status != engine.StatusRunnable && got.Status != engine.StatusExecuting
			})
			got, inbox := in.Get(), in.Inbox()
			var state struct {
				Steps map[string]struct {
					Status          string
					Output, Signals []struct {
						Name    string
						Payload int
					}
				}
			}
			if err := json.Unmarshal(got.State, &state); err != nil {
				r.Fatal(err)
			}
			for i, w := range waiters {
				st := state.Steps[fmt.Sprintf("s%d", i)]
				have := map[string]bool{}
				for _, g := range append(st.Output, st.Signals...) {
					have[g.Name] = true
					if g.Payload <= w.above[g.Name] {
						r.Fatalf("s%d has %v", i, g)
					}
				}
				if st.Status == "done" {
					continue
				}
				for _, s := range inbox {
					var payload int
					if err := s.Decode(&payload); err != nil {
						r.Fatal(err)
					}
					if slices.Contains(w.names, s.Name) && payload > w.above[s.Name] {
						have[s.Name] = true
					}
				}
				if len(have) >= w.need {
					r.Fatalf("s%d is %s, and there is %v", i, st.Status, have)
				}
			}
		}
		check()
		for range rapid.IntRange(1, 12).Draw(r, "signals") {
			in.Signal(rapid.SampledFrom(names).Draw(r, "name"), rapid.IntRange(0, 4).Draw(r, "payload"))
			if rapid.Bool().Draw(r, "look") {
				check()
			}
		}
		check()
	})
}
