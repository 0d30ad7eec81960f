package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Question asks what is on record of one signal or start.
type Question struct {
	Project string
	Key     string    // of the target,
	ID      uuid.UUID // or its id
	Scope   uuid.UUID // of the ledger; Nil: that of the instance ID
	Dedup   uuid.UUID
	Source  *uuid.UUID
}

// Answer is what is on record, and who has the key or id now. What there is nothing of is nil.
type Answer struct {
	Taken *Entry // in the ledger, under the dedup or from the source
	Held  *Entry
	Live  *Holder
	Ended *Holder // the last of them; not looked for where there is a live one
}

// Entry of the ledger or the hold.
type Entry struct {
	InstanceID uuid.UUID // of the ledger
	SignalID   int64     // of the ledger; 0: a start
	Hash       uuid.UUID
	Source     *uuid.UUID
	At         time.Time
	WithStart  bool // it was taken in by the transaction that made its instance; of a start whose instance is deleted, too
}

// Holder is an instance that has, or had, a key.
type Holder struct {
	ID      uuid.UUID
	Status  string // of an ended one
	EndedAt time.Time
}

// Fates answers questions, in their order, from the state of this moment. It locks nothing.
func (s *Store) Fates(ctx context.Context, qs []Question) ([]Answer, error) {
	n := len(qs)
	projects, keys, ids, scopes, dedups, sources := make([]string, n), make([]string, n), make([]uuid.UUID, n), make([]*uuid.UUID, n), make([]uuid.UUID, n), make([]*uuid.UUID, n)
	for i, q := range qs {
		projects[i], keys[i], ids[i], dedups[i], sources[i] = q.Project, q.Key, q.ID, q.Dedup, q.Source
		if q.Scope != uuid.Nil {
			scopes[i] = &qs[i].Scope
		}
	}
	answers := make([]Answer, n)
	err := s.each(ctx, "fate", s.text.fate, func(r pgx.Rows) error { return scanAnswer(answers, r) }, projects, keys, ids, scopes, dedups, sources)
	return answers, err
}

func scanAnswer(answers []Answer, r pgx.Rows) error {
	var n int
	var what string
	var instance, hash, source *uuid.UUID
	var signal *int64
	var at *time.Time
	var with *bool
	var status *string
	if err := r.Scan(&n, &what, &instance, &hash, &source, &signal, &at, &with, &status); err != nil {
		return err
	}
	a := &answers[n-1]
	entry := Entry{Source: source, WithStart: with != nil && *with}
	if instance != nil {
		entry.InstanceID = *instance
	}
	if hash != nil {
		entry.Hash = *hash
	}
	if signal != nil {
		entry.SignalID = *signal
	}
	if at != nil {
		entry.At = *at
	}
	switch what {
	case "taken":
		a.Taken = &entry
	case "held":
		a.Held = &entry
	case "live":
		a.Live = &Holder{ID: entry.InstanceID}
	case "ended":
		a.Ended = &Holder{ID: entry.InstanceID, Status: value(status), EndedAt: entry.At}
	}
	return nil
}

// fateText ($1 projects, $2 keys, $3 ids, $4 scopes, $5 dedups, $6 sources). A source is looked for among what its key or instance ever got, one of a start
// without a key among all starts.
const fateText = `
select /* fate */ q.n, f.*
from unnest($1::text[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[]) with ordinality q(project, key, id, scope, dedup, source, n)
cross join lateral (
  with holder as materialized (
    (select id, scope, live, status, finished_at from pointsman.instances where q.key <> '' and project = q.project and correlation_key = q.key and live)
    union all
    (select id, scope, live, status, finished_at from pointsman.instances
     where q.key <> '' and project = q.project and correlation_key = q.key and not live order by finished_at desc limit 1)
    union all
    (select id, scope, live, status, finished_at from pointsman.instances where q.key = '' and id = q.id and q.project in ('', project))
  ), ledgers as materialized (
    select coalesce(q.scope, (select scope from holder limit 1), (select scope from pointsman.departed where q.key = '' and instance_id = q.id and q.project in ('', project))) as scope
  ), taken as (
    (select l.* from pointsman.ledger l, ledgers where l.scope = ledgers.scope and l.dedup = q.dedup)
    union all
    (select l.* from pointsman.ledger l, ledgers where q.source is not null and l.scope = ledgers.scope and l.source = q.source)
    union all
    (select l.* from pointsman.ledger l where q.key = '' and q.scope is not null and l.source = q.source and l.signal_id is null)
    limit 1
  ), kept as (
    (select * from pointsman.held where project = q.project and key = q.key and dedup = q.dedup)
    union all
    (select * from pointsman.held where q.source is not null and project = q.project and key = q.key and source = q.source)
    limit 1
  )
  select 'taken', t.instance_id, t.hash, t.source, t.signal_id, t.at, coalesce((select i.inserted_at = t.at from pointsman.instances i where i.id = t.instance_id), t.signal_id is null), null::text from taken t
  union all select 'held', null, k.hash, k.source, null, k.inserted_at, null, null from kept k
  union all (select case when live then 'live' else 'ended' end, id, null, null, null, finished_at, null, status from holder order by live desc limit 1)
) f`
