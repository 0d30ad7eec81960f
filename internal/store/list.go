package store

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Filter of a list of instances. What is "" does not filter.
type Filter struct {
	Project           string
	Machine           string
	Queue             string
	Status            string
	CorrelationKey    string
	CorrelationPrefix string
	Version           int        // 0 does not filter
	InsertedFrom      *time.Time // nil does not filter
	InsertedBefore    *time.Time // nil does not filter
	Only              string     // one of the Only constants
}

// What [Filter.Only] leaves.
const (
	OnlyLive      = "live"
	OnlyPaused    = "paused"    // live
	OnlyUnpaused  = "unpaused"  // live
	OnlyRetriable = "retriable" // failed or canceled
)

const (
	// ListWindow is how many of the newest instances one list looks through at most.
	ListWindow = 5000
	// listCandidates is up to how many instances are sorted by age when an index finds them by something else.
	listCandidates = 5000
)

// List returns up to limit instances that are older than before, newest first. next is where the next page begins; uuid.Nil: there is
// none. A page may be short and still have a next: one call reads a bounded number of rows.
func (s *Store) List(ctx context.Context, f Filter, before uuid.UUID, limit int) (page []Instance, next uuid.UUID, err error) {
	ids, next, err := s.Matching(ctx, f, before, limit)
	if err != nil {
		return nil, uuid.Nil, err
	}
	page, err = s.Instances(ctx, ids)
	return page, next, err
}

// Matching is List of the ids. It looks through as many as [ListWindow] at most.
func (s *Store) Matching(ctx context.Context, f Filter, before uuid.UUID, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	found, err := s.candidates(ctx, f, before, limit+1)
	if err != nil {
		return nil, uuid.Nil, err
	}
	switch {
	case len(found.ids) > limit:
		found.ids = found.ids[:limit]
		next = found.ids[limit-1]
	case found.more:
		next = found.last
	}
	return found.ids, next, nil
}

// candidates are the ids of a page.
type candidates struct {
	ids  []uuid.UUID
	more bool      // the window ended before the table did,
	last uuid.UUID // at this one
}

// candidates asks the index that finds the fewest. Where even that finds too many to sort them by age, they are frequent enough to be
// looked for among the newest.
func (s *Store) candidates(ctx context.Context, f Filter, before uuid.UUID, limit int) (candidates, error) {
	sql := ""
	switch {
	case f.CorrelationKey != "":
		sql = s.text.listKey
	case f.CorrelationPrefix != "":
		sql = s.text.listPrefix
	case slices.Contains([]string{"done", "failed", "canceled"}, f.Status):
		sql = s.text.listEnded
	case f.Status == "executing":
		sql = s.text.listExecuting
	}
	if sql != "" {
		c, n, err := s.window(ctx, sql, f, before, limit)
		if err != nil || n <= listCandidates {
			c.more = false
			return c, err
		}
	}
	c, n, err := s.window(ctx, s.text.listRecent, f, before, limit)
	c.more = n == ListWindow
	return c, err
}

func (s *Store) window(ctx context.Context, sql string, f Filter, before uuid.UUID, limit int) (c candidates, n int, err error) {
	err = s.each(ctx, "list window", sql, func(r pgx.Rows) error {
		var last *uuid.UUID
		err := r.Scan(&n, &last, &c.ids)
		if last != nil {
			c.last = *last
		}
		return err
	}, f.args(before, limit)...)
	return c, n, err
}

func (f Filter) args(before uuid.UUID, limit int) []any {
	return []any{f.Project, before, f.Machine, f.Queue, f.CorrelationKey, f.Status, f.CorrelationPrefix, limit, f.Version, f.InsertedFrom, f.InsertedBefore, f.Only}
}

// StillMatching locks instances, with their parents where what follows locks these too, until the end of the transaction, and returns those
// that match the filter now.
func (s *Store) StillMatching(ctx context.Context, f Filter, ids []uuid.UUID, parents bool) (still []uuid.UUID, err error) {
	lock := s.lockInstances(ids)
	if parents {
		lock = statement{"lock families", s.text.lockFamilies, []any{ids}, nil}
	}
	if err := s.run(ctx, lock); err != nil {
		return nil, err
	}
	err = s.each(ctx, "still matching", s.text.stillMatching, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		still = append(still, id)
		return err
	}, append(f.args(uuid.Max, len(ids)), ids)...)
	return still, err
}

// listText ($1 project, $2 older than this, $3 machine, $4 queue, $5 key, $6 status, $7 prefix of the key, $8 limit, $9 version, $10 inserted from
// then, $11 and before then, $12 of which kind). Ids are UUIDv7:
// their order is that of the starts, and what starts later never moves a page. What an index finds is filtered as it is found: a join
// of it with the instances may be planned as a merge with all of them.
const listText = `
with /* list */ c as materialized ({from}
), ` + listLeased + `, page as materialized (
  select c.id from c where ` + listFilter + ` order by c.id desc limit $8)
select (select count(*) from c), null::uuid, array(select id from page order by id desc)`

// listRecentText reads no further than the page needs. Only of one that stays short it says how far it has looked.
const listRecentText = `
with /* list */ ` + listLeased + `, page as materialized (
  select c.id from (select ` + listColumns + ` from pointsman.instances where id < $2 order by id desc limit {window}) c
  where ` + listFilter + ` order by c.id desc limit $8
), seen as materialized (
  select id from pointsman.instances where (select count(*) from page) < $8 and id < $2 order by id desc limit {window})
select (select count(*) from seen), (select id from seen order by id limit 1), array(select id from page order by id desc)`

const listColumns = `id, project, machine, version, queue, correlation_key, live, parked, paused, status, rev, inserted_at`

const listLeased = `leased as materialized (
  select x.id, x.rev from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) where $6 in ('executing', 'runnable')
)`

const listFilter = `c.project = $1 and c.id < $2 and $3 in ('', c.machine) and $4 in ('', c.queue)
    and ($5 = '' or c.correlation_key = $5) and ($7 = '' or starts_with(c.correlation_key, $7))
    and case $6 when '' then true
      when 'awaiting_signal' then c.live and c.parked
      when 'executing' then c.live and not c.parked and (c.id, c.rev) in (select id, rev from leased)
      when 'runnable' then c.live and not c.parked and (c.id, c.rev) not in (select id, rev from leased)
      else not c.live and c.status = $6 end
    and ($9::int = 0 or c.version = $9) and ($10::timestamptz is null or c.inserted_at >= $10) and ($11::timestamptz is null or c.inserted_at < $11)
    and case $12::text when '' then true when 'live' then c.live when 'paused' then c.live and c.paused when 'unpaused' then c.live and not c.paused
      when 'retriable' then not c.live and c.status in ('failed', 'canceled') end`

// stillMatchingText ($13 ids) has a snapshot that is younger than the locks.
const stillMatchingText = `
with /* still matching */ c as materialized (
  select i.* from unnest($13::uuid[]) x(id) cross join lateral (select ` + listColumns + ` from pointsman.instances i where i.id = x.id limit 1) i
), ` + listLeased + `
select c.id from c where ` + listFilter + ` order by c.id limit $8`

// lockFamiliesText ($1 ids) locks what a cancel of these locks.
const lockFamiliesText = `
select /* lock families */ id from pointsman.instances
where id = any($1::uuid[] || array(select p.parent_id from pointsman.instances p where p.id = any($1))) order by id for no key update`

// keysWithPrefix is the range of the keys that begin with $7: no key is longer than 512 characters, and no character is higher.
const keysWithPrefix = `project = $1 and correlation_key >= $7 and correlation_key <= rpad($7, 513, chr(1114111)) collate "C"`

// listSources are what listText chooses from. Each reads one row more than is sorted, to tell that there are too many.
var listSources = map[string]string{
	"key": `
  select ` + listColumns + ` from pointsman.instances where project = $1 and correlation_key = $5 and live
  union all (select ` + listColumns + ` from pointsman.instances where project = $1 and correlation_key = $5 and not live order by finished_at desc limit {most})`,
	"prefix": `
  (select ` + listColumns + ` from pointsman.instances where ` + keysWithPrefix + ` and live limit {most})
  union all (select ` + listColumns + ` from pointsman.instances where ` + keysWithPrefix + ` and not live limit {most})`,
	"ended": `select ` + listColumns + ` from pointsman.instances where project = $1 and status = $6 and not live limit {most}`,
	"executing": `
  select i.* from pointsman.leases l, unnest(l.ids) x(id)
  cross join lateral (select ` + listColumns + ` from pointsman.instances i where i.id = x.id limit 1) i limit {most}`,
}

var listBounds = strings.NewReplacer("{window}", strconv.Itoa(ListWindow), "{most}", strconv.Itoa(listCandidates+1))

// listOf is listText over one of the sources.
func listOf(source string) string {
	return strings.Replace(listText, "{from}", listBounds.Replace(listSources[source]), 1)
}

// instancesByIDText ($1 ids) is v_instances, which looks for each instance through all leases, with one look for all of them.
const instancesByIDText = `
with /* list page */ leased as materialized (
  select x.id, x.rev, l.worker, l.expires_at from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) where x.id = any($1)
)
select i.id, i.project, i.machine, i.version,
  case when not i.live then i.status when i.parked then 'awaiting_signal' when l.worker is not null then 'executing' else 'runnable' end,
  i.step, i.attempt, i.correlation_key, i.queue, i.priority, i.partition_key, i.unique_key, i.unique_scope, i.state,
  case when i.live and i.parked then array(select substr(a, strpos(a, '/') + 1) from unnest(i.awaits) a where a <> '` + TagChildren + `') else '{}' end,
  case when i.live and i.parked then i.due_at end, case when i.live and i.delayed then i.due_at else i.run_at end,
  i.result, i.last_error, i.live and i.paused, (select count(*) from pointsman.signals s where s.instance_id = i.id),
  i.inserted_at, i.updated_at, i.finished_at, l.worker, l.expires_at, i.parent_id
from unnest($1::uuid[]) x(id) cross join lateral (select * from pointsman.instances i where i.id = x.id limit 1) i
left join lateral (select l.worker, l.expires_at from leased l where i.live and not i.parked and l.id = i.id and l.rev = i.rev limit 1) l on true
order by i.id desc`
