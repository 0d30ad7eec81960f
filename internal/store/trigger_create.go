package store

import (
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// NewTrigger is one to be made.
type NewTrigger struct {
	ID             uuid.UUID
	Project        string
	Key            string
	Source         string
	Type           string
	InstanceID     uuid.UUID // Nil: nobody but who asks waits for it
	Step           string
	TimeoutSecs    int64
	NotifyURL      string
	EmitKey        string
	SentBy         string
	RequestPayload []byte

	// Await says that the instance is about to park on the key. A wait for it that the instance has already goes on then.
	Await    bool
	Consumed []int64 // of its inbox, by the same commit
}

// Creation is what became of a new trigger.
type Creation int

// The creations. 0 is of one that was not made because another one that its instance awaits could not be. Known and Missed are of an await:
// the instance waits with the key already, or has its event in the inbox; a trigger of it ended while it was busy, and it is told so when it parks.
const (
	Created Creation = iota + 1
	CreatedReceived
	KeyWaits
	OverQuota
	NoInstance
	Known
	Missed
)

// MadeTrigger is the verdict on a new trigger.
type MadeTrigger struct {
	Key      string // of an outcome that was refused for it
	Creation Creation
	Holder   *uuid.UUID // of KeyWaits: the instance that waits, where it is one
}

// lookNew is what there is of a key for which a trigger is to be made.
type lookNew struct {
	waits, own, held, inbox, live bool
	holder, missed                *uuid.UUID
}

// CreateTriggers makes triggers, in a transaction that holds the locks of their event keys ([EventScope]) and then of their instances. Those
// that one instance awaits stand in a row, and are made all or none. An event that is held for a key is received at once. maxActive is how many
// of a project may wait; 0: any number. ended are those that have received one.
func (s *Store) CreateTriggers(ctx context.Context, ns []NewTrigger, maxActive int) (made []MadeTrigger, ended []EndedTrigger, err error) {
	made = make([]MadeTrigger, len(ns))
	if len(ns) == 0 {
		return made, nil, nil
	}
	c := creation{ns: ns, made: made, taken: map[eventName]uuid.UUID{}}
	if c.looks, err = s.lookNew(ctx, ns); err != nil {
		return nil, nil, err
	}
	if c.room, err = s.roomFor(ctx, &c, maxActive); err != nil {
		return nil, nil, err
	}
	for first := 0; first < len(ns); {
		end := first + 1
		for ns[first].Await && end < len(ns) && ns[end].Await && ns[end].InstanceID == ns[first].InstanceID {
			end++
		}
		c.decide(first, end)
		first = end
	}
	if err := s.insertTriggers(ctx, ns, c.insert, maxActive, made); err != nil {
		return nil, nil, err
	}
	var adopting []uuid.UUID
	for _, i := range c.insert {
		if made[i].Creation == Created && c.looks[i].held {
			adopting = append(adopting, ns[i].ID)
		}
	}
	if len(c.missed) > 0 {
		if err := s.each(ctx, "carry missed", s.text.carryMissed, nil, c.missed); err != nil {
			return nil, nil, err
		}
	}
	ended, err = s.adoptEvents(ctx, adopting)
	for _, e := range ended {
		at := slices.IndexFunc(ns, func(n NewTrigger) bool { return n.ID == e.ID })
		made[at].Creation = CreatedReceived
	}
	return made, ended, err
}

type eventName struct{ project, key string }

// creation is a batch of new triggers that is being decided on.
type creation struct {
	ns    []NewTrigger
	looks []lookNew
	made  []MadeTrigger
	room  map[string]int64 // of projects, for triggers that wait; nil: any number
	taken map[eventName]uuid.UUID

	insert []int
	missed []uuid.UUID
}

// counts says whether a trigger will wait and be counted: one that receives what is held never waits.
func (c *creation) counts(i int) bool { return c.ns[i].Type != TriggerSleep && !c.looks[i].held }

// decide on the triggers from first to before end, which are made all or none.
func (c *creation) decide(first, end int) {
	var insert []int
	var missed []uuid.UUID
	wanted := int64(0)
	for i := first; i < end; i++ {
		n, l := &c.ns[i], &c.looks[i]
		m := l.judge(n, c.taken)
		if m.Creation == Created && c.room != nil && c.counts(i) {
			if wanted++; wanted > c.room[n.Project] {
				m.Creation = OverQuota
			}
		}
		c.made[i] = m
		switch m.Creation {
		case Created:
			insert = append(insert, i)
		case Missed:
			missed = append(missed, *l.missed)
		case KeyWaits, OverQuota, NoInstance:
			for k := first; k < i; k++ {
				c.made[k] = MadeTrigger{}
			}
			return
		}
	}
	for _, i := range insert {
		c.taken[eventName{c.ns[i].Project, c.ns[i].Key}] = c.ns[i].InstanceID
		if c.room != nil && c.counts(i) {
			c.room[c.ns[i].Project]--
		}
	}
	c.insert, c.missed = append(c.insert, insert...), append(c.missed, missed...)
}

// judge says what a new trigger can be, but for the quota. taken are the keys that the batch has used before, by instance.
func (l *lookNew) judge(n *NewTrigger, taken map[eventName]uuid.UUID) MadeTrigger {
	by, again := taken[eventName{n.Project, n.Key}]
	switch {
	case !l.live:
		return MadeTrigger{Creation: NoInstance}
	case again:
		return MadeTrigger{Creation: KeyWaits, Holder: optionalID(by)}
	case n.Await && (l.waits && l.own || l.inbox):
		return MadeTrigger{Creation: Known}
	case l.waits:
		return MadeTrigger{Creation: KeyWaits, Holder: l.holder}
	case n.Await && l.missed != nil:
		return MadeTrigger{Creation: Missed}
	default:
		return MadeTrigger{Creation: Created}
	}
}

func (s *Store) lookNew(ctx context.Context, ns []NewTrigger) ([]lookNew, error) {
	looks := make([]lookNew, len(ns))
	projects, keys, ids, consumed := make([]string, len(ns)), make([]string, len(ns)), make([]*uuid.UUID, len(ns)), make([]string, len(ns))
	for i, n := range ns {
		projects[i], keys[i], ids[i], consumed[i] = n.Project, n.Key, optionalID(n.InstanceID), intArray(n.Consumed)
	}
	err := s.each(ctx, "look for triggers", s.text.lookNew, func(r pgx.Rows) error {
		var ord int
		var l lookNew
		err := r.Scan(&ord, &l.waits, &l.own, &l.holder, &l.held, &l.inbox, &l.missed, &l.live)
		looks[ord-1] = l
		return err
	}, projects, keys, ids, consumed)
	return looks, err
}

func optionalID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// lookNewText (arrays: $1 projects, $2 keys, $3 instances, $4 what they consume). Under the locks of the keys and instances what it finds
// stands: nobody can create a trigger with the key, and who ends one of the instance's needs its lock.
const lookNewText = `
select /* look for triggers */ n.ord::int, w.id is not null, coalesce(w.instance_id = n.instance_id, false), w.instance_id,
  (select h.id from pointsman.held_events h where h.project = n.project and h.event_key = n.event_key and h.expires_at > now() order by h.id limit 1) is not null,
  n.instance_id is not null and (
    select s.id from pointsman.signals s where s.instance_id = n.instance_id and s.kind = 'event' and s.name = n.event_key and s.id <> all(n.consumed::bigint[]) limit 1) is not null,
  (select t.id from pointsman.triggers t where t.instance_id = n.instance_id and t.missed_visit = i.visit and t.project = n.project and t.event_key = n.event_key limit 1),
  n.instance_id is null or i.live is true
from unnest($1::text[], $2::text[], $3::uuid[], $4::text[]) with ordinality n(project, event_key, instance_id, consumed, ord)
left join lateral (select i.live, i.visit from pointsman.instances i where i.id = n.instance_id and i.project = n.project offset 0) i on true
left join lateral (
  select t.id, t.instance_id from pointsman.triggers t where t.project = n.project and t.event_key = n.event_key and t.status = 'waiting' limit 1) w on true`

// carryMissedText ($1 triggers): their instances commit an await of the same keys, which is their next visit, and are told in it.
const carryMissedText = `update /* carry missed */ pointsman.triggers set missed_visit = missed_visit + 1 where id = any($1)`

// roomFor is the room in the quotas of the batch.
func (s *Store) roomFor(ctx context.Context, c *creation, maxActive int) (map[string]int64, error) {
	if maxActive == 0 {
		return nil, nil
	}
	wanted := map[string]int64{}
	for i := range c.ns {
		if c.counts(i) && c.looks[i].judge(&c.ns[i], c.taken).Creation == Created {
			wanted[c.ns[i].Project]++
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	return s.quotaRoom(ctx, wanted, int64(maxActive))
}

// quotaRoom locks the quotas of projects, and says how many more triggers may wait in each. What is wanted and has room is counted as made: if it is
// not, the next count says so.
func (s *Store) quotaRoom(ctx context.Context, wanted map[string]int64, maxActive int64) (room map[string]int64, err error) {
	projects := slices.Sorted(maps.Keys(wanted))
	if err := s.each(ctx, "make quotas", s.text.makeQuotas, nil, projects); err != nil {
		return nil, err
	}
	room = map[string]int64{}
	var recount []string
	err = s.each(ctx, "lock quotas", s.text.lockQuotas, func(r pgx.Rows) error {
		var project string
		var active, counted int64
		if err := r.Scan(&project, &active, &counted); err != nil {
			return err
		}
		if room[project] = maxActive - active; counted != maxActive || active+wanted[project] > maxActive {
			recount = append(recount, project)
		}
		return nil
	}, projects)
	if err == nil && len(recount) > 0 {
		err = s.each(ctx, "count triggers", s.text.countTriggers, func(r pgx.Rows) error {
			var project string
			var active int64
			err := r.Scan(&project, &active)
			room[project] = max(0, maxActive-active)
			return err
		}, recount, maxActive)
	}
	if err != nil {
		return nil, err
	}
	active := make([]int64, len(projects))
	for i, p := range projects {
		active[i] = maxActive - room[p] + min(room[p], wanted[p])
	}
	return room, s.each(ctx, "save quotas", s.text.saveQuotas, nil, projects, active, maxActive)
}

const (
	makeQuotasText = `
insert /* make quotas */ into pointsman.quotas (project) select p from unnest($1::text[]) p order by p on conflict do nothing`

	lockQuotasText = `
select /* lock quotas */ project, active_triggers, max_triggers from pointsman.quotas where project = any($1) order by project for no key update`

	// countTriggersText ($1 projects, $2 limit) is a later statement than the lock: it sees all that were created under it.
	countTriggersText = `
select /* count triggers */ p, (select count(*) from (
  select from pointsman.triggers t where t.project = p and t.status = 'waiting' and t.trigger_type <> 'sleep' limit $2) t)
from unnest($1::text[]) p`

	saveQuotasText = `
update /* save quotas */ pointsman.quotas q set active_triggers = t.active, max_triggers = $3
from unnest($1::text[], $2::bigint[]) t(project, active) where q.project = t.project`
)

func (s *Store) insertTriggers(ctx context.Context, ns []NewTrigger, at []int, maxActive int, made []MadeTrigger) error {
	if len(at) == 0 {
		return nil
	}
	var ids []uuid.UUID
	var instances []*uuid.UUID
	var projects, keys, sources, types []string
	var steps, urls, sentBy, payloads, emits []*string
	var secs []int64
	for _, i := range at {
		n := ns[i]
		made[i].Creation = KeyWaits
		ids, instances, projects, keys = append(ids, n.ID), append(instances, optionalID(n.InstanceID)), append(projects, n.Project), append(keys, n.Key)
		sources, types, steps, secs = append(sources, n.Source), append(types, n.Type), append(steps, optional(n.Step)), append(secs, n.TimeoutSecs)
		urls, sentBy, payloads = append(urls, optional(n.NotifyURL)), append(sentBy, optional(n.SentBy)), append(payloads, optional(string(n.RequestPayload)))
		emits = append(emits, optional(n.EmitKey))
	}
	return s.each(ctx, "create triggers", s.text.createTriggers, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		made[at[slices.Index(ids, id)]].Creation = Created
		return err
	}, ids, projects, keys, sources, types, instances, steps, secs, urls, sentBy, payloads, maxActive, emits)
}

// createTriggersText (arrays: $1 ids, $2 projects, $3 keys, $4 sources, $5 types, $6 instances, $7 steps, $8 seconds, $9 URLs, $10 who
// sent what, $11 payloads; $12 the quota; $13 what steps emit when they are done). What is created without a quota is in no count: the next one that has a quota counts anew.
const createTriggersText = `
with /* create triggers */ uncounted as (
  update pointsman.quotas set max_triggers = 0 where $12::bigint = 0 and project = any($2) and max_triggers <> 0
)
insert into pointsman.triggers (id, project, event_key, source_type, trigger_type, instance_id, step, timeout_secs, requested_at, expires_at, notify_url, sent_by, request_payload, event_emit_key)
select n.id, n.project, n.event_key, n.source, n.type, n.instance_id, n.step, n.secs, c.at, c.at + n.secs * interval '1 s', n.url, n.sent_by, n.payload::jsonb, n.emits
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[], $13::text[])
  n(id, project, event_key, source, type, instance_id, step, secs, url, sent_by, payload, emits)
cross join (select clock_timestamp() as at offset 0) c
on conflict do nothing returning id`
