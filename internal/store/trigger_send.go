package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/subjects"
)

// EventSend is an event on its way to the trigger that waits with its key.
type EventSend struct {
	Project string
	Key     string
	Payload []byte // JSON
	SentBy  string
	Message *EventMessage // that it came by; nil: none

	Hold     time.Duration // how long it is kept where nobody has used the key; 0: it is not
	Original *Original     // for the dead letter of its expiry; nil: it leaves none
	Body     []byte
}

// EventDelivery is the verdict on an event: Delivered; Duplicate of what the latest trigger of the key received, or of its own message;
// Conflict with that; Held, now or before; Ended (the latest trigger got none), or Missing (there is none).
type EventDelivery struct {
	Verdict  Verdict
	Trigger  uuid.UUID // the latest of the key, but where Missing or Held
	Instance *uuid.UUID
	SignalID int64
	Sleeps   bool      // of Conflict: it is a sleep, which takes no events
	Status   string    // of the trigger
	At       time.Time // it ended
	Source   string    // of the trigger
	Until    time.Time // it is held
}

// Refusal is why nobody received the event; "" where somebody did, or it is held.
func (d EventDelivery) Refusal(key string) string {
	switch {
	case d.Sleeps:
		return fmt.Sprintf("%q is the key of a sleep, which takes no event", key)
	case d.Verdict == Conflict && d.Trigger == uuid.Nil:
		return fmt.Sprintf("another event is held for the key %q", key)
	case d.Verdict == Conflict && d.Status == TriggerReceived:
		return fmt.Sprintf("the trigger of the key %q has received another payload", key)
	case d.Verdict == Conflict:
		return "the message was an event before, with another body"
	case d.Verdict == Ended:
		return fmt.Sprintf("the trigger of the key %q is %s since %s", key, d.Status, d.At.UTC().Format(time.RFC3339))
	case d.Verdict == Missing:
		return fmt.Sprintf("no trigger has the key %q", key)
	}
	return ""
}

// SendEvents sends events, in a transaction that holds the locks of their keys, in the order of the batch. ended are the triggers that
// received one.
func (s *Store) SendEvents(ctx context.Context, sends []EventSend) (out []EventDelivery, ended []EndedTrigger, err error) {
	out = make([]EventDelivery, len(sends))
	rest := make([]int, len(sends))
	for i := range rest {
		rest[i] = i
	}
	for len(rest) > 0 { // one of each key at a time
		type name struct{ project, key string }
		seen := map[name]bool{}
		var turn, later []int
		for _, i := range rest {
			if n := (name{sends[i].Project, sends[i].Key}); seen[n] {
				later = append(later, i)
			} else {
				seen[n] = true
				turn = append(turn, i)
			}
		}
		some, err := s.sendOnce(ctx, sends, turn, out)
		if err != nil {
			return nil, nil, err
		}
		ended, rest = append(ended, some...), later
	}
	return out, ended, nil
}

// sendOnce sends events of different keys. Under the locks of these no trigger with one of them comes to be, but one that waits may end.
func (s *Store) sendOnce(ctx context.Context, sends []EventSend, at []int, out []EventDelivery) ([]EndedTrigger, error) {
	records, err := s.lookEvents(ctx, sends, at)
	if err != nil {
		return nil, err
	}
	var ends []TriggerEnd
	var waiting, rest []int
	for k, i := range at {
		r := records[k]
		if r.Taken != nil || r.Trigger == nil || r.Trigger.Status != TriggerWaiting || r.Trigger.Type == TriggerSleep {
			rest = append(rest, k)
			continue
		}
		waiting = append(waiting, i)
		end := TriggerEnd{ID: r.Trigger.ID, Status: TriggerReceived, Payload: sends[i].Payload, SentBy: sends[i].SentBy, Message: sends[i].Message, Scope: EventScope(sends[i].Project, sends[i].Key)}
		if end.Payload == nil {
			end.Payload = []byte("null")
		}
		if r.Trigger.InstanceID != nil {
			end.InstanceID = *r.Trigger.InstanceID
		}
		ends = append(ends, end)
	}
	ended, err := s.EndTriggers(ctx, ends)
	if err != nil {
		return nil, err
	}
	var again []int
	for k, i := range waiting {
		won := slices.IndexFunc(ended, func(e EndedTrigger) bool { return e.ID == ends[k].ID })
		if won < 0 {
			again = append(again, i)
			continue
		}
		e := ended[won]
		out[i] = EventDelivery{Verdict: Delivered, Trigger: e.ID, Instance: optionalID(ends[k].InstanceID), SignalID: e.SignalID, Status: e.Status, Source: e.Source}
	}
	var known []TriggerEnd
	judge := func(i int, r EventRecord) {
		out[i] = r.delivery(&sends[i])
		if out[i].Verdict == Duplicate && r.Taken == nil && sends[i].Message != nil {
			known = append(known, TriggerEnd{ID: r.Trigger.ID, Scope: EventScope(sends[i].Project, sends[i].Key), Message: sends[i].Message})
		}
	}
	for _, k := range rest {
		judge(at[k], records[k])
	}
	if len(again) > 0 {
		records, err := s.lookEvents(ctx, sends, again)
		if err != nil {
			return nil, err
		}
		for k, i := range again {
			judge(i, records[k])
		}
	}
	if err := s.noteEvents(ctx, known); err != nil {
		return nil, err
	}
	return ended, s.holdEvents(ctx, sends, at, out)
}

// EventRecord is what is on record of an event, and the latest trigger of its key.
type EventRecord struct {
	Taken   *Entry // its message, in the ledger; InstanceID is of the trigger
	Trigger *EventTrigger
	Held    *HeldEvent
}

// EventTrigger is the latest trigger of a key.
type EventTrigger struct {
	ID         uuid.UUID
	InstanceID *uuid.UUID
	Status     string
	Type       string
	Source     string
	EndedAt    time.Time
	Same       bool // it received this payload
}

// HeldEvent is what is held for a key.
type HeldEvent struct {
	Dedup, Hash, Source *uuid.UUID
	At, Until           time.Time
	Same                bool // its payload is this one
}

// Judge is what would become of the event now; Delivered where its trigger waits.
func (r EventRecord) Judge(e *EventSend) EventDelivery {
	if r.Taken == nil && r.Trigger != nil && r.Trigger.Status == TriggerWaiting && r.Trigger.Type != TriggerSleep {
		return EventDelivery{Verdict: Delivered, Trigger: r.Trigger.ID, Instance: r.Trigger.InstanceID, Status: TriggerWaiting, Source: r.Trigger.Source}
	}
	return r.delivery(e)
}

// delivery is the verdict where no trigger waits for the event.
func (r EventRecord) delivery(e *EventSend) (d EventDelivery) {
	if t := r.Trigger; t != nil {
		d = EventDelivery{Trigger: t.ID, Instance: t.InstanceID, Status: t.Status, At: t.EndedAt, Source: t.Source}
	}
	switch {
	case r.Taken != nil:
		d.Trigger = r.Taken.InstanceID
		d.Verdict = Duplicate
		if r.Taken.Hash != e.Message.Hash && !(e.Message.Source != nil && r.Taken.Source != nil && *e.Message.Source == *r.Taken.Source) {
			d.Verdict = Conflict
		}
	case r.Held != nil && r.Held.Same:
		d.Verdict, d.Until = Held, r.Held.Until
	case r.Held != nil:
		d.Verdict, d.Until = Conflict, r.Held.Until
	case r.Trigger == nil:
		d.Verdict = Missing
	case r.Trigger.Type == TriggerSleep:
		d.Verdict, d.Sleeps = Conflict, true
	case r.Trigger.Status == TriggerReceived && r.Trigger.Same:
		d.Verdict = Duplicate
	case r.Trigger.Status == TriggerReceived:
		d.Verdict = Conflict
	default:
		d.Verdict = Ended
	}
	return d
}

// LookEvents says what is on record of events. It locks nothing.
func (s *Store) LookEvents(ctx context.Context, sends []EventSend) ([]EventRecord, error) {
	at := make([]int, len(sends))
	for i := range at {
		at[i] = i
	}
	return s.lookEvents(ctx, sends, at)
}

func (s *Store) lookEvents(ctx context.Context, sends []EventSend, at []int) ([]EventRecord, error) {
	records := make([]EventRecord, len(at))
	if len(at) == 0 {
		return records, nil
	}
	projects, keys, payloads := make([]string, len(at)), make([]string, len(at)), make([]string, len(at))
	scopes, dedups, sources, rechecks := make([]*uuid.UUID, len(at)), make([]*uuid.UUID, len(at)), make([]*uuid.UUID, len(at)), make([]bool, len(at))
	for k, i := range at {
		e := &sends[i]
		projects[k], keys[k], payloads[k] = e.Project, e.Key, jsonText(e.Payload)
		if m := e.Message; m != nil {
			scope := EventScope(e.Project, e.Key)
			scopes[k], dedups[k], sources[k], rechecks[k] = &scope, &m.Dedup, m.Source, m.Recheck
		}
	}
	err := s.each(ctx, "look for events", s.text.lookEvents, func(r pgx.Rows) error {
		var ord int
		record, err := scanEventRecord(r, &ord)
		records[ord-1] = record
		return err
	}, projects, keys, payloads, scopes, dedups, sources, rechecks)
	return records, err
}

func scanEventRecord(r pgx.Rows, ord *int) (record EventRecord, err error) {
	var trigger, taken, takenHash, takenSource *uuid.UUID
	var t EventTrigger
	var h HeldEvent
	var status, kind, source *string
	var ended, takenAt, heldAt, heldUntil *time.Time
	var same, heldSame *bool
	err = r.Scan(ord, &trigger, &t.InstanceID, &status, &kind, &source, &ended, &same, &taken, &takenHash, &takenSource, &takenAt,
		&heldAt, &heldUntil, &heldSame, &h.Dedup, &h.Hash, &h.Source)
	if err != nil {
		return record, err
	}
	if trigger != nil {
		t.ID, t.Status, t.Type, t.Source, t.Same = *trigger, *status, *kind, *source, *same
		if ended != nil {
			t.EndedAt = *ended
		}
		record.Trigger = &t
	}
	if taken != nil {
		record.Taken = &Entry{InstanceID: *taken, Hash: *takenHash, Source: takenSource, At: *takenAt}
	}
	if heldAt != nil {
		h.At, h.Until, h.Same = *heldAt, *heldUntil, *heldSame
		record.Held = &h
	}
	return record, nil
}

// lookEventsText (arrays: $1 projects, $2 keys, $3 payloads; of messages $4 scopes, $5 dedups, $6 sources, $7 rechecks). Payloads are compared
// as jsonb: values, and numbers by all of their digits. A trigger that waits is the latest of its key, also where a retry has brought it back.
const lookEventsText = `
select /* look for events */ n.ord::int, t.id, t.instance_id, t.status, t.trigger_type, t.source_type, t.ended_at, coalesce(t.response_payload, 'null') = n.payload::jsonb,
  l.instance_id, l.hash, l.source, l.at, h.sent_at, h.expires_at, h.payload = n.payload::jsonb, h.dedup, h.hash, h.source
from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], $7::boolean[])
  with ordinality n(project, event_key, payload, scope, dedup, source, recheck, ord)
left join lateral (
  (select t.* from pointsman.triggers t where t.project = n.project and t.event_key = n.event_key and t.status = 'waiting' limit 1)
  union all
  (select t.* from pointsman.triggers t where t.project = n.project and t.event_key = n.event_key order by t.requested_at desc limit 1)
  limit 1) t on true
left join lateral (
  select l.* from pointsman.ledger l where n.recheck and l.scope = n.scope and l.source = n.source
  union all
  select l.* from pointsman.ledger l where l.scope = n.scope and l.dedup = n.dedup
  limit 1) l on true
left join lateral (
  select h.* from pointsman.held_events h where h.project = n.project and h.event_key = n.event_key and h.expires_at > now() order by h.id limit 1) h on true`

// noteEvents puts messages into the ledger that brought what a trigger had received already: they must not be a later trigger's.
func (s *Store) noteEvents(ctx context.Context, known []TriggerEnd) error {
	if len(known) == 0 {
		return nil
	}
	a := newEndArrays(known)
	return s.each(ctx, "note events", s.text.noteEvents, nil, a.ids, a.scopes, a.dedups, a.hashes, a.sources)
}

// noteEventsText (arrays: $1 triggers, $2 scopes, $3 dedups, $4 hashes, $5 sources).
const noteEventsText = `
with /* note events */ n as materialized (
  select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[]) n(id, scope, dedup, hash, source)
), known as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id) select scope, dedup, id, hash, source, 0 from n on conflict do nothing
)
update pointsman.triggers t set ledger = n.scope from n where t.id = n.id and t.ledger is null`

// holdEvents keeps those that are missing and ask for it.
func (s *Store) holdEvents(ctx context.Context, sends []EventSend, at []int, out []EventDelivery) error {
	var held []int
	var projects, keys, payloads []string
	var sentBy, messages []*string
	var dedups, hashes, sources []*uuid.UUID
	var lengths []int64
	var bodies [][]byte
	for _, i := range at {
		e := &sends[i]
		if out[i].Verdict != Missing || e.Hold <= 0 {
			continue
		}
		var message *string
		if e.Original != nil {
			text, err := json.Marshal(e.Original)
			if err != nil {
				return err
			}
			message = optional(string(text))
		}
		var dedup, hash, source *uuid.UUID
		if m := e.Message; m != nil {
			dedup, hash, source = &m.Dedup, &m.Hash, m.Source
		}
		held, projects, keys, payloads = append(held, i), append(projects, e.Project), append(keys, e.Key), append(payloads, jsonText(e.Payload))
		sentBy, messages, lengths, bodies = append(sentBy, optional(e.SentBy)), append(messages, message), append(lengths, e.Hold.Microseconds()), append(bodies, e.Body)
		dedups, hashes, sources = append(dedups, dedup), append(hashes, hash), append(sources, source)
	}
	if len(held) == 0 {
		return nil
	}
	return s.each(ctx, "hold events", s.text.holdEvents, func(r pgx.Rows) error {
		var key, project string
		var until time.Time
		if err := r.Scan(&project, &key, &until); err != nil {
			return err
		}
		for _, i := range held {
			if sends[i].Project == project && sends[i].Key == key {
				out[i] = EventDelivery{Verdict: Held, Until: until}
			}
		}
		return nil
	}, projects, keys, payloads, sentBy, messages, lengths, bodies, dedups, hashes, sources)
}

// holdEventsText (arrays: $1 projects, $2 keys, $3 payloads, $4 who sent it, $5 messages, $6 microseconds, $7 bodies, $8 dedups, $9 hashes, $10 sources).
const holdEventsText = `
insert /* hold events */ into pointsman.held_events (project, event_key, payload, sent_by, message, expires_at, body, dedup, hash, source)
select n.project, n.event_key, n.payload::jsonb, n.sent_by, n.message, now() + n.us * interval '1 microsecond', n.body, n.dedup, n.hash, n.source
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::uuid[], $9::uuid[], $10::uuid[])
  n(project, event_key, payload, sent_by, message, us, body, dedup, hash, source)
returning project, event_key, expires_at`

// adoptEvents gives triggers that this transaction has made what is held for their keys.
func (s *Store) adoptEvents(ctx context.Context, triggers []uuid.UUID) ([]EndedTrigger, error) {
	if len(triggers) == 0 {
		return nil, nil
	}
	var ends []TriggerEnd
	err := s.each(ctx, "adopt events", s.text.adoptEvents, func(r pgx.Rows) error {
		e := TriggerEnd{Status: TriggerReceived}
		var project, key string
		var instance, dedup, hash, source *uuid.UUID
		var sentBy *string
		if err := r.Scan(&e.ID, &instance, &project, &key, &e.Payload, &sentBy, &dedup, &hash, &source); err != nil {
			return err
		}
		e.SentBy, e.Scope = value(sentBy), EventScope(project, key)
		if instance != nil {
			e.InstanceID = *instance
		}
		if dedup != nil {
			e.Message = &EventMessage{Dedup: *dedup, Hash: *hash, Source: source}
		}
		ends = append(ends, e)
		return nil
	}, triggers)
	if err != nil {
		return nil, err
	}
	return s.EndTriggers(ctx, ends)
}

// adoptEventsText ($1 triggers). Nobody else can take what is held: that needs the lock of the key, or that its time is over.
const adoptEventsText = `
with /* adopt events */ h as materialized (
  select t.id as trigger_id, t.instance_id, h.id from pointsman.triggers t cross join lateral (
    select h.id from pointsman.held_events h where h.project = t.project and h.event_key = t.event_key and h.expires_at > now() order by h.id limit 1) h
  where t.id = any($1)
), d as (
  delete from pointsman.held_events where id = any(array(select id from h)) returning *
)
select h.trigger_id, h.instance_id, d.project, d.event_key, d.payload, d.sent_by, d.dedup, d.hash, d.source from h join d using (id)`

// ExpireHeldEvents drops at most n held events whose time is over, those of messages and steps to the dead letters, and returns how many.
func (s *Store) ExpireHeldEvents(ctx context.Context, n int) (expired int, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		var dead []DeadLetter
		err := tx.each(ctx, "expire held events", tx.text.expireHeldEvents, func(r pgx.Rows) error {
			var d DeadLetter
			var id int64
			var key string
			var message *string
			var since time.Time
			if err := r.Scan(&id, &d.Project, &key, &since, &message, &d.Body); err != nil {
				return err
			}
			expired++
			if message == nil {
				return nil
			}
			d.MsgID = "held-event:" + strconv.FormatInt(id, 36)
			if err := d.describe(*message, key, fmt.Sprintf("expired: held since %s, and no trigger waited with the key %q", since.UTC().Format(time.RFC3339), key)); err != nil {
				return err
			}
			d.MsgID += ":" + strconv.FormatInt(since.UnixNano(), 36)
			if d.Route == EffectsRoute && d.Headers[subjects.HeaderStream] == nil {
				d.describeEvent(d.Project, key)
			}
			dead = append(dead, d)
			return nil
		}, n)
		if err != nil {
			return err
		}
		return tx.AddDeadLetters(ctx, dead)
	})
	return expired, err
}

const expireHeldEventsText = `
delete /* expire held events */ from pointsman.held_events where ctid = any(array(
  select ctid from pointsman.held_events where expires_at <= now() order by expires_at limit $1 for update skip locked))
returning id, project, event_key, sent_at, message, body`

// deadEvent is for an event of a step that nobody will receive.
func deadEvent(e *EventSend, why string) DeadLetter {
	d := DeadLetter{
		Project: e.Project, Route: EffectsRoute, MsgID: "effect:" + uuid.NewString(), Body: e.Payload,
		Headers: map[string][]string{subjects.HeaderReason: {why}},
	}
	d.describeEvent(e.Project, e.Key)
	return d
}

// describeEvent says of a step's event what it takes to send it again.
func (d *DeadLetter) describeEvent(project, key string) {
	d.Headers[subjects.HeaderSubject] = []string{subjects.EventEffect}
	d.Headers[subjects.HeaderEventKey], d.Headers[subjects.HeaderProject] = []string{key}, []string{project}
}
