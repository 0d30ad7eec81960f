package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// TriggerEnd ends a waiting trigger.
type TriggerEnd struct {
	ID         uuid.UUID
	InstanceID uuid.UUID // of the trigger; Nil: it has none
	Status     string
	Payload    []byte // of a received one; nil: of a sleep that is over
	SentBy     string
	Error      string
	Scope      uuid.UUID     // of the key, with a Message
	Message    *EventMessage // that the event came by; nil: none
}

// EventMessage is what the ledger keeps of the message that an event came by, in the scope of the event key.
type EventMessage struct {
	Dedup, Hash uuid.UUID
	Source      *uuid.UUID
	Recheck     bool // Source may be in the ledger under another dedup
}

// EndedTrigger is a trigger that has ended.
type EndedTrigger struct {
	ID       uuid.UUID
	Project  string
	Source   string
	Status   string
	SignalID int64    // of the event in the inbox; 0: no instance
	Queues   []string // that have more to do for it
	Notifies bool     // a webhook is due
}

// EndTriggers ends those of the triggers that still wait: whichever of an event, a timeout and a cancel locks a trigger first decides it.
// An event goes into the inbox of the instance, and its webhook into the deliveries; the other ends wake the instance if it is parked on
// the key. A busy instance is told when it parks on the key again. It runs in a transaction ([Store.InScopes]), and returns those that it ended.
func (s *Store) EndTriggers(ctx context.Context, ends []TriggerEnd) ([]EndedTrigger, error) {
	return s.endTriggers(ctx, s.text.endTriggers, ends)
}

func (s *Store) endTriggers(ctx context.Context, sql string, ends []TriggerEnd) (ended []EndedTrigger, err error) {
	if len(ends) == 0 {
		return nil, nil
	}
	a := newEndArrays(ends)
	var delivered []uuid.UUID
	at := map[uuid.UUID]int{} // of the last ended of each instance
	err = s.each(ctx, "end triggers", sql, func(r pgx.Rows) error {
		var e EndedTrigger
		var instance *uuid.UUID
		var signal *int64
		var queue *string
		var moved bool
		if err := r.Scan(&e.ID, &e.Project, &e.Source, &e.Status, &instance, &signal, &queue, &moved, &e.Notifies); err != nil {
			return err
		}
		if queue != nil {
			e.Queues = []string{*queue}
		}
		if moved {
			s.moved = append(s.moved, *instance)
		}
		if signal != nil {
			e.SignalID = *signal
			delivered = append(delivered, *instance)
			at[*instance] = len(ended)
		}
		ended = append(ended, e)
		return nil
	}, a.args()...)
	if err != nil || len(delivered) == 0 {
		return ended, err
	}
	woken, err := s.Recheck(ctx, delivered)
	for id, queue := range woken {
		e := &ended[at[id]]
		e.Queues = append(e.Queues, queue)
	}
	return ended, err
}

// endArrays are ends as columns.
type endArrays struct {
	ids                             []uuid.UUID
	instances                       []*uuid.UUID
	statuses, payloads              []string
	at                              []*int64 // of payloads, from 1
	sentBy, errors                  []*string
	scopes, dedups, hashes, sources []*uuid.UUID
}

// newEndArrays sends a payload once, however many triggers it is for.
func newEndArrays(ends []TriggerEnd) *endArrays {
	a := &endArrays{payloads: []string{}}
	var last []byte
	for i := range ends {
		e := &ends[i]
		var at *int64
		if e.Payload != nil {
			if !samePlace(last, e.Payload) {
				a.payloads, last = append(a.payloads, jsonText(e.Payload)), e.Payload
			}
			n := int64(len(a.payloads))
			at = &n
		}
		a.ids, a.instances, a.statuses = append(a.ids, e.ID), append(a.instances, optionalID(e.InstanceID)), append(a.statuses, e.Status)
		a.at, a.sentBy, a.errors = append(a.at, at), append(a.sentBy, optional(e.SentBy)), append(a.errors, optional(e.Error))
		var scope, dedup, hash, source *uuid.UUID
		if m := e.Message; m != nil {
			scope, dedup, hash, source = &e.Scope, &m.Dedup, &m.Hash, m.Source
		}
		a.scopes, a.dedups, a.hashes, a.sources = append(a.scopes, scope), append(a.dedups, dedup), append(a.hashes, hash), append(a.sources, source)
	}
	return a
}

// samePlace says whether both are one place in memory.
func samePlace(a, b []byte) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

func (a *endArrays) args() []any {
	return []any{a.ids, a.instances, a.statuses, a.at, a.sentBy, a.errors, a.payloads, a.scopes, a.dedups, a.hashes, a.sources}
}

// endTriggersText (arrays: $1 ids, $2 instances, $3 statuses, $4 which payload, $5 who sent it, $6 errors, $7 payloads; of
// the message $8 scopes, $9 dedups, $10 hashes, $11 sources) locks the instances, then the triggers that still wait: both locks stand in
// for what is read under them (a full join is never planned as a nested loop; each instance is of one of the triggers). A busy instance, or a paused one, is told at its next park of the same visit: missed_visit. A sweep
// takes what nobody has locked.
var endTriggersText = `
with /* end triggers */ inp as materialized (
  select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $8::uuid[], $9::uuid[], $10::uuid[], $11::uuid[])
    t(id, instance_id, status, p, sent_by, error, scope, dedup, hash, source)
), li as materialized (
  select i.id, i.live, i.visit, i.parked and not i.paused as sleeps, i.awaits from pointsman.instances i
  where i.id = any($2) order by i.id for no key update{skip}
), lt as materialized (
  select t.id from pointsman.triggers t where t.id = any($1) and ` + waits + ` and (select count(*) from li) >= 0{own}
  order by t.id for no key update{skip}
), u as (
  update pointsman.triggers t set status = x.status, ended_at = clock_timestamp(), received_at = case when x.status = 'received' then clock_timestamp() end,
    response_payload = ($7::text[])[x.p]::jsonb, sent_by = coalesce(x.sent_by, t.sent_by), error = x.error, ledger = x.scope,
    notify_status = case when x.status = 'received' and t.notify_url is not null then 'pending' end,
    missed_visit = case when x.status <> 'received' and x.live and not x.sleeps and 'event/' || t.event_key = any(x.awaits) then x.visit end
  from (select inp.*, li.live, li.visit, li.sleeps, li.awaits from inp full join li on li.id = inp.instance_id offset 0) x
  where t.id = any(array(select id from lt)) and t.id = x.id
  returning t.*, x.live, x.sleeps, x.awaits, x.scope, x.dedup, x.hash, x.source
), e as materialized (
  select case when status = 'received' and live then nextval('pointsman.signal_ids') end as sid, u.* from (
    select id, project, source_type, status, live, instance_id, event_key, sent_by, response_payload, notify_status from u order by id) u
), sig as (
  insert into pointsman.signals (instance_id, id, kind, name, payload, dedup_key, sent_by)
  select instance_id, sid, 'event', event_key, coalesce(response_payload, 'null'), id::text, sent_by from e where sid is not null
), known as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
  select u.scope, u.dedup, u.id, u.hash, u.source, 0 from u where u.dedup is not null
  on conflict do nothing
), woken as (
  update pointsman.instances i set parked = false, timed_out = i.timed_out or x.timed_out, wait_canceled = i.wait_canceled or x.canceled
  from (
    select instance_id, bool_or(status = 'timed_out') as timed_out, bool_or(status = 'canceled') as canceled from u
    where status <> 'received' and live and sleeps and 'event/' || event_key = any(awaits) group by instance_id) x
  where i.id = x.instance_id
  returning i.id, i.queue, i.priority, i.rev, ` + wakeMoves + ` as moved
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from woken
), hooks as (
  insert into pointsman.webhook_deliveries (project, source, source_id, url, type, body)
  select project, 'trigger', id, notify_url, '` + ReceivedWebhook + `', ` + triggerJSON + ` from u where notify_status = 'pending'
)
select e.id, e.project, e.source_type, e.status, e.instance_id, e.sid, w.queue, coalesce(w.moved, false), coalesce(e.notify_status = 'pending', false)
from e left join woken w on w.id = e.instance_id`

// endNow waits for locks; endSwept leaves what is locked for the next time.
var (
	endNow   = strings.NewReplacer("{skip}", "", "{own}", "")
	endSwept = strings.NewReplacer("{skip}", " skip locked", "{own}", " and (t.instance_id is null or t.instance_id = any(array(select id from li)))")
)

// ReceivedWebhook is the type of the webhook of a trigger, which is sent when its event arrives.
const ReceivedWebhook = "trigger.received"

// triggerJSON is the body of a webhook, with the trigger as requests show it.
var triggerJSON = `json_build_object('type', '` + ReceivedWebhook + `', 'timestamp', ` + jsonTime("received_at") + `, 'data', json_build_object(
    'id', id, 'event_key', event_key, 'project_id', project, 'source_type', source_type, 'trigger_type', trigger_type, 'instance_id', instance_id, 'step', step,
    'workflow_run_id', case when source_type = 'workflow_step' then instance_id end, 'workflow_step_run_id', case when source_type = 'workflow_step' then step end,
    'job_run_id', case when source_type = 'job_run' then instance_id end, 'status', status, 'timeout_secs', timeout_secs,
    'request_payload', request_payload, 'response_payload', response_payload, 'requested_at', ` + jsonTime("requested_at") + `,
    'received_at', ` + jsonTime("received_at") + `, 'expires_at', ` + jsonTime("expires_at") + `, 'error', error, 'notify_url', notify_url,
    'notify_status', notify_status, 'event_emit_key', event_emit_key, 'sent_by', sent_by))`

// SweepTriggers ends at most n triggers whose time has come: a sleep has what it waited for, another has timed out.
func (s *Store) SweepTriggers(ctx context.Context, n int) (ended []EndedTrigger, more bool, err error) {
	var ends []TriggerEnd
	err = s.each(ctx, "triggers due", s.text.triggersDue, func(r pgx.Rows) error {
		e := TriggerEnd{Status: TriggerTimedOut}
		var instance *uuid.UUID
		var sleep bool
		var secs int64
		err := r.Scan(&e.ID, &instance, &sleep, &secs)
		if instance != nil {
			e.InstanceID = *instance
		}
		if sleep {
			e.Status = TriggerReceived
		} else {
			e.Error = "no event within " + (time.Duration(secs) * time.Second).String()
		}
		ends = append(ends, e)
		return err
	}, n)
	if err != nil || len(ends) == 0 {
		return nil, false, err
	}
	err = s.InScopes(ctx, nil, func(tx *Store) error {
		ended, err = tx.endTriggers(ctx, tx.text.sweepTriggers, ends)
		return err
	})
	return ended, len(ends) == n && len(ended) > 0, err
}

const triggersDueText = `
select /* triggers due */ id, instance_id, trigger_type = 'sleep', timeout_secs from pointsman.triggers
where status = 'waiting' and expires_at <= now() order by expires_at limit $1`

// Tell wakes those of the instances, all locked by this transaction, that are parked on the key of a trigger that ended without its event
// while they were busy or paused, in the visit that they are in. It returns the queues that have more to do, and runs inside [Store.InScopes].
func (s *Store) Tell(ctx context.Context, instances []uuid.UUID) (woken []string, err error) {
	err = s.each(ctx, "tell", s.text.tell, func(r pgx.Rows) error {
		var id uuid.UUID
		var queue string
		var moved bool
		err := r.Scan(&id, &queue, &moved)
		woken = append(woken, queue)
		if moved {
			s.moved = append(s.moved, id)
		}
		return err
	}, instances)
	return woken, err
}

// toldText ($1 instances).
const toldText = `
with /* tell */ m as materialized (
  select i.id, array_agg(t.id) as triggers, bool_or(t.status = 'timed_out') as timed_out, bool_or(t.status = 'canceled') as canceled
  from pointsman.instances i join pointsman.triggers t on t.instance_id = i.id
  where i.id = any($1) and ` + alive + ` and i.parked and not i.paused and t.missed_visit = i.visit and 'event/' || t.event_key = any(i.awaits)
  group by i.id
), u as (
  update pointsman.instances i set parked = false, timed_out = i.timed_out or m.timed_out, wait_canceled = i.wait_canceled or m.canceled
  from m where i.id = m.id returning i.id, i.queue, i.priority, i.rev, ` + wakeMoves + ` as moved
), told as (
  update pointsman.triggers set missed_visit = null where id = any(array(select unnest(triggers) from m))
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from u
)
select id, queue, moved from u`

// waits is that a trigger does, where it is looked up by its id or instance: for the reason that [alive] has.
const waits = `t.status between 'waiting' and 'waiting'`

// cancelEnded cancels the waiting triggers of the instances of "gone", which have ended. They are locked, and who else would end one of these waits
// for that lock; or they ended before, and have none that waits.
const cancelEnded = `waits as materialized (
  select t.id from gone cross join lateral (
    select t.id from pointsman.triggers t where t.instance_id = gone.id and ` + waits + ` offset 0) t
), wl as materialized (
  select t.id from pointsman.triggers t where t.id = any(array(select id from waits)) and ` + waits + ` order by t.id for no key update
), tr as (
  update pointsman.triggers t set status = 'canceled', ended_at = clock_timestamp(), error = 'the instance has ended', with_instance = true
  where t.id = any(array(select id from wl)) returning t.id, t.project, t.source_type
)`

func endedWith(r pgx.Rows) (EndedTrigger, error) {
	e := EndedTrigger{Status: TriggerCanceled}
	err := r.Scan(&e.ID, &e.Project, &e.Source)
	return e, err
}

// queuesOf are the queues that have more to do for what has ended.
func queuesOf(ended []EndedTrigger) (queues []string) {
	for _, e := range ended {
		queues = append(queues, e.Queues...)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}
