package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// How much one transaction of the retention takes on.
const (
	RetireBatch = 100 // instances
	NoteBatch   = 500 // instances
	ForgetBatch = 100 // instances, and of each scope of theirs 500 ledger rows
)

// ledgerStrides is into how many the time is divided that a ledger is kept. Ledgers go at the end of their stride: successive instances
// of one key share a scope, which is read once a stride and not once an instance.
const ledgerStrides = 32

// stride of a retention of ledgers, for date_bin.
func stride(dedup time.Duration) time.Duration { return max(dedup/ledgerStrides, time.Microsecond) }

// Retire deletes at most [RetireBatch] instances that ended so long ago, the oldest first, with all that is theirs but their ledger rows:
// these are for [Store.Forget], dedup after the end. It returns how many instances it deleted. One that executes still, as far as its
// partition key says, is left for later.
func (s *Store) Retire(ctx context.Context, instances, dedup time.Duration) (retired int, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		var projects, keys []string
		var ids []uuid.UUID
		err := tx.each(ctx, "retire", tx.text.retire, func(r pgx.Rows) error {
			var id uuid.UUID
			var project string
			var key *string
			if err := r.Scan(&id, &project, &key); err != nil {
				return err
			}
			retired++
			if key != nil {
				projects, keys, ids = append(projects, project), append(keys, *key), append(ids, id)
			}
			return nil
		}, instances, dedup, stride(dedup))
		if err != nil || len(ids) == 0 {
			return err
		}
		return tx.each(ctx, "let go", tx.text.letGo, nil, projects, keys, ids)
	})
	return retired, err
}

// retireText ($1 how long instances are kept, $2 ledgers, $3 stride) waits for nobody: who holds the row of an ended one (a retry, another
// worker's retention) has it, and a row that was changed meanwhile is looked at again under its lock. Ready rows, waiters and leases that
// still name an instance are dropped by who meets them. A pick locks no instance: one that was under way when the instance ended may win
// its partition key yet, and what sweeps its lease finds the key by the instance.
const retireText = `
with /* retire */ gone as materialized (
  select i.id, i.project, i.scope, i.unique_key, i.finished_at from pointsman.instances i
  where not i.live and i.finished_at <= now() - $1::interval and (i.partition_key is null or i.finished_at <= now() - interval '1 min' and (
    select k.instance_id from pointsman.running_keys k where k.project = i.project and k.key = i.partition_key and k.instance_id = i.id) is null)
  order by i.finished_at, i.id limit 100 for update of i skip locked
), ids as materialized (select array_agg(id) as ids from gone
), dep as (
  insert into pointsman.departed (instance_id, due, scope, project)
  select id, ` + ledgerDue + `, scope, project from gone order by finished_at, id
  on conflict do nothing
), row as (
  delete from pointsman.instances where id = any((select ids from ids)::uuid[])
), hi as (
  delete from pointsman.history where instance_id = any((select ids from ids)::uuid[])
), ev as (
  delete from pointsman.events where instance_id = any((select ids from ids)::uuid[])
), sg as (
  delete from pointsman.signals where instance_id = any((select ids from ids)::uuid[])
), tm as (
  delete from pointsman.timers where ctid = any(array(
    select ctid from pointsman.timers where instance_id = any((select ids from ids)::uuid[]) for update skip locked))
)
select id, project, unique_key from gone`

// ledgerDue is when the ledger of one that ended at finished_at goes ($2 how long it is kept, $3 stride): never sooner.
const ledgerDue = `date_bin($3::interval, finished_at + $2::interval, timestamptz 'epoch') + $3::interval`

// letGoText (arrays: $1 projects, $2 keys, $3 instances): unique keys that were held in the status of the end.
const letGoText = `
delete /* let go */ from pointsman.unique_keys where ctid = any(array(
  select k.ctid from unnest($1::text[], $2::text[], $3::uuid[]) t(project, key, id)
  cross join lateral (select k.ctid from pointsman.unique_keys k where k.project = t.project and k.key = t.key and k.instance_id = t.id limit 1) k))`

// Note takes down at most [NoteBatch] instances that ended so long ago and are still there, for [Store.Forget]. It is for ledgers that
// are kept for less long than instances, and returns how many it took down. One of several workers does it at a time, the others find
// nothing.
func (s *Store) Note(ctx context.Context, dedup time.Duration) (noted int, err error) {
	err = s.together(ctx, statement{"note", s.text.note, []any{dedup, stride(dedup)}, func(r pgx.Rows) error { return r.Scan(&noted) }})
	return noted, err
}

// noteText ($1 how long ledgers are kept, $2 stride) goes on from where it last came to, in the order of the ends: a mark in each row would
// be an update of every index. An end that commits behind that point, after a transaction that was open longer than ledgers are kept, is
// taken down when the instance is deleted.
const noteText = `
with /* note */ m as materialized (
  select ctid, finished_at, instance_id from pointsman.departed_to for update skip locked
), e as materialized (
  select i.* from m cross join lateral (
    select i.id, i.scope, i.project, i.finished_at from pointsman.instances i
    where not i.live and (i.finished_at, i.id) > (m.finished_at, m.instance_id) order by i.finished_at, i.id limit 500) i
  where i.finished_at <= now() - $1::interval
), dep as (
  insert into pointsman.departed (instance_id, due, scope, project)
  select id, date_bin($2::interval, finished_at + $1::interval, timestamptz 'epoch') + $2::interval, scope, project from e order by finished_at, id
  on conflict do nothing
), to_last as (
  update pointsman.departed_to t set finished_at = l.finished_at, instance_id = l.id
  from (select finished_at, id from e order by finished_at desc, id desc limit 1) l, m where t.ctid = m.ctid
)
select count(*)::int from e`

// Forget deletes ledger rows of departed instances whose time has come: dedup after the end, which an instance that is still there is
// asked for again, since it may have been retried. It returns how many rows went, and whether there is more to do.
func (s *Store) Forget(ctx context.Context, dedup time.Duration) (rows int, more bool, err error) {
	err = s.together(ctx, statement{"forget", s.text.forget, []any{dedup}, func(r pgx.Rows) error { return r.Scan(&rows, &more) }})
	return rows, more, err
}

// forgetText ($1 how long ledgers are kept) waits for nobody, as retire. A scope may be shared with others who live or are not due: their
// rows stay. It is read in the order of the dedups, a bounded part at a time.
const forgetText = `
with /* forget */ d as materialized (
  select instance_id, scope, done_to from pointsman.departed where due <= now() order by due, scope limit 100 for update skip locked
), lk as materialized (
  select i.id, i.live or i.finished_at > now() - $1::interval as again from pointsman.instances i
  where i.id = any(array(select instance_id from d)) order by i.id for no key update skip locked
), todo as materialized (
  select * from d where instance_id in (select id from lk where not again)
    or instance_id not in (select id from lk) and (select i.id from pointsman.instances i where i.id = d.instance_id) is null
), scopes as materialized (
  select scope, (array_agg(done_to order by done_to))[1] as done_to, array_agg(instance_id) as ids from todo group by scope
), read as materialized (
  select s.scope, l.ctid as row, l.dedup, l.instance_id = any(s.ids) as own from scopes s cross join lateral (
    select l.ctid, l.dedup, l.instance_id from pointsman.ledger l where l.scope = s.scope and l.dedup > s.done_to order by l.dedup limit 500) l
), starts as materialized (
  select l.ctid as row from pointsman.ledger l where l.instance_id = any(array(select instance_id from todo)) and l.signal_id is null limit 1000
), gone as (
  delete from pointsman.ledger where ctid = any(array(select row from read where own union all select row from starts)) returning 1
), partly as materialized (
  select scope, (array_agg(dedup order by dedup desc))[1] as done_to from read group by scope having count(*) = 500
), on_its_way as (
  update pointsman.departed t set done_to = (select p.done_to from partly p where p.scope = t.scope)
  where instance_id = any(array(select instance_id from todo where scope in (select scope from partly)))
), done as (
  delete from pointsman.departed where instance_id = any(array(
    select id from lk where again
    union all select instance_id from todo where scope not in (select scope from partly) and (select count(*) from starts) < 1000)) returning 1
)
select (select count(*) from gone)::int, (select count(*) from done) = 100 or exists (select from partly) or (select count(*) from starts) = 1000`

// NextRetired is how long it is until there is something for Retire, Note, Forget or ForgetVerdicts, at most limit.
func (s *Store) NextRetired(ctx context.Context, instances, dedup, limit time.Duration) (time.Duration, error) {
	wait := limit
	err := s.together(ctx, statement{"next retired", s.text.nextRetired, []any{instances, dedup, limit}, func(r pgx.Rows) error { return r.Scan(&wait) }})
	return max(0, wait), err
}

// nextRetiredText ($1 how long instances are kept, $2 ledgers, $3 limit).
const nextRetiredText = `
select /* next retired */ least(now() + $3::interval,
  (select finished_at from pointsman.instances where not live order by finished_at, id limit 1) + $1::interval,
  (select due from pointsman.departed order by due limit 1),
  (select at from pointsman.verdicts order by at limit 1) + ` + verdictsKept + `,
  case when $2::interval < $1::interval then (
    select i.finished_at from pointsman.departed_to m cross join lateral (
      select i.finished_at from pointsman.instances i where not i.live and (i.finished_at, i.id) > (m.finished_at, m.instance_id)
      order by i.finished_at, i.id limit 1) i) + $2::interval end) - now()`
