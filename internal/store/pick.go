package store

import (
	"context"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// MaxInbox is how many signals of an inbox a step is shown, the oldest first, as far as their payloads have not more than MaxInboxBytes
// together; one at least. Many instances are picked at once, with inboxes that anybody may have filled.
const (
	MaxInbox      = 1000
	MaxInboxBytes = 16 << 20
)

// Work is an instance that was picked: this worker may run its step, until the lease ends.
type Work struct {
	ID             uuid.UUID
	Rev            int32
	Token          uuid.UUID
	Project        string
	Machine        string
	Version        int
	Step           string
	CorrelationKey string
	PartitionKey   string
	UniqueKey      string
	UniqueScope    int16
	Queue          string
	Priority       int16
	Attempt        int
	Uncounted      int
	Visit          int
	TimedOut       bool
	WaitCanceled   bool
	Timed          bool // its await had a deadline, or it was delayed: a timer is left to be dropped
	Notifies       bool // its end is told to a URL
	Awaits         []string
	State          []byte
	LastError      string
	Traceparent    string
	InsertedAt     time.Time
	ParentID       uuid.UUID
	ReadyAt        time.Time // since when it could have been picked
	Inbox          []InboxSignal
	InboxErr       error // why the long inbox could not be read: this instance is to be released
	More           bool  // the inbox holds more than it is shown
	long           bool  // the inbox is more than a pick reads, and to be read by itself
	SeenTo         int64 // ids up to this were in the inbox when it was picked
}

// InboxSignal is one that waits in an inbox.
type InboxSignal struct {
	ID          int64
	Kind        string
	Name        string
	Payload     []byte
	DedupKey    string
	Traceparent string
	InsertedAt  time.Time
	Unmet       bool // the await has a condition for its name, and it does not pass
}

// Tag is what an await names.
func (g InboxSignal) Tag() string {
	if g.Kind == "child" {
		return TagChildren
	}
	return g.Kind + "/" + g.Name
}

// Pick leases ready instances of one lane of a queue, the lowest priority first, then the longest ready: at most n rounded down to
// a power of two ([PickSize]), and fewer only where the lane has no more, or very many that may not run now. Instances of a machine
// version that is not in known ("machine@version") go to the lane of that version, untouched. The lane "" is the queue's own. One that
// lost its last lease gets a lease for itself. Of those with one partition key the first runs, the others wait until it is released.
func (s *Store) Pick(ctx context.Context, queue, lane, worker string, known []string, n int, lease time.Duration) (out []Work, err error) {
	size := PickSize(n)
	for turns := 1; size > 0; turns++ {
		t, err := s.pick(ctx, size, &out, queue, lane, uuid.New(), known, worker, lease)
		if err != nil && len(out) == 0 {
			return nil, err
		}
		// What one statement took may all be stale, or wait for its key, or be of machines that are not known here, with others behind it.
		if err != nil || t.taken < size && !t.again || turns >= maxTurns && (len(out) > 0 || t.again) {
			break
		}
		size = PickSize(PickSize(n) - len(out))
	}
	for i := range out {
		s.trimInbox(ctx, &out[i])
	}
	return out, nil
}

// maxTurns is how many statements one Pick sends before what it has may run.
const maxTurns = 16

// turn is what one statement of Pick came to, beside the work.
type turn struct {
	taken     int  // ready rows, whatever became of them
	keyed     bool // some of them have keys
	again     bool // there are rows in this lane that it put there
	unguarded int  // of those that run
	diverted  int
}

// Diverted is how many instances picks have put into the lanes of machines that were not known to whoever picked.
func (s *Store) Diverted() int64 { return s.shared.diverted.Load() }

// laneName is a lane of a queue.
type laneName struct{ queue, lane string }

// pick is one statement of Pick: the one that can deal with keys only where the last one met some, because it takes its time also where
// there are none. The other one puts what it meets back.
func (s *Store) pick(ctx context.Context, size int, out *[]Work, queue, lane string, args ...any) (turn, error) {
	text, before, name := s.text.pick, len(*out), laneName{queue, lane}
	_, keyed := s.shared.keyed.Load(name)
	if keyed {
		text = s.text.pickKeyed
	}
	sql := strings.Replace(text, "{n}", strconv.Itoa(size), 1)
	row := newWorkRow()
	err := s.together(ctx, statement{"pick", sql, append([]any{queue, lane}, args...), func(r pgx.Rows) error { return row.scan(r, out) }})
	if err != nil {
		*out = (*out)[:before]
		return turn{}, err
	}
	t := row.turn()
	switch {
	case t.keyed && !keyed:
		s.shared.keyed.Store(name, true)
	case keyed && !t.keyed && t.taken > 0:
		s.shared.keyed.Delete(name)
	}
	s.shared.unguarded.Add(int64(t.unguarded))
	s.shared.diverted.Add(int64(t.diverted))
	return t, nil
}

// maxPick is the most that one statement picks.
const maxPick = 256

// PickSize is how many of n a pick is for. It keeps the number of texts of pick, and so of prepared statements, small. The limit is
// a literal: as a parameter under a generic plan it is costed as a tenth of the table.
func PickSize(n int) int {
	if n < 1 {
		return 0
	}
	return 1 << (bits.Len(uint(min(n, maxPick))) - 1)
}

// workRow takes the rows of pickText, one after the other: a signal each, with its instance. Where nothing that was taken may run there
// is one row, with only what became of it.
type workRow struct {
	taken, unguarded, diverted number
	keyed, again               bool

	instance, token, parent                                             id
	rev, version, scope, priority, attempt, uncounted, visit            number
	project, machine, step, key, partition, unique, queue, wrong, trace text
	timedOut, waitCanceled, timed, notifies                             pgtype.Bool
	awaits                                                              []string
	insertedAt, readyAt                                                 pgtype.Timestamptz
	state                                                               []byte

	signal signalRow
	unmet  pgtype.Bool

	into []any
}

// signalRow is what inboxColumns say of a signal.
type signalRow struct {
	id                       number
	kind, name, dedup, trace text
	payload                  []byte
	at                       pgtype.Timestamptz
}

func (g *signalRow) columns() []any {
	return []any{&g.id, &g.kind, &g.name, &g.payload, &g.dedup, &g.trace, &g.at}
}

func (g *signalRow) signal() InboxSignal {
	return InboxSignal{ID: int64(g.id), Kind: string(g.kind), Name: string(g.name), Payload: g.payload, DedupKey: string(g.dedup), Traceparent: string(g.trace), InsertedAt: g.at.Time}
}

func newWorkRow() *workRow {
	w := &workRow{}
	w.into = append([]any{
		&w.taken, &w.keyed, &w.again, &w.unguarded, &w.diverted, &w.instance, &w.rev, &w.token, &w.project, &w.machine, &w.version, &w.step, &w.key, &w.partition, &w.unique, &w.scope,
		&w.queue, &w.priority, &w.attempt, &w.uncounted, &w.visit, &w.timedOut, &w.waitCanceled, &w.timed, &w.notifies, &w.awaits, &w.wrong, &w.trace, &w.insertedAt, &w.parent, &w.readyAt, &w.state,
	}, append(w.signal.columns(), &w.unmet)...)
	return w
}

func (w *workRow) turn() turn {
	return turn{int(w.taken), w.keyed, w.again, int(w.unguarded), int(w.diverted)}
}

func (w *workRow) scan(r pgx.Rows, out *[]Work) error {
	if err := r.Scan(w.into...); err != nil || uuid.UUID(w.instance) == uuid.Nil {
		return err
	}
	if last := len(*out) - 1; last < 0 || (*out)[last].ID != uuid.UUID(w.instance) {
		*out = append(*out, w.work())
	}
	if w.signal.id != 0 {
		g := w.signal.signal()
		g.Unmet = w.unmet.Bool
		(*out)[len(*out)-1].shown(g)
	}
	return nil
}

func (w *workRow) work() Work {
	return Work{
		ID: uuid.UUID(w.instance), Rev: int32(w.rev), Token: uuid.UUID(w.token), Project: string(w.project), Machine: string(w.machine), Version: int(w.version), Step: string(w.step),
		CorrelationKey: string(w.key), PartitionKey: string(w.partition), UniqueKey: string(w.unique), UniqueScope: int16(w.scope),
		Queue: string(w.queue), Priority: int16(w.priority), Attempt: int(w.attempt), Uncounted: int(w.uncounted), Visit: int(w.visit),
		TimedOut: w.timedOut.Bool, WaitCanceled: w.waitCanceled.Bool, Timed: w.timed.Bool, Notifies: w.notifies.Bool, Awaits: w.awaits,
		LastError: string(w.wrong), Traceparent: string(w.trace), InsertedAt: w.insertedAt.Time, ParentID: uuid.UUID(w.parent), ReadyAt: w.readyAt.Time, State: w.state,
	}
}

// shown adds the next signal of the inbox.
func (w *Work) shown(g InboxSignal) {
	w.Inbox, w.SeenTo, w.long = append(w.Inbox, g), g.ID, w.long || g.Payload == nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// trimInbox loads what a step is shown of an inbox that is longer.
func (s *Store) trimInbox(ctx context.Context, w *Work) {
	if w.long || len(w.Inbox) > MaxInbox {
		w.InboxErr = s.loadLongInbox(ctx, w)
	}
}

// loadLongInbox gives a step whose inbox is longer than a pick reads the oldest signals that it awaited before the oldest others.
func (s *Store) loadLongInbox(ctx context.Context, w *Work) error {
	w.Inbox = w.Inbox[:0]
	return s.together(ctx, statement{"long inbox", s.text.longInbox, []any{w.ID, w.Awaits, MaxInboxBytes}, func(r pgx.Rows) error {
		var g InboxSignal
		var dedup, trace *string
		err := r.Scan(&g.ID, &g.Kind, &g.Name, &g.Payload, &dedup, &trace, &g.InsertedAt, &g.Unmet, &w.SeenTo, &w.More)
		g.DedupKey, g.Traceparent = value(dedup), value(trace)
		w.Inbox = append(w.Inbox, g)
		return err
	}})
}

// pickText ($1 queue, $2 lane, $3 token, $4 known, $5 worker, $6 length of the lease) locks no instance: a ready row is never
// updated, so one that can be locked says that its instance is still at its rev, or is stale. A solo row's lease has a token of
// its own. The state comes with the first signal only. Where nothing may run, one row says what became of what was taken.
var pickText = `
with {recursive}/* pick */ r as materialized (
  delete from pointsman.ready where ctid = any(array(
    select ctid from pointsman.ready where queue = $1 and lane = $2 order by priority, run_at limit {n} for update skip locked))
  returning *
), c as materialized (
  select r.queue, r.lane, r.priority, r.run_at, r.instance_id, r.rev, r.solo, i.machine || '@' || i.version as kind,
    case when i.id is null or i.rev <> r.rev or not i.live or i.paused or i.parked then 'stale'
      when i.machine || '@' || i.version <> all($4::text[]) then 'divert'
      when i.partition_key is not null or ` + pickMoves + ` then 'keyed' else 'run' end as fate,
    case when r.solo then md5($3::uuid::text || r.instance_id)::uuid else $3::uuid end as token,
    coalesce(i.project, r.project) as project, i.machine, i.version, i.step, i.correlation_key, coalesce(i.partition_key, r.key) as partition_key, i.unique_key, i.unique_scope, i.attempt, i.uncounted, i.visit, i.timed_out, i.wait_canceled,
    i.due_at, i.notify_url is not null as notifies, i.awaits, i.await_where, i.last_error, i.traceparent, i.inserted_at, i.parent_id, i.state
  from r left join pointsman.instances i on i.id = r.instance_id
), {keys}, l as (
  insert into pointsman.leases (token, worker, expires_at, ids, revs, alone)
  select token, $5, now() + $6::interval, array_agg(instance_id), array_agg(rev), $2 like '~%' from c where {runs} group by token
)
select t.*, c.instance_id, c.rev, c.token, c.project, c.machine, c.version, c.step, c.correlation_key, c.partition_key, c.unique_key, c.unique_scope,
  c.queue, c.priority, c.attempt, c.uncounted, c.visit, c.timed_out, c.wait_canceled, c.due_at is not null, c.notifies, c.awaits, c.last_error, c.traceparent, c.inserted_at, c.parent_id, c.run_at,
  case when coalesce(s.n = 1, true) then c.state end, ` + inboxColumns + `, case when c.await_where is not null then not ` + passes("c.await_where") + ` end
from (select count(*)::int, coalesce(bool_or({keyed}), false), {turn}, count(*) filter (where fate = 'divert')::int from c) t(taken, keyed, again, unguarded, diverted)
left join c on {runs} left join lateral (
` + inboxOfC + `) s on ` + inboxBound

// What is read of an inbox at first, of instance_id in c: up to 1 MiB. A payload that comes as null says that there is more. What is
// compressed may be up to 255 times its size.
const (
	inboxColumns = `s.id, s.kind, s.name, case when s.n = 1 or s.upto <= 1048576 then s.payload end, s.dedup_key, s.traceparent, s.inserted_at`
	inboxBound   = `(s.n <= 2 or s.upto - s.size <= 1048576)`
	inboxOfC     = `
  select s.*, row_number() over inbox as n, sum(size) over inbox as upto
  from (select y.*, pg_column_size(payload) * case when pg_column_compression(payload) is null then 1 else 255 end as size from pointsman.signals y where y.instance_id = c.instance_id) s
  window inbox as (order by s.id rows unbounded preceding) order by s.id limit 1001`
)

// AloneLane begins the lanes of what has lost a lease of its own while its worker had others: whoever of these killed the worker is found
// out by picking one at a time.
const AloneLane = "~"

// divertedLane is where a worker puts what it does not know, to be picked as before.
const divertedLane = `case when lane like '~%' then '~' else '' end || kind`

// pickMoves: a pick brings the row into the scope of its unique key, or out of it.
const pickMoves = `(i.unique_scope & 3) in (1, 2)`

// pickMet: the row has to do with keys.
const pickMet = `(fate = 'keyed' or partition_key is not null)`

// pickPlain puts what has keys back, for pickKeyed.
var pickPlain = strings.NewReplacer("{recursive}", "", "{keyed}", pickMet, "{runs}", "c.fate = 'run'",
	"{turn}", "coalesce(bool_or("+pickMet+"), false), 0", "{keys}", `elsewhere as (
  insert into pointsman.ready (queue, lane, priority, run_at, instance_id, rev, solo, project, key)
  select queue, case when fate = 'divert' and partition_key is null then `+divertedLane+` else lane end, priority, run_at, instance_id, rev, solo,
    case when partition_key is not null then project end, partition_key
  from c where fate = 'divert' or `+pickMet+`
)`)

// pickKeyed wins partition keys, in their order. Who loses one locks the row of its holder: the release that follows sees it waiting. If
// the holder is gone, or is not to be seen yet, the loser goes back to ready. A row with a key that leaves ready without winning it
// (stale, diverted) may have been the one to have the next turn, which is then somebody else's: of this pick none wins its key, for who waits
// may have been ready for longer. The next one sees them all.
//
// It locks only instances whose unique scope tells runnable from executing, and of these what can be had at once. Unique keys come after
// partition keys, as in a commit. The row that a resume left stale may be taken together with the one that it made: only this one runs.
var pickKeyed = strings.NewReplacer("{recursive}", "recursive ", "{keyed}", pickMet,
	"{runs}", "(c.fate = 'run' or c.fate = 'keyed' and c.instance_id in (select instance_id from may))",
	"{turn}", `exists (select from back union all select from promoted where queue = $1 and lane = $2),
  ((select count(*) from moved where enters) - (select count(*) from has))::int`, "{keys}", `keyed as materialized (
  select queue, lane, priority, run_at, instance_id, rev, solo, token, project, partition_key, unique_key, unique_scope, `+pickMoves+` as moves
  from c i where fate = 'keyed'
), mine as materialized (
  select i.id from keyed k join pointsman.instances i on i.id = k.instance_id where k.moves and i.rev = k.rev order by i.id for no key update of i skip locked
), able as materialized (
  select * from keyed where not moves or instance_id in (select id from mine)
), freed as materialized (
  select distinct project, partition_key as key from c where fate in ('stale', 'divert') and partition_key is not null
), won as (
  insert into pointsman.running_keys (project, key, instance_id, rev, token)
  select distinct on (project, partition_key) project, partition_key, instance_id, rev, token from able
  where partition_key is not null and ((project, partition_key) in (select project, key from freed)) is not true order by project, partition_key, priority, run_at
  on conflict do nothing returning project, key, instance_id
), lost as materialized (
  select * from able where partition_key is not null and instance_id not in (select instance_id from won)
), stands as materialized (
  select k.project, k.key from (select distinct project, partition_key as key from lost order by project, key) l
  cross join lateral (select k.project, k.key from pointsman.running_keys k where k.project = l.project and k.key = l.key for key share) k
), waits as (
  insert into pointsman.waiters (project, key, queue, lane, priority, run_at, instance_id, rev, solo)
  select project, partition_key, queue, lane, priority, run_at, instance_id, rev, solo from lost
  where (project, partition_key) in (select project, key from stands union all select project, key from won)
  returning instance_id
), back as (
  insert into pointsman.ready (queue, lane, priority, run_at, instance_id, rev, solo, project, key)
  select queue, lane, priority, run_at, instance_id, rev, solo, case when partition_key is not null then project end, partition_key from keyed
  where instance_id not in (select instance_id from able) or instance_id in (select instance_id from lost) and instance_id not in (select instance_id from waits)
  returning lane
), divert as (
  insert into pointsman.ready (queue, lane, priority, run_at, instance_id, rev, solo)
  select queue, `+divertedLane+`, priority, run_at, instance_id, rev, solo from c where fate = 'divert'
), `+promotion+`, may as materialized (
  select instance_id, project, unique_key, unique_scope, moves from able where partition_key is null or instance_id in (select instance_id from won)
), moved as materialized (
  select instance_id as id, project, unique_key, unique_scope & 3 = 1 as leaves, unique_scope & 3 = 2 as enters, 0 as ord
  from may where moves and (select count(*) from stands) >= 0
), `+uniqueMoves)

// longInboxText ($1 instance, $2 awaited tags, $3 most bytes) goes from signal to signal, so that it looks at no payload that it does not
// return but the last ones. What is awaited and what is not have a count of their own; the bytes they share.
var longInboxText = `
with recursive /* long inbox */ w as materialized (
  select i.await_where from pointsman.instances i where i.id = $1
), awaited as (
  (select s.id, 1 as n, octet_length(s.payload::text)::bigint as upto from pointsman.signals s where s.instance_id = $1 and ` + awaitedOfLong + ` order by s.id limit 1)
  union all
  select s.id, a.n + 1, a.upto + s.size from awaited a cross join lateral (
    select s.id, octet_length(s.payload::text) as size from pointsman.signals s
    where s.instance_id = $1 and s.id > a.id and ` + awaitedOfLong + ` order by s.id limit 1) s
  where a.n < 1000 and a.upto + s.size <= $3
), others as (
  (select 0::bigint as id, 0 as n, coalesce((select max(upto) from awaited), 0) as upto)
  union all
  select s.id, o.n + 1, o.upto + s.size from others o cross join lateral (
    select s.id, octet_length(s.payload::text) as size from pointsman.signals s
    where s.instance_id = $1 and s.id > o.id and not ` + awaitedOfLong + ` order by s.id limit 1) s
  where o.n < 1000 and (o.upto + s.size <= $3 or o.upto = 0)
), shown as materialized (
  select id from awaited union all select id from others where n > 0
)
select s.id, s.kind, s.name, s.payload, s.dedup_key, s.traceparent, s.inserted_at, ` + tag + ` = any($2::text[]) and not ` + passesOfLong + `, (select max(id) from pointsman.signals where instance_id = $1),
  (select count(*) from shown) > 1000 or exists (select from pointsman.signals x where x.instance_id = $1 and x.id not in (select id from shown))
from shown cross join lateral (select s.* from pointsman.signals s where s.instance_id = $1 and s.id = shown.id) s order by s.id`

// What is awaited by the instance of longInboxText, whose condition is in w.
var (
	passesOfLong  = passes("(select await_where from w)")
	awaitedOfLong = `(` + tag + ` = any($2::text[]) and ` + passesOfLong + `)`
)
