package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// owned are the rows of instances, by table.
const owned = `select (select count(*) from pointsman.instances), (select count(*) from pointsman.history), (select count(*) from pointsman.events),
	(select count(*) from pointsman.timers), (select count(*) from pointsman.unique_keys), (select count(*) from pointsman.ledger)`

// aged makes what has ended, and what is noted of it, older.
func (f *fixture) aged(by time.Duration) {
	f.t.Helper()
	f.exec(`update pointsman.instances set finished_at = finished_at - $1::interval where not live`, by)
	f.exec(`update pointsman.departed set due = due - $1::interval`, by)
}

// retain runs the retention until there is no more to do.
func (f *fixture) retain(instances, dedup time.Duration) {
	f.t.Helper()
	for must(f.Retire(f.t.Context(), instances, dedup))(f.t) > 0 {
	}
	if dedup < instances {
		for must(f.Note(f.t.Context(), dedup))(f.t) > 0 {
		}
	}
	for more := true; more; {
		_, more = must2(f.Forget(f.t.Context(), dedup))(f.t)
	}
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// lived starts an instance with a dedup key, gives it all that an instance can own, and ends it.
func (f *fixture) lived(key string) uuid.UUID {
	f.t.Helper()
	n := deduped(newInstance(key), "start of "+key)
	n.UniqueKey, n.UniqueScope = "U"+key, 2*ScopeCanceled-1
	f.begin(n)
	o := await(f.picked(), "signal/pay")
	o.Delay, o.Events = new(time.Hour), []Event{{Key: "e", Value: []byte("1")}}
	f.commit(o)
	f.deliverAny(signal(key, "pay", "d of "+key))
	must(f.Cancel(f.t.Context(), []uuid.UUID{n.ID}, "", publish))(f.t)
	return n.ID
}

func TestRetention(t *testing.T) {
	t.Parallel()
	const all, ledger, none = "1 2 1 1 1 2", "0 0 0 0 0 2", "0 0 0 0 0 0"
	for name, c := range map[string]struct {
		instances, dedup time.Duration
		want             [3]string // after a day less an hour, a day and an hour, more than a week
	}{
		"ledgers are kept for longer":  {day, week, [3]string{all, ledger, none}},
		"ledgers are kept for as long": {day, day, [3]string{all, none, none}},
		"instances are kept longer":    {week, day, [3]string{all, "1 2 1 1 1 0", none}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.lived("k")
			outbox := f.rows(`select msg_id, body from pointsman.outbox`)
			for i, by := range []time.Duration{day - time.Hour, 2 * time.Hour, week} {
				f.aged(by)
				f.retain(c.instances, c.dedup)
				f.want(c.want[i], owned)
			}
			f.want(outbox, `select msg_id, body from pointsman.outbox`)
			f.want("0", `select count(*) from pointsman.departed`)
		})
	}
}

// What is live is nobody's to delete, however old it is, and an end that is not old enough neither.
func TestRetentionLeavesTheLive(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.lived("ended")
	f.deliverAny(signal("live", "pay", "held"))
	id := f.parked("live", "signal/go")
	f.exec(`update pointsman.instances set inserted_at = inserted_at - interval '1 y', updated_at = updated_at - interval '1 y'`)
	f.exec(`insert into pointsman.departed (instance_id, due, scope, project) values ($1, now() - interval '1 h', $2, $3)`, id, KeyScope(project, "live"), project) // it was ended, and was retried
	f.retain(day, day)
	f.want("2 3 1 1 1 3", owned)
	f.want("0", `select count(*) from pointsman.departed`)
}

// A duplicate for who is gone is one as long as the ledger is kept, by key, by id and of the start; later the key is new.
func TestDuplicatesOfTheGone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.lived("k")
	f.aged(2 * day)
	f.retain(day, week)
	f.want("0", `select count(*) from pointsman.instances`)
	again := signal("k", "pay", "d of k")
	byID := signalID(id, "pay", "d of k")
	byID.Payload, byID.Hash = again.Payload, again.Hash
	start := deduped(newInstance("k"), "start of k")
	f.exec(`update pointsman.ledger set hash = $1 where signal_id is null`, start.Hash)
	wantVerdicts(t, f.slow(again), Duplicate)
	wantVerdicts(t, f.slow(byID), Duplicate)
	byID.Hash = uuid.New()
	wantVerdicts(t, f.slow(byID), Conflict)
	equal(t, "start", f.begin(start)[0], Start{Verdict: Duplicate, InstanceID: id})
	a := must(f.Fates(t.Context(), []Question{{Project: project, ID: id, Dedup: again.Dedup}}))(t)[0]
	if a.Taken == nil || a.Taken.InstanceID != id {
		t.Errorf("its fate: %+v", a)
	}
	strange := must(f.Nobody(t.Context(), "another", true, []Signal{byID}))(t)
	wantVerdicts(t, strange, Missing)
	wantVerdicts(t, f.slow(signalID(id, "pay", "late")), Missing)
	wantVerdicts(t, f.slow(signal("k", "pay", "late")), Held)

	f.aged(week)
	f.retain(day, week)
	wantVerdicts(t, f.slow(byID), Missing)
	equal(t, "start", f.begin(start)[0].Verdict, Started)
}

// Instances that have a key one after another have one ledger scope; each takes only its own rows along. So do starts that had a scope of
// their own, and those that found somebody else in the way.
func TestForgetOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.lived("k")
	f.exec(`update pointsman.ledger set scope = gen_random_uuid() where signal_id is null`) // as of a start without a key
	f.aged(2 * week)
	second := newInstance("k")
	f.begin(second)
	f.commit(await(f.picked(), "signal/go"))
	f.deliverAny(signal("k", "pay", "another"))
	f.exec(`insert into pointsman.ledger (scope, dedup, instance_id, hash) values (gen_random_uuid(), gen_random_uuid(), $1, $1), ($2, gen_random_uuid(), $2, $2)`, first, second.ID)
	f.retain(day, week)
	f.want(fmt.Sprint(second.ID, " 2"), `select instance_id::text, count(*) from pointsman.ledger group by 1`)
}

// A long ledger goes a part at a time, past the rows of others.
func TestForgetLongLedger(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.ended("k")
	const rows = `insert into pointsman.ledger (scope, dedup, instance_id, hash, signal_id) select $1, gen_random_uuid(), $2, $2, %s from generate_series(1, $3::int) g`
	other := f.started("k")[0]
	f.exec(fmt.Sprintf(rows, "g"), KeyScope(project, "k"), id, 1200)
	f.exec(fmt.Sprintf(rows, "g"), KeyScope(project, "k"), other, 700)
	f.exec(fmt.Sprintf(rows, "null::bigint"), uuid.New(), id, 1500)
	f.aged(2 * week)
	equal(t, "retired", must(f.Retire(t.Context(), week, week))(t), 1)
	turns := 0
	for more := true; more; turns++ {
		var n int
		if n, more = must2(f.Forget(t.Context(), week))(t); n > 1500 {
			t.Errorf("%d rows in one turn", n)
		}
	}
	if turns < 3 {
		t.Errorf("%d turns", turns)
	}
	f.want(fmt.Sprint(other, " 700"), `select instance_id::text, count(*) from pointsman.ledger group by 1`)
	f.want("0", `select count(*) from pointsman.departed`)
}

// More than a batch, of several projects and ends at one time, in as many turns as it takes.
func TestRetentionBatches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(crowdOfEnded, 1234)
	equal(t, "one turn", must(f.Retire(t.Context(), day, week))(t), RetireBatch)
	f.want("true", `select (select max(due) from pointsman.departed) <= (select min(finished_at) from pointsman.instances) + interval '8 days'`)
	equal(t, "noted in one turn", must(f.Note(t.Context(), day))(t), NoteBatch)
	noted := NoteBatch
	for n := 1; n > 0; noted += n {
		n = must(f.Note(t.Context(), day))(t)
	}
	equal(t, "noted", noted, 1234-RetireBatch)
	f.retain(day, day)
	f.want("0 0 0", `select (select count(*) from pointsman.instances), (select count(*) from pointsman.departed), (select count(*) from pointsman.ledger)`)
}

// crowdOfEnded are $1 instances of two projects that ended two weeks ago, in groups at one time, each with a signal in its ledger.
const crowdOfEnded = `
with i as (
  insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, live, status, finished_at)
  select gen_random_uuid(), 'p' || g % 2, 'm', 1, 'q', 'k' || g, gen_random_uuid(), 's', '{}', false, 'done', date_trunc('day', now()) - interval '14 d' + g / 60 * interval '1 s' from generate_series(1, $1::int) g
  returning id, scope
), h as (
  insert into pointsman.history (instance_id, rev, attempt, step, outcome) select id, r, 0, 's', 'next' from i, generate_series(1, 3) r
)
insert into pointsman.ledger (scope, dedup, instance_id, hash, signal_id) select scope, id, id, id, 1 from i`

// One that still holds its partition key stays until it is released: only its row tells the sweep of its lease which key that is.
func TestRetentionWaitsForPartitionKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n := newInstance("k")
	n.PartitionKey = "P"
	f.begin(n)
	f.picked()
	must(f.Cancel(t.Context(), []uuid.UUID{n.ID}, "", publish))(t)
	f.aged(time.Second)
	equal(t, "while a pick may be under way", must(f.Retire(t.Context(), 0, week))(t), 0)
	f.aged(time.Hour)
	equal(t, "while it is executed", must(f.Retire(t.Context(), 0, week))(t), 0)
	f.expire()
	must(f.SweepLeases(t.Context(), 8))(t)
	f.want("0", `select count(*) from pointsman.running_keys`)
	equal(t, "then", must(f.Retire(t.Context(), 0, week))(t), 1)
}

func TestNextRetired(t *testing.T) {
	t.Parallel()
	f := setup(t)
	next := func(instances, dedup time.Duration) time.Duration {
		t.Helper()
		return must(f.NextRetired(t.Context(), instances, dedup, 30*day))(t).Round(time.Minute)
	}
	equal(t, "of none", next(day, week), 30*day)
	f.lived("k")
	f.aged(time.Hour)
	equal(t, "the instance", next(day, week), 23*time.Hour)
	equal(t, "its ledger", next(week, day), 23*time.Hour)
	f.aged(day)
	equal(t, "due", next(day, week), 0)
	must(f.Note(t.Context(), day))(t)
	if wait := next(week, day); wait > day/ledgerStrides {
		t.Errorf("%s until the ledger that is noted goes", wait)
	}
	f.retain(day, day)
	f.lived("k")
	f.aged(day + time.Hour)
	f.retain(day, week)
	if wait := next(day, week); wait < 6*day-2*time.Hour || wait > 6*day+week/ledgerStrides {
		t.Errorf("%s until the ledger of the gone goes", wait)
	}
	f.aged(week)
	equal(t, "the ledger of the gone", next(day, week), 0)
}

// However many there are, a turn reads what it deals with, and a worker that has nothing to do reads next to nothing.
func TestRetentionReadsBatches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(crowdOfEnded, 12_000)
	f.exec(`insert into pointsman.departed (instance_id, due, scope, project) select gen_random_uuid(), now() + interval '1 h', scope, project from pointsman.instances limit 6000`)
	f.exec(`insert into pointsman.departed (instance_id, due, scope, project) select gen_random_uuid(), now() - interval '1 h', scope, project from pointsman.instances limit 6000`)
	for _, table := range []string{"instances", "history", "ledger", "departed"} {
		f.exec("vacuum analyze pointsman." + table)
	}
	x := f.text
	for _, c := range []struct {
		name, sql, args string
		most            float64
	}{
		{"next", x.nextRetired, "'1 d', '7 d', '1 h'", 40}, // before the others leave entries in the indexes of what was rolled back
		{"retire none", x.retire, "'30 d', '7 d', '1 h'", 40},
		{"retire", x.retire, "'1 d', '7 d', '1 h'", 100 * RetireBatch},
		{"note", x.note, "'1 d', '1 h'", 20 * NoteBatch},
		{"forget", x.forget, "'7 d'", 40 * ForgetBatch},
	} {
		if got := f.buffers(c.sql, c.args); got > c.most {
			t.Errorf("%s: %v buffers, want at most %v", c.name, got, c.most)
		}
	}
}

// buffers is how many pages a statement touches. What it does is rolled back.
func (f *fixture) buffers(sql, args string) float64 {
	f.t.Helper()
	cfg := must(pgxpool.ParseConfig(f.db.URL))(f.t)
	Tune(cfg, false)
	conn := must(pgx.ConnectConfig(f.t.Context(), cfg.ConnConfig))(f.t)
	defer conn.Close(f.t.Context()) //nolint:errcheck // nothing hangs on it
	tx := must(conn.Begin(f.t.Context()))(f.t)
	must(tx.Prepare(f.t.Context(), "it", sql))(f.t)
	var text []byte
	if err := tx.QueryRow(f.t.Context(), "explain (analyze, buffers, format json) execute it("+args+")", pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		f.t.Fatal(err)
	}
	var plans []struct{ Plan map[string]any }
	if err := json.Unmarshal(text, &plans); err != nil {
		f.t.Fatal(err)
	}
	return plans[0].Plan["Shared Hit Blocks"].(float64) + plans[0].Plan["Shared Read Blocks"].(float64)
}

// A machine of many visits keeps the history of the latest.
func TestHistoryIsShort(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	const visits = 500
	for range visits {
		f.commit(outcome(f.picked(), OutcomeNext))
	}
	rows := strings.Fields(f.rows(`select count(*), min(rev), max(rev) from pointsman.history`))
	var n, first, last int
	if _, err := fmt.Sscan(strings.Join(rows, " "), &n, &first, &last); err != nil {
		t.Fatal(err)
	}
	if n < MaxHistory || n > MaxHistory+31 || last != visits || first != visits-n+1 {
		t.Errorf("%d transitions, %d to %d of %d", n, first, last, visits)
	}
}
