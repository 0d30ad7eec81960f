package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// parked starts an instance and waits until it is parked.
func (b *bundle) parked(key string) uuid.UUID {
	b.t.Helper()
	id := b.begin("m", key).ID
	b.reaches(id, engine.StatusAwaiting)
	return id
}

// Any name of the set wakes; what was not awaited stays in the inbox for its own await.
func TestAwaitNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin":  to(engine.Await("first", "a", "b")),
		"first":  d.around(to(engine.Next("second"))),
		"second": d.around(to(engine.Await("third", "other"))),
		"third":  d.around(to(engine.Done(nil))),
	}))
	id := b.parked("k")
	equal(t, "awaits", fmt.Sprint(b.get(id).Awaits), "[a b]")
	b.send("k", "other", "1")
	b.send("k", "stays", "2")
	in := b.get(id)
	equal(t, "status", in.Status, engine.StatusAwaiting)
	equal(t, "inbox", in.InboxCount, 2)
	b.send("k", "b", "3")
	in = b.ends(id, engine.StatusDone)
	visits := d.all()
	for i, want := range []struct{ awaited, inbox string }{{"b", "other stays b"}, {"", "other stays"}, {"other", "other stays"}} {
		equal(t, "awaited", names(visits[i].Awaited), want.awaited)
		equal(t, "inbox", names(visits[i].Inbox), want.inbox)
	}
	equal(t, "inbox in the end", in.InboxCount, 0)
}

// A signal that comes before the park wakes it at once.
func TestEarlySignal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.serve(steps(t, map[string]step{
		"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			close(entered)
			<-leave
			return engine.Await("end", "s"), nil
		},
		"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(names(v.Awaited)), nil
		},
	}))
	id := b.begin("m", "k").ID
	receive(t, entered)
	b.send("k", "s", "1")
	close(leave)
	equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"s"`)
}

// Next consumes exactly what the step was handed: what came while it ran is for the next await.
func TestLatecomersSurvive(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]engine.Outcome{"next": engine.Next("again"), "consuming": engine.Await("last", "s").Consuming()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var d diary
			entered, leave := make(chan struct{}), make(chan struct{})
			b.serve(steps(t, map[string]step{
				"begin": to(engine.Await("first", "s")),
				"first": d.around(func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
					close(entered)
					<-leave
					return after, nil
				}),
				"again": to(engine.Await("last", "s")),
				"last":  d.around(to(engine.Await("last", "s"))),
			}))
			id := b.parked("k")
			first := b.send("k", "s", "1").SignalID
			receive(t, entered)
			late := b.send("k", "s", "2").SignalID
			close(leave)
			eventually(t, "parked again", func() bool { return len(d.all()) == 2 && b.get(id).Status == engine.StatusAwaiting })
			visits := d.all()
			equal(t, "first was handed", fmt.Sprint(ids(visits[0].Awaited)), fmt.Sprint([]int64{first}))
			equal(t, "last was handed", fmt.Sprint(ids(visits[1].Awaited)), fmt.Sprint([]int64{late}))
			equal(t, "left", b.get(id).InboxCount, 1) // parking consumed nothing
		})
	}
}

func ids(sigs []engine.Signal) (all []int64) {
	for _, s := range sigs {
		all = append(all, s.ID)
	}
	return all
}

// pack waits until n signals are there, by awaiting again, and counts its executions.
func pack(d *diary, n int, again engine.Outcome) step {
	return d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		if len(v.Awaited) == n {
			return engine.Done(names(v.Awaited)), nil
		}
		return again, nil
	})
}

// Awaiting again consumes nothing and does not spin: it runs once for each signal that it was not handed.
func TestPack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	w := b.serve(steps(t, map[string]step{"begin": pack(&d, 3, engine.Await("", "a", "b", "c"))}))
	id := b.parked("k")
	for i, name := range []string{"a", "c"} {
		b.send("k", name, name)
		eventually(t, "parked again", func() bool { return len(d.all()) == i+2 && b.get(id).Status == engine.StatusAwaiting })
	}
	in := b.get(id)
	equal(t, "inbox", in.InboxCount, 2)
	equal(t, "attempt", in.Attempt, 0)
	b.send("k", "noise", "n")
	b.send("k", "b", "b")
	equal(t, "result", string(b.ends(id, engine.StatusDone).Result), `"a c b"`)
	w.stop()
	equal(t, "executions", len(d.all()), 4)
}

// The end of a deadline is a wake and no failure: attempt is untouched, and what has arrived is there.
func TestDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	end := func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		return engine.Done(fmt.Sprint(v.TimedOut, " ", v.Instance.Attempt, " ", names(v.Awaited))), nil
	}
	var d diary
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("end", "s").Within(time.Millisecond)),
		"sleep": to(engine.Await("end").Within(time.Millisecond)),
		"await": to(engine.Await("end", "s").Within(time.Hour)),
		"failing": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.Attempt == 0 {
				return engine.Outcome{}, errStep
			}
			return engine.Await("end", "s").Within(time.Millisecond), nil
		},
		"pack": d.around(func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.TimedOut {
				return end(ctx, v)
			}
			return engine.Await("", "s", "r").Within(time.Hour), nil
		}),
		"twice": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) { // the deadline of one await is not the next one's
			if v.TimedOut {
				return engine.Next("after"), nil
			}
			return engine.Await("", "s").Within(time.Millisecond), nil
		},
		"after": end,
		"end":   end,
	}))
	for start, want := range map[string]string{"begin": `"true 0 "`, "sleep": `"true 0 "`, "failing": `"true 1 "`, "await": `"false 0 s"`, "pack": `"true 0 s"`, "twice": `"false 0 "`} {
		id := b.start(engine.NewInstance{Machine: "m", Start: start, CorrelationKey: start}).ID
		if start == "await" || start == "pack" {
			b.send(start, "s", "1")
		}
		if start == "pack" {
			b.until(id, "parked with the signal", func(in engine.Instance) bool {
				visits := d.all()
				return len(visits) > 0 && names(visits[len(visits)-1].Awaited) == "s" && in.Status == engine.StatusAwaiting
			})
			b.exec(`update pointsman.timers set run_at = now() where instance_id = $1`, id)
		}
		equal(t, start, string(b.ends(id, engine.StatusDone).Result), want)
	}
	eventually(t, "no timer is left", func() bool { return b.count(`select count(*) from pointsman.timers`) == 0 })
}

// A replay, and an error's retry, sees again what was awaited.
func TestReplayKeepsAwaited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("woken", "s").Within(time.Hour)),
		"woken": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			switch v.Instance.Attempt {
			case 0:
				return engine.Replay(0), nil
			case 1:
				return engine.Replay(time.Millisecond), nil
			case 2:
				return engine.Outcome{}, errStep
			}
			return engine.Done(nil), nil
		}),
	}))
	id := b.parked("k")
	b.send("k", "s", "1")
	b.ends(id, engine.StatusDone)
	visits := d.all()
	equal(t, "executions", len(visits), 4)
	for _, v := range visits {
		equal(t, "awaited", names(v.Awaited), "s")
		equal(t, "timed out", v.TimedOut, false)
		equal(t, "idempotency key", v.IdempotencyKey(), visits[0].IdempotencyKey())
	}
}

// Replay after a deadline still says that it was one.
func TestReplayKeepsTimedOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("woken", "s").Within(time.Millisecond)),
		"woken": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.Attempt < 2 {
				return engine.Replay(time.Duration(v.Instance.Attempt) * time.Millisecond), nil
			}
			return engine.Done(v.TimedOut), nil
		},
	}))
	equal(t, "timed out", string(b.ends(b.begin("m", "").ID, engine.StatusDone).Result), "true")
}

// An instance that handles its signals one wake after another sees each once, in order, whatever comes when.
func TestConsumingLoop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 100
	type state struct{ Seen []string }
	m := must(engine.Define(engine.Definition[state]{Name: "m", Start: "begin", Steps: map[string]engine.Step[state]{
		"begin": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
			for _, s := range v.Awaited {
				v.State.Seen = append(v.State.Seen, s.DedupKey)
			}
			if len(v.State.Seen) == n {
				return engine.Done(v.State.Seen), nil
			}
			return engine.Await("", "s").Consuming(), nil
		},
	}}))(t)
	b.serve(m)
	id := b.begin("m", "k").ID
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
		b.send("k", "s", want[i])
	}
	var got []string
	if err := (engine.Signal{Payload: b.ends(id, engine.StatusDone).Result}).Decode(&got); err != nil {
		t.Fatal(err)
	}
	equal(t, "seen", fmt.Sprint(got), fmt.Sprint(want))
}

// A step is handed at most 1,000 signals. Awaiting again at that bound parks; what progresses goes on with the rest.
func TestMoreThanAStepIsHanded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 2300
	var d diary
	hold := make(chan engine.Outcome)
	w := b.serve(steps(t, map[string]step{
		"begin": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if len(v.Awaited) == 0 {
				return engine.Await("", "s"), nil
			}
			return <-hold, nil
		}),
		"again": to(engine.Await("begin", "s")),
	}))
	id := b.parked("k")
	fill := func(from, to int) {
		var batch []engine.Intake
		for i := from; i < to; i++ {
			batch = append(batch, engine.Intake{To: engine.ByID(id), Name: "s", DedupKey: fmt.Sprint(i)})
		}
		for _, r := range b.accept(batch...) {
			equal(t, "result", r.Result, engine.Delivered)
		}
	}
	handed := func(visit, from, to int, more bool) {
		t.Helper()
		eventually(t, "executed", func() bool { return len(d.all()) > visit })
		v := d.all()[visit]
		if len(v.Awaited) != to-from || v.Awaited[0].DedupKey != fmt.Sprint(from) || v.Awaited[len(v.Awaited)-1].DedupKey != fmt.Sprint(to-1) || v.InboxMore != more || len(v.Inbox) > 1000 {
			t.Fatalf("visit %d was handed %d, from %s; more: %t", visit, len(v.Awaited), v.Awaited[0].DedupKey, v.InboxMore)
		}
	}
	fill(0, n-1)
	handed(1, 0, 1000, true)
	hold <- engine.Await("", "s") // again: it was handed all that it can be
	b.reaches(id, engine.StatusAwaiting)
	equal(t, "executions", len(d.all()), 2)
	fill(n-1, n)
	handed(2, 0, 1000, true)
	hold <- engine.Next("again")
	handed(3, 1000, 2000, true)
	hold <- engine.Await("begin", "s").Consuming()
	handed(4, 2000, n, false)
	hold <- engine.Done(nil)
	b.ends(id, engine.StatusDone)
	w.stop()
	equal(t, "executions", len(d.all()), 5)
}

// What a step awaited comes before what it did not, where there is more than it is handed.
func TestAwaitedBehindALongInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("end", "s")),
		"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(fmt.Sprint(names(v.Awaited), len(v.Inbox), v.InboxMore)), nil
		},
	}))
	id := b.parked("k")
	batch := make([]engine.Intake, 1001)
	for i := range batch {
		batch[i] = engine.Intake{To: engine.ByID(id), Name: "noise"}
	}
	b.accept(append(batch, engine.Intake{To: engine.ByID(id), Name: "s"})...)
	equal(t, "handed", string(b.ends(id, engine.StatusDone).Result), `"s1000 true"`)
}
