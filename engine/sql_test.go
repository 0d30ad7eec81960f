package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

// sql is a statement of a program that has its own tables in this database.
func (b *bundle) sql(text string) string { return migrations.Qualify(text, b.db.Schema) }

// row runs one that answers one text.
func (b *bundle) row(q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, text string, args ...any,
) (answer string, err error) {
	err = q.QueryRow(b.t.Context(), b.sql(text), args...).Scan(&answer)
	return answer, err
}

// labels name instances in the order in which they are heard of: those of two schemas have different ids.
type labels map[string]string

func (l labels) of(id string) string {
	if id == "" || id == uuid.Nil.String() {
		return "-"
	}
	if l[id] == "" {
		l[id] = fmt.Sprint("i", len(l)+1)
	}
	return l[id]
}

// side is one of the two that do the same.
type side struct {
	*bundle
	labels labels
}

// sentSignal and asked are what both sides are given.
type (
	sentSignal struct{ key, name, payload, dedup string }
	asked      struct{ key, machine, state, dedup, unique string }
)

type sqlHistory struct {
	rng *rand.Rand
	n   int
}

func (h *sqlHistory) one(of ...string) string { return of[h.rng.IntN(len(of))] }

func (h *sqlHistory) key() string { return fmt.Sprintf("h%d-%s", h.n, h.one("a", "b", "c", "é")) }

func (h *sqlHistory) signals() (batch []sentSignal) {
	for range 1 + h.rng.IntN(4) {
		batch = append(batch, sentSignal{h.key(), h.one("s", "t", "s", ".bad"), h.one(`"p"`, `{"n": 1, "é": [null, true]}`, `2.50`), h.one("", "d1", "d2", "d\x01")})
	}
	return batch
}

func (h *sqlHistory) starts() (batch []asked) {
	for range 1 + h.rng.IntN(3) {
		batch = append(batch, asked{h.one("", h.key(), h.key()), h.one("m", "m", "n", "no.token"), h.one(`{}`, `{"n": 1}`), h.one("", "", "d1", "d2"), h.one("", "", fmt.Sprintf("u%d", h.n))})
	}
	return batch
}

func none(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// goSignals and goStarts are the Go API, sqlSignals and sqlStarts the functions.
func (s side) goSignals(tx pgx.Tx, batch []sentSignal, missing string) (out []string) {
	ins := make([]engine.Intake, len(batch))
	for i, g := range batch {
		ins[i] = engine.Intake{To: engine.ByKey("", g.key), Name: g.name, Payload: raw(g.payload), DedupKey: g.dedup, OnMissing: engine.OnMissing(missing)}
	}
	for _, r := range must(s.AcceptTx(s.t.Context(), tx, ins))(s.t) {
		out = append(out, fmt.Sprint(r.Result, " ", s.labels.of(r.InstanceID.String()), " ", r.SignalID > 0))
	}
	return out
}

func (s side) sqlSignals(tx pgx.Tx, batch []sentSignal, missing string) (out []string) {
	var keys, names, payloads []string
	var dedups []*string
	for _, g := range batch {
		keys, names, payloads, dedups = append(keys, g.key), append(names, g.name), append(payloads, g.payload), append(dedups, none(g.dedup))
	}
	rows := must(tx.Query(s.t.Context(), s.sql(`select result, coalesce(instance_id::text, ''), signal_id is not null
		from pointsman.signal_many($1, $2, $3::text[]::jsonb[], $4, on_missing => $5) order by ord`), keys, names, payloads, dedups, missing))(s.t)
	var result, id string
	var has bool
	must(pgx.ForEachRow(rows, []any{&result, &id, &has}, func() error {
		out = append(out, fmt.Sprint(result, " ", s.labels.of(id), " ", has))
		return nil
	}))(s.t)
	return out
}

func (s side) goStarts(batch []asked, scope []engine.Status) (out []string) {
	ns := make([]engine.NewInstance, len(batch))
	for i, n := range batch {
		ns[i] = engine.NewInstance{Machine: n.machine, CorrelationKey: n.key, State: raw(n.state), DedupKey: n.dedup, UniqueKey: n.unique}
		if n.unique != "" {
			ns[i].UniqueScope = scope
		}
	}
	for _, r := range must(s.StartAll(s.t.Context(), ns, false))(s.t) {
		result, id := string(r.Result), r.InstanceID
		var conflict *engine.ConflictError
		var invalid *engine.InvalidError
		switch {
		case errors.As(r.Err, &conflict):
			result, id = "conflict", conflict.ID
		case errors.As(r.Err, &invalid):
			result, id = "refused", uuid.Nil
		}
		out = append(out, result+" "+s.labels.of(id.String()))
	}
	return out
}

func (s side) sqlStarts(batch []asked, scope []engine.Status) (out []string) {
	var machines, states []string
	var keys, dedups, uniques []*string
	for _, n := range batch {
		machines, states = append(machines, n.machine), append(states, n.state)
		keys, dedups, uniques = append(keys, none(n.key)), append(dedups, none(n.dedup)), append(uniques, none(n.unique))
	}
	var scopes []string
	for _, st := range scope {
		if slices.ContainsFunc(uniques, func(u *string) bool { return u != nil }) {
			scopes = append(scopes, string(st))
		}
	}
	rows := must(s.pool.Query(s.t.Context(), s.sql(`select result, coalesce(instance_id::text, '')
		from pointsman.start_many($1, $2, $3::text[]::jsonb[], $4, unique_keys => $5, unique_scope => $6) order by ord`), machines, keys, states, dedups, uniques, scopes))(s.t)
	var result, id string
	must(pgx.ForEachRow(rows, []any{&result, &id}, func() error {
		out = append(out, result+" "+s.labels.of(id))
		return nil
	}))(s.t)
	return out
}

// tables are what a transaction has left, with instances by their place in the order of their ids, which is that of their starts.
const sqlTables = `
with i as (select row_number() over (order by id) as at, * from pointsman.instances), l as (select at, id from i)
select coalesce(jsonb_agg(x order by x), '[]')::text from (
  select jsonb_build_object('instance', at) || to_jsonb(i) - '{at,id,inserted_at,updated_at,finished_at,scope,kept}'::text[] || jsonb_build_object('scope', nullif(scope, id)) as x from i
  union all select jsonb_build_object('signal', l.at, 'nth', row_number() over (partition by s.instance_id order by s.id)) || to_jsonb(s) - '{instance_id,id,inserted_at}'::text[]
    from pointsman.signals s join l on l.id = s.instance_id
  union all select jsonb_build_object('ledger', l.at, 'hash', g.hash, 'source', g.source, 'signal', g.signal_id is not null,
      'dedup', case when g.signal_id is null or exists (select from pointsman.signals s where s.id = g.signal_id and s.dedup_key is not null) then g.dedup end)
    from pointsman.ledger g join l on l.id = g.instance_id
  union all select jsonb_build_object('ready', l.at) || to_jsonb(r) - '{instance_id,run_at}'::text[] from pointsman.ready r join l on l.id = r.instance_id
  union all select jsonb_build_object('held', true, 'dedup', case when dedup_key is not null then dedup end, 'hours', round(extract(epoch from expires_at - inserted_at) / 3600))
    || to_jsonb(h) - '{id,dedup,expires_at,inserted_at}'::text[] from pointsman.held h
  union all select jsonb_build_object('unique', key, 'by', l.at) from pointsman.unique_keys u join l on l.id = u.instance_id
) t`

// The functions do what the Go API does: the same answers, and the same tables behind them.
func TestSQLIsTheGoAPI(t *testing.T) {
	t.Parallel()
	a, z := side{setup(t), labels{}}, side{setup(t), labels{}}
	histories := 16
	seen := map[string]int{}
	for n := range histories {
		h := &sqlHistory{rng: rand.New(rand.NewPCG(uint64(n), 11)), n: n}
		for range 10 {
			var what string
			var want, got []string
			switch k := h.rng.IntN(10); {
			case k < 5:
				batch, missing := h.signals(), h.one("reject", "hold", "hold", "drop")
				what = fmt.Sprintf("signals %q, %s", batch, missing)
				a.tx(func(tx pgx.Tx) { want = a.goSignals(tx, batch, missing) })
				z.tx(func(tx pgx.Tx) { got = z.sqlSignals(tx, batch, missing) })
			case k < 8:
				batch := h.starts()
				scope := [][]engine.Status{nil, {engine.StatusRunnable}, {engine.StatusAwaiting, engine.StatusDone}}[h.rng.IntN(3)]
				what = fmt.Sprintf("starts %q, %v", batch, scope)
				want, got = a.goStarts(batch, scope), z.sqlStarts(batch, scope)
			case k == 8: // park what is ready, as commits would
				await := h.one(`'{signal/s}', 1`, `'{signal/s,signal/t}', 2`)
				what = "park " + await
				for _, s := range []side{a, z} {
					s.exec(`update pointsman.instances set parked = true, (awaits, await_n) = (` + await + `) where live and not parked`)
					s.exec(`delete from pointsman.ready`)
				}
			default:
				key := h.key()
				what = "cancel " + key
				for _, s := range []side{a, z} {
					if _, err := s.Cancel(t.Context(), engine.ByKey("", key), ""); err != nil && !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrNoTarget) {
						t.Fatal(err)
					}
				}
			}
			for _, r := range want {
				seen[strings.Fields(r)[0]]++
			}
			if !slices.Equal(want, got) {
				t.Fatalf("history %d, %s: the functions answer\n%q, and the Go API\n%q", n, what, got, want)
			}
			if n%4 == 0 {
				compareTables(t, a, z, fmt.Sprintf("history %d, %s", n, what))
			}
		}
	}
	compareTables(t, a, z, "all histories")
	for _, result := range []string{"delivered", "duplicate", "conflict", "held", "dropped", "no_target", "refused", "started"} {
		if seen[result] < 3 {
			t.Errorf("only %d are %s: %v", seen[result], result, seen)
		}
	}
}

func compareTables(t *testing.T, a, z side, when string) {
	t.Helper()
	want, got := must(a.row(a.pool, sqlTables))(t), must(z.row(z.pool, sqlTables))(t)
	if want == got {
		return
	}
	var wants, gots []json.RawMessage
	must(0, errors.Join(json.Unmarshal([]byte(want), &wants), json.Unmarshal([]byte(got), &gots)))(t)
	for i := range max(len(wants), len(gots)) {
		if i >= len(wants) || i >= len(gots) || string(wants[i]) != string(gots[i]) {
			t.Fatalf("%s: of %d rows, and %d of the Go API, the first that differ:\n%s\n%s", when, len(gots), len(wants), at(gots, i), at(wants, i))
		}
	}
}

func at(rows []json.RawMessage, i int) string {
	if i < len(rows) {
		return string(rows[i])
	}
	return "none"
}

func (b *bundle) tx(fn func(tx pgx.Tx)) {
	b.t.Helper()
	must(0, pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
		fn(tx)
		return nil
	}))(b.t)
}

// state is the SQLSTATE of an error.
func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return fmt.Sprint(err)
}

// What a call for one item refuses, it raises: with the state that says which refusal, and with who holds the key.
func TestSQLRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := must(b.row(b.pool, `select pointsman.start('m', 'k', '{}', 'd')::text`))(t)
	must(b.row(b.pool, `select result from pointsman.signal('k', 's', '1', 'd')`))(t)
	long := strings.Repeat("x", 513)
	for _, c := range []struct{ sql, state, says string }{
		{`select pointsman.start('m', 'k')`, "PM409", id},
		{`select pointsman.start('m', 'k', '{"n": 1}', 'd')`, "PM409", id},
		{`select pointsman.signal('k', 's', '2', 'd')`, "PM409", id},
		{`select pointsman.signal('nobody', 's')`, "PM404", `nobody has the key "nobody"`},
		{`select pointsman.signal('nobody', 's', project => 'other')`, "PM404", `nobody`},
		{`select pointsman.signal('k', 's', project => 'other')`, "PM404", `nobody`},
		{`select pointsman.signal(null, 's')`, "PM400", "correlation_key: is empty"},
		{`select pointsman.signal('` + long + `', 's')`, "PM400", "correlation_key: has 513 characters"},
		{`select pointsman.signal('k', 'a b')`, "PM400", "name:"},
		{`select pointsman.signal('k', 's', dedup_key => '')`, "PM400", "dedup_key: is empty"},
		{`select pointsman.signal('k', 's', project => 'a.b')`, "PM400", "project:"},
		{`select pointsman.signal('k', 's', on_missing => 'start')`, "PM400", "on_missing:"},
		{`select pointsman.signal('k', 's', on_terminal => null)`, "PM400", "on_terminal:"},
		{`select pointsman.signal('k', 's', hold_for => '-1 s')`, "PM400", "hold_for:"},
		{`select pointsman.signal('k', 's', to_jsonb(repeat('x', 1 << 20)))`, "PM400", "payload: is too long"},
		{`select pointsman.signal_many('{a,b}', '{s}')`, "PM400", "different lengths"},
		{`select pointsman.signal_many(array(select 'k' || n from generate_series(1, 201) n), array(select 's' from generate_series(1, 201)))`, "PM400", "at most 200"},
		{`select pointsman.start('a.b')`, "PM400", "machine:"},
		{`select pointsman.start('m', queue => '_outbox')`, "PM400", "pointsman's own"},
		{`select pointsman.start('m', version => -1)`, "PM400", "version:"},
		{`select pointsman.start('m', priority => 40000)`, "PM400", "priority:"},
		{`select pointsman.start('m', unique_scope => '{done}')`, "PM400", "unique_scope: is of no unique_key"},
		{`select pointsman.start('m', unique_key => 'u', unique_scope => '{gone}')`, "PM400", "unique_scope: want statuses"},
		{`select pointsman.publish('')`, "PM400", "subject: is empty"},
		{`select pointsman.publish('a b')`, "PM400", "space"},
		{`select pointsman.publish('a.*')`, "PM400", "wildcard"},
		{`select pointsman.publish('a..b')`, "PM400", "empty token"},
		{`select pointsman.publish('a', '1', '[]')`, "PM400", "headers: want an object"},
		{`select pointsman.publish('a', '1', '{"a b": "c"}')`, "PM400", "no name of a header"},
		{`select pointsman.publish('a', '1', '{"a": 1}')`, "PM400", "no text"},
		{`select pointsman.publish('a', '1', '{"a": "b\r\nc: d"}')`, "PM400", "control character"},
		{`begin isolation level repeatable read; select pointsman.signal('k', 's')`, "25000", "read committed"},
		{`begin isolation level serializable; select pointsman.start('m')`, "25000", "read committed"},
		{`begin isolation level serializable; select pointsman.publish('a')`, "25000", "read committed"},
	} {
		conn := must(b.pool.Acquire(t.Context()))(t)
		_, err := conn.Exec(t.Context(), b.sql(c.sql), pgx.QueryExecModeSimpleProtocol)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != c.state || !strings.Contains(pg.Message+" "+pg.Detail, c.says) || c.state == "25000" && pg.Hint == "" {
			t.Errorf("%.80s: %v, want %s with %q", c.sql, err, c.state, c.says)
		}
		must(conn.Exec(t.Context(), "rollback"))(t)
		conn.Release()
	}
	equal(t, "instances", b.count(`select count(*) from pointsman.instances`), 1)
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), 1)
	equal(t, "publications", b.count(`select count(*) from pointsman.outbox`), 0)
}

// What a service does with its own rows is done with what it signals, starts and publishes, or is not; a worker sees none of it before.
func TestSQLInTheUsersTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`create table ` + b.db.Schema + `_orders (id text primary key)`)
	t.Cleanup(func() { must(b.pool.Exec(context.WithoutCancel(t.Context()), `drop table `+b.db.Schema+`_orders`))(t) })
	m := steps(t, map[string]step{"begin": to(engine.Await("paid", "pay")), "paid": to(engine.Done(nil))})
	b.work(engine.WorkerConfig{Machines: []*engine.Machine{m}, PollInterval: 20 * time.Millisecond})
	order := func(id string, end func(tx pgx.Tx) error) {
		t.Helper()
		tx := must(b.pool.Begin(t.Context()))(t)
		must(tx.Exec(t.Context(), `insert into `+b.db.Schema+`_orders values ($1)`, id))(t)
		// Drivers do not say of what type a text is.
		must(tx.Exec(t.Context(), b.sql(`select pointsman.signal($1, 'pay', $2, $3, on_missing => 'hold')`), id, `{"amount": 3}`, "pay-"+id))(t)
		must(tx.Exec(t.Context(), b.sql(`select pointsman.start('m', $1, $2)`), id, `{"n": 1}`))(t)
		must(tx.Exec(t.Context(), b.sql(`select pointsman.publish('orders.new', $1, $2)`), `{"id": 1}`, `{"X-Kind": "order", "X-All": ["a", "b"]}`))(t)
		must(0, end(tx))(t)
	}
	order("one", func(tx pgx.Tx) error { return tx.Rollback(t.Context()) })
	for _, table := range []string{"instances", "ready", "signals", "ledger", "held", "outbox"} {
		equal(t, table+" after a rollback", b.count(`select count(*) from pointsman.`+table), 0)
	}
	order("two", func(tx pgx.Tx) error { return tx.Commit(t.Context()) })
	in := must(b.Wait(t.Context(), engine.ByKey("", "two")))(t)
	equal(t, "status", in.Status, engine.StatusDone)
	equal(t, "what was held was adopted", b.count(`select count(*) from pointsman.held`), 0)
	ps := b.published(engine.PublishMessage)
	equal(t, "publications", len(ps), 1)
	equal(t, "publication", fmt.Sprint(ps[0].Subject, string(ps[0].Body), ps[0].Headers, ps[0].Project), `orders.new{"id": 1}map[X-All:[a b] X-Kind:[order]]default`)
	if uuid.Validate(ps[0].MsgID) != nil {
		t.Errorf("message id %q", ps[0].MsgID)
	}
}

// PublishTx is the same in Go.
func TestPublishTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := must(b.pool.Begin(t.Context()))(t)
	must(b.PublishTx(t.Context(), tx, "gone", 1, nil))(t)
	must(0, tx.Rollback(t.Context()))(t)
	var own, made string
	b.tx(func(tx pgx.Tx) {
		own = must(b.PublishTx(t.Context(), tx, "a.b", map[string]int{"n": 1}, map[string][]string{"Nats-Msg-Id": {"mine"}}))(t)
	})
	made = must(b.Publish(t.Context(), "c", []byte("raw"), nil))(t)
	ps := b.outbox()
	slices.SortFunc(ps, func(x, y engine.Publication) int { return strings.Compare(x.Subject, y.Subject) })
	equal(t, "publications", len(ps), 2)
	equal(t, "first", fmt.Sprint(ps[0].Subject, string(ps[0].Body), ps[0].Headers, own), `a.b{"n":1}map[Nats-Msg-Id:[mine]]mine`)
	equal(t, "second", fmt.Sprint(ps[1].Subject, string(ps[1].Body), ps[1].MsgID == made), `crawtrue`)
	for headers, is := range map[string]bool{`{"Nats-Msg-Id": "mine"}`: true, `{"Nats-Msg-Id": ["mine", "other"]}`: true, `{"Nats-Msg-Id": ""}`: false, `{"nats-msg-id": "mine"}`: false, `null`: false} {
		id := must(b.row(b.pool, `select pointsman.publish('d', '1', $1)`, headers))(t)
		equal(t, "SQL with "+headers, fmt.Sprint(id == "mine", uuid.Validate(id) == nil), fmt.Sprint(is, !is))
	}
	for _, bad := range []struct {
		subject string
		headers map[string][]string
	}{{"", nil}, {"a..b", nil}, {"a.*", nil}, {"a", map[string][]string{"a:b": {"c"}}}, {"a", map[string][]string{"a": {"b\nc"}}}} {
		var invalid *engine.InvalidError
		if _, err := b.Publish(t.Context(), bad.subject, 1, bad.headers); !errors.As(err, &invalid) {
			t.Errorf("%q %q: %v", bad.subject, bad.headers, err)
		}
	}
	if _, err := b.Publish(t.Context(), "a", make([]byte, 1<<20+1), nil); engine.Code(err) != "invalid" {
		t.Errorf("too long: %v", err)
	}
	tx = must(b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable}))(t)
	if _, err := b.PublishTx(t.Context(), tx, "a", 1, nil); err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Errorf("serializable: %v", err)
	}
	must(0, tx.Rollback(t.Context()))(t)
}

// Who may call a function may do what it does, and nothing else: not read a table, not call what is inside; and what lies in the caller's
// search path is not what it finds.
func TestSQLRights(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := b.db.Schema + "_app"
	b.exec(`create role ` + role)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(b.pool.Exec(ctx, `drop owned by `+role))(t)
		must(b.pool.Exec(ctx, `drop role `+role))(t)
	})
	as := func(text string) error {
		return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `set local role `+role+`; `+b.sql(text), pgx.QueryExecModeSimpleProtocol)
			return err
		})
	}
	const denied = "42501"
	equal(t, "without any right", state(as(`select pointsman.start('m', 'k')`)), denied)
	b.exec(`grant usage on schema ` + b.db.Schema + ` to ` + role)
	for _, call := range []string{`signal('k', 's')`, `signal_many('{k}', '{s}')`, `start('m', 'k')`, `start_many('{m}')`, `publish('a')`, `publish_many('{a}')`} {
		equal(t, "use of the schema alone: "+call, state(as(`select pointsman.`+call)), denied)
	}
	b.exec(`grant execute on function pointsman.start, pointsman.signal, pointsman.publish to ` + role + `; grant select on pointsman.v_instances to ` + role)
	must(0, as(`select pointsman.start('m', 'k'); select pointsman.signal('k', 's'); select pointsman.publish('a'); select * from pointsman.v_instances`))(t)
	equal(t, "a table", state(as(`select * from pointsman.instances`)), denied)
	equal(t, "a table, written", state(as(`delete from pointsman.held`)), denied)
	equal(t, "an inner function", state(as(`select pointsman._lock_keys('{1}')`)), denied)
	must(0, as(`create temp table instances (id int); create temp table held (id int);
		create function pg_temp.now() returns timestamptz language sql as 'select timestamptz ''-infinity''';
		set local search_path = pg_temp, pg_catalog; set local standard_conforming_strings = off; set local default_transaction_isolation = 'serializable';
		select pointsman.signal('nobody', 's', on_missing => 'hold')`))(t)
	equal(t, "held until", b.count(`select count(*) from pointsman.held where expires_at > now()`), 1)
}

// A pooler in transaction mode may stand between, and give each transaction another session.
func TestSQLThroughAPooler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bouncer := pgtest.NewBouncer(t, b.db.URL)
	pool := must(engine.Connect(t.Context(), bouncer.URL, 4, true))(t)
	t.Cleanup(pool.Close)
	for n := range 12 {
		must(0, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			key := fmt.Sprint("k", n)
			if _, err := tx.Exec(t.Context(), b.sql(`select pointsman.start('m', $1)`), key); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), b.sql(`select pointsman.signal($1, 's', $2, 'd')`), key, `{"n": 1}`)
			return err
		}))(t)
	}
	equal(t, "signals", b.count(`select count(*) from pointsman.v_inbox where dedup_key = 'd'`), 12)
}

// Two transactions that call in opposite orders: Postgres ends one with 40P01, and what it had done is undone. Batches are sorted, and
// never meet so.
func TestSQLCallsInOppositeOrders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pointsman.start_many('{m,m}', '{a,b}')`)
	first, second := must(b.pool.Begin(t.Context()))(t), must(b.pool.Begin(t.Context()))(t)
	signal := func(tx pgx.Tx, key, dedup string) error {
		_, err := tx.Exec(t.Context(), b.sql(`select pointsman.signal($1, 's', '1', $2)`), key, dedup)
		return err
	}
	must(0, errors.Join(signal(first, "a", "1"), signal(second, "b", "2")))(t)
	crossed := make(chan error)
	go func() { crossed <- signal(first, "b", "1") }()
	errs := []error{signal(second, "a", "2"), receive(t, crossed)}
	var states []string
	for i, tx := range []pgx.Tx{second, first} {
		if errs[i] == nil {
			must(0, tx.Commit(t.Context()))(t)
		} else {
			states = append(states, state(errs[i]))
			must(0, tx.Rollback(t.Context()))(t)
		}
	}
	equal(t, "failed", strings.Join(states, " "), "40P01")
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), 2)
	batches := make(chan error, 2)
	for n, keys := range []string{"{a,b}", "{b,a}"} {
		go func() {
			var err error
			for i := range 20 {
				_, e := b.pool.Exec(t.Context(), b.sql(`select pointsman.signal_many($1, '{s,s}', null, $2)`), keys, []string{fmt.Sprint(n, i), fmt.Sprint(n, i)})
				err = errors.Join(err, e)
			}
			batches <- err
		}()
	}
	must(0, errors.Join(receive(t, batches), receive(t, batches)))(t)
	equal(t, "signals of batches", b.count(`select count(*) from pointsman.signals`), 82)
}
