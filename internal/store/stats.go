package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// WorkerRow is a worker that was seen of late.
type WorkerRow struct {
	Name      string
	StartedAt time.Time
	SeenAt    time.Time
	Alive     bool // was seen within a minute
	Serving   Serving
	Leases    int // batches in work
	Executing int // instances in these; those that are done with count until their batch is
}

// Workers returns up to limit workers with a name behind after.
func (s *Store) Workers(ctx context.Context, after string, limit int) (workers []WorkerRow, err error) {
	err = s.each(ctx, "list workers", s.text.listWorkers, func(r pgx.Rows) error {
		var w WorkerRow
		var info []byte
		if err := r.Scan(&w.Name, &w.StartedAt, &w.SeenAt, &w.Alive, &info, &w.Leases, &w.Executing); err != nil {
			return err
		}
		workers = append(workers, w)
		return json.Unmarshal(info, &workers[len(workers)-1].Serving)
	}, after, limit)
	return workers, err
}

const listWorkersText = `
select /* list workers */ w.name, w.started_at, w.seen_at, w.seen_at > now() - interval '1 minute', w.info, coalesce(l.leases, 0), coalesce(l.executing, 0)
from (select * from pointsman.workers where name > $1 order by name limit $2) w
left join lateral (select count(*)::int as leases, sum(cardinality(ids))::int as executing from pointsman.leases l where l.worker = w.name) l on true
order by w.name`

// QueueRow is a queue in which something is ready, or that a worker serves.
type QueueRow struct {
	Queue   string
	Ready   int           // at most MaxDepth; the stale rows of what was canceled or paused among them
	Oldest  time.Duration // how long the oldest of these has been ready
	Workers int           // that serve it
	Slots   int           // of these workers
}

// Queues returns up to limit queues with a name behind after.
func (s *Store) Queues(ctx context.Context, after string, limit int) (queues []QueueRow, err error) {
	err = s.each(ctx, "list queues", s.text.listQueues, func(r pgx.Rows) error {
		var q QueueRow
		err := r.Scan(&q.Queue, &q.Ready, &q.Oldest, &q.Workers, &q.Slots)
		queues = append(queues, q)
		return err
	}, after, limit, MaxDepth)
	return queues, err
}

// listQueuesText ($1 behind which queue, $2 how many, $3 where counting stops) goes from queue to queue by the index, not from row to row.
const listQueuesText = `
with recursive /* list queues */ waiting as (
  (select queue from pointsman.ready where queue > $1 order by queue limit 1)
  union all
  select n.queue from waiting w cross join lateral (select r.queue from pointsman.ready r where r.queue > w.queue order by r.queue limit 1) n
), served as (
  select q.key as queue, count(*)::int as workers, sum(q.value::int)::int as slots
  from pointsman.workers w cross join lateral jsonb_each_text(w.info->'queues') q
  where w.seen_at > now() - interval '1 minute' and q.key collate "C" > $1
  group by q.key
), named as (
  select queue from (select queue from (select queue from waiting limit $2) x union select queue collate "C" from served) x order by queue limit $2
)
select n.queue, d.ready, greatest(now() - d.since, '0 s'), coalesce(s.workers, 0), coalesce(s.slots, 0)
from named n left join served s on s.queue = n.queue cross join lateral (
  select count(*)::int as ready, coalesce(min(x.run_at), now()) as since
  from (select r.run_at from pointsman.ready r where r.queue = n.queue limit $3) x) d
order by n.queue`

// Counts are how many instances of a project there are.
type Counts struct {
	Live, Awaiting, Executing, Paused int
	Ended                             map[string]int // by status
	EndedOfLate                       map[string]int // in the last minute
}

// Counts counts up to MaxDepth live instances, and up to as many ended ones of each status.
func (s *Store) Counts(ctx context.Context, project string) (c Counts, err error) {
	c.Ended, c.EndedOfLate = map[string]int{}, map[string]int{}
	live := statement{"count live", s.text.countLive, []any{project, MaxDepth}, func(r pgx.Rows) error {
		return r.Scan(&c.Live, &c.Awaiting, &c.Executing, &c.Paused)
	}}
	ended := statement{"count ended", s.text.countEnded, []any{project, MaxDepth}, func(r pgx.Rows) error {
		var status string
		var all, late int
		err := r.Scan(&status, &all, &late)
		c.Ended[status], c.EndedOfLate[status] = all, late
		return err
	}}
	return c, s.together(ctx, live, ended)
}

const countLiveText = `
select /* count live */ count(*), count(*) filter (where i.parked), count(*) filter (where not i.parked and l.id is not null), count(*) filter (where i.paused)
from (select id, rev, parked, paused from pointsman.instances where project = $1 and live limit $2) i
left join (select distinct x.id, x.rev from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev)) l on l.id = i.id and l.rev = i.rev`

const countEndedText = `
select /* count ended */ s.status,
  (select count(*) from (select from pointsman.instances i where i.project = $1 and i.status = s.status and not i.live limit $2) x),
  (select count(*) from (select from pointsman.instances i where i.project = $1 and i.status = s.status and not i.live and i.finished_at > now() - interval '1 minute' limit $2) x)
from unnest(array['done', 'failed', 'canceled']) s(status)`
