package store

import (
	"context"
	"fmt"
	"strings"
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

// Fates answers questions in one statement, in their order, from the state of this moment. It locks nothing.
func (s *Store) Fates(ctx context.Context, qs []Question) ([]Answer, error) {
	answers := make([]Answer, len(qs))
	if len(qs) == 0 {
		return answers, nil
	}
	projects, keys, ids := make([]string, len(qs)), make([]string, len(qs)), make([]uuid.UUID, len(qs))
	scopes, dedups, sources := make([]*uuid.UUID, len(qs)), make([]uuid.UUID, len(qs)), make([]*uuid.UUID, len(qs))
	for i, q := range qs {
		projects[i], keys[i], ids[i], dedups[i], sources[i] = q.Project, q.Key, q.ID, q.Dedup, q.Source
		if q.Scope != uuid.Nil {
			scopes[i] = &qs[i].Scope
		}
	}
	err := s.each(ctx, "fates", s.text.fates, func(r pgx.Rows) error {
		ord, row, err := scanFate(r)
		if err == nil {
			answers[ord-1].add(row)
		}
		return err
	}, projects, keys, ids, scopes, dedups, sources)
	return answers, err
}

// fateRow is one of what there is on record.
type fateRow struct {
	what   string
	entry  Entry
	status string
}

// scanFate reads a row, and which question it is for.
func scanFate(r pgx.Rows) (ord int, row fateRow, err error) {
	var instance, hash, source *uuid.UUID
	var signal *int64
	var at *time.Time
	var with *bool
	var status *string
	if err := r.Scan(&ord, &row.what, &instance, &hash, &source, &signal, &at, &with, &status); err != nil {
		return ord, row, err
	}
	row.entry = Entry{Source: source, WithStart: with != nil && *with}
	if instance != nil {
		row.entry.InstanceID = *instance
	}
	if hash != nil {
		row.entry.Hash = *hash
	}
	if signal != nil {
		row.entry.SignalID = *signal
	}
	if at != nil {
		row.entry.At = *at
	}
	row.status = value(status)
	return ord, row, nil
}

func (a *Answer) add(row fateRow) {
	switch row.what {
	case "taken":
		a.Taken = &row.entry
	case "held":
		a.Held = &row.entry
	case "live":
		a.Live = &Holder{ID: row.entry.InstanceID}
	case "ended":
		a.Ended = &Holder{ID: row.entry.InstanceID, Status: row.status, EndedAt: row.entry.At}
	}
}

// fatesText (arrays: $1 projects, $2 keys, $3 ids, $4 scopes, $5 dedups, $6 sources). A source is looked for among what its key or
// instance ever got, one of a start without a key among all starts.
const fatesText = `
select /* fates */ q.ord::int, f.*
from unnest($1::text[], $2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[]) with ordinality q(project, key, id, scope, dedup, source, ord)
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
  (select l.* from pointsman.ledger l where l.scope = (select scope from ledgers) and l.dedup = q.dedup)
  union all
  (select l.* from pointsman.ledger l where q.source::uuid is not null and l.scope = (select scope from ledgers) and l.source = q.source)
  union all
  (select l.* from pointsman.ledger l where q.key = '' and q.scope is not null and l.source = q.source and l.signal_id is null)
  limit 1
), kept as (
  (select * from pointsman.held where project = q.project and key = q.key and dedup = q.dedup)
  union all
  (select * from pointsman.held where q.source::uuid is not null and project = q.project and key = q.key and source = q.source)
  limit 1
)
select 'taken', t.instance_id, t.hash, t.source, t.signal_id, t.at, coalesce((select i.inserted_at = t.at from pointsman.instances i where i.id = t.instance_id), t.signal_id is null), null::text from taken t
union all select 'held', null, k.hash, k.source, null, k.inserted_at, null, null from kept k
union all (select case when live then 'live' else 'ended' end, id, null, null, null, finished_at, null, status from holder order by live desc limit 1)
) f`

// Waiting says which dead letters of expired holds are on their way out: expired here, and not published yet. A hold is told by the
// source of its message, which is where that stood, and by its key.
func (s *Store) Waiting(ctx context.Context, holds []Expiry) ([]bool, error) {
	ids := make([]string, len(holds))
	for i, h := range holds {
		ids[i] = h.msgID()
	}
	waiting := make([]bool, len(holds))
	err := s.each(ctx, "letters waiting", s.text.lettersWaiting, func(r pgx.Rows) error {
		var id string
		err := r.Scan(&id)
		for i := range ids {
			waiting[i] = waiting[i] || strings.HasPrefix(id, ids[i])
		}
		return err
	}, ids)
	return waiting, err
}

// lettersWaitingText ($1 what the ids of the dead letters begin with) reads all of the outbox, for the few that nothing else explains.
const lettersWaitingText = `
select /* letters waiting */ msg_id from pointsman.outbox where kind = 'dead' and exists (select from unnest($1::text[]) t(id) where starts_with(msg_id, t.id))`

// Expiry of the hold of a message for one key.
type Expiry struct {
	Route, Stream string
	Created       time.Time
	Sequence      uint64
	Key           string
}

// msgID is what the Nats-Msg-Id of the dead letter begins with. The key is part of it: a message may be held for several, and by several routes.
func (e Expiry) msgID() string {
	return fmt.Sprintf("%s:%s@%d:%d:%s", e.Route, e.Stream, e.Created.UnixNano(), e.Sequence, hash(e.Key))
}
