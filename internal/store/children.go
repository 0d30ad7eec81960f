package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func (n NewInstance) isChild() bool { return n.ParentID != uuid.Nil }

// Ends reports whether the instance has ended with the outcome.
func (o *Outcome) Ends() bool { return o.Kind == OutcomeDone || o.Kind == OutcomeStop }

// tells reports whether the outcome is an end that a parent is told.
func (o *Outcome) tells() bool { return o.ParentID != uuid.Nil && o.Ends() }

// tellParents puts the ends of these instances, which this transaction has ended and whose parents it has locked, into the inboxes of those
// parents that live. It returns the parents that wait, for wakeParents.
func (s *Store) tellParents(ctx context.Context, ended []uuid.UUID) (waiting []uuid.UUID, err error) {
	if len(ended) == 0 {
		return nil, nil
	}
	err = s.each(ctx, "tell parents", s.text.tellParents, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		waiting = append(waiting, id)
		return err
	}, ended)
	return waiting, err
}

// wakeParents wakes those that have waited for what they were told. It is a later statement than tellParents, for its snapshot.
func (s *Store) wakeParents(ctx context.Context, waiting []uuid.UUID, wake func(queue string)) error {
	if len(waiting) == 0 {
		return nil
	}
	woken, err := s.wakeParked(ctx, "wake parents", s.text.wakeParents, waiting, append([]uuid.UUID{}, s.starting...))
	for _, queue := range woken {
		wake(queue)
	}
	return err
}

// tellMissed puts into the inbox of an instance, which has just been retried, the ends of its children since this time: while it had
// ended nobody was told.
func (s *Store) tellMissed(ctx context.Context, parent uuid.UUID, since time.Time) error {
	return s.each(ctx, "tell missed", s.text.tellMissed, nil, parent, since)
}

// tellUnstarted puts into the inboxes of parents what children they do not have: a start that came to nothing because another, which is
// not the parent's child, has one of its keys, or the dedup key.
func (s *Store) tellUnstarted(ctx context.Context, ns []NewInstance, started []Start) (parents []uuid.UUID, err error) {
	var ids, ofs, holders []uuid.UUID
	var machines, reasons []string
	var keys []*string
	for i, n := range ns {
		if !n.isChild() || started[i].Verdict == Started {
			continue
		}
		holder := started[i].InstanceID
		if holder == uuid.Nil { // of the id
			holder = n.ID
		}
		ids, ofs, holders = append(ids, n.ID), append(ofs, n.ParentID), append(holders, holder)
		machines, keys, reasons = append(machines, n.Machine), append(keys, optional(n.CorrelationKey)), append(reasons, n.unstarted(started[i]))
		if !slices.Contains(parents, n.ParentID) {
			parents = append(parents, n.ParentID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return parents, s.each(ctx, "tell unstarted", s.text.tellUnstarted, nil, ids, ofs, holders, machines, keys, reasons)
}

// unstarted is why a child was not started.
func (n NewInstance) unstarted(st Start) string {
	switch {
	case st.Verdict == Conflict:
		return "the dedup key " + n.DedupKey + " was used before for another start"
	case st.Verdict == Duplicate:
		return "the dedup key " + n.DedupKey + " was used before"
	case st.Unique:
		return "the unique key " + n.UniqueKey + " is held by instance " + st.InstanceID.String()
	case st.InstanceID == uuid.Nil:
		return "there is an instance with the id " + n.ID.String()
	default:
		return "the correlation key " + n.CorrelationKey + " is held by instance " + st.InstanceID.String()
	}
}

// Child is one of a list of children.
type Child struct {
	ParentID uuid.UUID
	ID       uuid.UUID
	Live     bool
}

// Children returns up to limit children of each of the parents whose id is above after: only the live ones, or all, by parent and id.
func (s *Store) Children(ctx context.Context, parents []uuid.UUID, live bool, after uuid.UUID, limit int) (children []Child, err error) {
	err = s.each(ctx, "children", s.text.children, func(r pgx.Rows) error {
		var c Child
		err := r.Scan(&c.ParentID, &c.ID, &c.Live)
		children = append(children, c)
		return err
	}, parents, live, after, limit)
	return children, err
}

// tellText makes entries of e (id, what distinguishes this end, parent_id, and the fields of the payload) in the inboxes of live parents.
// The ledger knows each end by the child and the rev that it ended at, so that it comes once, whoever tells it, and the end of a retried
// child is another one. The rows of the parents are locked by an earlier statement.
const tellText = `
with /* {name} */ e as materialized ({ends}
), hit as materialized (
  select nextval('pointsman.signal_ids') as sid, x.* from (
    select e.*, md5('child:' || e.id || ':' || e.rev)::uuid as dedup, p.scope, p.waits from e cross join lateral (
      select i.scope, i.parked and not i.paused as waits from pointsman.instances i where i.id = e.parent_id and ` + alive + ` offset 0) p
    order by e.at, e.id) x
), fresh as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, signal_id) select scope, dedup, parent_id, dedup, sid from hit
  on conflict do nothing returning signal_id as sid
), sig as (
  insert into pointsman.signals (instance_id, id, kind, name, dedup_key, traceparent, payload)
  select parent_id, sid, 'child', id::text, id || ':' || rev, traceparent,
    jsonb_build_object('instance_id', id, 'machine', machine, 'version', version, 'status', status, 'correlation_key', key, 'result', result, 'reason', reason,
      'finished_at', to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
  from hit where (sid in (select sid from fresh)) is true
)
select distinct parent_id from hit where waits and (sid in (select sid from fresh)) is true`

func tellingText(name, ends string) string {
	return strings.NewReplacer("{name}", name, "{ends}", ends).Replace(tellText)
}

// endOf is the end of child c.
const endOf = `
  select c.id, c.rev, c.parent_id, c.machine, c.version, c.status, c.correlation_key as key, c.result, case when c.status <> 'done' then c.last_error end as reason,
    c.finished_at as at, c.traceparent
  from pointsman.instances c where `

var (
	// tellParentsText ($1 ids). That they have ended is said by the status here, and who has no parent finds none: an index on the ended, or
	// on the children, would be read whole.
	tellParentsText = tellingText("tell parents", endOf+`c.id = any($1) and c.status is not null`)
	// tellMissedText ($1 parent, $2 when it ended). A child's transaction may have begun before and waited for the parent's row.
	tellMissedText = tellingText("tell missed", endOf+`c.parent_id = $1 and not c.live and c.finished_at >= $2::timestamptz - interval '5 min'`)
	// tellUnstartedText (arrays: $1 ids, $2 parents, $3 who holds the key, $4 machines, $5 correlation keys, $6 reasons).
	tellUnstartedText = tellingText("tell unstarted", `
  select n.id, 0 as rev, n.parent_id, n.machine, null::int as version, 'not_started' as status, n.key, null::jsonb as result, n.reason, now() as at, null as traceparent
  from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[]) n(id, parent_id, holder, machine, key, reason)
  where (select h.parent_id from pointsman.instances h where h.id = n.holder) is distinct from n.parent_id`)
)

// childrenText ($1 parents, $2 only the live, $3 after, $4 limit). The conditions on live are as [alive] says.
const childrenText = `
select /* children */ p.id, c.id, c.live from unnest($1::uuid[]) p(id) cross join lateral (
  select x.id, x.live from (
    (select c.id, c.live from pointsman.instances c where c.parent_id = p.id and c.live between true and true and c.id > $3 order by c.parent_id, c.live, c.id limit $4)
    union all
    (select c.id, c.live from pointsman.instances c where not $2 and c.parent_id = p.id and c.live between false and false and c.id > $3 order by c.parent_id, c.live, c.id limit $4)) x
  order by x.id limit $4) c
order by p.id, c.id`
