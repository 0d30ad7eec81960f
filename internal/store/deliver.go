package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Signal is one on its way into an inbox. Key or ID names the target.
type Signal struct {
	Key         string
	ID          uuid.UUID
	Kind        string // signal, update, event, child
	Name        string
	Payload     []byte // JSON
	DedupKey    string // as shown; "": none
	Dedup       uuid.UUID
	Hash        uuid.UUID
	Source      *uuid.UUID
	Recheck     bool // Source may be in the ledger under another dedup
	Traceparent string
	SentBy      string
}

// Verdict is what became of a signal or a start.
type Verdict int16

// The verdicts. Missing means that nobody live has the key or id, and Ended that the last who had it has ended.
const (
	Delivered Verdict = iota + 1
	Duplicate
	Conflict
	Missing
	unseen // the ledger has the dedup, from a transaction that this statement's snapshot did not see
	Ended
	Held
	Started
	Taken
)

// Delivery is the verdict on one signal.
type Delivery struct {
	Verdict    Verdict
	InstanceID uuid.UUID // of the target, or of the ended
	SignalID   int64
	Queue      string // "" unless this wake put the instance into it
	Status     string // of the ended
	EndedAt    time.Time
}

// Deliver puts signals into the inboxes of their live targets and wakes those that wait for them, all or nothing, in one round
// trip. The targets are all keys of the project or all ids. Signals whose targets need a second look (nobody has the key, the
// wake is not for one signal to decide) come back as Missing, for [Store.DeliverSlow].
func (s *Store) Deliver(ctx context.Context, project string, byID bool, sigs []Signal) ([]Delivery, error) {
	out := make([]Delivery, len(sigs))
	batch := newSignalArrays(sigs, func(i int) bool { return !sigs[i].Recheck })
	for i := range out {
		out[i].Verdict = Missing
	}
	if len(batch.ords) == 0 {
		return out, nil
	}
	sql := s.text.deliverKey
	if byID {
		sql = s.text.deliverID
	}
	row := newDeliveryRow()
	err := s.together(ctx, statement{"deliver", sql, batch.args(project, byID), func(r pgx.Rows) error { return row.scan(r, batch.ords, out) }})
	for i := range out {
		if out[i].Verdict == unseen {
			out[i].Verdict = Missing
		}
	}
	return out, err
}

// DeliverSlow is Deliver for what needs more than one statement. It runs in a transaction that holds the locks of the keys
// ([Store.LockScopes]), so whom it finds Missing stays missing until the end of it.
func (s *Store) DeliverSlow(ctx context.Context, project string, byID bool, sigs []Signal) ([]Delivery, error) {
	out := make([]Delivery, len(sigs))
	if len(sigs) == 0 {
		return out, nil
	}
	if slices.ContainsFunc(sigs, func(g Signal) bool { return g.Recheck }) {
		if err := s.lockTargets(ctx, project, byID, sigs); err != nil {
			return nil, err
		}
	}
	undecided, err := s.deliverSlow(ctx, project, byID, sigs, nil, out)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(out, func(d Delivery) bool { return d.Verdict == unseen }) {
		again := func(i int) bool { return out[i].Verdict == unseen }
		if _, err := s.deliverSlow(ctx, project, byID, sigs, again, out); err != nil {
			return nil, err
		}
	}
	if len(undecided) == 0 {
		return out, nil
	}
	woken, err := s.Recheck(ctx, undecided)
	for i := range out {
		if q, ok := woken[out[i].InstanceID]; ok && out[i].Verdict == Delivered {
			out[i].Queue = q
		}
	}
	return out, err
}

// deliverSlow is one statement of DeliverSlow. undecided are the instances that what it delivered may wake.
func (s *Store) deliverSlow(ctx context.Context, project string, byID bool, sigs []Signal, want func(i int) bool, out []Delivery) (undecided []uuid.UUID, err error) {
	batch := newSignalArrays(sigs, want)
	sql := s.text.deliverKeySlow
	if byID {
		sql = s.text.deliverIDSlow
	}
	slow := false
	row := newDeliveryRow(&slow)
	err = s.each(ctx, "deliver slow", sql, func(r pgx.Rows) error {
		err := row.scan(r, batch.ords, out)
		if slow {
			undecided = append(undecided, uuid.UUID(row.instance))
		}
		return err
	}, batch.args(project, byID)...)
	return undecided, err
}

// lockTargets lets the statement after it see all that was ever delivered to them. A dedup that its snapshot misses runs into the
// primary key of the ledger; a source has no such index.
func (s *Store) lockTargets(ctx context.Context, project string, byID bool, sigs []Signal) error {
	args := newSignalArrays(sigs, nil).args(project, byID)
	sql := s.text.lockKeyTargets
	if byID {
		sql = s.text.lockIDTargets
	}
	return s.each(ctx, "lock targets", sql, nil, args[:2]...)
}

// LockScopes takes the transaction-level advisory locks of ledger scopes, which is what makes "nobody has this key" stand. It
// comes before every other lock of its transaction.
func (s *Store) LockScopes(ctx context.Context, scopes []uuid.UUID) error {
	locks := make([]int64, len(scopes))
	for i, scope := range scopes {
		locks[i] = lockOf(scope)
	}
	slices.Sort(locks)
	return s.each(ctx, "lock keys", s.text.lockScopes, nil, slices.Compact(locks))
}

// deliveryRow takes the rows of deliverText, one after the other.
type deliveryRow struct {
	ord, verdict, signal number
	instance             id
	queue                text
	into                 []any
}

func newDeliveryRow(more ...any) *deliveryRow {
	d := &deliveryRow{}
	d.into = append([]any{&d.ord, &d.verdict, &d.instance, &d.signal, &d.queue}, more...)
	return d
}

func (d *deliveryRow) scan(r pgx.Rows, ords []int, out []Delivery) error {
	if err := r.Scan(d.into...); err != nil {
		return err
	}
	out[ords[d.ord-1]] = Delivery{Verdict: Verdict(d.verdict), InstanceID: uuid.UUID(d.instance), SignalID: int64(d.signal), Queue: string(d.queue)}
	return nil
}

// signalArrays are signals as columns.
type signalArrays struct {
	ords                            []int // index of each in the caller's slice
	keys                            []string
	ids                             []uuid.UUID
	kinds, names                    []string
	payloads                        documents
	dedupKeys, traceparents, sentBy optionals
	dedups, hashes                  []uuid.UUID
	sources                         []*uuid.UUID
	rechecks                        []bool
}

// newSignalArrays takes those of the signals whose index want accepts; nil: all.
func newSignalArrays(sigs []Signal, want func(i int) bool) *signalArrays {
	a := &signalArrays{}
	for i := range sigs {
		if want != nil && !want(i) {
			continue
		}
		g := &sigs[i]
		a.ords = append(a.ords, i)
		a.keys, a.ids = append(a.keys, g.Key), append(a.ids, g.ID)
		a.kinds, a.names, a.payloads = append(a.kinds, g.Kind), append(a.names, g.Name), append(a.payloads, g.Payload)
		a.dedupKeys, a.traceparents, a.sentBy = append(a.dedupKeys, g.DedupKey), append(a.traceparents, g.Traceparent), append(a.sentBy, g.SentBy)
		a.dedups, a.hashes = append(a.dedups, g.Dedup), append(a.hashes, g.Hash)
		a.sources, a.rechecks = append(a.sources, g.Source), append(a.rechecks, g.Recheck)
	}
	return a
}

func (a *signalArrays) args(project string, byID bool) []any {
	var targets any = a.keys
	if byID {
		targets = a.ids
	}
	return []any{project, targets, a.kinds, a.names, a.payloads, a.dedupKeys, a.dedups, a.hashes, a.sources, a.traceparents, a.sentBy, a.rechecks}
}

func jsonText(b []byte) string {
	if len(b) == 0 {
		return "null"
	}
	return string(b)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// slowWake: to wake this row takes more than its own signal, or takes or gives up its unique key.
const slowWake = `(i.parked and not i.paused and (i.await_n > 1 or i.await_where is not null or ` + wakeMoves + `))`

// wakeMoves: a wake brings the row into the scope of its unique key, or out of it.
const wakeMoves = `(i.unique_scope & 5) in (1, 4)`

// deliverText ($1 project; arrays: $2 targets, $3 kinds, $4 names, $5 payloads, $6 dedup keys, $7 dedups, $8 hashes, $9 sources,
// $10 traceparents, $11 senders, $12 whether the source is to be looked for) locks the live targets by id, parked or not: a park that commits next must see these signals.
// Then the ledger says which are new, and the new ones go into the inbox under ids drawn after the lock, in the order of the
// batch, and wake who waits for them. Where the ledger knew a dedup, its row is compared: the same source is a duplicate, whatever it
// says now. "is true" keeps the planner, which expects a handful of rows, from a nested loop. A row that this snapshot does not see (of a transaction that held the lock before, or of this batch) is "unseen".
const deliverText = `
with /* deliver */ inp as materialized (
  select * from unnest($2::{type}[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::boolean[])
    with ordinality t(target, kind, name, payload, dedup_key, dedup, hash, source, traceparent, sent_by, recheck, ord)
), tgt as materialized (
  select i.id, i.{target} as target, i.scope, i.awaits, i.queue, i.priority, i.rev, i.parked and not i.paused as wakeable, ` + slowWake + ` as slow, i.live
  from pointsman.instances i where {where}
  order by i.id for no key update
), hit as materialized (
  select nextval('pointsman.signal_ids') as sid, x.* from (
    select t.id, t.scope, t.awaits, t.queue, t.priority, t.rev, t.wakeable, t.slow, inp.*
    from inp join tgt t using (target) where {fits} order by inp.ord) x
), fresh as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
  select scope, dedup, id, hash, source, sid from hit where {new}
  on conflict do nothing returning signal_id as sid
), sig as (
  insert into pointsman.signals (instance_id, id, kind, name, payload, dedup_key, traceparent, sent_by)
  select id, sid, kind, name, payload::jsonb, dedup_key, traceparent, sent_by from hit where (sid in (select sid from fresh)) is true
), wake as (
  update pointsman.instances i set parked = false
  from (select distinct s.id from hit s where (s.sid in (select sid from fresh)) is true and s.wakeable and not s.slow and ` + tag + ` = any(s.awaits)) w
  where i.id = w.id
  returning i.id, i.queue, i.priority, i.rev
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from wake
)
select inp.ord,
  case when h.fresh then 1 when h.sid is null then 4 when l.hash is null then 5 when l.hash = h.hash then 2 else 3 end,
  h.id, case when h.fresh then h.sid else l.signal_id end, case when h.fresh and h.id in (select id from wake) then h.queue end{also}
from inp left join (select hit.*, (sid in (select sid from fresh)) is true as fresh from hit) h using (ord)
left join lateral (
  {bySource}select case when l.source = h.source then h.hash else l.hash end as hash, l.signal_id
  from pointsman.ledger l where not h.fresh and l.scope = h.scope and l.dedup = h.dedup
  limit 1) l on true
order by inp.ord`

// In the slow form every live target fits (by id the ended are locked too, lest a retry turn them into live ones before it is said that
// they have ended; by key the lock of the key does that), a redelivered source that the ledger of its scope knows is no new signal, and whom the new
// signals may wake is for a later statement.
var (
	deliverFast = strings.NewReplacer("{fits}", "not t.slow", "{new}", "true", "{also}", "", "{bySource}", "")
	deliverSlow = strings.NewReplacer("{fits}", "t.live",
		"{new}", "not recheck or not exists (select from pointsman.ledger l where l.scope = hit.scope and l.source = hit.source)",
		"{also}", ", coalesce(h.slow, false)",
		"{bySource}", "select h.hash, l.signal_id from pointsman.ledger l where not h.fresh and h.recheck and l.scope = h.scope and l.source = h.source union all ")
	// Who has a key is asked key by key: for all keys at once Postgres may read all that is live of the project, where it believes that to be
	// little.
	targetKey = strings.NewReplacer("{type}", "text", "{target}", "correlation_key", "{where}", `i.id = any(array(
    select x.id from unnest($2::text[]) k(key)
    cross join lateral (select x.id from pointsman.instances x where x.project = $1 and x.correlation_key = k.key and x.live limit 1) x)) and `+alive)
	// An id needs no project to be found; where one is given it has to be the instance's.
	targetID  = strings.NewReplacer("{type}", "uuid", "{target}", "id", "{where}", ofID+" and "+alive)
	anyWithID = strings.NewReplacer("{type}", "uuid", "{target}", "id", "{where}", ofID)
)

// alive is i.live where a row is looked up by its id, or by its parent. Postgres is not to think of the index on all that is live for that: it
// guesses the size of such a partial index by what was in it at the last analyze, and where that was nothing it would sooner read it whole
// than look for an id. It does not find out that this is the condition of that index.
const alive = "i.live >= true"

const ofID = "i.id = any($2) and (i.project = $1 or $1 = '')"

const lockTargetsText = `
select /* lock targets */ i.id from pointsman.instances i where {where} order by i.id for no key update`

const lockScopesText = `select /* lock keys */ pg_advisory_xact_lock(h) from unnest($1::bigint[]) h`
