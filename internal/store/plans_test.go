package store

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// crowd are a few thousand rows in every table that a hot statement reads.
const crowd = `
insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, parked, awaits)
select gen_random_uuid(), 'p', 'm', 1, 'q', 'k' || g, gen_random_uuid(), 's', '{}', true, '{signal/pay}' from generate_series(1, 4000) g;
insert into pointsman.ready (queue, priority, instance_id, rev) select 'q', 0, id, rev from pointsman.instances;
insert into pointsman.timers (instance_id, rev, run_at) select id, rev, now() + interval '1 h' from pointsman.instances;
insert into pointsman.signals (instance_id, name, payload) select id, 'pay', '{}' from pointsman.instances;
insert into pointsman.ledger (scope, dedup, instance_id, hash) select scope, gen_random_uuid(), id, id from pointsman.instances;
insert into pointsman.leases select gen_random_uuid(), 'w', now() + interval '1 h', array[id], array[rev] from pointsman.instances;
insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, body) select g % 16, 'publish', id, 'p', 's', 'm', '' from pointsman.instances, generate_series(1, 2) g;
insert into pointsman.held (project, key, dedup, hash, expires_at, kind, name, payload) select 'p', 'h' || g, gen_random_uuid(), gen_random_uuid(), now() + interval '1 h', 'signal', 'pay', '{}' from generate_series(1, 4000) g;
update pointsman.instances set partition_key = correlation_key, unique_key = correlation_key, unique_scope = 1;
insert into pointsman.running_keys select project, partition_key, id, rev, id from pointsman.instances;
insert into pointsman.waiters select project, partition_key, queue, '', 0, now(), id, rev, false from pointsman.instances;
insert into pointsman.unique_keys select project, unique_key, id from pointsman.instances;
insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, live, status, finished_at)
select gen_random_uuid(), 'p', 'm', 1, 'q', 'k' || g, gen_random_uuid(), 's', '{}', false, 'done', now() - g * interval '1 s' from generate_series(1, 4000) g;
insert into pointsman.history (instance_id, rev, attempt, step, outcome) select id, g, 0, 's', 'next' from pointsman.instances, generate_series(1, 2) g;
insert into pointsman.events (instance_id, key, rev, value) select id, 'e', 1, '{}' from pointsman.instances;
insert into pointsman.verdicts (scope, dedup, hash, verdict) select id, id, id, '{}' from pointsman.instances;
insert into pointsman.departed (instance_id, due, scope, project) select id, now(), scope, 'p' from pointsman.instances;
` + crowdOfTriggers + `
insert into pointsman.webhook_deliveries (project, source, source_id, url, type, body, status) select 'p', 'trigger', id, 'https://h' || ascii(id::text) || '/', 't', '{}', s from pointsman.triggers, unnest('{pending,delivered,failed}'::text[]) s;
insert into pointsman.jobs (id, project, kind, status, ended_at, filter, args) select gen_random_uuid(), 'p', 'cancel', case when g % 2 = 0 then 'done' else 'running' end, case when g % 2 = 0 then now() end, '{}', '{}' from generate_series(1, 4000) g;
`

// plan is a node of EXPLAIN (FORMAT JSON).
type plan struct {
	Node       string `json:"Node Type"`
	Relation   string `json:"Relation Name"`
	Index      string `json:"Index Name"`
	IndexCond  string `json:"Index Cond"`
	JoinFilter string `json:"Join Filter"`
	Subplan    string `json:"Subplan Name"`
	CTE        string `json:"CTE Name"`
	Hit        int    `json:"Shared Hit Blocks"`
	Read       int    `json:"Shared Read Blocks"`
	Loops      int    `json:"Actual Loops"`
	Plans      []plan
}

// inMemory says that p is many rows without an index: in a nested loop with others of the kind it is quadratic.
func (p plan) inMemory() bool {
	return p.Node == "CTE Scan" || p.Node == "Function Scan" || p.Node == "Materialize"
}

// reads says that one of these tables is read.
func (p plan) reads(tables map[string]bool) (found bool) {
	p.walk(func(n plan) { found = found || tables[n.Relation] })
	return found
}

func (p plan) walk(see func(plan)) {
	see(p)
	for _, child := range p.Plans {
		child.walk(see)
	}
}

// No hot statement reads a table whole, or compares the rows of a batch with one another, whether it was planned when the tables were
// empty or later.
func TestPlansUseTheirIndexes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := must(pgxpool.ParseConfig(f.db.URL))(t)
	Tune(cfg, false)
	conn := must(pgx.ConnectConfig(t.Context(), cfg.ConnConfig))(t)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	x := f.text
	statements := map[string]string{
		"deliver by key": x.deliverKey, "deliver by key, slow": x.deliverKeySlow, "deliver by id": x.deliverID, "deliver by id, slow": x.deliverIDSlow, "lock key targets": x.lockKeyTargets,
		"recheck": x.recheck, "pick": strings.ReplaceAll(x.pick, "{n}", "64"), "pick with keys": strings.ReplaceAll(x.pickKeyed, "{n}", "64"), "long inbox": x.longInbox, "inbox ahead": x.inboxAhead, "extend": x.extend, "commit": x.commit, "commit with outputs": x.commitOutputs,
		"clear ended": x.clearEnded, "drop timers": x.dropTimers, "resolve": x.resolve, "keys of": x.keysOf, "release": x.release, "promote": x.promote, "guard": x.guard, "give back": x.giveBack, "sweep timers": x.sweepTimers, "any expired": x.anyExpired, "sweep leases": x.sweepLeases, "expire held": x.expireHeld,
		"next due": x.nextDue, "cancel": x.cancel, "standings": x.standings, "retry": x.retry, "pause": x.pause, "start": x.start, "nobody by key": x.nobodyKey, "nobody by id": x.nobodyID, "outbox": x.outbox, "published": x.published, "postpone": x.postpone,
		"retire": x.retire, "let go": x.letGo, "note": x.note, "forget": x.forget, "next retired": x.nextRetired,
	}
	for name, sql := range triggerStatements(x) {
		statements[name] = sql
	}
	statements["tell parents"], statements["wake parents"], statements["tell unstarted"] = x.tellParents, x.wakeParents, x.tellUnstarted
	statements["tell missed"], statements["children"] = x.tellMissed, x.children
	seldom := map[string]string{
		"list recent": x.listRecent, "list by key": x.listKey, "list by prefix": x.listPrefix, "list ended": x.listEnded, "instances by id": x.instancesByID,
		"inbox": x.inbox, "history": x.history, "consumed by": x.consumedBy, "events": x.events, "held": x.held, "resume": x.resume, "unserved": x.unserved,
		"fates": x.fates, "vanished": x.vanished, "traces": x.traces, "note dropped": x.noteDropped, "forget dropped": x.forgetDropped,
		"still matching": x.stillMatching,
		"api key":        x.apiKey, "list keys": x.listKeys, "list workers": x.listWorkers, "list queues": x.listQueues, "count live": x.countLive, "count ended": x.countEnded,
	}
	for name, sql := range map[string]string{
		"judged": x.judged, "keep verdict": x.keepVerdict, "forget verdicts": x.forgetVerdicts, "update taken": x.updateTaken, "set event": x.setEvent,
	} {
		statements[name] = sql
	}
	for name, sql := range map[string]string{
		"lock families": x.lockFamilies, "job": x.job, "same job": x.sameJob, "list jobs": x.listJobs, "cancel job": x.cancelJob, "next job": x.nextJob, "take job": x.takeJob, "save job": x.saveJob,
		"postpone job": x.postponeJob, "retire jobs": x.retireJobs,
	} {
		statements[name] = sql
	}
	for name, sql := range map[string]string{
		"commit that notifies": x.commitNotify, "add deliveries": x.addDeliveries, "claim deliveries": x.claimDeliveries, "next delivery": x.nextDelivery,
		"record deliveries": x.recordDeliveries, "give up deliveries": x.giveUpDeliveries, "retire deliveries": x.retireDeliveries,
		"list deliveries": x.listDeliveries, "delivery": x.deliveryByID, "retry deliveries": x.retryDeliveries,
	} {
		statements[name] = sql
	}
	ended := `update pointsman.instances set live = false, status = 'done', finished_at = now(), correlation_key = 'before ' || id`
	for _, state := range []struct {
		name string
		make []string
	}{
		{"empty", nil},
		{"analyzed while it was empty", []string{`analyze`, crowd}},
		{"small", append(clear("truncate"), crowdOf(300), `analyze`)},
		{"filled", append(clear("truncate"), crowd, `analyze`)},
		{"analyzed while nothing was live", slices.Concat(clear("truncate"), []string{crowd, ended}, clear("delete from")[1:], []string{`vacuum analyze`, crowd})},
		{"analyzed while messages had started nobody", append(clear("truncate"), crowd, `delete from pointsman.ledger where signal_id is null`, `vacuum analyze`)},
		{"with an empty ledger after that", []string{`truncate pointsman.ledger`}},
		{"grown", slices.Concat(clear("truncate"), []string{crowdOf(1), `analyze`}, clear("delete from"), []string{crowd})},
	} {
		for _, sql := range state.make {
			f.exec(sql)
		}
		for name, sql := range statements {
			if state.name == "grown" && strings.Contains(name, "purge") {
				continue // it comes with the retention, and reads what is the project's until the next analyze
			}
			checkPlan(t, conn, fmt.Sprintf("%s, %s", name, state.name), sql)
		}
		for _, sql := range []string{x.commit, x.commitOutputs, x.commitNotify} {
			checkOrder(t, conn, "order of a commit, "+state.name, sql)
		}
		for name, sql := range seldom { // these are of a person's pace, and there are as many leases as batches in work
			checkPlan(t, conn, fmt.Sprintf("%s, %s", name, state.name), sql, "leases")
		}
	}
}

// crowded are the tables of a crowd.
var crowded = strings.Fields("instances ready timers signals ledger leases outbox held running_keys waiters unique_keys history events verdicts departed triggers webhook_deliveries held_events quotas jobs")

// crowdOf is a crowd of fewer rows.
func crowdOf(rows int) string { return strings.ReplaceAll(crowd, "4000", fmt.Sprint(rows)) }

// clear is a statement for each of the tables, the instances first.
func clear(verb string) (statements []string) {
	for _, table := range crowded {
		statements = append(statements, verb+" pointsman."+table)
	}
	return statements
}

// planOf prepares a statement and returns the plan that the session has for it.
func planOf(t *testing.T, conn *pgx.Conn, name, sql string) plan {
	t.Helper()
	prepared := must(conn.Prepare(t.Context(), name, sql))(t)
	args := ""
	if n := len(prepared.ParamOIDs); n > 0 {
		args = "(null" + strings.Repeat(", null", n-1) + ")"
	}
	var text []byte
	explain := "explain (format json) execute " + pgx.Identifier{name}.Sanitize() + args
	if err := conn.QueryRow(t.Context(), explain, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

func checkPlan(t *testing.T, conn *pgx.Conn, name, sql string, mayRead ...string) {
	t.Helper()
	defer conn.Deallocate(t.Context(), name) //nolint:errcheck // the connection goes with the test
	for _, fault := range planOf(t, conn, name, sql).faults(mayRead...) {
		t.Errorf("%s: %s", name, fault)
	}
}

// checkOrder of a statement that locks instances in their order because it finds them so.
func checkOrder(t *testing.T, conn *pgx.Conn, name, sql string) {
	t.Helper()
	defer conn.Deallocate(t.Context(), name) //nolint:errcheck // the connection goes with the test
	of := map[string]bool{"instances": true}
	planOf(t, conn, name, sql).walk(func(p plan) {
		if p.Relation == "instances" && p.Node != "ModifyTable" && p.Index != "instances_pkey" || p.Node == "Hash Join" && p.reads(of) {
			t.Errorf("%s: %s on instances %s", name, p.Node, p.Index)
		}
	})
}

// faults are the nodes that may read all that there is. Nobody minds it in the tables of mayRead.
func (p plan) faults(mayRead ...string) (faults []string) {
	p.walk(func(p plan) {
		of := p.Node + " on " + p.Relation + " " + p.Index
		whole := p.Node == "Seq Scan" || strings.HasPrefix(p.Node, "Index") && p.IndexCond == "" && !inOrder[p.Index]
		if whole && !small[p.Relation] && !slices.Contains(mayRead, p.Relation) {
			faults = append(faults, of+" reads all of it")
		}
		if p.Node == "Nested Loop" && p.JoinFilter != "" && p.Plans[1].inMemory() && !p.Plans[1].reads(small) {
			faults = append(faults, "a nested loop: "+p.JoinFilter)
		}
		if strings.HasPrefix(p.Node, "Index") && ofAll.MatchString(p.IndexCond) && !inOrder[p.Index] && p.Relation != "quotas" && len(mayRead) == 0 {
			faults = append(faults, of+" reads all of it: "+p.IndexCond)
		}
	})
	return faults
}

// A plan that was made beside few rows is made anew when there are many, before anybody analyzes them.
func TestPlansAreMadeAnew(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(crowdOf(1))
	f.exec(`analyze`)
	cfg := must(pgxpool.ParseConfig(f.db.URL))(t)
	Tune(cfg, false)
	cfg.MaxConns, cfg.PrepareConn = 1, nil
	g := watchGrowth(cfg)
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	defer pool.Close()
	faults := func() (faults []string) {
		t.Helper()
		g.next = time.Time{}
		if err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			faults = planOf(t, conn.Conn(), "recheck", f.text.recheck).faults()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return faults
	}
	if len(faults()) == 0 {
		t.Fatal("a plan that is good in any case says nothing here")
	}
	made := g.generation
	faults()
	if g.generation != made {
		t.Errorf("plans are made anew where nothing has grown: %d, %d", made, g.generation)
	}
	for _, sql := range append(clear("delete from"), crowd) {
		f.exec(sql)
	}
	still := faults()
	for deadline := time.Now().Add(time.Minute); len(still) != 0 && time.Now().Before(deadline); still = faults() {
		time.Sleep(20 * time.Millisecond) // Postgres tells a second late what it has counted
	}
	if len(still) != 0 {
		t.Errorf("still planned as beside one row: %v", still)
	}
}

// Growth is counted from the least that a table was since the plans were made.
func TestGrowth(t *testing.T) {
	t.Parallel()
	g := &growth{}
	for i, c := range []struct {
		rows []int64
		want int
	}{
		{[]int64{0, 10_000}, 1},                      // the first look
		{[]int64{slack, 40_000}, 1},                  // little
		{[]int64{slack + 1, 40_000}, 2},              // from nothing
		{[]int64{5*slack + 4, 10_000}, 2},            // fourfold, with the slack, and one has shrunk
		{[]int64{0, 4*10_000 + slack + 1}, 3},        // which has grown again
		{[]int64{0, 4*(4*10_000+slack+1) + 1}, 3},    //
		{[]int64{0, 4*(4*10_000+slack+1) + 1, 0}, 4}, // a new table
	} {
		if g.note(c.rows); g.generation != c.want {
			t.Errorf("look %d: generation %d, want %d", i, g.generation, c.want)
		}
	}
}

// ofAll is a condition that may hold for all that a table has.
var ofAll = regexp.MustCompile(`^\(+(project = \$\d+|run_at <= now\(\))\)+$`)

var (
	// small tables may be read whole.
	small = map[string]bool{"machines": true, "workers": true, "relays": true, "outbox_shards": true, "departed_to": true, "api_keys": true}
	// inOrder are read from their beginning, up to a limit.
	inOrder = map[string]bool{"timers_due": true, "leases_expiry": true, "held_expiry": true, "instances_retained": true, "departed_due": true, "verdicts_at": true, "webhook_deliveries_next": true, "triggers_due": true, "held_events_expiry": true, "triggers_ended": true, "jobs_due": true}
)

// One column, or expression of an index, of a larger sample makes the sample of its table so large again.
func TestSamplesAreSmall(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.want("0", `select count(*) from pg_attribute
		where attrelid = any(array['pointsman.instances', 'pointsman.signals', 'pointsman.ledger', 'pointsman.history']::regclass[]) and attnum > 0 and not attisdropped and attstattarget is distinct from 10`)
	f.want("0", `select count(*) from pg_index
		where indrelid = any(array['pointsman.instances', 'pointsman.signals', 'pointsman.ledger', 'pointsman.history']::regclass[]) and indexprs is not null`)
}
