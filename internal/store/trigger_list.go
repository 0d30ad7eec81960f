package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// TriggerFilter of a list. What is "" or Nil does not filter.
type TriggerFilter struct {
	Project    string
	Status     string
	Source     string
	InstanceID uuid.UUID
}

// triggerWindow is how many triggers one list looks through at most for those of one source.
const triggerWindow = 2000

// Triggers returns up to limit triggers that were made before this one (Nil: any), the latest first. next is where the next page begins; Nil:
// there is none. A page may be short and still have a next.
func (s *Store) Triggers(ctx context.Context, f TriggerFilter, before uuid.UUID, limit int) (page []Trigger, next uuid.UUID, err error) {
	if before == uuid.Nil {
		before = uuid.Max
	}
	statuses := []string{TriggerWaiting, TriggerReceived, TriggerTimedOut, TriggerCanceled}
	if f.Status != "" {
		statuses = []string{f.Status}
	}
	window := limit + 1
	if f.Source != "" {
		window = max(window, triggerWindow)
	}
	sql, args := s.text.listTriggers, []any{f.Project, statuses, f.Source, before, window, limit + 1}
	if f.InstanceID != uuid.Nil {
		sql, args = s.text.listTriggersOf, append(args, f.InstanceID)
	}
	var ids []uuid.UUID
	var last uuid.UUID
	seen := 0
	err = s.each(ctx, "list triggers", sql, func(r pgx.Rows) error {
		var id, end *uuid.UUID
		err := r.Scan(&seen, &end, &id)
		if end != nil {
			last = *end
		}
		if id != nil {
			ids = append(ids, *id)
		}
		return err
	}, args...)
	if err != nil {
		return nil, uuid.Nil, err
	}
	switch {
	case len(ids) > limit:
		ids = ids[:limit]
		next = ids[limit-1]
	case seen == window:
		next = last
	}
	rows, err := s.TriggersByID(ctx, ids)
	if err != nil {
		return nil, uuid.Nil, err
	}
	of := make(map[uuid.UUID]Trigger, len(rows))
	for _, t := range rows {
		of[t.ID] = t
	}
	for _, id := range ids {
		if t, found := of[id]; found {
			page = append(page, t)
		}
	}
	return page, next, nil
}

// listTriggersText ($1 project, $2 statuses, $3 source, $4 before, $5 window, $6 limit) reads the latest of each status, and merges them.
const listTriggersText = `
with /* list triggers */ w as materialized (
  select t.id, t.source_type from unnest($2::text[]) st cross join lateral (
    select t.id, t.source_type from pointsman.triggers t where t.project = $1 and t.status = st and t.id < $4 order by t.id desc limit $5) t
  order by t.id desc limit $5
)` + listedTriggers

// listTriggersOfText ($7 instance) reads those of an instance.
const listTriggersOfText = `
with /* list triggers of */ w as materialized (
  select t.id, t.source_type from pointsman.triggers t
  where t.instance_id = $7 and t.project = $1 and t.status = any($2) and t.id < $4 order by t.id desc limit $5
)` + listedTriggers

const listedTriggers = `
select e.seen::int, e.last, m.id
from (select (select count(*) from w) as seen, (select id from w order by id limit 1) as last) e
left join lateral (select id from w where source_type = $3 or $3 = '' order by id desc limit $6) m on true
order by m.id desc`

// TriggersWithPrefix returns up to n triggers that wait for an event with a key that begins so, in the order of their keys, behind a key; those
// that were made until a moment, or now where it is nil, which is the moment that is returned.
func (s *Store) TriggersWithPrefix(ctx context.Context, project, prefix, after string, until *time.Time, n int) (ends []TriggerEnd, last string, moment time.Time, err error) {
	err = s.each(ctx, "triggers with prefix", s.text.triggersWithPrefix, func(r pgx.Rows) error {
		var id, instance *uuid.UUID
		var key *string
		if err := r.Scan(&moment, &id, &instance, &key); err != nil || id == nil {
			return err
		}
		e := TriggerEnd{ID: *id, Status: TriggerReceived}
		if instance != nil {
			e.InstanceID = *instance
		}
		last = *key
		ends = append(ends, e)
		return nil
	}, project, prefix, after, until, n)
	return ends, last, moment, err
}

// triggersWithPrefixText ($1 project, $2 prefix, $3 after, $4 until, $5 limit). No key is as long as the bound above it.
const triggersWithPrefixText = `
select /* triggers with prefix */ m.at, t.id, t.instance_id, t.event_key from (select coalesce($4::timestamptz, clock_timestamp()) as at offset 0) m
left join lateral (
  select t.id, t.instance_id, t.event_key from pointsman.triggers t
  where t.project = $1 and t.status = 'waiting' and t.event_key >= $2 collate "C" and t.event_key <= rpad($2, 513, chr(1114111)) collate "C" and t.event_key > $3
    and t.trigger_type <> 'sleep' and t.requested_at <= m.at
  order by t.event_key limit $5) t on true
order by t.event_key`

// MaxTriggerCount is where the counts by status stop.
const MaxTriggerCount = 100_000

// TriggerCounts counts the triggers of a project by their status, each up to [MaxTriggerCount].
func (s *Store) TriggerCounts(ctx context.Context, project string) (map[string]int, error) {
	counts := map[string]int{}
	err := s.each(ctx, "trigger counts", s.text.triggerCounts, func(r pgx.Rows) error {
		var status string
		var n int
		err := r.Scan(&status, &n)
		counts[status] = n
		return err
	}, project, []string{TriggerWaiting, TriggerReceived, TriggerTimedOut, TriggerCanceled}, MaxTriggerCount)
	return counts, err
}

const triggerCountsText = `
select /* trigger counts */ st, (select count(*) from (select from pointsman.triggers t where t.project = $1 and t.status = st limit $3) t)::int from unnest($2::text[]) st`

// PurgeBatch is how many triggers one transaction deletes at most.
const PurgeBatch = 500

// PurgeTriggers deletes up to [PurgeBatch] triggers of a project that ended so long ago; dedup is how long ledgers are kept.
func (s *Store) PurgeTriggers(ctx context.Context, project string, older, dedup time.Duration) (purged int, err error) {
	err = s.together(ctx, statement{"purge triggers", s.text.purgeTriggers, []any{project, older, dedup, stride(dedup), PurgeBatch}, func(r pgx.Rows) error {
		return r.Scan(&purged)
	}})
	return purged, err
}

// purgeTriggersText ($1 project, $2 age, $3 how long ledgers are kept, $4 stride, $5 how many). What is locked is being retried with its
// instance, or was not ended for long.
const purgeTriggersText = `
with /* purge triggers */ gone as (
  delete from pointsman.triggers where ctid = any(array(
    select ctid from pointsman.triggers where project = $1 and status <> 'waiting' and ended_at <= now() - $2::interval order by ended_at limit $5 for update skip locked))
  returning id, project, ended_at as finished_at, ledger
), dep as (
  insert into pointsman.departed (instance_id, due, scope, project)
  select id, date_bin($4::interval, finished_at + $3::interval, timestamptz 'epoch') + $4::interval, ledger, project from gone where ledger is not null order by finished_at, id
  on conflict do nothing
)
select count(*)::int from gone`

// CountPurge is how many triggers [Store.PurgeTriggers] would delete, in all.
func (s *Store) CountPurge(ctx context.Context, project string, older time.Duration) (n int, err error) {
	err = s.each(ctx, "count purge", s.text.countPurge, func(r pgx.Rows) error { return r.Scan(&n) }, project, older)
	return n, err
}

const countPurgeText = `
select /* count purge */ count(*)::int from pointsman.triggers where project = $1 and status <> 'waiting' and ended_at <= now() - $2::interval`

// TriggerProjects returns the projects that have triggers which ended so long ago.
func (s *Store) TriggerProjects(ctx context.Context, older time.Duration) (projects []string, err error) {
	err = s.each(ctx, "trigger projects", s.text.triggerProjects, func(r pgx.Rows) error {
		var p string
		err := r.Scan(&p)
		projects = append(projects, p)
		return err
	}, older)
	return projects, err
}

// triggerProjectsText ($1 age) looks at the oldest end of each project.
const triggerProjectsText = `
with recursive /* trigger projects */ p as (
  (select project, ended_at from pointsman.triggers where project > '' and status <> 'waiting' order by project, ended_at limit 1)
  union all
  select n.project, n.ended_at from p cross join lateral (
    select t.project, t.ended_at from pointsman.triggers t where t.project > p.project and t.status <> 'waiting' order by t.project, t.ended_at limit 1) n
)
select project from p where ended_at <= now() - $1::interval`
