package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

func (f *fixture) retry(id uuid.UUID, key string) Retried {
	f.t.Helper()
	var r Retried
	err := f.InScopes(f.t.Context(), []uuid.UUID{KeyScope(project, key)}, func(tx *Store) (err error) {
		r, err = tx.Retry(f.t.Context(), id, nil, 0)
		return err
	})
	return must(r, err)(f.t)
}

func (f *fixture) cancel(id uuid.UUID) {
	f.t.Helper()
	equal(f.t, "canceled", len(must(f.Cancel(f.t.Context(), []uuid.UUID{id}, "why", publish))(f.t).IDs), 1)
}

const inboxOf = `select id, kind, name, dedup_key, traceparent, sent_by, inserted_at, payload::text from pointsman.signals where instance_id = $1 order by id`

// What its last step was handed is there again, as it was: whoever sent it, null and large numbers too.
func TestRetryBringsTheInboxBack(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "signal/pay")
	null, number := signal("k", "pay", "1"), signal("k", "other", "2")
	null.Payload, null.Traceparent, null.SentBy = []byte("null"), "00-trace", "key-7"
	number.Payload, number.DedupKey = []byte(`{"n": 12345678901234567890.10, "t": "\u00e9\\"}`), ""
	f.fast(null, number)
	before := f.rows(inboxOf, id)
	w := f.picked()
	f.commit(outcome(w, OutcomeStop))
	f.want("0", `select count(*) from pointsman.signals`)
	equal(t, "retried", f.retry(id, "k"), Retried{Verdict: Started, Queue: queue})
	f.want(before, inboxOf, id)
	f.want("true", `select kept is null from pointsman.instances`)
	again := f.picked()
	equal(t, "handed", fmt.Sprint(len(again.Inbox), again.Inbox[0].ID, again.SeenTo, again.Awaits), fmt.Sprint(len(w.Inbox), w.Inbox[0].ID, w.SeenTo, w.Awaits))
	wantVerdicts(t, f.fast(null), Duplicate)
}

// It is the same visit, from its first attempt.
func TestRetryOfAFailed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.started("k")[0]
	w := f.picked()
	f.commit(outcome(w, OutcomeNext))
	f.exec(`update pointsman.instances set attempt = 4, uncounted = 2`)
	w = f.picked()
	o := outcome(w, OutcomeStop)
	o.Reason = "broken"
	f.commit(o)
	f.retry(id, "k")
	again := f.picked()
	equal(t, "visit", again.Visit, w.Visit)
	equal(t, "step", again.Step, w.Step)
	equal(t, "attempts", fmt.Sprint(again.Attempt, again.Uncounted), "0 0")
	equal(t, "last error", again.LastError, "broken")
	f.want("true true true", `select live, status is null, finished_at is null from pointsman.instances`)
	f.want("3 retry 4", `select rev, outcome, attempt from pointsman.history order by rev desc limit 1`)
	f.commit(outcome(again, OutcomeDone))
	f.want(fmt.Sprintf("%s:2,%[1]s:4", id), `select msg_id from pointsman.outbox order by id`)
}

// One whose deadline had come to is told so again.
func TestRetryOfATimedOut(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	past, o := -time.Second, await(f.picked(), "signal/pay")
	o.Delay = &past
	f.commit(o)
	must2(f.SweepTimers(t.Context(), 8))(t)
	w := f.picked()
	equal(t, "timed out", w.TimedOut, true)
	f.commit(outcome(w, OutcomeStop))
	f.retry(w.ID, "k")
	equal(t, "timed out again", f.picked().TimedOut, true)
}

// Who was canceled where it waited waits there again; what it was not handed yet wakes it.
func TestRetryOfACanceled(t *testing.T) {
	t.Parallel()
	hour, past := time.Hour, -time.Second
	for name, c := range map[string]struct {
		kind  string
		delay *time.Duration
		sent  bool // a signal that it awaits, while it is paused
		want  string
	}{
		"parked":                     {OutcomeAwait, nil, false, "awaiting_signal 0 0"},
		"parked, with a deadline":    {OutcomeAwait, &hour, false, "awaiting_signal 0 1"},
		"parked, past its deadline":  {OutcomeAwait, &past, false, "awaiting_signal 0 1"},
		"parked, paused with a wake": {OutcomeAwait, &hour, true, "runnable 1 1"},
		"delayed":                    {OutcomeReplay, &hour, false, "runnable 0 1"},
		"delayed, past its time":     {OutcomeReplay, &past, false, "runnable 0 1"},
		"ready":                      {OutcomeNext, nil, false, "runnable 1 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			id := f.started("k")[0]
			o := outcome(f.picked(), c.kind)
			o.Awaits, o.Delay = []string{"signal/pay"}, c.delay
			f.commit(o)
			if c.sent {
				must(f.Pause(t.Context(), []uuid.UUID{id}))(t)
				f.fast(signal("k", "pay", "d"))
			}
			f.cancel(id)
			equal(t, "retried", f.retry(id, "k").Verdict, Started)
			f.want(c.want, `select v.status, (select count(*) from pointsman.ready r where r.rev = v.rev), (select count(*) from pointsman.timers t where t.rev = v.rev) from pointsman.v_instances v`)
			f.want("0", `select count(*) from pointsman.timers t join pointsman.instances i on i.id = t.instance_id where t.rev < i.rev`)
			f.want("false", `select paused from pointsman.instances`)
			_, fired := must2(f.SweepTimers(t.Context(), 8))(t)
			equal(t, "fired", fired == 1, c.delay == &past)
			f.want("cancel,retry", `select outcome from pointsman.history where outcome in ('cancel', 'retry') order by rev`)
		})
	}
}

func TestRetryRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.started("k")[0]
	equal(t, "of a live one", f.retry(id, "k"), Retried{Verdict: Conflict})
	f.cancel(id)
	other := f.started("k")[0]
	equal(t, "its key is taken", f.retry(id, "k"), Retried{Verdict: Taken, Holder: other})
	f.commit(outcome(f.picked(), OutcomeDone))
	equal(t, "of a done one", f.retry(other, "k"), Retried{Verdict: Conflict})
	equal(t, "of none", f.retry(uuid.New(), "k"), Retried{Verdict: Missing})
	f.want("canceled,done", `select status from pointsman.instances order by id`)
	equal(t, "its key is free", f.retry(id, "k").Verdict, Started)
}

// Who comes back while another holds its unique key goes on without, and is counted.
func TestRetryUnique(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n := uniqueInstance("a", "U", live)
	f.begin(n)
	f.cancel(n.ID)
	f.holds("")
	f.retry(n.ID, "a")
	f.holds("U a")
	f.cancel(n.ID)
	equal(t, "newcomer", f.verdicts(uniqueInstance("b", "U", live)), "started ")
	f.retry(n.ID, "a")
	f.holds("U b")
	equal(t, "unguarded", f.Unguarded(), 1)
}

// An inbox that is too large for one row is kept as far as it is awaited, and no end fails of it.
func TestLargeInboxIsKeptInPart(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "signal/pay")
	f.exec(`insert into pointsman.signals (instance_id, name, dedup_key, payload) select $1, name, name, to_jsonb(repeat('x', 40 << 20)) from unnest('{no,pay}'::text[]) name`, id)
	f.cancel(id)
	f.want("pay", `select k->>'name' from pointsman.instances, jsonb_array_elements(kept) k`)
}

func TestPause(t *testing.T) {
	t.Parallel()
	f := setup(t)
	past := -time.Second
	ended := f.ended("ended")
	awaits := f.parked("awaits", "signal/pay")
	late := f.started("late")[0]
	o := await(f.picked(), "signal/pay")
	o.Delay = &past
	f.commit(o)
	executes := f.started("executes")[0]
	w := f.picked()
	ready := f.started("ready")[0]
	all := []uuid.UUID{awaits, late, executes, ready}
	for _, want := range []int{4, 0} { // it is idempotent
		equal(t, "paused", len(must(f.Pause(t.Context(), append(all, ended)))(t)), want)
	}
	wantVerdicts(t, f.fast(signal("awaits", "pay", "1")), Delivered)
	_, fired := must2(f.SweepTimers(t.Context(), 8))(t)
	equal(t, "fired", fired, 0)
	f.commit(outcome(w, OutcomeNext))
	equal(t, "picked while paused", len(f.pick(8)), 0)
	f.want("0", `select count(*) from pointsman.ready`)
	f.want("awaits awaiting_signal true,executes runnable true,late awaiting_signal true,ready runnable true", `select correlation_key, status, paused from pointsman.v_instances where status <> 'done' order by 1`)

	for _, want := range []int{3, 0} {
		equal(t, "woken", len(must(f.Resume(t.Context(), append(all, ended)))(t).Woken), want)
	}
	equal(t, "picked when resumed", len(f.pick(4)), 3)
	_, fired = must2(f.SweepTimers(t.Context(), 8))(t)
	equal(t, "fired", fired, 1)
	equal(t, "timed out", f.picked().TimedOut, true)
	f.want("4 4", `select count(*) filter (where outcome = 'pause'), count(*) filter (where outcome = 'resume') from pointsman.history`)
	f.want("0", `select count(*) from pointsman.history where instance_id = $1 and outcome in ('pause', 'resume')`, ended)
}

// What executes keeps its rev, however often it is paused: each is in the history, in order, and pages of it leave none out.
func TestPauseWhileExecuting(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.started("k")[0]
	w := f.picked()
	for range 2 {
		must(f.Pause(t.Context(), []uuid.UUID{id}))(t)
		must(f.Resume(t.Context(), []uuid.UUID{id}))(t)
	}
	f.commit(outcome(w, OutcomeNext))
	equal(t, "picked", f.picked().Rev, 1)
	got, rev, nth := "", int32(1<<30), int32(0)
	for {
		page := must(f.History(t.Context(), id, rev, nth, 1))(t)
		if len(page) == 0 {
			break
		}
		got += page[0].Outcome + " "
		rev, nth = page[0].Rev, page[0].Nth
	}
	equal(t, "history", got, "next resume pause resume pause ")
}

// In a transaction of the caller's they are all of it or nothing.
func TestOperateInATransaction(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "signal/pay")
	f.fast(signal("k", "no", "1"))
	tx := must(f.db.Pool.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it is what the test is about
	s := must(f.InTx(t.Context(), tx))(t)
	must(s.Pause(t.Context(), []uuid.UUID{id}))(t)
	must(s.Deliver(t.Context(), project, false, []Signal{signal("k", "pay", "2")}))(t)
	equal(t, "woken", fmt.Sprint(must(s.Resume(t.Context(), []uuid.UUID{id}))(t).Woken), "[q]")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want("true false 1", `select parked, paused, rev from pointsman.instances`)
}

// A pick that meets the row from before the pause together with the one from the resume takes the instance once.
func TestResumedIsPickedOnce(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]NewInstance{
		"no keys": newInstance("k"), "partition key": newInstance("k"), "unique while executing": newInstance("k"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			switch name {
			case "partition key":
				n.PartitionKey = "K"
			case "unique while executing":
				n.UniqueKey, n.UniqueScope = "U", ScopeExecuting
			}
			equal(t, "start", f.begin(n)[0].Verdict, Started)
			must(f.Pause(t.Context(), []uuid.UUID{n.ID}))(t)
			must(f.Resume(t.Context(), []uuid.UUID{n.ID}))(t)
			f.want("2", `select count(*) from pointsman.ready`)
			works := f.pick(8)
			equal(t, "picked", len(works), 1)
			f.want("[1]", `select revs from pointsman.leases`)
			equal(t, "rev", works[0].Rev, 1)
		})
	}
}
