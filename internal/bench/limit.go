package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The least code that could do the same: the same rows in the same kinds of tables, and only the happy path. No conflict is told from a
// duplicate, nobody is held or found to have ended, no instance is paused, has a key, a deadline or a second signal, no lease is checked
// against its worker, no step of another version is known. It is what the machine can do, not what one could run.

const churning = `autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0`

const limitTables = `
create schema {limit};
create table {limit}.instances (
  parked boolean not null default true, live boolean not null default true, version integer not null default 0, attempt integer not null default 0,
  priority smallint not null default 0, id bigint generated always as identity, inserted_at timestamptz not null default now(), updated_at timestamptz not null default now(),
  finished_at timestamptz, key text collate "C" not null, queue text collate "C" not null, step text not null, status text, awaits text[] not null default '{}', state jsonb not null, result jsonb
) with (fillfactor = 80, {churning});
alter table {limit}.instances add primary key (id);
create unique index on {limit}.instances (key) where live;
create table {limit}.ready (queue text collate "C" not null, priority smallint not null, run_at timestamptz not null default now(), instance_id bigint not null) with ({churning});
create index on {limit}.ready (queue, priority, run_at);
create table {limit}.leases (token uuid primary key, expires_at timestamptz not null, ids bigint[] not null) with ({churning});
create index on {limit}.leases (expires_at);
create table {limit}.signals (
  instance_id bigint not null, id bigint generated always as identity, name text not null, inserted_at timestamptz not null default now(), payload jsonb not null, primary key (instance_id, id)
) with ({churning});
create table {limit}.ledger (instance_id bigint not null, dedup uuid not null, at timestamptz not null default now(), primary key (instance_id, dedup)) with ({churning});
create table {limit}.history (
  instance_id bigint not null, version integer not null, step text not null, outcome text not null, attempt integer not null, consumed bigint[], at timestamptz not null default now(),
  primary key (instance_id, version)
) with ({churning});
create table {limit}.outbox (id bigint generated always as identity primary key, owner smallint not null, msg_id text not null, body bytea not null) with ({churning})`

func (b *run) makeLimits(ctx context.Context) error {
	if _, err := b.db.Exec(ctx, `drop schema if exists `+limitSchema+` cascade`); err != nil {
		return err
	}
	sql := strings.NewReplacer("{limit}", limitSchema, "{churning}", churning).Replace(limitTables)
	if _, err := b.db.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("tables of the limits: %w", err)
	}
	return nil
}

// parkLimits is what park does for our tables.
func (b *run) parkLimits(ctx context.Context, n int) error {
	if err := b.makeLimits(ctx); err != nil {
		return err
	}
	if _, err := b.db.Exec(ctx, `
insert into `+limitSchema+`.instances (key, queue, step, awaits, state)
select 'order-' || lpad(g::text, 9, '0'), 'default', 'go', '{go}', jsonb_build_object('n', 0, 'pad', repeat('s', 280)) from generate_series(1, $1::int) g`, n); err != nil {
		return err
	}
	_, err := b.db.Exec(ctx, `vacuum analyze `+limitSchema+`.instances`)
	return err
}

// limit is one session that does what is to be done at least.
type limit struct{ conn *pgx.Conn }

// limits are sessions; stop ends them.
func (b *run) limits(ctx context.Context, n int) (all []limit, stop func(), err error) {
	stop = func() {
		for _, l := range all {
			l.conn.Close(context.WithoutCancel(ctx))
		}
	}
	for range n {
		conn, err := b.session(ctx)
		if err != nil {
			stop()
			return nil, nil, err
		}
		all = append(all, limit{conn})
	}
	return all, stop, nil
}

// rows are messages as columns.
type rows struct {
	keys, names, payloads []string
	numbers               []int64
	dedups                []uuid.UUID
}

func (b *run) rows(l load, batch int) (batches []rows) {
	at := 0
	for chunk := range slices.Chunk(l.numbers, batch) {
		var r rows
		for _, number := range chunk {
			r.keys, r.names, r.payloads = append(r.keys, keyOf(number)), append(r.names, signalGo), append(r.payloads, string(b.body(number)))
			r.numbers, r.dedups = append(r.numbers, int64(number)), append(r.dedups, dedupOf(l.id(at)))
			at++
		}
		batches = append(batches, r)
	}
	return batches
}

func dedupOf(id string) uuid.UUID { return uuid.NewMD5(uuid.NameSpaceOID, []byte(id)) }

// insert is a signal and a row of the ledger each, and nothing else.
func (l limit) insert(ctx context.Context, r rows) (fresh int, err error) {
	err = l.conn.QueryRow(ctx, `
with /* limit rows */ m as materialized (
  select * from unnest($1::bigint[], $2::text[], $3::text[], $4::uuid[]) t(number, name, payload, dedup)
), known as (
  insert into ledger (instance_id, dedup) select number, dedup from m on conflict do nothing returning instance_id, dedup
), added as (
  insert into signals (instance_id, name, payload) select m.number, m.name, m.payload::jsonb from m join known on known.instance_id = m.number and known.dedup = m.dedup
)
select count(*)::int from known`, r.numbers, r.names, r.payloads, r.dedups).Scan(&fresh)
	return fresh, err
}

// know is the ledger alone.
func (l limit) know(ctx context.Context, r rows) (fresh int, err error) {
	tag, err := l.conn.Exec(ctx, `
insert /* limit ledger */ into ledger (instance_id, dedup) select * from unnest($1::bigint[], $2::uuid[]) on conflict do nothing`, r.numbers, r.dedups)
	return int(tag.RowsAffected()), err
}

// deliver puts signals into inboxes and wakes who waits.
func (l limit) deliver(ctx context.Context, r rows) (woken int, err error) {
	err = l.conn.QueryRow(ctx, `
with /* limit deliver */ m as materialized (
  select * from unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) with ordinality t(key, name, payload, dedup, nth)
), target as materialized (
  select id, key, awaits, queue, priority, parked from instances where key = any($1) and live order by id for no key update
), known as (
  insert into ledger (instance_id, dedup) select target.id, m.dedup from m join target using (key) on conflict do nothing returning instance_id, dedup
), fresh as materialized (
  select target.*, m.name, m.payload, m.nth from known join target on target.id = known.instance_id join m on m.key = target.key and m.dedup = known.dedup
), added as (
  insert into signals (instance_id, name, payload) select id, name, payload::jsonb from fresh order by nth
), woken as (
  update instances i set parked = false from (select distinct id from fresh where parked and name = any(awaits)) w where i.id = w.id returning i.id, i.queue, i.priority
), due as (
  insert into ready (queue, priority, instance_id) select queue, priority, id from woken
)
select count(*)::int from woken`, r.keys, r.names, r.payloads, r.dedups).Scan(&woken)
	return woken, err
}

// picked is an instance with the one signal that it has, or none.
type picked struct {
	id      int64
	version int32
	signal  int64
}

func (l limit) pick(ctx context.Context, queue string, n int, token uuid.UUID) (works []picked, err error) {
	rows, err := l.conn.Query(ctx, strings.Replace(`
with /* limit pick */ taken as (
  delete from ready where ctid = any(array(select ctid from ready where queue = $1 order by priority, run_at limit {n} for update skip locked)) returning instance_id
), lease as (
  insert into leases (token, expires_at, ids) select $2, now() + interval '1 minute', array_agg(instance_id) from taken having count(*) > 0
)
select i.id, i.version, i.state, s.id, s.payload from taken join instances i on i.id = taken.instance_id
left join lateral (select s.id, s.payload from signals s where s.instance_id = i.id and s.name = any(i.awaits) order by s.id limit 1000) s on true`, "{n}", strconv.Itoa(n), 1), queue, token)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var w picked
		var state, payload []byte
		var signal *int64
		if err := rows.Scan(&w.id, &w.version, &state, &signal, &payload); err != nil {
			return nil, err
		}
		if signal != nil {
			w.signal = *signal
		}
		works = append(works, w)
	}
	return works, rows.Err()
}

// What the commits of the limits have in common: $1 ids, $2 versions, $3 states, $4 lease, $5 signals that are consumed.
const (
	limitOutcomes = `lease as materialized (
  delete from leases where token = $4 returning 1
), o as materialized (
  select * from unnest($1::bigint[], $2::int[], $3::text[], $5::bigint[]) t(id, version, state, signal)
)`
	limitConsumed = `consumed as (
  delete from signals where ctid = any(array(
    select found.ctid from u cross join lateral (select s.ctid from signals s where s.instance_id = u.id and s.id = u.signal limit 1) found))
)`
	limitPark = `
with /* limit park */ ` + limitOutcomes + `, u as (
  update instances i set parked = true, version = i.version + 1, attempt = 0, step = 'go', awaits = '{go}', state = o.state::jsonb, updated_at = now()
  from o where i.id = o.id and i.version = o.version and exists (select from lease) returning i.id, i.version, o.signal
), ` + limitConsumed + `, trail as (
  insert into history (instance_id, version, step, outcome, attempt, consumed) select id, version, 'go', 'await', 0, array[signal] from u
)
select count(*)::int from u`
	// What came meanwhile is seen by a statement that is younger than the locks.
	limitRecheck = `
with /* limit recheck */ s as materialized (
  select instance_id, name from signals where instance_id = any($1)
), woken as (
  update instances i set parked = false from s where i.id = s.instance_id and i.parked and s.name = any(i.awaits) returning i.id, i.queue, i.priority
)
insert into ready (queue, priority, instance_id) select queue, priority, id from woken`
	limitEnd = `
with /* limit end */ ` + limitOutcomes + `, u as (
  update instances i set parked = false, live = false, version = i.version + 1, status = 'done', result = 'null', state = o.state::jsonb, updated_at = now(), finished_at = now()
  from o where i.id = o.id and i.version = o.version and exists (select from lease) returning i.id, i.version, i.key, o.signal
), ` + limitConsumed + `, trail as (
  insert into history (instance_id, version, step, outcome, attempt, consumed) select id, version, 'go', 'done', 0, array[signal] from u
), told as (
  insert into outbox (owner, msg_id, body) select $6, id || ':' || version, convert_to(json_build_object('instance_id', id, 'status', 'done', 'correlation_key', key, 'result', null)::text, 'UTF8') from u
)
select count(*)::int from u`
)

// outcomeArgs has the rows in the order in which everybody locks them.
func outcomeArgs(works []picked, token uuid.UUID) ([]int64, []any) {
	slices.SortFunc(works, func(a, b picked) int { return cmp.Compare(a.id, b.id) })
	n := len(works)
	ids, versions, states, signals := make([]int64, n), make([]int32, n), make([]string, n), make([]int64, n)
	for i, w := range works {
		ids[i], versions[i], signals[i], states[i] = w.id, w.version, w.signal, benchState
	}
	return ids, []any{ids, versions, states, token, signals}
}

// benchState is as large as that of the instances that are parked.
var benchState = `{"n": 1, "pad": "` + strings.Repeat("s", 280) + `"}`

// park commits an await, and looks again; one round trip.
func (l limit) park(ctx context.Context, works []picked, token uuid.UUID) error {
	ids, args := outcomeArgs(works, token)
	var batch pgx.Batch
	batch.Queue(limitPark, args...)
	batch.Queue(limitRecheck, ids)
	results := l.conn.SendBatch(ctx, &batch)
	var n int
	err := results.QueryRow().Scan(&n)
	if err = errors.Join(err, results.Close()); err == nil && n != len(works) {
		err = fmt.Errorf("parked %d of %d", n, len(works))
	}
	return err
}

// end commits ends, each with its row of the outbox.
func (l limit) end(ctx context.Context, works []picked, token uuid.UUID, owner int) error {
	_, args := outcomeArgs(works, token)
	var n int
	err := l.conn.QueryRow(ctx, limitEnd, append(args, int16(owner))...).Scan(&n)
	if err == nil && n != len(works) {
		err = fmt.Errorf("ended %d of %d", n, len(works))
	}
	return err
}

// start makes instances that may run at once.
func (l limit) start(ctx context.Context, queue string, r rows) error {
	tag, err := l.conn.Exec(ctx, `
with /* limit start */ m as materialized (
  select * from unnest($1::text[], $2::text[], $3::uuid[]) with ordinality t(key, state, dedup, nth)
), made as (
  insert into instances (parked, key, queue, step, state) select false, key, $4, 'begin', state::jsonb from m order by nth on conflict do nothing returning id, key
), known as (
  insert into ledger (instance_id, dedup) select made.id, m.dedup from made join m using (key)
)
insert into ready (queue, priority, instance_id) select $4, 0, id from made`, r.keys, r.payloads, r.dedups, queue)
	if err == nil && int(tag.RowsAffected()) != len(r.keys) {
		err = fmt.Errorf("started %d of %d", tag.RowsAffected(), len(r.keys))
	}
	return err
}

// relay publishes what an owner's outbox holds, and returns how much that was.
func (l limit) relay(ctx context.Context, js jetstream.JetStream, owner, most int) (int, error) {
	rows, err := l.conn.Query(ctx, `select /* limit outbox */ id, msg_id, body from outbox where owner = $1 order by id limit $2`, int16(owner), most)
	if err != nil {
		return 0, err
	}
	var ids []int64
	var acks []jetstream.PubAckFuture
	for rows.Next() {
		var id int64
		var msgID string
		var body []byte
		if err := rows.Scan(&id, &msgID, &body); err != nil {
			return 0, err
		}
		ack, err := js.PublishMsgAsync(&nats.Msg{Subject: subjectOut, Data: body, Header: nats.Header{jetstream.MsgIDHeader: {msgID}}}, jetstream.WithStallWait(patience))
		if err != nil {
			rows.Close()
			return 0, err
		}
		ids, acks = append(ids, id), append(acks, ack)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return 0, err
		}
	}
	if len(ids) > 0 {
		_, err = l.conn.Exec(ctx, `delete /* limit published */ from outbox where id = any($1)`, ids)
	}
	return len(ids), err
}
