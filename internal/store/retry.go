package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Retried is the verdict on a retry: Started, Taken (Holder has its key), Conflict (it is live, or done), or Missing.
type Retried struct {
	Verdict Verdict
	Holder  uuid.UUID
	Queue   string // of one that may run now
}

// Retry makes a failed or canceled instance live again, where it was when it ended, with the inbox that it had. It runs in a transaction
// that holds the locks of the scope of its key ([Store.InScopes]) and of these event keys ([Store.EventKeys]), and gives it what is held for
// that, and the ends of its children that it has missed. Its triggers wait again, where they may: maxActive is the quota of its project.
func (s *Store) Retry(ctx context.Context, id uuid.UUID, eventKeys []string, maxActive int) (Retried, error) {
	r := Retried{Verdict: Missing}
	var parked bool
	var since *time.Time
	err := s.each(ctx, "retry", s.text.retry, func(row pgx.Rows) error {
		var holder *uuid.UUID
		var queue *string
		err := row.Scan(&r.Verdict, &holder, &queue, &parked, &since)
		if holder != nil {
			r.Holder = *holder
		}
		r.Queue = value(queue)
		return err
	}, id)
	if err != nil || r.Verdict != Started {
		return r, err
	}
	s.moved = append(s.moved, id)
	if since != nil {
		if err := s.tellMissed(ctx, id, *since); err != nil {
			return r, err
		}
	}
	if err := s.revive(ctx, id, eventKeys, maxActive); err != nil || !parked {
		return r, err
	}
	told, err := s.Tell(ctx, []uuid.UUID{id})
	if err != nil {
		return r, err
	}
	woken, err := s.Recheck(ctx, []uuid.UUID{id})
	if r.Queue = woken[id]; len(told) > 0 {
		r.Queue = told[0]
	}
	return r, err
}

// retryText ($1 id) leaves the visit, so that the step runs under the same idempotency key, and moves the rev, so that what was left of
// the last run is stale and its next end is published under an id of its own. One that was parked or delayed when it was canceled is so
// again, with a timer, for a time that has passed too. A JSON null among the kept would come back as no value. Whether it is live is asked of the locked row: an index on the ended
// would be read whole.
const retryText = `
with /* retry */ lk as materialized (
  select i.id, i.project, i.correlation_key, i.live, i.status, i.attempt, i.kept, i.finished_at from pointsman.instances i where i.id = $1 for no key update
), holder as materialized (
  select h.id from lk cross join lateral (
    select h.id from pointsman.instances h where h.project = lk.project and h.correlation_key = lk.correlation_key and h.live limit 1) h
  where not lk.live
), u as (
  update pointsman.instances i set live = true, status = null, rev = i.rev + 1, attempt = 0, uncounted = 0, paused = false, result = null, finished_at = null, kept = null,
    updated_at = now()
  from lk where i.id = lk.id and not lk.live and lk.status in ('failed', 'canceled') and not exists (select from holder)
  returning i.id, i.project, i.scope, i.correlation_key, i.queue, i.priority, i.rev, i.step, i.parked, i.delayed, i.due_at, lk.attempt, lk.kept
), back as (
  insert into pointsman.signals (instance_id, id, kind, name, dedup_key, traceparent, sent_by, inserted_at, payload)
  select u.id, k.id, k.kind, k.name, k.dedup_key, k.traceparent, k.sent_by, k.inserted_at, coalesce(k.payload, 'null')
  from u cross join lateral jsonb_to_recordset(u.kept)
    k(id bigint, kind text, name text, dedup_key text, traceparent text, sent_by text, inserted_at timestamptz, payload jsonb)
), heirs as (
  select id, project, scope, correlation_key from u
), ` + adoption + `, ` + rearm + `, rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from u where not parked and not delayed
), hi as (
  insert into pointsman.history (instance_id, rev, step, outcome, attempt) select id, rev, step, 'retry', attempt from u
)
select case when u.id is not null then 8 when not lk.live and lk.status <> 'done' then 9 else 3 end, (select id from holder),
  case when not u.parked and not u.delayed then u.queue end, coalesce(u.parked, false), lk.finished_at
from lk left join u on true`

// rearm gives those in u that wait for a time a timer at their new rev, and drops those of the revs before.
const rearm = `disarmed as (
  delete from pointsman.timers t using u where t.instance_id = u.id and t.rev < u.rev
), armed as (
  insert into pointsman.timers (instance_id, rev, run_at) select id, rev, due_at from u where (parked or delayed) and due_at is not null
)`
