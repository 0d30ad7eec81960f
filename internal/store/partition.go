package store

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// heldKey is a partition key that an instance may hold under a lease.
type heldKey struct {
	project, key string
	token, id    uuid.UUID
}

// release gives partition keys back, each only if this instance holds it under this lease: a stale worker's key stands until its
// outcome comes or its lease is swept, whatever became of the instance meanwhile. Then the best waiter of each lane of these keys is
// made ready, and woken called with its queue. That is a later statement, for its snapshot: a loser that locked the holder's row first
// waits by then.
func (s *Store) release(held []heldKey, woken func(queue string)) []statement {
	if len(held) == 0 {
		return nil
	}
	slices.SortFunc(held, func(a, b heldKey) int {
		return cmp.Or(cmp.Compare(a.project, b.project), cmp.Compare(a.key, b.key), bytes.Compare(a.id[:], b.id[:]))
	})
	var projects, keys []string
	var tokens, ids []uuid.UUID
	for _, h := range held {
		projects, keys = append(projects, h.project), append(keys, h.key)
		tokens, ids = append(tokens, h.token), append(ids, h.id)
	}
	return []statement{
		{"release keys", s.text.release, []any{projects, keys, tokens, ids}, nil},
		{"promote", s.text.promote, []any{projects, keys}, func(r pgx.Rows) error {
			var queue string
			err := r.Scan(&queue)
			woken(queue)
			return err
		}},
	}
}

// releaseText (arrays, in the order of the keys: $1 projects, $2 keys, $3 tokens, $4 ids) locks in the order in which picks win keys.
const releaseText = `
with /* release keys */ k as materialized (
  select h.ctid from (
    select * from unnest($1::text[], $2::text[], $3::uuid[], $4::uuid[]) with ordinality t(project, key, token, id, ord) order by ord) t
  cross join lateral (
    select r.ctid from pointsman.running_keys r where r.project = t.project and r.key = t.key and r.instance_id = t.id and r.token = t.token for update) h
)
delete from pointsman.running_keys where ctid = any(array(select ctid from k))`

// promotion makes ready the best waiter of each lane of the keys in freed (project, key). One a lane, not one a key: a lane that
// nobody serves must not hold up the others. One too many does no harm, it loses and waits again.
const promotion = `lanes as (
  select f.project, f.key, w.queue, w.lane from freed f
  cross join lateral (
    select w.queue, w.lane from pointsman.waiters w where w.project = f.project and w.key = f.key order by w.queue, w.lane limit 1) w
  union all
  select l.project, l.key, w.queue, w.lane from lanes l
  cross join lateral (
    select w.queue, w.lane from pointsman.waiters w where w.project = l.project and w.key = l.key and (w.queue, w.lane) > (l.queue, l.lane)
    order by w.queue, w.lane limit 1) w
), promoted as (
  delete from pointsman.waiters where ctid = any(array(
    select b.ctid from lanes l cross join lateral (
      select w.ctid from pointsman.waiters w where w.project = l.project and w.key = l.key and w.queue = l.queue and w.lane = l.lane
      order by w.priority, w.run_at limit 1 for update skip locked) b))
  returning *
), turn as (
  insert into pointsman.ready (queue, lane, priority, run_at, instance_id, rev, solo, project, key)
  select queue, lane, priority, run_at, instance_id, rev, solo, project, key from promoted
)`

// promoteText (arrays: $1 projects, $2 keys) leaves alone a key that somebody holds: whoever that is has the next turn to give.
const promoteText = `
with recursive /* promote */ freed as materialized (
  select distinct t.project, t.key from unnest($1::text[], $2::text[]) t(project, key)
  where (select r.token from pointsman.running_keys r where r.project = t.project and r.key = t.key) is null
), ` + promotion + `
select queue from promoted`
