package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// say sends a signal with this payload.
func (b *bundle) say(id uuid.UUID, name, payload string) {
	b.t.Helper()
	if r := b.accept(engine.Intake{To: engine.ByID(id), Name: name, Payload: raw(payload)})[0]; r.Result != engine.Delivered {
		b.t.Fatalf("a signal is %s: %s", r.Result, r.Reason)
	}
}

// seen are names and payloads.
func seen(sigs []engine.Signal) (s string) {
	for _, g := range sigs {
		s += g.Name + string(g.Payload)
	}
	return s
}

// An await of several names wakes when enough of them are there, whatever came beside, and however often.
func TestAwaitSeveral(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		await    engine.Outcome
		sleeps   string // names that do not wake it
		wakes    string
		awaited  string
		executed int
	}{
		"all":              {engine.Await("end", "a", "b", "c").AllOf(), "aaxb", "c", "a1a1b1c1", 1},
		"all, repeated":    {engine.Await("end", "a", "a", "b").AllOf(), "aa", "b", "a1a1b1", 1},
		"two of three":     {engine.Await("end", "a", "b", "c").NOf(2), "ccx", "a", "c1c1a1", 1},
		"one of two":       {engine.Await("end", "a", "b").NOf(1), "x", "b", "b1", 1},
		"all of one":       {engine.Await("end", "a").AllOf(), "x", "a", "a1", 1},
		"within, in time":  {engine.Await("end", "a", "b").AllOf().Within(time.Hour), "a", "b", "a1b1", 1},
		"where":            {engine.Await("end", "a", "b").Where("a", "$ > 1"), "ax", "b", "b1", 1},
		"all, where, none": {engine.Await("end", "a", "b").AllOf().Where("b", "$ == 1"), "a", "b", "a1b1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.serve(steps(t, map[string]step{"begin": to(c.await), "end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				return engine.Done(seen(v.Awaited)), nil
			}}))
			id := b.parked("k")
			for _, name := range c.sleeps {
				b.say(id, string(name), "1")
				equal(t, "status", b.get(id).Status, engine.StatusAwaiting)
			}
			b.say(id, c.wakes, "1")
			equal(t, "awaited", string(b.ends(id, engine.StatusDone).Result), fmt.Sprintf("%q", c.awaited))
		})
	}
}

// A signal that does not pass is none for this await, and is there for the next.
func TestAwaitWhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("large", "pay").Where("pay", `$.amount >= 100 && $.currency == "EUR"`)),
		"large": d.around(to(engine.Next("small"))),
		"small": to(engine.Await("any", "pay").Where("pay", `$.amount > 10`)),
		"any":   d.around(to(engine.Next("rest"))),
		"rest":  to(engine.Await("end", "pay")),
		"end":   d.around(to(engine.Done(nil))),
	}))
	id := b.parked("k")
	for _, payload := range []string{`null`, `{}`, `{"amount": "1000", "currency": "EUR"}`, `{"amount": 1000}`, `[]`, `7`, `{"amount": 100, "currency": "USD"}`} {
		b.say(id, "pay", payload)
		equal(t, "status after "+payload, b.get(id).Status, engine.StatusAwaiting)
	}
	b.say(id, "pay", `{"amount": 100, "currency": "EUR"}`)
	b.ends(id, engine.StatusDone)
	for i, want := range []string{
		`pay{"amount": 100, "currency": "EUR"}`,
		`pay{"amount": 1000}pay{"amount": 100, "currency": "USD"}`,
		`paynullpay{}pay{"amount": "1000", "currency": "EUR"}pay[]pay7`,
	} {
		equal(t, "handed", seen(d.all()[i].Awaited), want)
	}
}

// What did not pass was not handed: an await without the condition wakes for it. What passed was, and does not wake twice.
func TestAwaitWhereAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	w := b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("more", "pay").Where("pay", `$ > 5`)),
		"more":  d.around(to(engine.Await("third", "pay").Where("pay", `$ > 5`))),
		"third": d.around(to(engine.Await("last", "pay").Where("pay", `$ > 1`))),
		"last":  d.around(to(engine.Await("", "pay"))),
	}))
	id := b.parked("k")
	parks := func(executions int) {
		t.Helper()
		eventually(t, "parked again", func() bool { return len(d.all()) == executions && b.get(id).Status == engine.StatusAwaiting })
	}
	b.say(id, "pay", "1")
	b.say(id, "pay", "2")
	b.say(id, "pay", "7")
	parks(1)
	b.say(id, "pay", "3")
	parks(1)
	b.say(id, "pay", "8") // third, which then awaits what is above 1: 2 and 3 are new to it; then last, to which 1 is
	parks(4)
	w.stop()
	for i, want := range []string{"pay7", "pay7pay8", "pay2pay7pay3pay8", "pay1pay2pay7pay3pay8"} {
		equal(t, "handed", seen(d.all()[i].Awaited), want)
	}
}

// A deadline hands out what is there of a pack; to be complete it needs only the rest.
func TestAwaitSeveralAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	all := engine.Await("pack", "a", "b").AllOf().Within(time.Hour)
	b.serve(steps(t, map[string]step{
		"begin": to(all),
		"pack": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.TimedOut {
				return all, nil
			}
			return engine.Done(seen(v.Awaited)), nil
		}),
	}))
	id := b.parked("k")
	b.say(id, "a", "1")
	b.exec(`update pointsman.timers set run_at = now() where instance_id = $1`, id)
	eventually(t, "parked again", func() bool { return len(d.all()) == 1 && b.get(id).Status == engine.StatusAwaiting })
	equal(t, "handed", fmt.Sprint(seen(d.all()[0].Awaited), d.all()[0].TimedOut), "a1true")
	b.say(id, "b", "1")
	equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"a1b1"`)
}

// A pause keeps a pack asleep, and a resume looks at all of it; so does a retry.
func TestAwaitSeveralAndOperators(t *testing.T) {
	t.Parallel()
	for name, undo := range map[string]func(b *bundle, id uuid.UUID, between func()){
		"pause": func(b *bundle, id uuid.UUID, between func()) {
			must(b.Pause(b.t.Context(), engine.ByID(id)))(b.t)
			between()
			equal(b.t, "status", b.get(id).Status, engine.StatusAwaiting)
			must(b.Resume(b.t.Context(), engine.ByID(id)))(b.t)
		},
		"cancel": func(b *bundle, id uuid.UUID, between func()) {
			between()
			must(b.Retry(b.t.Context(), engine.ByID(id)))(b.t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			await := engine.Await("end", "a", "b").AllOf().Where("b", "$ > 5")
			b.serve(steps(t, map[string]step{"begin": to(await), "end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				return engine.Done(seen(v.Awaited)), nil
			}}))
			id := b.parked("k")
			b.say(id, "a", "1")
			undo(b, id, func() {
				b.say(id, "b", "1")
				if name == "cancel" {
					must(b.Cancel(t.Context(), engine.ByID(id), ""))(t)
					return
				}
				b.say(id, "b", "9")
			})
			if name == "cancel" {
				equal(t, "status", b.get(id).Status, engine.StatusAwaiting)
				b.say(id, "b", "9")
			}
			equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"a1b9"`)
		})
	}
}

// A condition holds for what stands behind a long inbox too.
func TestWhereBehindALongInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("end", "s").Where("s", "$ == 7")),
		"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(fmt.Sprint(seen(v.Awaited), len(v.Inbox), v.InboxMore)), nil
		},
	}))
	id := b.parked("k")
	batch := make([]engine.Intake, 1001)
	for i := range batch {
		batch[i] = engine.Intake{To: engine.ByID(id), Name: "s", Payload: raw("1")}
	}
	b.accept(batch...)
	equal(t, "status", b.get(id).Status, engine.StatusAwaiting)
	b.say(id, "s", "7")
	equal(t, "handed", string(b.ends(id, engine.StatusDone).Result), `"s71000 true"`)
}

// A step can ask which of its signals pass a condition.
func TestPassing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("end", "go")),
		"end": func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			large, err := v.Passing(ctx, "$.n > 5", v.Inbox...)
			if err != nil {
				return engine.Outcome{}, err
			}
			_, err = v.Passing(ctx, "$.n >", v.Inbox...)
			return engine.Done(fmt.Sprint(seen(large), " ", err)), nil
		},
	}))
	id := b.parked("k")
	for _, payload := range []string{`{"n": 7}`, `{"n": 1}`, `7`, `{"n": "7"}`, `{"n": 6}`} {
		b.say(id, "s", payload)
	}
	b.say(id, "go", "null")
	want := `s{"n": 7}s{"n": 6} "$.n >" is no SQL/JSON path: syntax error at end`
	equal(t, "passed", string(b.ends(id, engine.StatusDone).Result), string(engine.MustJSON(want)))
}
