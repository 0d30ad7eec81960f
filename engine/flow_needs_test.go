package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pointsman/pointsman/engine"
)

// What package flow needs of the engine beside what machines in Go need.

// A step that consumes only some of what it was handed leaves the others, which do not wake it again, and are there when it looks.
func TestConsumingOnly(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(only ...engine.Signal) engine.Outcome{
		"await": func(only ...engine.Signal) engine.Outcome {
			return engine.Await("again", "s").ConsumingOnly(only...)
		},
		"next": func(only ...engine.Signal) engine.Outcome {
			return engine.Next("park").ConsumingOnly(only...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var d diary
			b.serve(steps(t, map[string]step{
				"begin": to(engine.Await("take", "s", "both").AllOf()),
				"take": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
					return after(v.Awaited[0], v.Awaited[2]), nil
				},
				"park":  to(engine.Await("again", "other")),
				"again": d.around(to(engine.Done(nil))),
			}))
			id := b.parked("k")
			for i, name := range []string{"s", "s", "both"} {
				b.send("k", name, fmt.Sprint(i))
			}
			b.until(id, "took", func(in engine.Instance) bool { return in.InboxCount == 1 && in.Status == engine.StatusAwaiting })
			if name == "next" {
				b.send("k", "other", "3")
			} else {
				b.send("k", "s", "3")
			}
			b.ends(id, engine.StatusDone)
			want := "s s"
			if name == "next" {
				want = "s other"
			}
			visits := d.all()
			equal(t, "visits", len(visits), 1)
			equal(t, "inbox", names(visits[0].Inbox), want)
		})
	}
	equal(t, "wrong", fmt.Sprint(wrongOutcome(t, engine.Done(nil).ConsumingOnly())), "outcome done: ConsumingOnly: only a next or an await can be told what to consume, \"done\" does what it does")
}

// What stands behind the 1,000 that a step is handed wakes it when it has consumed some of them.
func TestConsumingOnlyOfALongInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("take", "a", "b").AllOf()),
		"take": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Await("end", "b").ConsumingOnly(v.Awaited[0]), nil
		},
		"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(names(v.Awaited)), nil
		},
	}))
	id := b.parked("k")
	var batch []engine.Intake
	for i := range 1000 {
		batch = append(batch, engine.Intake{To: engine.ByID(id), Name: "a", DedupKey: fmt.Sprint(i)})
	}
	b.accept(append(batch, engine.Intake{To: engine.ByID(id), Name: "b", DedupKey: "b"})...)
	equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"b"`)
}

// wrongOutcome is why an instance whose step returns it fails.
func wrongOutcome(t *testing.T, o engine.Outcome) string {
	t.Helper()
	b := setup(t)
	b.serve(must(engine.Define(engine.Definition[raw]{Name: "m", Start: "begin", Steps: map[string]step{"begin": to(o)}, Retry: engine.RetryPolicy{MaxAttempts: 1}}))(t))
	return b.ends(b.begin("m", "k").ID, engine.StatusFailed).LastError
}

// A step that waited for two events learns which one is over, and of one that it cannot wait for it learns the key.
func TestTriggersOfAVisit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var refused *engine.WaitRefusedError
	b.serve(must(engine.Define(engine.Definition[raw]{Name: "m", Start: "begin", Steps: map[string]step{
		"begin": to(engine.Await("end", "none").OrEvent(engine.EventWait{Key: "short"}).OrEvent(engine.EventWait{Key: "long", FlowStep: "l"})),
		"other": to(engine.Await("end", "none").OrEvent(engine.EventWait{Key: "free"}).OrEvent(engine.EventWait{Key: "long"})),
		"end": func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			all, err := v.Triggers(ctx)
			if err != nil || len(all) != 2 {
				return engine.Stop(fmt.Sprint(all, err)), nil
			}
			return engine.Done(fmt.Sprint(all[1].EventKey, " ", all[1].Status, " ", all[0].EventKey, " ", all[0].Status)), nil
		},
	}, OnError: func(_ context.Context, _ *engine.Visit[raw], cause error) engine.Outcome {
		var conflict *engine.ConflictError
		if errors.As(cause, &refused) && errors.As(cause, &conflict) {
			return engine.Done(refused.Key)
		}
		return engine.Stop(cause.Error())
	}}))(t))
	first := b.parked("k")
	second := b.start(engine.NewInstance{Machine: "m", Start: "other"}).ID
	equal(t, "refused", string(b.ends(second, engine.StatusDone).Result), `"long"`)
	b.exec(`update pointsman.triggers set expires_at = now() where event_key = 'short'`)
	equal(t, "result", string(b.ends(first, engine.StatusDone).Result), `"short timed_out long waiting"`)
	_, err := (&engine.Visit[raw]{}).Triggers(t.Context())
	equal(t, "of no worker", err != nil, true)
}

// A machine version keeps the content that it was first registered with.
func TestCheckContent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	define := func(version int, content string) *engine.Machine {
		return must(engine.Define(engine.Definition[raw]{Name: "m", Version: version, Start: "begin", Steps: map[string]step{"begin": to(engine.Done(nil))}, Content: content}))(t)
	}
	for _, c := range []struct {
		machine *engine.Machine
		ok      bool
	}{{define(1, ""), true}, {define(1, "a"), true}, {define(1, "b"), false}, {define(1, "a"), true}, {define(2, "b"), true}, {define(1, ""), true}} {
		err := b.CheckContent(t.Context(), c.machine)
		var other *engine.ContentError
		if c.ok != (err == nil) || err != nil && (!errors.As(err, &other) || other.Version != 1) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	b.serve(define(1, "b")) // who serves it is not asked again, and forgets nothing
	b.ends(b.start(engine.NewInstance{Machine: "m", Version: 1}).ID, engine.StatusDone)
	if b.CheckContent(t.Context(), define(1, "b")) == nil {
		t.Error("the content is forgotten")
	}
}
