package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestSweepTimers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("canceled", "deadline", "later", "paused", "sleep")
	soon, late := time.Microsecond, time.Hour
	var os []Outcome
	for _, w := range append(f.pick(4), f.pick(1)...) {
		o := outcome(w, OutcomeAwait)
		o.Delay = &soon
		switch w.CorrelationKey {
		case "later":
			o.Delay = &late
		case "sleep":
			o.Kind = OutcomeReplay
		}
		os = append(os, o)
	}
	f.commit(os...)
	f.exec(`update pointsman.instances set live = correlation_key <> 'canceled', paused = correlation_key = 'paused'`)
	f.exec(`insert into pointsman.timers values (gen_random_uuid(), 0, now())`)

	for _, want := range []string{"5", "4", "3", "2", "1", "1"} { // four are due, and one of nobody
		must2(f.SweepTimers(t.Context(), 1))(t)
		f.want(want, `select count(*) from pointsman.timers`)
	}
	f.want("deadline true,sleep false", `select correlation_key, timed_out from pointsman.ready r join pointsman.instances i on i.id = r.instance_id and i.rev = r.rev order by 1`)
	f.want("later", `select correlation_key from pointsman.timers t join pointsman.instances i on i.id = t.instance_id`)
	if due := must(f.NextDue(t.Context(), 2*time.Hour))(t); due > time.Hour || due < 50*time.Minute {
		t.Errorf("next due in %v", due)
	}
}

// What a late sweep fires is picked in the order in which it was due.
func TestSweepTimersKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("third", "first", "fourth", "second")
	due := map[string]time.Duration{"first": -4 * time.Hour, "second": -3 * time.Hour, "third": -2 * time.Hour, "fourth": -time.Hour}
	var os []Outcome
	for _, w := range f.pick(4) {
		o, delay := outcome(w, OutcomeReplay), due[w.CorrelationKey]
		if w.CorrelationKey == "second" {
			o = await(w, "signal/pay")
		}
		o.Delay = &delay
		os = append(os, o)
	}
	f.commit(os...)
	tx := must(f.db.Pool.Begin(t.Context()))(t)
	must(tx.Exec(t.Context(), "select from "+f.schema+".instances where correlation_key in ('first', 'second') for update"))(t)
	must2(f.SweepTimers(t.Context(), 8))(t) // leaves these two to the next
	f.want("fourth,third", `select correlation_key from pointsman.ready r join pointsman.instances i on i.id = r.instance_id order by 1`)
	must(0, tx.Rollback(t.Context()))(t)
	must2(f.SweepTimers(t.Context(), 8))(t)
	for _, want := range []string{"[first]", "[second]", "[third]", "[fourth]"} {
		equal(t, "picked", fmt.Sprint(keys(f.pick(1))), want)
	}
}

// A lost lease gives all of its instances back, once, to be leased alone; what has moved on stays where it is.
func TestSweepLeases(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.started("a", "b", "canceled", "committed")
	works := f.pick(4)
	must(f.Cancel(t.Context(), ids[2:3], "", nil))(t)
	for _, w := range works {
		if w.CorrelationKey == "committed" {
			must(f.Commit(t.Context(), []Outcome{await(w, "signal/x")}, Group{}))(t)
		}
	}
	equal(t, "before its end", len(must(f.SweepLeases(t.Context(), 8))(t)), 0)
	f.exec(`update pointsman.leases set expires_at = now()`)
	var reaped []string
	for _, r := range must(f.SweepLeases(t.Context(), 8))(t) {
		in, _ := must2(f.Get(t.Context(), project, r.ID))(t)
		reaped = append(reaped, in.CorrelationKey+" "+r.Machine+" "+r.Queue)
	}
	slices.Sort(reaped)
	equal(t, "reaped", fmt.Sprint(reaped), fmt.Sprint([]string{"a " + machine + " " + queue, "b " + machine + " " + queue}))
	equal(t, "reaped again", len(must(f.SweepLeases(t.Context(), 8))(t)), 0)
	f.want("a 1 1,b 1 1,canceled 0 0,committed 0 0", `select correlation_key, attempt, uncounted from pointsman.instances order by 1`)

	again := f.pick(8)
	if len(again) != 2 || again[0].Token == again[1].Token {
		t.Fatalf("what was lost is leased together: %+v", again)
	}
	for _, w := range works {
		if passed := must(f.tryCommit(t.Context(), outcome(w, OutcomeDone)))(t).Passed; len(passed) != 0 {
			t.Errorf("a late commit of %s passed", w.CorrelationKey)
		}
	}
	// A lease of one counts, if its worker had no other.
	f.exec(`update pointsman.leases set expires_at = now()`)
	equal(t, "bounded", len(must(f.SweepLeases(t.Context(), 1))(t)), 1)
	must(f.SweepLeases(t.Context(), 8))(t)
	f.want("~,", `select lane from pointsman.ready order by lane desc`)
	f.want("2 1,2 2", `select attempt, uncounted from pointsman.instances where live and not parked order by 2`)
}

// What may have killed its worker does not come before what waits.
func TestLostLeaseGoesToTheBack(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("lost")
	f.picked()
	f.started("waits")
	f.exec(`update pointsman.leases set expires_at = now()`)
	must(f.SweepLeases(t.Context(), 8))(t)
	equal(t, "first", fmt.Sprint(keys(f.pick(1))), "[waits]")
	equal(t, "then", fmt.Sprint(keys(f.pick(1))), "[lost]")
}

// The deadline that a lost lease left behind goes with the commit.
func TestLostLeaseLeavesNoTimer(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	hour := time.Hour
	o := await(f.picked(), "signal/pay")
	o.Delay = &hour
	f.commit(o)
	f.fast(signal("k", "pay", "1"))
	f.picked()
	f.exec(`update pointsman.leases set expires_at = now()`)
	must(f.SweepLeases(t.Context(), 8))(t)
	f.commit(outcome(f.picked(), OutcomeNext))
	f.want("0", `select count(*) from pointsman.timers`)
}

func TestExpireHeld(t *testing.T) {
	t.Parallel()
	f := setup(t)
	created := time.Unix(5, 7)
	hold := func(g Signal, d time.Duration, o *Original) {
		must(struct{}{}, f.Hold(t.Context(), project, []Hold{{Signal: g, For: d, Original: o, Body: []byte("body " + g.DedupKey)}}))(t)
	}
	hold(signal("k", "pay", "message"), 0, &Original{Route: "r", Subject: "s.1", Headers: map[string][]string{"Nats-Msg-Id": {"m1"}, "X": {"y"}}, Deliveries: 2, Stream: "S", Created: created, Sequence: 9})
	hold(signal("k", "pay", "effect"), 0, &Original{Route: EffectsRoute})
	hold(signal("k", "pay", "quiet"), 0, nil)
	hold(signal("k", "pay", "later"), time.Hour, nil)
	equal(t, "bounded", must(f.ExpireHeld(t.Context(), 1))(t), 1)
	equal(t, "expired", must(f.ExpireHeld(t.Context(), 8))(t), 2)
	f.want("later", `select dedup_key from pointsman.held`)
	rows := must(f.Outbox(t.Context(), allShards(), 0, 8))(t)
	if len(rows) != 2 {
		t.Fatalf("%d dead letters", len(rows))
	}
	r := rows[0]
	reason := r.Headers["Pointsman-Reason"]
	delete(r.Headers, "Pointsman-Reason")
	headers := must(json.Marshal(r.Headers))(t)
	id := r.MsgID[:strings.LastIndexByte(r.MsgID, ':')] // when it was held
	got := fmt.Sprint(r.Kind, r.Subject, id, string(r.Body), string(headers), len(reason), r.InstanceID == uuid.Nil)
	want := fmt.Sprint("dead", "r", "r:S@5000000007:9:"+hash([]byte("k")).String(), "body message",
		`{"Pointsman-Deliveries":["2"],"Pointsman-Origin":["S 5000000007 9"],"Pointsman-Original-Msg-Id":["m1"],"Pointsman-Seq":["9"],"Pointsman-Stream":["S"],"Pointsman-Subject":["s.1"],"X":["y"]}`, 1, true)
	equal(t, "dead letter", got, want)
	if r := rows[1]; r.Subject != EffectsRoute || r.MsgID == "" || fmt.Sprint(r.Headers["Pointsman-Project"], r.Headers["Pointsman-Subject"], r.Headers["Pointsman-Correlation-Key"], r.Headers["Pointsman-Dedup-Key"]) != "["+project+"] [signal.pay] [k] [effect]" {
		t.Errorf("of an effect: %+v", r)
	}
}

func TestNextDue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	equal(t, "nothing", must(f.NextDue(t.Context(), time.Minute))(t), time.Minute)
	due := func(what string, most time.Duration) {
		t.Helper()
		if d := must(f.NextDue(t.Context(), 100*time.Hour))(t); d > most || d < most-10*time.Second && most > 0 {
			t.Errorf("%s: %v, want about %v", what, d, most)
		}
	}
	f.slow(signal("k", "pay", "1"))
	due("a hold", time.Hour)
	f.started("b")
	f.picked()
	due("a lease", time.Minute)
	f.exec(`insert into pointsman.timers values (gen_random_uuid(), 0, now() - interval '2 days')`)
	due("a timer that is late", 0)
}

// A timer of an earlier await of the same instance, which a lost lease may leave behind, wakes nobody and is gone.
func TestSweepTimersOfAnEarlierAwait(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	f.exec(`insert into pointsman.timers select id, rev - 1, now() from pointsman.instances`)
	_, fired, err := f.SweepTimers(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "fired", fired, 0)
	f.want("true false 0", `select i.parked::text || ' ' || i.timed_out || ' ' || (select count(*) from pointsman.timers) from pointsman.instances i`)
}
