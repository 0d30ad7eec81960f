package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

const row = `select rev, visit, attempt, uncounted, step, state::text, awaits::text, await_n, parked, delayed, timed_out, live, coalesce(status, '-'), coalesce(last_error, '-'),
	due_at is not null, (select count(*) from pointsman.ready r where r.instance_id = i.id and r.rev = i.rev),
	(select count(*) from pointsman.timers t where t.instance_id = i.id and t.rev = i.rev) from pointsman.instances i`

func TestCommitKinds(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	for _, c := range []struct {
		name string
		o    func(*Outcome)
		want string // the columns of row
	}{
		{
			"next", func(o *Outcome) { o.Kind, o.Step, o.State, o.Progress = OutcomeNext, "ship", []byte(`{"n": 1}`), true },
			`2 2 0 0 ship {"n": 1} {} 1 false false false true - - false 1 0`,
		},
		{
			"replay", func(o *Outcome) { o.Kind, o.Reason = OutcomeReplay, "no luck" },
			`2 1 3 1 begin {"n": 0} {signal/first} 1 false false true true - no luck false 1 0`,
		},
		{
			"replay, later", func(o *Outcome) { o.Kind, o.Delay = OutcomeReplay, &minute },
			`2 1 3 2 begin {"n": 0} {signal/first} 1 false true true true - before true 0 1`,
		},
		{"await", func(o *Outcome) {
			o.Kind, o.Step, o.Awaits, o.AwaitN, o.Delay, o.Progress = OutcomeAwait, "pay", []string{"signal/a", `event/"\x, y{}`}, 2, &minute, true
		}, `2 2 0 0 pay {"n": 0} {signal/a,"event/\"\\x, y{}"} 2 true false false true - - true 0 1`},
		{
			"await without progress", func(o *Outcome) { o.Kind, o.Awaits = OutcomeAwait, []string{"signal/a"} },
			`2 2 2 2 begin {"n": 0} {signal/a} 1 true false false true - before false 0 0`,
		},
		{
			"done", func(o *Outcome) { o.Kind, o.Result, o.Progress = OutcomeDone, []byte(`[1]`), true },
			`2 1 0 0 begin {"n": 0} {signal/first} 1 false false false false done - false 0 0`,
		},
		{
			"stop", func(o *Outcome) { o.Kind, o.Reason = OutcomeStop, "broken" },
			`2 1 2 1 begin {"n": 0} {signal/first} 1 false false true false failed broken false 0 0`,
		},
		{
			"release", func(o *Outcome) { o.Kind = OutcomeRelease },
			`2 1 2 1 begin {"n": 0} {signal/first} 1 false false true true - before false 1 0`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.started("k")
			first := await(f.picked(), "signal/first")
			first.Delay = &minute
			f.commit(first)
			f.exec(`update pointsman.timers set run_at = now()`)
			must2(f.SweepTimers(t.Context(), 8))(t)
			f.exec(`update pointsman.instances set attempt = 2, uncounted = 1, last_error = 'before'`)
			w := f.picked()
			if !w.TimedOut || !w.Timed || w.Attempt != 2 || w.Uncounted != 1 {
				t.Errorf("picked after a time-out: %+v", w)
			}
			// A timer that the delivery, and not the deadline, left behind.
			f.exec(`insert into pointsman.timers (instance_id, rev, run_at) values ($1, $2, now() + interval '1 h')`, w.ID, w.Rev)
			o := Outcome{ID: w.ID, Project: w.Project, Rev: w.Rev, Token: w.Token, Timed: w.Timed, Ran: w.Step, Attempt: w.Attempt}
			c.o(&o)
			f.commit(o)
			f.want(c.want, row)
			f.want("0", `select count(*) from pointsman.leases`)
			f.want("0", `select count(*) from pointsman.timers where rev = $1`, w.Rev)
			f.want(fmt.Sprint("2 begin ", o.Kind, " 2"), `select rev, step, outcome, attempt from pointsman.history where rev > 1`)
		})
	}
}

// An outcome that comes too late has no lock on its instance, so it does not wait for who is at its timers: that may be a sweep, which waits for others.
func TestALateOutcomeWaitsForNoTimer(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	late := await(f.picked(), "signal/first")
	late.Timed = true
	f.exec(`insert into pointsman.timers (instance_id, rev, run_at) values ($1, $2, now())`, late.ID, late.Rev)
	f.exec(`update pointsman.instances set rev = rev + 1`)
	tx := must(f.db.Pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	must(tx.Exec(t.Context(), fmt.Sprintf(`set local search_path = %s; select from timers for update`, f.db.Schema)))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if settled := must(f.tryCommit(ctx, late))(t); len(settled.Passed) != 0 {
		t.Errorf("passed: %v", settled.Passed)
	}
	f.want("1", `select count(*) from pointsman.timers`)
}

// A replay that waits is the same visit: what its await came to stays.
func TestReplayKeepsTheTimeOut(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	var soon time.Duration
	o := await(f.picked(), "signal/a")
	o.Delay = &soon
	f.commit(o)
	must2(f.SweepTimers(t.Context(), 8))(t)
	w := f.picked()
	o = outcome(w, OutcomeReplay)
	o.Delay = &soon
	f.commit(o)
	must2(f.SweepTimers(t.Context(), 8))(t)
	again := f.picked()
	if !again.TimedOut || again.Attempt != 1 || again.Visit != w.Visit {
		t.Errorf("the second execution of %+v is %+v", w, again)
	}
}

func TestCommitConsumes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	ds := f.fast(signal("k", "pay", "1"), signal("k", "no", "2"), signal("k", "pay", "3"))
	w := f.picked()
	o := await(w, "signal/more")
	o.Consumed = []int64{ds[0].SignalID, ds[2].SignalID}
	f.commit(o)
	f.want("2", `select dedup_key from pointsman.v_inbox`)
	f.want(fmt.Sprint(o.Consumed), `select consumed from pointsman.history where consumed is not null`)
}

// A park meets what came while its step ran, unless it was handed to it.
func TestParkOnWhatIsThere(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	f.fast(signal("k", "pay", "1"))
	w := f.picked()
	o := await(w, "signal/pay")
	o.Handed, o.HandedTo = []string{"signal/pay"}, w.SeenTo
	equal(t, "woken by what it was handed", fmt.Sprint(f.commit(o).Woken), "[]")
	f.want("true", `select parked from pointsman.instances`)
	equal(t, "by another one", f.fast(signal("k", "pay", "2"))[0].Queue, queue)

	w = f.picked()
	f.fast(signal("k", "pay", "3"))
	o = await(w, "signal/pay")
	o.Handed, o.HandedTo = []string{"signal/pay"}, w.SeenTo
	equal(t, "woken by what came meanwhile", fmt.Sprint(f.commit(o).Woken), fmt.Sprint([]string{queue}))
	w = f.picked()
	equal(t, "inbox", fmt.Sprint(names(w)), "[pay/1 pay/2 pay/3]")

	f.fast(signal("k", "other", "4"))
	o = await(w, "signal/pay", "signal/other")
	o.Handed, o.HandedTo = []string{"signal/pay"}, w.SeenTo+1
	f.commit(o)
	equal(t, "woken by one that it was not handed under its name", len(f.picked().Inbox), 4)
}

// A commit that sees what an await waits for goes on by itself, where one signal of it is enough; all else it leaves to the recheck.
func TestCommitLooks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		others int // signals of another name before
		o      func(o *Outcome, there int64)
		pause  bool
		want   string // parked, rows in ready
	}{
		{"one is there", 0, func(o *Outcome, _ int64) {}, false, "false 1"},
		{"one of two names", 0, func(o *Outcome, _ int64) { o.Awaits = []string{"signal/no", "signal/pay"} }, false, "false 1"},
		{"behind some others", 7, func(o *Outcome, _ int64) {}, false, "false 1"},
		{"behind many others", 8, func(o *Outcome, _ int64) {}, false, "true 0"},
		{"it is consumed", 0, func(o *Outcome, there int64) { o.Consumed = []int64{there} }, false, "true 0"},
		{"it is of another name", 0, func(o *Outcome, _ int64) { o.Awaits = []string{"signal/no"} }, false, "true 0"},
		{"both of two names", 0, func(o *Outcome, _ int64) { o.Awaits, o.AwaitN = []string{"signal/no", "signal/pay"}, 2 }, false, "true 0"},
		{"on a condition", 0, func(o *Outcome, _ int64) { o.Where = []byte(`{"pay": "$.no == 1"}`) }, false, "true 0"},
		{"it was handed", 0, func(o *Outcome, there int64) { o.Handed, o.HandedTo = []string{"signal/pay"}, there }, false, "true 0"},
		{"in a unique scope", 0, func(o *Outcome, _ int64) { o.UniqueScope = ScopeAwaiting | ScopeRunnable | ScopeExecuting }, false, "true 0"},
		{"paused", 0, func(o *Outcome, _ int64) {}, true, "true 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.text.recheck = noWake
			f.started("k")
			for i := range c.others {
				f.fast(signal("k", "other", fmt.Sprint(i)))
			}
			there := f.fast(signal("k", "pay", "d"))[0].SignalID
			o := await(f.picked(), "signal/pay")
			c.o(&o, there)
			if c.pause {
				f.exec(`update pointsman.instances set paused = true`)
			}
			f.commit(o)
			f.want(c.want, `select i.parked, (select count(*) from pointsman.ready r where r.rev = i.rev) from pointsman.instances i`)
		})
	}
}

// Only what was picked commits, once, and in its lease.
func TestCommitFence(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("a", "b", "c")
	works := f.pick(2)
	third := f.picked()
	late := func(o Outcome) {
		t.Helper()
		o.Publish, o.Events, o.Signals = []Publish{{Subject: "s"}}, []Event{{"e", []byte("1")}}, []Signal{signal("b", "pay", uuid.NewString())}
		if passed := must(f.tryCommit(t.Context(), o))(t).Passed; len(passed) != 0 {
			t.Errorf("passed: %v", passed)
		}
	}
	stale, foreign := outcome(works[0], OutcomeNext), outcome(works[0], OutcomeNext)
	stale.Rev--
	foreign.Token = uuid.New()
	late(foreign)
	settled := must(f.Commit(t.Context(), []Outcome{stale, outcome(works[1], OutcomeNext), outcome(third, OutcomeNext)}, Group{Last: []uuid.UUID{third.Token}, Publish: publish}))(t)
	if len(settled.Passed) != 2 || settled.Counted(&stale) {
		t.Errorf("passed: %v", settled.Passed)
	}
	f.want("1", `select count(*) from pointsman.leases`)
	must(f.Cancel(t.Context(), []uuid.UUID{works[0].ID}, "", nil))(t)
	late(outcome(works[0], OutcomeDone))
	f.want("0 0 0", `select (select count(*) from pointsman.outbox), (select count(*) from pointsman.events), (select count(*) from pointsman.signals)`)
}

func TestCommitOutputs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.started("k")[0]
	o := outcome(f.picked(), OutcomeNext)
	o.Events = []Event{{"status", []byte(`"new"`)}, {"n", []byte("1")}}
	for i := range 20 {
		o.Publish = append(o.Publish, Publish{Subject: fmt.Sprint("s.", i), Body: []byte{0, 1}, Headers: map[string][]string{"H": {"a", "b"}}})
	}
	o.Publish = append(o.Publish, Publish{Subject: "empty"})
	f.commit(o)
	o = outcome(f.picked(), OutcomeDone)
	o.Events = []Event{{"status", []byte(`"old"`)}}
	f.commit(o)
	f.want(`n 1 1,status "old" 2`, `select key, value::text, rev from pointsman.events order by key`)
	rows := must(f.Outbox(t.Context(), allShards(), 0, 100))(t)
	if len(rows) != 22 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, r := range rows[:20] {
		got := fmt.Sprint(r.Kind, r.Project, r.Subject, r.MsgID, r.Headers, r.Body, r.InstanceID)
		equal(t, "publication", got, fmt.Sprint("publish", project, fmt.Sprint("s.", i), fmt.Sprintf("%s:1:%d", id, i), map[string][]string{"H": {"a", "b"}}, []byte{0, 1}, id))
	}
	if r := rows[20]; r.Subject != "empty" || r.Headers != nil || len(r.Body) != 0 {
		t.Errorf("one without headers and body: %+v", r)
	}
}

func allShards() (shards []int) {
	for i := range outboxShards {
		shards = append(shards, i)
	}
	return shards
}

// An end is published to the outcome subject, and to whom the start named.
func TestCommitPublishesEnds(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, c := range []struct{ key, end, want string }{
		{"d", OutcomeDone, `outcome m.done {"a": 1} - d`}, {"f", OutcomeStop, "outcome m.failed - broken f"}, {"c", "cancel", "outcome m.canceled - broken c"},
	} {
		n := newInstance(c.key)
		n.ReplyTo, n.Traceparent = "inbox."+c.key, "00-1"
		f.begin(n)
		w := f.picked()
		o := outcome(w, c.end)
		switch c.end {
		case OutcomeDone:
			o.Result = []byte(`{"a": 1}`)
			f.commit(o)
		case OutcomeStop:
			o.Reason = "broken"
			f.commit(o)
		default:
			must(f.Cancel(t.Context(), []uuid.UUID{w.ID}, "broken", publish))(t)
		}
		const body = `convert_from(body, 'UTF8')::jsonb`
		f.want(c.want, `select kind, subject, coalesce(`+body+`->>'result', '-'), coalesce(`+body+`->>'reason', '-'), `+body+`->>'correlation_key'
			from pointsman.outbox where instance_id = $1 and kind = 'outcome'`, w.ID)
		f.want(fmt.Sprintf(`reply inbox.%s %s:%d {"traceparent" : ["00-1"]}`, c.key, w.ID, w.Rev+1), `select kind, subject, msg_id, headers from pointsman.outbox where instance_id = $1 and kind = 'reply'`, w.ID)
	}
	f.want("0", `select count(*) from pointsman.outbox where (convert_from(body, 'UTF8')::jsonb->>'finished_at')::timestamptz not between now() - interval '1 min' and now()`)

	f.started("quiet")
	w := f.picked()
	must(f.Commit(t.Context(), []Outcome{outcome(w, OutcomeDone)}, Group{Publish: []string{"failed"}}))(t)
	f.want("0", `select count(*) from pointsman.outbox where instance_id = $1`, w.ID)
}

// The ended has no inbox; that of one that may be retried is kept in its row.
func TestEndClearsTheInbox(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, c := range []struct{ kind, kept string }{{OutcomeDone, "-"}, {OutcomeStop, "1 2"}, {"cancel", "1 2"}} {
		id := f.parked(c.kind, "signal/pay")
		f.fast(signal(c.kind, "pay", "1"), signal(c.kind, "no", "2"))
		if c.kind == "cancel" {
			canceled := must(f.Cancel(t.Context(), []uuid.UUID{id, uuid.New()}, "", publish))(t)
			equal(t, "canceled", fmt.Sprint(canceled.IDs), fmt.Sprint([]uuid.UUID{id}))
			equal(t, "canceled again", len(must(f.Cancel(t.Context(), []uuid.UUID{id}, "", publish))(t).IDs), 0)
		} else {
			f.commit(outcome(f.picked(), c.kind))
		}
		f.want("0", `select count(*) from pointsman.signals`)
		f.want(c.kept, `select coalesce((select string_agg(s->>'dedup_key', ' ') from jsonb_array_elements(kept) s), '-') from pointsman.instances where id = $1`, id)
		f.want("1", `select count(*) from pointsman.outbox where instance_id = $1`, id)
	}
}

// A worker that lost an instance and picked it again may bring both outcomes of it to one commit.
func TestCommitOfTwoVisitsOfOneInstance(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("a")
	with := func(w Work, word string) Outcome {
		o := outcome(w, OutcomeNext)
		o.Step = word
		o.Publish, o.Events = []Publish{{Subject: word}}, []Event{{word, []byte("1")}}
		o.Signals, o.Starts = []Signal{signal("b", "pay", word)}, []NewInstance{newInstance(word)}
		return o
	}
	stale := with(f.picked(), "stale")
	f.expire()
	must(f.SweepLeases(t.Context(), 8))(t)
	counts := with(f.picked(), "counts")
	settled := must(f.tryCommit(t.Context(), stale, counts))(t)
	if len(settled.Passed) != 1 || settled.Counted(&stale) || !settled.Counted(&counts) {
		t.Errorf("passed: %v", settled.Passed)
	}
	f.want("counts counts counts counts", `select (select step from pointsman.instances where correlation_key = 'a'), (select string_agg(subject, ' ') from pointsman.outbox),
		(select string_agg(key, ' ') from pointsman.events), (select string_agg(dedup_key, ' ') from pointsman.held)`)
	f.want("a,counts", `select correlation_key from pointsman.instances order by 1`)
}
