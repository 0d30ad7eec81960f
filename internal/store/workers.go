package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Serving is what a worker picks: of these queues the instances of these machine versions ("machine@version").
type Serving struct {
	Queues   map[string]int `json:"queues"` // with their slots
	Machines []string       `json:"machines"`
}

// Seen says that a worker is there, and what it serves. It counts for a minute.
func (s *Store) Seen(ctx context.Context, worker string, what Serving) error {
	info, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return s.together(ctx, statement{"seen", s.text.seen, []any{worker, string(info)}, nil})
}

// seenText ($1 name, $2 what it serves) also forgets who went without a word.
const seenText = `
with /* seen */ lost as (
  delete from pointsman.workers where ctid = any(array(
    select ctid from pointsman.workers where seen_at < now() - interval '1 day' and name <> $1 for update skip locked))
)
insert into pointsman.workers (name, started_at, seen_at, info) values ($1, now(), now(), $2::text::jsonb)
on conflict (name) do update set seen_at = now(), info = excluded.info`

// Gone says that a worker serves nothing any more.
func (s *Store) Gone(ctx context.Context, worker string) error {
	return s.together(ctx, statement{"gone", s.text.gone, []any{worker}, nil})
}

const goneText = `delete /* gone */ from pointsman.workers where name = $1`

// Lane is a part of a queue: its own ("") or that of a machine version.
type Lane struct{ Queue, Lane string }

// Lanes are those of a queue that have something ready in them.
func (s *Store) Lanes(ctx context.Context, queue string) (lanes []string, err error) {
	err = s.together(ctx, statement{"lanes", s.text.lanes, []any{queue, maxLanes}, func(r pgx.Rows) error {
		var lane string
		err := r.Scan(&lane)
		lanes = append(lanes, lane)
		return err
	}})
	return lanes, err
}

// lanesText ($1 queue, $2 how many) goes from lane to lane by the index.
const lanesText = `
with recursive /* lanes */ lanes as (
  (select lane from pointsman.ready where queue = $1 order by lane limit 1)
  union all
  select n.lane from lanes l cross join lateral (
    select r.lane from pointsman.ready r where r.queue = $1 and r.lane > l.lane order by r.lane limit 1) n
)
select lane from lanes limit $2`

// UnservedLane is a lane with instances that no worker picks.
type UnservedLane struct {
	Lane
	Ready  int           // at most MaxDepth
	Oldest time.Duration // how long the oldest of these has been ready
}

// maxLanes is how many lanes Unserved looks at: callers of start make up names of machines and queues.
const maxLanes = 1000

// Unserved returns the lanes where instances are ready and that no worker which was seen of late serves. What has only just come into its
// queue is in the queue's own lane: the first worker that picks it finds that it does not know its machine.
func (s *Store) Unserved(ctx context.Context) (lanes []UnservedLane, err error) {
	err = s.each(ctx, "unserved", s.text.unserved, func(r pgx.Rows) error {
		var l UnservedLane
		err := r.Scan(&l.Queue, &l.Lane.Lane, &l.Ready, &l.Oldest)
		lanes = append(lanes, l)
		return err
	}, maxLanes, MaxDepth)
	return lanes, err
}

// unservedText ($1 lanes to look at, $2 where counting stops) goes from lane to lane by the index, not from row to row. Nobody picks
// there, and so nobody drops the rows of what was canceled: these are not counted. Lanes that are served are left out first: in a flow of
// work they have most of the rows.
const unservedText = `
with recursive /* unserved */ lanes as (
  (select queue, lane from pointsman.ready where queue >= '' order by queue, lane limit 1)
  union all
  select n.queue, n.lane from lanes l cross join lateral (
    select r.queue, r.lane from pointsman.ready r where (r.queue, r.lane) > (l.queue, l.lane) order by r.queue, r.lane limit 1) n
), alone as materialized (
  select l.queue, l.lane from (select queue, lane from lanes limit $1) l where not exists (
    select from pointsman.workers w where w.seen_at > now() - interval '1 minute' and w.info->'queues' ? l.queue and (l.lane in ('', '~') or w.info->'machines' ? ltrim(l.lane, '~')))
)
select l.queue, l.lane, d.ready, greatest(now() - d.since, '0 s')
from alone l cross join lateral (
  select count(*)::int as ready, min(x.run_at) as since
  from (select r.run_at, r.instance_id, r.rev from pointsman.ready r where r.queue = l.queue and r.lane = l.lane limit $2) x
  cross join lateral (select from pointsman.instances i where i.id = x.instance_id and i.rev = x.rev and ` + alive + ` and not i.paused limit 1) i) d
where d.ready > 0`
