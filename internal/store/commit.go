package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/flaw"
)

// Kinds of outcome. OutcomeRelease gives an instance back as it was picked.
const (
	OutcomeNext    = "next"
	OutcomeReplay  = "replay"
	OutcomeAwait   = "await"
	OutcomeDone    = "done"
	OutcomeStop    = "stop"
	OutcomeRelease = "release"
)

// Outcome is what the step of a picked instance came to, with what is to commit with it.
type Outcome struct {
	// As picked.
	ID       uuid.UUID
	Project  string
	Rev      int32
	Token    uuid.UUID
	Timed    bool
	ParentID uuid.UUID // to whom its end is told
	// Notifies as picked; without it the end of an instance with a URL to be told it is not told.
	Notifies bool
	// Keys as picked; none of both costs nothing.
	PartitionKey string
	UniqueScope  int16

	Kind     string
	Step     string         // "": unchanged
	State    []byte         // nil: unchanged
	Awaits   []string       // tags
	AwaitN   int16          // of their names have to be there; 0 is 1
	Where    []byte         // name -> SQL/JSON path that the payload has to pass
	Delay    *time.Duration // of a replay; the deadline of an await
	Progress bool           // attempt starts at 0 again
	Consumed []int64
	Handed   []string // tags that the step was handed up to HandedTo and that do not wake it again
	HandedTo int64
	Result   []byte
	Reason   string // of a stop; the error that a replay is for
	Ran      string // the step, for the history; "": no history
	Attempt  int    // of that execution
	Ahead    *Work  // of a next: the instance as it is after it, for the worker to go on with; nil: it is picked again

	Events  []Event
	Publish []Publish
	Signals []Signal
	Starts  []NewInstance

	Waits []NewTrigger // of an await, for the keys that it names
	Emits []EventSend
}

// Event is a value that an instance publishes.
type Event struct {
	Key   string
	Value []byte
}

// Publish is a message that an instance publishes.
type Publish struct {
	Subject string
	Headers map[string][]string
	Body    []byte
}

// outcomeArrays are outcomes as the columns of commitText.
type outcomeArrays struct {
	tokens, ids                         []uuid.UUID
	revs                                []int32
	kinds                               []string
	steps, reasons, ran                 optionals
	states, results, wheres             [][]byte // without a value: null
	awaits, handed, consumed            []string
	awaitNs                             []int16
	delays                              []*int64
	progress                            []bool
	attempts                            []int32
	handedTo                            []int64
	ahead, looks                        []bool
	goOn                                []*Work
	ended, parked, timed                []uuid.UUID
	joining                             []uuid.UUID // of the parked: who awaits children
	starting                            []uuid.UUID // who starts children
	timedRevs                           []int32
	evIDs, pubIDs                       []uuid.UUID
	evRevs, pubRevs                     []int32
	evKeys, evValues                    []string
	pubProjects, pubMsgIDs, pubSubjects []string
	pubHeaders                          []*string
	pubBodies                           [][]byte
	held                                []heldKey
	notifies                            bool // one of those that end
}

func newOutcomeArrays(os []Outcome) (*outcomeArrays, error) {
	a := &outcomeArrays{}
	for i := range os {
		o := &os[i]
		a.tokens, a.ids, a.revs, a.kinds = append(a.tokens, o.Token), append(a.ids, o.ID), append(a.revs, o.Rev), append(a.kinds, o.Kind)
		a.steps, a.reasons, a.ran = append(a.steps, o.Step), append(a.reasons, o.Reason), append(a.ran, o.Ran)
		a.states, a.results, a.wheres = append(a.states, orNull(o.State)), append(a.results, orNull(o.Result)), append(a.wheres, orNull(o.Where))
		a.awaits, a.handed, a.consumed = append(a.awaits, textArray(o.Awaits)), append(a.handed, textArray(o.Handed)), append(a.consumed, intArray(o.Consumed))
		a.awaitNs, a.handedTo = append(a.awaitNs, max(1, o.AwaitN)), append(a.handedTo, o.HandedTo)
		a.delays, a.progress = append(a.delays, microseconds(o.Delay)), append(a.progress, o.Progress)
		a.attempts, a.looks = append(a.attempts, int32(o.Attempt)), append(a.looks, o.looks())
		if a.ahead = append(a.ahead, o.Ahead != nil); o.Ahead != nil {
			a.goOn = append(a.goOn, o.Ahead)
		}
		switch o.Kind {
		case OutcomeDone, OutcomeStop:
			a.ended, a.notifies = append(a.ended, o.ID), a.notifies || o.Notifies
		case OutcomeAwait:
			if a.parked = append(a.parked, o.ID); slices.ContainsFunc(o.Awaits, ofChildren) {
				a.joining = append(a.joining, o.ID)
			}
		}
		if slices.ContainsFunc(o.Starts, NewInstance.isChild) {
			a.starting = append(a.starting, o.ID)
		}
		if o.Timed {
			a.timed, a.timedRevs = append(a.timed, o.ID), append(a.timedRevs, o.Rev)
		}
		if o.PartitionKey != "" {
			a.held = append(a.held, heldKey{o.Project, o.PartitionKey, o.Token, o.ID})
		}
		if err := a.addOutputs(o); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// looks: one signal of what this awaits is enough to go on, whichever. A commit that sees it in the inbox, where nobody but this outcome
// takes it away, does not park first: it leaves nothing for the recheck, which is for what that has not seen, and for all other awaits.
func (o *Outcome) looks() bool {
	return o.Kind == OutcomeAwait && o.AwaitN <= 1 && len(o.Where)+len(o.Handed)+len(o.Waits) == 0 && o.UniqueScope == 0 && !slices.ContainsFunc(o.Awaits, ofChildren)
}

func (a *outcomeArrays) addOutputs(o *Outcome) error {
	for _, e := range o.Events {
		a.evIDs, a.evRevs, a.evKeys, a.evValues = append(a.evIDs, o.ID), append(a.evRevs, o.Rev+1), append(a.evKeys, e.Key), append(a.evValues, jsonText(e.Value))
	}
	for i, p := range o.Publish {
		headers, err := headerText(p.Headers)
		if err != nil {
			return err
		}
		body := p.Body
		if body == nil {
			body = []byte{}
		}
		a.pubIDs, a.pubRevs, a.pubProjects, a.pubSubjects = append(a.pubIDs, o.ID), append(a.pubRevs, o.Rev+1), append(a.pubProjects, o.Project), append(a.pubSubjects, p.Subject)
		a.pubMsgIDs = append(a.pubMsgIDs, fmt.Sprintf("%s:%d:%d", o.ID, o.Rev+1, i))
		a.pubHeaders, a.pubBodies = append(a.pubHeaders, headers), append(a.pubBodies, body)
	}
	return nil
}

func orNull(document []byte) []byte {
	if len(document) == 0 {
		return nil
	}
	return document
}

func headerText(h map[string][]string) (*string, error) {
	if len(h) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(h)
	return optional(string(text)), err
}

func microseconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	us := d.Microseconds()
	return &us
}

// textArray and intArray write arrays as text: an array of arrays of different lengths is no array to Postgres.
func textArray(items []string) string {
	if len(items) == 0 {
		return "{}"
	}
	var b strings.Builder
	for i, item := range items {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteByte('"')
		b.WriteString(arrayEscape.Replace(item))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var arrayEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func intArray(items []int64) string {
	b := []byte{'{'}
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, item, 10)
	}
	return string(append(b, '}'))
}

// Group says how outcomes are committed together.
type Group struct {
	Last    []uuid.UUID // leases of which nothing is left after it
	Publish []string    // terminal statuses that are published
	// MaxTriggers is how many triggers of a project may wait; 0: any number.
	MaxTriggers int
	Ahead       Lease // for those of the outcomes that have an Ahead
}

// Lease is one that a worker takes.
type Lease struct {
	Token  uuid.UUID
	Worker string
	Length time.Duration
}

// Settled says what a commit came to.
type Settled struct {
	Passed map[uuid.UUID]int32 // the instances whose outcome counted, with the rev it was picked at
	Woken  []string            // queues that have more to do for it
	Ahead  []*Work             // leased again at once, with their inboxes
	// Refused are the outcomes that await an event they cannot wait for. They are as if they had not been in the group: it is for the
	// machine to say what comes of it.
	Refused map[uuid.UUID]MadeTrigger
	Made    []NewTrigger
	Ended   []EndedTrigger
}

// Commit settles outcomes, of any of this worker's leases, as one transaction. An outcome whose lease is gone or whose rev has
// moved changes nothing, and is not in Passed.
//
// Without effects on other instances, ends that a parent is told, and moves into or out of the scope of a unique key, this is one round trip.
func (s *Store) Commit(ctx context.Context, os []Outcome, g Group) (*Settled, error) {
	a, err := newOutcomeArrays(os)
	if err != nil {
		return nil, err
	}
	settled := &Settled{Passed: make(map[uuid.UUID]int32, len(os))}
	if slices.ContainsFunc(os, func(o Outcome) bool {
		return len(o.Signals)+len(o.Starts)+len(o.Waits)+len(o.Emits) > 0 || o.tells() || o.moves()
	}) {
		err = s.commitEffects(ctx, os, a, g, settled)
	} else {
		// Its own are locked by their update, which takes them in their order.
		err = s.together(ctx, append([]statement{s.commit(a, nil, g, settled)}, s.settle(a, settled)...)...)
	}
	if err != nil {
		return settled, err
	}
	for _, w := range settled.Ahead {
		s.trimInbox(ctx, w)
	}
	return settled, nil
}

// Counted reports whether this outcome counted; one of the same instance may have, of another time it was picked.
func (settled *Settled) Counted(o *Outcome) bool {
	rev, ok := settled.Passed[o.ID]
	return ok && rev == o.Rev
}

// commit is the first statement of the transaction. all are the instances that it may touch, where these are more than its own.
func (s *Store) commit(a *outcomeArrays, all []uuid.UUID, g Group, settled *Settled) statement {
	sql := s.text.commit
	args := []any{
		a.tokens, a.ids, a.revs, a.kinds, a.steps, a.states, a.awaits, a.awaitNs, a.delays, a.progress, a.consumed, a.handed, a.handedTo,
		a.results, a.reasons, a.ran, append([]uuid.UUID{}, all...), g.Last, g.Publish, a.attempts, a.ahead, g.Ahead.Token, g.Ahead.Worker, g.Ahead.Length, a.wheres, a.looks,
	}
	if len(a.evIDs)+len(a.pubIDs) > 0 || a.notifies {
		if sql = s.text.commitOutputs; a.notifies {
			sql = s.text.commitNotify
		}
		args = append(args, a.evIDs, a.evRevs, a.evKeys, a.evValues, a.pubIDs, a.pubProjects, a.pubMsgIDs, a.pubSubjects, a.pubHeaders, a.pubBodies, a.pubRevs)
	}
	var row struct {
		id    id
		rev   number
		queue text
		ahead bool
	}
	into := []any{&row.id, &row.rev, &row.queue, &row.ahead}
	return statement{"commit outcomes", sql, args, func(r pgx.Rows) error {
		err := r.Scan(into...)
		id, rev := uuid.UUID(row.id), int32(row.rev)
		settled.Passed[id] = rev
		settled.wake(string(row.queue))
		if row.ahead {
			at := slices.IndexFunc(a.goOn, func(w *Work) bool { return w.ID == id && w.Rev == rev+1 })
			w := *a.goOn[at] // its own: this transaction may fail yet, and the outcome come again
			w.Token = g.Ahead.Token
			settled.Ahead = append(settled.Ahead, &w)
		}
		return err
	}}
}

// settle are the later statements: what depends on the inboxes needs a snapshot that is younger than the locks. Keys are given back also
// of outcomes that did not pass: nobody else would.
func (s *Store) settle(a *outcomeArrays, settled *Settled) (sts []statement) {
	if len(a.ended) > 0 {
		sts = append(sts, s.clearEnded(a.ended, &settled.Ended))
	}
	if len(a.parked) > 0 && !flaw.Is(flaw.NoRecheck) {
		sts = append(sts, statement{"recheck", s.text.recheck, []any{a.parked, append([]uuid.UUID{}, a.starting...), append([]uuid.UUID{}, a.joining...)}, func(r pgx.Rows) error {
			var id uuid.UUID
			var queue string
			var moved bool // as its outcome said
			err := r.Scan(&id, &queue, &moved)
			settled.wake(queue)
			return err
		}})
	}
	if len(a.timed) > 0 {
		sts = append(sts, statement{"drop timers", s.text.dropTimers, []any{a.timed, a.timedRevs}, nil})
	}
	if len(a.goOn) > 0 {
		sts = append(sts, s.inboxAhead(a.goOn, settled))
	}
	return append(sts, s.release(a.held, settled.wake)...)
}

// clearEnded also cancels the triggers of the instances.
func (s *Store) clearEnded(instances []uuid.UUID, triggers *[]EndedTrigger) statement {
	return statement{"clear ended", s.text.clearEnded, []any{instances}, func(r pgx.Rows) error {
		e, err := endedWith(r)
		*triggers = append(*triggers, e)
		return err
	}}
}

// commitText (arrays: $1 tokens, $2 ids, $3 revs, $4 kinds, $5 steps, $6 states, $7 awaits, $8 how many, $9 delays in
// microseconds, $10 progress, $11 consumed, $12 handed, $13 handed to, $14 results, $15 reasons, $16 steps that ran; $17 all instances
// to lock, where there are others than its own, $18 leases to drop, $19 statuses to publish; $20 attempts, $21 who goes on, $22 to $24 their lease: token, worker, length; $25 conditions, $26 who looks, [Outcome.looks]) locks the leases, then every instance it touches in one ascending order, then
// updates its own where the rev still stands. Where these are all, the update alone locks them, in the order of o, which is that of the ids.
// Those that it finds at another rev are not locked then. Only errors and lost leases count towards max_attempts: not a replay that the step asked
// for, and nothing from before an await. The counts make the locks come first; a join of arrays instead would be planned as
// a nested loop.
const commitText = `
with /* commit */ l as materialized (
  select token from pointsman.leases where token = any($1::uuid[] || $18::uuid[]) order by token for no key update
), o as materialized (
  select t.*, looks and (
    select s.id from (select * from pointsman.signals s where s.instance_id = t.id order by s.instance_id, s.id limit 8) s
    where ` + tag + ` = any(t.awaits::text[]) and s.id <> all(t.consumed::bigint[]) limit 1) is not null as met
  from unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::smallint[], $9::bigint[], $10::boolean[], $11::text[],
    $12::text[], $13::bigint[], $14::text[], $15::text[], $16::text[], $20::int[], $21::boolean[], $25::text[], $26::boolean[])
    t(token, id, rev, kind, step, state, awaits, n, delay, progress, consumed, handed, handed_to, result, reason, ran, ran_attempt, ahead, await_where, looks) order by id
), lk as materialized (
  select i.id from pointsman.instances i where i.id = any($17) and (select count(*) from l) > 0 order by i.id for no key update
), u as (
  update pointsman.instances i set
    rev = i.rev + 1, visit = i.visit + (o.kind in ('next', 'await'))::int,
    attempt = case when o.progress then 0 when o.kind = 'replay' then i.attempt + 1 else i.attempt end,
    uncounted = case when o.progress then 0 when o.kind = 'await' then i.attempt when o.kind = 'replay' and o.reason is null then i.uncounted + 1 else i.uncounted end,
    step = coalesce(o.step, i.step), state = coalesce(o.state::jsonb, i.state),
    awaits = case o.kind when 'await' then o.awaits::text[] when 'next' then '{}' else i.awaits end,
    await_n = case o.kind when 'await' then o.n else i.await_n end,
    await_where = case o.kind when 'await' then o.await_where::jsonb when 'next' then null else i.await_where end,
    handed_where = case when o.kind = 'await' and o.handed <> '{}' then i.await_where when o.kind in ('await', 'next') then null else i.handed_where end,
    handed = case o.kind when 'await' then o.handed::text[] when 'next' then '{}' else i.handed end,
    handed_to = case o.kind when 'await' then o.handed_to else i.handed_to end,
    parked = o.kind = 'await' and (i.paused or not o.met), delayed = o.kind = 'replay' and o.delay is not null, due_at = now() + o.delay * interval '1 microsecond',
    timed_out = case when o.kind in ('replay', 'release', 'stop') then i.timed_out else false end,
    wait_canceled = case when o.kind in ('replay', 'release', 'stop') then i.wait_canceled else false end,
    live = o.kind not in ('done', 'stop'), status = case o.kind when 'done' then 'done' when 'stop' then 'failed' end,
    result = case o.kind when 'done' then coalesce(o.result, 'null')::jsonb end,
    last_error = case when o.kind in ('replay', 'stop') then coalesce(o.reason, i.last_error) when o.progress or o.kind = 'done' then null else i.last_error end,
    finished_at = case when o.kind in ('done', 'stop') then now() end, updated_at = now()
  from o where i.id = o.id and i.rev = o.rev and ` + alive + ` and (o.token in (select token from l)) is true and (select count(*) from lk) >= 0
  returning i.id, i.rev, i.queue, i.priority, i.due_at, i.project, i.machine, i.version, i.correlation_key, i.status, i.result, i.last_error,
    i.finished_at, i.reply_to, i.traceparent, o.kind, o.consumed::bigint[] as consumed, o.ran, o.ran_attempt,
    (o.kind in ('next', 'release') or (o.kind = 'replay' and o.delay is null) or (o.kind = 'await' and not i.parked)) and not (o.ahead and not i.paused) as runs, o.ahead and not i.paused as ahead{notified}
), sg as (
  delete from pointsman.signals where ctid = any(array(
    select y.ctid from (select id, unnest(consumed) as sid from u) x
    cross join lateral (select s.ctid from pointsman.signals s where s.instance_id = x.id and s.id = x.sid limit 1) y))
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from u where runs
), tm as (
  insert into pointsman.timers (instance_id, rev, run_at) select id, rev, due_at from u where due_at is not null
), hi as (
  insert into pointsman.history (instance_id, rev, step, outcome, attempt, consumed)
  select id, rev, ran, kind, ran_attempt, nullif(consumed, '{}') from u where ran is not null
), old as (
  delete from pointsman.history where ctid = any(array(
    select h.ctid from (select id, rev from u where rev % ` + historyEvery + ` = 0) x
    cross join lateral (select h.ctid from pointsman.history h where h.instance_id = x.id and h.rev <= x.rev - ` + historyRevs + ` offset 0) h))
), ob as (` + insertOutcomes + `
), dl as (
  delete from pointsman.leases where token = any($18)
), al as (
  insert into pointsman.leases (token, worker, expires_at, ids, revs)
  select $22::uuid, $23::text, now() + $24::interval, array_agg(id), array_agg(rev) from u where ahead having count(*) > 0
){outputs}
select id, rev - 1, case when runs then queue end, ahead from u`

// commitOf is commitText with what else it writes, and what that needs of the instances.
func commitOf(outputs, columns string) string {
	return strings.NewReplacer("{outputs}", outputs, "{notified}", columns).Replace(commitText)
}

// insertOutcomes publishes the ends in u, to the outcome subject and to whom the start named.
const insertOutcomes = `
  insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, headers, body)
  select get_byte(uuid_send(u.id), 15) & 15, t.kind, u.id, u.project, t.subject, u.id || ':' || u.rev,
    case when u.traceparent is not null then json_build_object('traceparent', json_build_array(u.traceparent))::text end,
    convert_to(json_build_object('instance_id', u.id, 'machine', u.machine, 'version', u.version, 'status', u.status, 'correlation_key', u.correlation_key,
      'result', u.result, 'reason', case when u.status <> 'done' then u.last_error end,
      'finished_at', to_char(u.finished_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text, 'UTF8')
  from u cross join lateral (
    select 'outcome', u.machine || '.' || u.status where u.status = any($19)
    union all select 'reply', u.reply_to where u.reply_to is not null) t(kind, subject)
  where u.status is not null`

// commitOutputs ($27 to $30 events: instances, revs, keys, values; $31 to $37 publications: instances, projects, message ids, subjects,
// headers, bodies, revs). They go by rev too: a worker that lost an instance and picked it again may bring two outcomes of it at once.
const commitOutputs = `, ev as (
  insert into pointsman.events (instance_id, key, rev, value)
  select e.id, e.key, e.rev, e.value::jsonb from unnest($27::uuid[], $28::int[], $29::text[], $30::text[]) e(id, rev, key, value)
  where ((e.id, e.rev) in (select id, rev from u)) is true
  on conflict (instance_id, key) do update set value = excluded.value, rev = excluded.rev, updated_at = now()
), pb as (
  insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, headers, body)
  select get_byte(uuid_send(p.id), 15) & 15, 'publish', p.id, p.project, p.subject, p.msg_id, p.headers, p.body
  from unnest($31::uuid[], $32::text[], $33::text[], $34::text[], $35::text[], $36::bytea[], $37::int[]) with ordinality p(id, project, msg_id, subject, headers, body, rev, ord)
  where ((p.id, p.rev) in (select id, rev from u)) is true order by p.ord
)`

// clearEndedText ($1 ids) sees a delivery that won the row lock first. The inbox of a failed or canceled one is kept in its row for a
// retry, what was awaited before the rest, up to 64 MiB: one value holds no more than a few times that. Not live is said by the status
// here: an index on the ended would be read whole.
const clearEndedText = `
with /* clear ended */ gone as materialized (
  select i.id from pointsman.instances i where i.id = any($1) and i.status is not null
), ` + cancelEnded + `, d as (
  delete from pointsman.signals s using pointsman.instances i where i.id = any($1) and i.status is not null and s.instance_id = i.id
  returning s.*, ` + tag + ` = any(i.awaits) as awaited, i.status <> 'done' as keep
), sized as (
  select *, sum(octet_length(payload::text)) over (partition by instance_id order by awaited desc, id) as upto from d where keep
), k as (
  select instance_id, jsonb_agg(to_jsonb(z) - array['instance_id', 'awaited', 'keep', 'upto'] order by id) as signals
  from sized z where upto <= 64 << 20 group by instance_id
), kp as (
  update pointsman.instances i set kept = k.signals from k where i.id = k.instance_id
)
select id, project, source_type from tr`

// dropTimersText ($1 ids, $2 revs as picked): the timer of the await that this step came from, which a lost lease may have left some
// revs behind. Without it a machine that parks often under a long deadline leaves a row a visit until then. Somebody else may be at the timers
// of an instance that is not locked: what is locked is left to the sweep, for which it is stale.
const dropTimersText = `
delete /* drop timers */ from pointsman.timers where ctid = any(array(
  select t.ctid from unnest($1::uuid[], $2::int[]) o(id, rev)
  cross join lateral (select t.ctid from pointsman.timers t where t.instance_id = o.id and t.rev <= o.rev for update skip locked) t))`
