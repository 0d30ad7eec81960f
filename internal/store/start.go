package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// NewInstance is one to be started.
type NewInstance struct {
	ID             uuid.UUID
	CorrelationKey string
	Machine        string
	Version        int    // 0: the newest that a worker has served, else 1
	Step           string // "": where the machine begins, as far as that is known
	Queue          string // "": the machine's, as far as that is known, else "default"
	Priority       int16
	State          []byte // JSON
	RunAt          *time.Time
	ReplyTo        string
	NotifyURL      string // is told of the end
	Traceparent    string
	PartitionKey   string
	UniqueKey      string
	UniqueScope    int16 // bits; of a UniqueKey
	DedupKey       string
	Hash           uuid.UUID // with a DedupKey: of what the start says
	Source         *uuid.UUID
	Recheck        bool // Source may be in the ledger or the hold as a signal's
	ParentID       uuid.UUID
	// Visited says that DedupKey is of a visit whose outcome this is an effect of: nobody else has it at the same time.
	Visited bool
	// Settles says that who asks will not try again where another has one of its keys: the ledger then names the holder, so that
	// its DedupKey is a duplicate after the holder's end too.
	Settles bool
}

// Scope of the ledger that a start's dedup key is in, and whose lock it runs under; Nil where it needs none.
func (n NewInstance) Scope(project string) uuid.UUID {
	switch {
	case n.CorrelationKey != "":
		return KeyScope(project, n.CorrelationKey)
	case n.DedupKey != "":
		// Without a key all starts of the project share one scope, and each is locked by its dedup.
		return hash(project, "start", n.DedupKey)
	default:
		return uuid.Nil
	}
}

// Locks are the ledger scopes whose locks a start runs under. One of a message and without a key has two: the dedup key that makes its
// scope may be mapped another way when the message comes again.
func (n NewInstance) Locks(project string) (scopes []uuid.UUID) {
	if scope := n.Scope(project); scope != uuid.Nil && (n.CorrelationKey != "" || !n.Visited) {
		scopes = append(scopes, scope)
	}
	if n.CorrelationKey == "" && n.Source != nil {
		scopes = append(scopes, *n.Source)
	}
	return scopes
}

// Start is the verdict on one start: Started, Duplicate, Conflict, or Taken: InstanceID has the key, or the id.
type Start struct {
	Verdict    Verdict
	InstanceID uuid.UUID
	Unique     bool   // Taken is the unique key, not the correlation key
	Queue      string // of one that may run now
	Adopted    int    // held signals that are in its inbox now
}

// Start creates instances of one project, and gives them what is held for their keys. It runs in a transaction that holds the
// locks of their scopes ([NewInstance.Locks], [Store.LockScopes]).
func (s *Store) Start(ctx context.Context, project string, ns []NewInstance) ([]Start, error) {
	out := make([]Start, len(ns))
	first, again := splitStarts(project, ns)
	if err := s.start(ctx, project, ns, first, out); err != nil {
		return nil, err
	}
	// What the batch itself repeats takes a later statement: its ledger has the first.
	return out, s.start(ctx, project, ns, again, out)
}

// start is Start for those at these indexes: first their unique keys, in a statement for all that this transaction has to do with unique
// keys, then they. What has to give a key back makes room for others of the batch.
func (s *Store) start(ctx context.Context, project string, ns []NewInstance, at []int, out []Start) error {
	for len(at) > 0 {
		won, err := s.guard(ctx, project, ns, at)
		if err != nil {
			return err
		}
		if err := s.insert(ctx, project, ns, at, out); err != nil {
			return err
		}
		if at, err = s.giveBack(ctx, project, ns, at, won, out); err != nil {
			return err
		}
	}
	return nil
}

// insert is the statement of start.
func (s *Store) insert(ctx context.Context, project string, ns []NewInstance, at []int, out []Start) error {
	batch := make([]NewInstance, len(at))
	for k, i := range at {
		batch[k] = ns[i]
	}
	return s.each(ctx, "start", s.text.start, func(r pgx.Rows) error {
		var ord int
		var st Start
		var id *uuid.UUID
		var queue *string
		if err := r.Scan(&ord, &st.Verdict, &id, &queue, &st.Adopted, &st.Unique); err != nil {
			return err
		}
		if id != nil {
			st.InstanceID = *id
		}
		st.Queue = value(queue)
		out[at[ord-1]] = st
		return nil
	}, startArgs(project, batch)...)
}

// splitStarts tells those whose dedup key an earlier one of the batch has from the first ones.
func splitStarts(project string, ns []NewInstance) (first, again []int) {
	type dedup struct {
		scope uuid.UUID
		key   string
	}
	seen := make(map[dedup]bool, len(ns))
	for i, n := range ns {
		d := dedup{n.Scope(project), n.DedupKey}
		if n.DedupKey != "" && seen[d] {
			again = append(again, i)
			continue
		}
		seen[d] = true
		first = append(first, i)
	}
	return first, again
}

func startArgs(project string, ns []NewInstance) []any {
	n := len(ns)
	instances, scopes, dedups, hashes, sources := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]*uuid.UUID, n), make([]*uuid.UUID, n), make([]*uuid.UUID, n)
	keys, replies, traces, notify := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	partitions, uniques, uniqueScopes := make([]*string, n), make([]*string, n), make([]int16, n)
	machines, steps, queues, states := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	versions, priorities, runAts := make([]int32, n), make([]int16, n), make([]*time.Time, n)
	rechecks, settles, parents := make([]bool, n), make([]bool, n), make([]*uuid.UUID, n)
	for i, in := range ns {
		instances[i], scopes[i], sources[i] = in.ID, in.Scope(project), in.Source
		if scopes[i] == uuid.Nil {
			scopes[i] = in.ID
		}
		if in.DedupKey != "" {
			dedup := StartDedup(in.DedupKey)
			dedups[i], hashes[i] = &dedup, &in.Hash
		}
		keys[i], replies[i], traces[i], notify[i] = optional(in.CorrelationKey), optional(in.ReplyTo), optional(in.Traceparent), optional(in.NotifyURL)
		partitions[i], uniques[i], uniqueScopes[i] = optional(in.PartitionKey), optional(in.UniqueKey), in.UniqueScope
		machines[i], steps[i], queues[i], states[i] = in.Machine, in.Step, in.Queue, jsonText(in.State)
		versions[i], priorities[i], runAts[i] = int32(in.Version), in.Priority, in.RunAt
		if rechecks[i], settles[i] = in.Recheck, in.Settles; in.isChild() {
			parents[i] = &in.ParentID
		}
	}
	return []any{
		project, instances, keys, scopes, machines, versions, steps, queues, priorities, states, runAts, replies, traces, dedups, hashes, sources,
		partitions, uniques, uniqueScopes, rechecks, settles, parents, notify,
	}
}

// startText ($1 project; arrays: $2 ids, $3 keys, $4 scopes, $5 machines, $6 versions, $7 steps, $8 queues, $9 priorities, $10
// states, $11 run at, $12 reply to, $13 traceparents, $14 dedups, $15 hashes, $16 sources, $17 partition keys, $18
// unique keys, $19 unique scopes, $20 whether the source is to be looked for among signals, $21 whether a taken one is settled, $22 parents, $23 URLs to be told). Under the locks of the
// scopes what it reads of keys, ledger and hold stands; the same key twice in one batch is decided by the index. Whose unique key another
// has does not start; nobody may have it any more when this looks, or only one of this batch that does not start either: then it is for
// another turn, and the ledger must not know it yet. A known source is a duplicate, whatever its message says now: among starts it is
// always looked for, because the redelivery may have been quicker than the message. Who has a key is asked row by row: a join may be
// planned, while the tables are near empty, to compare each start with all that is live.
const startText = `
with /* start */ inp as materialized (
  select * from unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::text[], $8::text[], $9::smallint[], $10::text[], $11::timestamptz[],
    $12::text[], $13::text[], $14::uuid[], $15::uuid[], $16::uuid[], $17::text[], $18::text[], $19::smallint[], $20::boolean[], $21::boolean[], $22::uuid[], $23::text[])
    with ordinality t(id, key, scope, machine, version, step, queue, priority, state, run_at, reply_to, traceparent, dedup, hash, source, pkey, ukey, uscope, recheck, settles, parent, notify_url, ord)
), c as materialized (
  select inp.id, inp.key, inp.scope, inp.machine, inp.priority, inp.state, inp.run_at, inp.reply_to, inp.traceparent, inp.dedup, inp.hash, inp.source, inp.pkey, inp.ukey, inp.uscope, inp.settles, inp.parent, inp.notify_url, inp.ord,
    coalesce(nullif(inp.version, 0), m.version, 1) as version, coalesce(nullif(inp.step, ''), m.start, '') as step,
    coalesce(nullif(inp.queue, ''), m.queue, 'default') as queue,
    l.instance_id as dup, l.hash is distinct from inp.hash as differs, i.id as holder, u.instance_id as owner, inp.ukey is not null and inp.uscope & 1 <> 0 and u.instance_id is distinct from inp.id as barred
  from inp
  left join lateral (
    select m.version, m.start, m.queue from pointsman.machines m where m.name = inp.machine and inp.version in (0, m.version) order by m.version desc limit 1) m on true
  left join lateral (
    select l.instance_id, inp.hash from pointsman.ledger l where l.source = inp.source and l.signal_id is null and (inp.key is null or l.scope = inp.scope)
    union all
    select l.instance_id, inp.hash from pointsman.ledger l where inp.recheck and l.scope = inp.scope and l.source = inp.source
    union all
    select '00000000-0000-0000-0000-000000000000'::uuid, inp.hash from pointsman.held h
    where inp.recheck and h.project = $1 and h.key = inp.key and h.source = inp.source
    union all
    select l.instance_id, case when l.source = inp.source then inp.hash else l.hash end from pointsman.ledger l where l.scope = inp.scope and l.dedup = inp.dedup
    limit 1) l on true
  left join lateral (select i.id from pointsman.instances i where i.project = $1 and i.correlation_key = inp.key and i.live limit 1) i on true
  left join lateral (select u.instance_id from pointsman.unique_keys u where u.project = $1 and u.key = inp.ukey limit 1) u on true
), ins as (
  insert into pointsman.instances (id, project, machine, version, queue, priority, correlation_key, scope, step, state, delayed, due_at, run_at, reply_to, traceparent,
    partition_key, unique_key, unique_scope, parent_id, notify_url)
  select id, $1, machine, version, queue, priority, key, scope, step, state::jsonb, coalesce(run_at > now(), false), case when run_at > now() then run_at end, run_at, reply_to, traceparent,
    pkey, ukey, uscope, parent, notify_url
  from c where dup is null and holder is null and not barred order by ord
  on conflict do nothing
  returning id, project, scope, correlation_key, queue, priority, delayed, due_at
), own as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source)
  select x.scope, x.dedup, x.taken, x.hash, x.source from (
    select c.*, case when (c.id in (select id from ins)) is true then c.id when c.settles and c.dup is null
      then coalesce(c.holder, case when c.barred then c.owner end, (select ins.id from ins where ins.correlation_key = c.key)) end as taken
    from c where c.dedup is not null) x
  where x.taken is not null and (x.taken in (select id from ins) or (x.taken in (select id from inp)) is not true)
), heirs as (
  select id, project, scope, correlation_key from ins
), ` + adoption + `, rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, 0 from ins where not delayed
), tm as (
  insert into pointsman.timers (instance_id, rev, run_at) select id, 0, due_at from ins where delayed
)
select c.ord, case when c.new then 8 when c.dup is null then 9 when c.differs then 3 else 2 end,
  case when c.new then c.id else coalesce(c.dup, c.holder, case when c.barred then c.owner else (select ins.id from ins where ins.correlation_key = c.key) end) end,
  case when c.new and (c.run_at > now()) is not true then c.queue end,
  case when c.new then (select count(*)::int from numbered a where a.instance_id = c.id) else 0 end,
  c.dup is null and c.holder is null and c.barred
from (select c.*, (c.id in (select id from ins)) is true as new from c) c order by c.ord`

// Original is the message a held signal was made from, for its dead letter.
type Original struct {
	Route      string              `json:"route"`
	Subject    string              `json:"subject"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Deliveries uint64              `json:"deliveries,omitempty"`
	Stream     string              `json:"stream,omitempty"`
	Created    time.Time           `json:"created,omitzero"`
	Sequence   uint64              `json:"seq,omitempty"`
	Stored     time.Time           `json:"stored,omitzero"`
	// ReadStream and ReadSequence are of the copy that was read, where it was one.
	ReadStream   string `json:"read_stream,omitempty"`
	ReadSequence uint64 `json:"read_seq,omitempty"`
}

// Hold is a signal for a key that nobody has.
type Hold struct {
	Signal
	For      time.Duration
	Original *Original // nil: its expiry leaves no dead letter
	Body     []byte
}

// Nobody says of signals that DeliverSlow found Missing, under the locks of their keys, why: a Duplicate or Conflict of one that
// an ended instance or the hold had, Ended (the last who had the key or id), or Missing.
func (s *Store) Nobody(ctx context.Context, project string, byID bool, sigs []Signal) ([]Delivery, error) {
	out := make([]Delivery, len(sigs))
	if len(sigs) == 0 {
		return out, nil
	}
	batch := newSignalArrays(sigs, nil)
	scopes := make([]uuid.UUID, len(sigs))
	sql, targets := s.text.nobodyKey, any(batch.keys)
	for i, g := range sigs {
		scopes[i] = KeyScope(project, g.Key)
	}
	if byID {
		sql, targets = s.text.nobodyID, batch.ids
	}
	err := s.each(ctx, "nobody", sql, func(r pgx.Rows) error {
		var ord int
		var d Delivery
		var id *uuid.UUID
		var signal *int64
		var status *string
		var at *time.Time
		if err := r.Scan(&ord, &d.Verdict, &id, &signal, &status, &at); err != nil {
			return err
		}
		if id != nil {
			d.InstanceID = *id
		}
		if signal != nil {
			d.SignalID = *signal
		}
		if status != nil {
			d.Status, d.EndedAt = *status, *at
		}
		out[ord-1] = d
		return nil
	}, project, targets, scopes, batch.dedups, batch.hashes, batch.sources, batch.rechecks)
	return out, err
}

// nobodyText ($1 project; arrays: $2 targets, $3 scopes of keys, $4 dedups, $5 hashes, $6 sources, $7 rechecks).
const nobodyText = `
with /* nobody */ inp as materialized (
  select * from unnest($2::{type}[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::boolean[])
    with ordinality t(target, scope, dedup, hash, source, recheck, ord)
)
select inp.ord,
  case when coalesce(l.hash, h.hash) is not null then case when coalesce(l.hash, h.hash) = inp.hash then 2 else 3 end when e.id is not null then 6 else 4 end,
  coalesce(l.instance_id, e.id), l.signal_id, e.status, e.finished_at
from inp
left join lateral (
  select i.id, i.scope, i.status, i.finished_at from pointsman.instances i where {where} order by i.finished_at desc limit 1) e on true
left join lateral (
  select l.instance_id, l.signal_id, inp.hash from pointsman.ledger l where inp.recheck and l.scope = {scope} and l.source = inp.source
  union all
  select l.instance_id, l.signal_id, case when l.source = inp.source then inp.hash else l.hash end
  from pointsman.ledger l where l.scope = {scope} and l.dedup = inp.dedup
  limit 1) l on true
left join lateral (
  select inp.hash from pointsman.held h where inp.recheck and h.project = $1 and h.key = {key} and h.source = inp.source
  union all
  select case when h.source = inp.source then inp.hash else h.hash end from pointsman.held h where h.project = $1 and h.key = {key} and h.dedup = inp.dedup
  limit 1) h on true
order by inp.ord`

// departedScope of an id: an instance may be gone while its ledger is kept.
const departedScope = `coalesce(e.scope, (select d.scope from pointsman.departed d where d.instance_id = inp.target and (d.project = $1 or $1 = '')))`

// Hold keeps signals for keys of the project that nobody has. It runs after [Store.Nobody] in the same transaction. One that
// comes twice in the batch is kept once.
func (s *Store) Hold(ctx context.Context, project string, hs []Hold) error {
	if len(hs) == 0 {
		return nil
	}
	sigs := make([]Signal, len(hs))
	lengths, originals, bodies := make([]int64, len(hs)), make([]*string, len(hs)), make([][]byte, len(hs))
	for i, h := range hs {
		sigs[i], lengths[i], bodies[i] = h.Signal, h.For.Microseconds(), h.Body
		if h.Original != nil {
			text, err := json.Marshal(h.Original)
			if err != nil {
				return err
			}
			originals[i] = optional(string(text))
		}
	}
	a := newSignalArrays(sigs, nil)
	args := append(a.args(project, false)[:11], lengths, originals, bodies)
	return s.each(ctx, "hold", s.text.hold, nil, args...)
}

// holdText ($1 to $11 as deliver; $12 microseconds, $13 messages, $14 bodies).
const holdText = `
insert /* hold */ into pointsman.held (project, key, kind, name, payload, dedup_key, dedup, hash, source, traceparent, sent_by, expires_at, message, body)
select $1, t.key, t.kind, t.name, t.payload::jsonb, t.dedup_key, t.dedup, t.hash, t.source, t.traceparent, t.sent_by, now() + t.us * interval '1 microsecond', t.message, t.body
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::bytea[])
  with ordinality t(key, kind, name, payload, dedup_key, dedup, hash, source, traceparent, sent_by, us, message, body, ord)
order by t.ord
on conflict (project, key, dedup) do nothing`
