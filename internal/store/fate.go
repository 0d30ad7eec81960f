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

// Fate answers a question from the state of this moment. It locks nothing.
func (s *Store) Fate(ctx context.Context, q Question) (a Answer, err error) {
	var scope *uuid.UUID
	if q.Scope != uuid.Nil {
		scope = &q.Scope
	}
	err = s.each(ctx, "fate", s.text.fate, func(r pgx.Rows) error { return a.scan(r) }, q.Project, q.Key, q.ID, scope, q.Dedup, q.Source)
	return a, err
}

func (a *Answer) scan(r pgx.Rows) error {
	var what string
	var instance, hash, source *uuid.UUID
	var signal *int64
	var at *time.Time
	var with *bool
	var status *string
	if err := r.Scan(&what, &instance, &hash, &source, &signal, &at, &with, &status); err != nil {
		return err
	}
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

// fateText ($1 project, $2 key, $3 id, $4 scope, $5 dedup, $6 source). A source is looked for among what its key or instance ever got, one of a start
// without a key among all starts.
const fateText = `
with /* fate */ holder as materialized (
  (select id, scope, live, status, finished_at from pointsman.instances where $2 <> '' and project = $1 and correlation_key = $2 and live)
  union all
  (select id, scope, live, status, finished_at from pointsman.instances
   where $2 <> '' and project = $1 and correlation_key = $2 and not live order by finished_at desc limit 1)
  union all
  (select id, scope, live, status, finished_at from pointsman.instances where $2 = '' and id = $3 and $1 in ('', project))
), ledgers as materialized (
  select coalesce($4, (select scope from holder limit 1), (select scope from pointsman.departed where $2 = '' and instance_id = $3 and $1 in ('', project))) as scope
), taken as (
  (select l.* from pointsman.ledger l, ledgers where l.scope = ledgers.scope and l.dedup = $5)
  union all
  (select l.* from pointsman.ledger l, ledgers where $6::uuid is not null and l.scope = ledgers.scope and l.source = $6)
  union all
  (select l.* from pointsman.ledger l where $2 = '' and $4 is not null and l.source = $6 and l.signal_id is null)
  limit 1
), kept as (
  (select * from pointsman.held where project = $1 and key = $2 and dedup = $5)
  union all
  (select * from pointsman.held where $6::uuid is not null and project = $1 and key = $2 and source = $6)
  limit 1
)
select 'taken', t.instance_id, t.hash, t.source, t.signal_id, t.at, coalesce((select i.inserted_at = t.at from pointsman.instances i where i.id = t.instance_id), t.signal_id is null), null::text from taken t
union all select 'held', null, k.hash, k.source, null, k.inserted_at, null, null from kept k
union all (select case when live then 'live' else 'ended' end, id, null, null, null, finished_at, null, status from holder order by live desc limit 1)`
