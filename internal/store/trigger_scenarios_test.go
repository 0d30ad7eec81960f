package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// told is what those who ended triggers were told that they did.
const triggerWitnesses = `
create table pointsman.told (trigger uuid, status text);
`

// triggerInvariants are those of triggers. One that a scenario begins with ended has the type given.
var triggerInvariants = []invariant{
	{"a trigger was decided twice", `select t.trigger from pointsman.told t group by t.trigger having count(*) > 1`},
	{"a trigger is not what was told", `select g.id from pointsman.told t join pointsman.triggers g on g.id = t.trigger where g.status <> t.status`},
	{"a trigger ended and nobody was told", `
		select g.id from pointsman.triggers g where g.status <> 'waiting' and g.trigger_type <> 'given' and g.error is distinct from 'the instance has ended' and not exists (select from pointsman.told t where t.trigger = g.id)`},
	{"a trigger waits for nobody", `
		select g.id from pointsman.triggers g where g.status = 'waiting' and g.instance_id is not null
		and not exists (select from pointsman.instances i where i.id = g.instance_id and i.live)`},
	{"an event was not seen once", `
		select g.id from pointsman.triggers g where g.instance_id is not null and g.trigger_type <> 'given'
		and (select count(distinct w.id) from pointsman.witness w where w.kind = 'event' and w.dedup_key = g.id::text and w.instance_id = g.instance_id) <> (g.status = 'received')::int`},
	{"sleeps on an event that cannot come", `
		select i.id from pointsman.instances i, unnest(i.awaits) a where i.live and i.parked and not i.paused and a like 'event/%'
		and not exists (select from pointsman.triggers g where g.instance_id = i.id and 'event/' || g.event_key = a and g.status = 'waiting')
		and not exists (select from pointsman.signals s where s.instance_id = i.id and s.kind || '/' || s.name = a)`},
	{"a webhook is not once", `
		select g.id from pointsman.triggers g where g.trigger_type <> 'given'
		and (select count(*) from pointsman.webhook_deliveries d where d.source_id = g.id) <> (g.status = 'received' and g.notify_url is not null)::int`},
	{"an event is held beside a trigger that waits", `
		select h.event_key from pointsman.held_events h join pointsman.triggers g on g.project = h.project and g.event_key = h.event_key and g.status = 'waiting' where h.expires_at > now()`},
	{"more wait than were counted", `
		select q.project from pointsman.quotas q where q.max_triggers > 0
		and q.active_triggers < (select count(*) from pointsman.triggers g where g.project = q.project and g.status = 'waiting')`},
}

// eventKey is the key of trigger n.
func eventKey(n int) string { return fmt.Sprint("e", n) }

// trigger is one that waits with its key, for instance of or for nobody (0).
func trigger(n, of int) string { return triggerAs(n, n, of, "now() + interval '1 h'") }

// triggerAs has the key of another.
func triggerAs(n, key, of int, expires string) string {
	instance, source := "null", "api"
	if of > 0 {
		instance, source = fmt.Sprintf("'%s'", u(of)), "job_run"
	}
	return fmt.Sprintf("insert into pointsman.triggers (id, project, event_key, source_type, instance_id, timeout_secs, requested_at, expires_at, notify_url) values ('%s', '%s', '%s', '%s', %s, 3600, now() - interval '1 h', %s, 'https://example.com');\n",
		u(n), project, eventKey(key), source, instance, expires)
}

// overdue is a trigger whose time has come.
func overdue(n, of int) string { return triggerAs(n, n, of, "now() - interval '1 s'") }

// onEvent is instance n, parked on the event of trigger n, which waits for it until expires.
func onEvent(n int, expires string) string {
	return awaiting(n, 1, "event/"+eventKey(n)) + triggerAs(n, n, n, expires)
}

const (
	inAnHour = "now() + interval '1 h'"
	byNow    = "now() - interval '1 s'"
)

// tellingEnds notes which triggers their caller was told to have ended.
func tellingEnds(ctx context.Context, s *Store, ended []EndedTrigger) error {
	for _, e := range ended {
		rows, err := s.db.Query(ctx, "insert into told values ($1, $2)", e.ID, e.Status)
		if err != nil {
			return err
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// newTrigger is trigger n with the key of another, for an instance or for nobody (0).
func newTrigger(n, key, of int) NewTrigger {
	t := NewTrigger{ID: u(n), Project: project, Key: eventKey(key), Source: "api", Type: "event", TimeoutSecs: 3600, NotifyURL: "https://example.com"}
	if of > 0 {
		t.InstanceID, t.Source = u(of), "job_run"
	}
	return t
}

// creating makes a trigger, if it may.
func creating(maxActive int, n NewTrigger) op {
	return func(ctx context.Context, s *Store) error {
		return s.InScopes(ctx, []uuid.UUID{EventScope(project, n.Key)}, func(tx *Store) error {
			if n.InstanceID != uuid.Nil {
				if err := tx.run(ctx, tx.lockInstances([]uuid.UUID{n.InstanceID})); err != nil {
					return err
				}
			}
			_, ended, err := tx.CreateTriggers(ctx, []NewTrigger{n}, maxActive)
			if err != nil {
				return err
			}
			return tellingEnds(ctx, tx, ended)
		})
	}
}

// sendingEvent sends an event with a payload, which is held where nobody waits.
func sendingEvent(key int, payload string) op {
	return sendingEvents(EventSend{Project: project, Key: eventKey(key), Payload: []byte(payload), Hold: time.Hour})
}

func sendingEvents(sends ...EventSend) op {
	return func(ctx context.Context, s *Store) error {
		var scopes []uuid.UUID
		for _, e := range sends {
			scopes = append(scopes, EventScope(e.Project, e.Key))
		}
		return s.InScopes(ctx, scopes, func(tx *Store) error {
			out, ended, err := tx.SendEvents(ctx, sends)
			if err != nil {
				return err
			}
			for i, d := range out {
				if d.Verdict == 0 || d.Verdict == Missing {
					return fmt.Errorf("verdict %d on the event %s", d.Verdict, sends[i].Key)
				}
			}
			return tellingEnds(ctx, tx, ended)
		})
	}
}

// sendingTo sends an event to all that wait with the prefix of [eventKey].
func sendingTo(payload string) op {
	return func(ctx context.Context, s *Store) error {
		ends, _, _, err := s.TriggersWithPrefix(ctx, project, "e", "", nil, 8)
		if err != nil || len(ends) == 0 {
			return err
		}
		for i := range ends {
			ends[i].Payload = []byte(payload)
		}
		return endingAll(ctx, s, ends)
	}
}

func endingAll(ctx context.Context, s *Store, ends []TriggerEnd) error {
	return s.InScopes(ctx, nil, func(tx *Store) error {
		ended, err := tx.EndTriggers(ctx, ends)
		if err != nil {
			return err
		}
		return tellingEnds(ctx, tx, ended)
	})
}

// cancelingTrigger cancels the trigger that waits with the key, if one does.
func cancelingTrigger(key int) op {
	return func(ctx context.Context, s *Store) error {
		t, found, err := s.Trigger(ctx, project, eventKey(key))
		if err != nil || !found || t.Status != TriggerWaiting {
			return err
		}
		end := TriggerEnd{ID: t.ID, Status: TriggerCanceled, Error: "canceled"}
		if t.InstanceID != nil {
			end.InstanceID = *t.InstanceID
		}
		return endingAll(ctx, s, []TriggerEnd{end})
	}
}

func sweepingTriggers(ctx context.Context, s *Store) error {
	ended, _, err := s.SweepTriggers(ctx, 8)
	if err != nil {
		return err
	}
	return tellingEnds(ctx, s, ended)
}

func purgingTriggers(ctx context.Context, s *Store) error {
	_, err := s.PurgeTriggers(ctx, project, 0, hour)
	return err
}

// parksOn is an outcome of instance n that waits for events.
func parksOn(n, token int, waits ...NewTrigger) Outcome {
	o := parks(n, token)
	for i := range waits {
		waits[i].InstanceID, waits[i].Await, waits[i].Source = u(n), true, "job_run"
		o.Awaits = append(o.Awaits, "event/"+waits[i].Key)
	}
	o.Waits = waits
	return o
}

func emits(o Outcome, key int, payload string) Outcome {
	o.Emits = append(o.Emits, EventSend{Project: project, Key: eventKey(key), Payload: []byte(payload), Hold: HoldEmitted, Original: &Original{Route: EffectsRoute}, Body: []byte(payload)})
	return o
}

// settling is committing for outcomes of which some may be refused: these give their lease back as they had it. The told are noted after the commit.
func settling(maxActive int, os ...Outcome) op {
	return func(ctx context.Context, s *Store) error {
		settled, err := s.Commit(ctx, os, Group{Last: tokensOf(os), Publish: publish, MaxTriggers: maxActive})
		if err != nil {
			return err
		}
		var refused []Outcome
		for _, o := range os {
			if _, no := settled.Refused[o.ID]; no {
				r := of(int(o.ID[15]), int(o.Token[15]), OutcomeRelease)
				r.Rev = o.Rev
				refused = append(refused, r)
			}
		}
		if len(refused) > 0 {
			if _, err := s.Commit(ctx, refused, Group{Last: tokensOf(refused), Publish: publish}); err != nil {
				return err
			}
		}
		var told []EndedTrigger
		for _, e := range settled.Ended {
			if e.Status == TriggerReceived {
				told = append(told, e)
			}
		}
		return tellingEnds(ctx, s, told)
	}
}

func tokensOf(os []Outcome) (tokens []uuid.UUID) {
	for _, o := range os {
		tokens = append(tokens, o.Token)
	}
	return tokens
}

// retryingWithEvents is retrying, of one that has waited for events.
func retryingWithEvents(n int) op {
	return func(ctx context.Context, s *Store) error {
		keys, err := s.EventKeys(ctx, u(n))
		if err != nil {
			return err
		}
		scopes := []uuid.UUID{KeyScope(project, key(n))}
		for _, k := range keys {
			scopes = append(scopes, EventScope(project, k))
		}
		return s.InScopes(ctx, scopes, func(tx *Store) error {
			_, err := tx.Retry(ctx, u(n), keys, 0)
			return err
		})
	}
}

func triggerScenarios() []scenario {
	same := `{"ok": true}`
	api, waits := trigger(1, 0), onEvent(1, inAnHour)
	late := onEvent(1, byNow)
	executing := leased(90, valid, 1)
	awaits := func() Outcome { return parksOn(1, 90, newTrigger(5, 5, 0)) }
	busy := leased(90, valid, 1) + "update pointsman.instances set awaits = '{event/e1}' where id = '" + u(1).String() + "';\n" + triggerAs(1, 1, 1, byNow)
	again := func() Outcome { return parksOn(1, 90, newTrigger(5, 1, 0)) }
	quota := fmt.Sprintf("insert into pointsman.quotas values ('%s', 1, 2);\n", project)
	limit := `select 1 where (select count(*) from pointsman.triggers where status = 'waiting') <> 2`
	message := func(dedup, payload string) EventSend {
		source := Source("r", "S", time.Unix(1, 0), 1)
		return EventSend{
			Project: project, Key: eventKey(1), Payload: []byte(payload), Hold: time.Hour, Original: &Original{Route: "r"}, Body: []byte(payload),
			Message: &EventMessage{Dedup: SignalDedup(dedup), Hash: SignalHash("event", "", []byte(payload)), Source: &source, Recheck: true},
		}
	}
	const received = `select 1 where (select count(*) from pointsman.triggers where status = 'received') <> 1`
	const anew = `select 1 from pointsman.triggers having count(*) > 1`
	const undecided = `select 1 from pointsman.triggers where status = 'waiting'`
	const lost = `select 1 where not exists (select from pointsman.told where trigger = '00000000-0000-7000-8000-000000000001')`
	const anothers = `select 1 from pointsman.told t where t.trigger <> '00000000-0000-7000-8000-000000000001' or t.status <> '%s'`
	held := executing + triggerAs(1, 1, 1, inAnHour)
	ended := strings.Replace(trigger(1, 0), ") values", ", status, trigger_type, ended_at) values", 1)
	ended = strings.Replace(ended, "'https://example.com')", "'https://example.com', 'timed_out', 'given', now() - interval '1 s')", 1)
	const onceInAll = `select count(*) from pointsman.triggers where status = 'received' having count(*) > 1`
	return []scenario{
		{"event / event, another payload", waits, together(sendingEvent(1, "1"), sendingEvent(1, "2")), received},
		{"event / the same event", waits, together(sendingEvent(1, same), sendingEvent(1, same)), received},
		{"event / create again", api, together(sendingEvent(1, same), creating(0, newTrigger(2, 1, 0))), fmt.Sprintf(anothers, TriggerReceived)},
		{"event / timeout", late, together(sendingEvent(1, same), sweepingTriggers), undecided},
		{"event / timeout, nobody's", overdue(1, 0), together(sendingEvent(1, same), sweepingTriggers), undecided},
		{"event / cancel of the trigger", waits, together(sendingEvent(1, same), cancelingTrigger(1)), undecided},
		{"event / cancel of the trigger, nobody's", api, together(sendingEvent(1, same), cancelingTrigger(1)), undecided},
		{"event / purge", overdue(1, 0), together(inTurn(sendingEvent(1, same), sendingEvent(1, same)), purgingTriggers), lost},
		{"event / event to all", waits + onEvent(2, inAnHour), together(sendingEvent(2, same), sendingTo(same)), `select 1 from pointsman.triggers where status <> 'received'`},
		{"event to all / event to all", waits + onEvent(2, inAnHour) + trigger(3, 0), together(sendingTo("1"), sendingTo("2")), `select 1 from pointsman.triggers where status <> 'received'`},
		{"event to all / timeout / cancel of the trigger", late + onEvent(2, byNow), together(sendingTo(same), sweepingTriggers, cancelingTrigger(1)), `select 1 from pointsman.triggers where status = 'waiting'`},
		{"event to all / cancel of the instance", waits + onEvent(2, inAnHour), together(sendingTo(same), canceling(2, 1)), undecided},
		{"event to all / create again", api, together(inTurn(sendingTo(same), creating(0, newTrigger(2, 1, 0))), creating(0, newTrigger(3, 1, 0))), ""},
		{"event to all / timeout", late + onEvent(2, byNow), together(sendingTo(same), sweepingTriggers), undecided},
		{"event to all / cancel of the trigger", waits + onEvent(2, inAnHour), together(sendingTo(same), cancelingTrigger(1)), undecided},
		{"event to all / end", held + onEvent(2, inAnHour), together(sendingTo(same), committing(of1(OutcomeDone))), undecided},
		{"event to all / purge", api + trigger(2, 0), together(sendingTo(same), purgingTriggers), lost},
		{"timeout / timeout", late + onEvent(2, byNow), together(sweepingTriggers, sweepingTriggers), undecided},
		{"timeout / cancel of the trigger", late, together(sweepingTriggers, cancelingTrigger(1)), undecided},
		{"timeout / cancel of the instance", late, together(sweepingTriggers, canceling(1)), undecided},
		{"timeout / end", executing + triggerAs(1, 1, 1, byNow), together(sweepingTriggers, committing(of1(OutcomeDone))), undecided},
		{"timeout / purge", overdue(1, 0), together(sweepingTriggers, purgingTriggers), lost},
		{"timeout / create again", overdue(1, 0), together(sweepingTriggers, creating(0, newTrigger(2, 1, 0))), ""},
		{"cancel of the trigger / cancel of the trigger", waits, together(cancelingTrigger(1), cancelingTrigger(1)), undecided},
		{"cancel of the trigger / cancel of the instance", waits, together(cancelingTrigger(1), canceling(1)), undecided},
		{"cancel of the trigger / end", held, together(cancelingTrigger(1), committing(of1(OutcomeDone))), undecided},
		{"cancel of the trigger / purge", api, together(cancelingTrigger(1), purgingTriggers), lost},
		{"cancel of the trigger / create again", api, together(cancelingTrigger(1), creating(0, newTrigger(2, 1, 0))), ""},
		{"purge / create again", overdue(1, 0), together(inTurn(sweepingTriggers, purgingTriggers), creating(0, newTrigger(2, 1, 0))), ""},
		{"purge / purge", ended + trigger(2, 0), together(purgingTriggers, purgingTriggers), `select 1 from pointsman.triggers having count(*) <> 1`},
		{"purge / cancel of the instance", waits, together(purgingTriggers, canceling(1)), undecided},
		{"purge / end", held, together(purgingTriggers, committing(of1(OutcomeDone))), undecided},
		{"create again / create again", ended, together(creating(0, newTrigger(2, 1, 0)), creating(0, newTrigger(3, 1, 0))), `select 1 from pointsman.triggers where status = 'waiting' having count(*) <> 1`},
		{"create again / cancel of the instance", waits, together(creating(0, newTrigger(2, 1, 0)), canceling(1)), `select 1 from pointsman.told`},
		{"create again / end", held, together(creating(0, newTrigger(2, 1, 0)), committing(of1(OutcomeDone))), `select 1 from pointsman.told`},
		{"end / cancel of the instance, of one that awaits an event", held, together(committing(of1(OutcomeDone)), canceling(1)), undecided},
		{"purge / cancel, retry of the instance", waits, together(inTurn(canceling(1), retryingWithEvents(1)), purgingTriggers), ""},
		{"create / create, one key", "", together(creating(0, newTrigger(1, 1, 0)), creating(0, newTrigger(2, 1, 0))), `select count(*) from pointsman.triggers having count(*) <> 1`},
		{"create / event that is held", "", together(creating(0, newTrigger(1, 1, 0)), sendingEvent(1, same)), received},
		{"create for an instance / event that is held / cancel of the instance", awaiting(1, 1, "event/e1") + triggerAs(9, 9, 1, inAnHour) + "update pointsman.instances set awaits = '{event/e9}';\n", together(creating(0, newTrigger(2, 1, 1)), sendingEvent(1, same), canceling(1)), ""},
		{"create / create, quota", trigger(1, 0) + quota, together(creating(2, newTrigger(2, 2, 0)), creating(2, newTrigger(3, 3, 0))), limit},
		{"create / create / timeout, quota", trigger(1, 0) + overdue(4, 0), together(creating(2, newTrigger(2, 2, 0)), creating(2, newTrigger(3, 3, 0)), sweepingTriggers), `select 1 where (select count(*) from pointsman.triggers where status = 'waiting') > 2`},
		{"create for an instance / cancel of the instance", awaiting(1, 1, "signal/pay"), together(creating(0, newTrigger(1, 1, 1)), canceling(1)), ""},
		{"create for an instance / end", executing, together(creating(0, newTrigger(1, 1, 1)), committing(of1(OutcomeDone))), ""},
		{"event / end", executing + triggerAs(1, 1, 1, inAnHour), together(sendingEvent(1, same), committing(of1(OutcomeDone))), undecided},
		{"event / cancel of the instance", waits, together(sendingEvent(1, same), canceling(1)), undecided},
		{"event / cancel, retry of the instance", waits, together(sendingEvent(1, same), inTurn(canceling(1), retryingWithEvents(1))), ""},
		{"create again / cancel, retry of the instance", waits, together(creating(0, newTrigger(2, 1, 0)), inTurn(canceling(1), retryingWithEvents(1))), ""},
		{"await an event / it comes", executing, together(settling(0, awaits()), sendingEvent(5, same)), received},
		{"await an event / it comes to all", executing + trigger(2, 0), together(settling(0, awaits()), sendingTo(same)), ""},
		{"await an event / another has the key", executing, together(settling(0, awaits()), creating(0, newTrigger(6, 5, 0))), `select count(*) from pointsman.triggers having count(*) <> 1`},
		{"await an event / await it", executing + leased(91, valid, 2), together(settling(0, awaits()), settling(0, parksOn(2, 91, newTrigger(6, 5, 0)))), `select count(*) from pointsman.triggers having count(*) <> 1`},
		{"await an event / another outcome of the group / another has the key", leased(90, valid, 1, 2), together(settling(0, awaits(), of(2, 90, OutcomeDone)), creating(0, newTrigger(6, 5, 0))), `select 1 from pointsman.instances where id = '00000000-0000-7000-8000-000000000002' and live`},
		{"await an event / cancel of the instance", executing, together(settling(0, awaits()), canceling(1)), ""},
		{"await an event / lease sweep", leased(90, expired, 1), together(settling(0, awaits()), sweepingLeases), ""},
		{"await events, crossing", executing + leased(91, valid, 2), together(settling(0, parksOn(1, 90, newTrigger(5, 5, 0), newTrigger(6, 6, 0))), settling(0, parksOn(2, 91, newTrigger(7, 6, 0), newTrigger(8, 5, 0)))), `select count(*) from pointsman.triggers having count(*) <> 2`},
		{"await it again / timeout", busy, together(settling(0, again()), sweepingTriggers), anew},
		{"await it again / timeout / deliver", busy, together(settling(0, again()), sweepingTriggers, delivering(pay(1, "d1"))), anew},
		{"await it again / cancel of the trigger", busy, together(settling(0, again()), cancelingTrigger(1)), anew},
		{"await it again / it comes", busy, together(settling(0, again()), sendingEvent(1, same)), anew},
		{"pause, resume / timeout", late, together(inTurn(pausing(1), resuming(1)), sweepingTriggers), ""},
		{"pause, resume / cancel of the trigger", waits, together(inTurn(pausing(1), resuming(1)), cancelingTrigger(1)), ""},
		{"pause / resume / it comes", waits, together(pausing(1), resuming(1), sendingEvent(1, same)), ""},
		{"emit / create", executing, together(settling(0, emits(of1(OutcomeNext), 7, same)), creating(0, newTrigger(7, 7, 0))), received},
		{"emit / await it", executing + leased(91, valid, 2), together(settling(0, emits(of1(OutcomeDone), 5, same)), settling(0, parksOn(2, 91, newTrigger(5, 5, 0)))), received},
		{"emits, crossing", leased(90, valid, 1) + leased(91, valid, 2) + triggerAs(1, 1, 1, inAnHour) + triggerAs(2, 2, 2, inAnHour), together(settling(0, emits(parks(1, 90), 2, same)), settling(0, emits(parks(2, 91), 1, same))), `select 1 from pointsman.triggers where status <> 'received'`},
		{"emit / timeout / cancel of the waiter", executing + onEvent(2, byNow), together(settling(0, emits(of1(OutcomeNext), 2, same)), sweepingTriggers, canceling(2)), ""},
		{"emit to its own group", leased(90, valid, 1, 2), together(settling(0, emits(parks(1, 90), 5, same), parksOn(2, 90, newTrigger(5, 5, 0))), sendingEvent(5, same)), received},
		{"event of a message / redelivery", waits, together(sendingEvents(message("d1", same)), sendingEvents(message("d2", same))), received},
		{"event of a message / redelivery / create again", api, together(sendingEvents(message("d1", same)), sendingEvents(message("d2", same)), inTurn(creating(0, newTrigger(2, 1, 0)), creating(0, newTrigger(2, 1, 0)))), onceInAll},
		{"event of a message is held / redelivery / create", "", together(sendingEvents(message("d1", same)), sendingEvents(message("d2", same)), creating(0, newTrigger(2, 1, 0))), received},
		{"event / work", waits, together(sendingEvent(1, same), working(1), working(1)), ""},
		{"event / event, 2 of 2", awaiting(1, 2, "event/e1,event/e2") + triggerAs(1, 1, 1, inAnHour) + triggerAs(2, 2, 1, inAnHour), together(sendingEvent(1, same), sendingEvent(2, same)), `select id from pointsman.instances where parked`},
		{"event / deliver, 2 of 2", awaiting(1, 2, "event/e1,signal/pay") + triggerAs(1, 1, 1, inAnHour), together(sendingEvent(1, same), delivering(pay(1, "d1"))), `select id from pointsman.instances where parked`},
	}
}

// of1 is what the step of instance 1 came to, under lease 90.
func of1(kind string) Outcome { return of(1, 90, kind) }

// triggerSabotages take out what decides a trigger once, and what keeps its instance from waiting in vain.
func triggerSabotages() []sabotage {
	edits := func(field func(*texts) *string, old, new string) []edit { return []edit{{field, old, new}} }
	end := func(t *texts) *string { return &t.endTriggers }
	sweep := func(t *texts) *string { return &t.sweepTriggers }
	lookNew := func(t *texts) *string { return &t.lookNew }
	return []sabotage{
		{"an end does not look whether the trigger waits", edits(end, "t.id = any($1) and "+waits, "t.id = any($1)"), []string{"event / timeout", "event / cancel of the trigger", "event to all / event to all"}},
		{"an end locks no trigger", edits(end, "\n  order by t.id for no key update", ""), []string{"event / timeout, nobody's", "event / cancel of the trigger, nobody's"}},
		{"an end locks no instance", edits(end, "any($2) order by i.id for no key update", "any($2)"), []string{"event / end"}},
		{"a timeout does not look whether the trigger waits", edits(sweep, "t.id = any($1) and "+waits, "t.id = any($1)"), []string{"event / timeout"}},
		{"who is busy is not told", edits(end, "case when x.status <> 'received' and x.live", "case when false and x.live"), []string{"await it again / cancel of the trigger"}},
		{"who is busy is not told of a timeout", edits(sweep, "case when x.status <> 'received' and x.live", "case when false and x.live"), []string{"await it again / timeout", "pause, resume / timeout"}},
		{"nobody is told at the park", edits(func(t *texts) *string { return &t.tell }, "and "+alive+" and i.parked", "and false and i.parked"), []string{"await it again / timeout", "pause, resume / cancel of the trigger"}},
		{"what is missed is forgotten by the commit", edits(func(t *texts) *string { return &t.carryMissed }, "missed_visit + 1", "missed_visit"), []string{"await it again / timeout"}},
		{"the end of an instance cancels nothing", edits(func(t *texts) *string { return &t.clearEnded }, "where t.id = any(array(select id from wl))", "where false"), []string{"create for an instance / cancel of the instance", "event / end"}},
		{"a trigger is made for an instance that has ended", edits(lookNew, "n.instance_id is null or i.live is true", "true"), []string{"create for an instance / cancel of the instance"}},
		{"an await does not look into the inbox", edits(lookNew, "s.name = n.event_key and", "s.name = n.event_key and false and"), []string{"await it again / it comes"}},
		{"what is held is not adopted", edits(lookNew, "h.expires_at > now() order by h.id limit 1) is not null", "false order by h.id limit 1) is not null"), []string{"create / event that is held", "emit / create"}},
		{
			"no locks of event keys", edits(func(t *texts) *string { return &t.lockScopes }, "", `select 1 from unnest($1::bigint[]) h`),
			[]string{"create / event that is held", "emit / await it"},
		},
		{"instances of emitted events are not locked with the own ones", edits(func(t *texts) *string { return &t.resolveEvents }, "where t.instance_id is not null", "where false"), []string{"emits, crossing"}},
		{"a purge takes what waits", edits(func(t *texts) *string { return &t.purgeTriggers }, "status <> 'waiting' and ended_at <= now() - $2::interval", "coalesce(ended_at <= now() - $2::interval, true)"), []string{"event / purge", "event to all / purge", "timeout / purge", "cancel of the trigger / purge", "purge / purge"}},
		{"a quota is not locked", edits(func(t *texts) *string { return &t.lockQuotas }, " order by project for no key update", ""), []string{"create / create, quota"}},
		{"what is created is not counted", edits(func(t *texts) *string { return &t.saveQuotas }, "active_triggers = t.active,", ""), []string{"create / create / timeout, quota"}},
		{"a message is known by its dedup alone", edits(func(t *texts) *string { return &t.lookEvents }, "where n.recheck and l.scope", "where false and l.scope"), []string{"event of a message / redelivery / create again"}},
		{"retry leaves the triggers canceled", edits(func(t *texts) *string { return &t.revive }, "t.id = any($2) then 'waiting'", "false then 'waiting'"), []string{"event / cancel, retry of the instance"}},
		{"retry does not tell of a key that is another's", edits(func(t *texts) *string { return &t.revive }, "case when t.id <> all($2) and", "case when false and"), []string{"create again / cancel, retry of the instance"}},
	}
}
