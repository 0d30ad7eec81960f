package store

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/subjects"
)

// HoldEmitted is how long an event that a step emits is kept for a key that nobody has waited for yet.
const HoldEmitted = HoldEffects

// resolveEvents adds the instances whose triggers the events of the outcomes will end, so that they are locked in one order with the others.
// The locks of the keys are held: no other trigger comes to be meanwhile but by this transaction.
func (s *Store) resolveEvents(ctx context.Context, os []Outcome, targets []uuid.UUID) ([]uuid.UUID, error) {
	var projects, keys []string
	for i := range os {
		for _, e := range os[i].Emits {
			projects, keys = append(projects, os[i].Project), append(keys, e.Key)
		}
	}
	if len(keys) == 0 {
		return targets, nil
	}
	err := s.each(ctx, "resolve events", s.text.resolveEvents, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		targets = append(targets, id)
		return err
	}, projects, keys)
	return targets, err
}

const resolveEventsText = `
select /* resolve events */ t.instance_id from unnest($1::text[], $2::text[]) n(project, event_key)
cross join lateral (
  select t.instance_id from pointsman.triggers t where t.project = n.project and t.event_key = n.event_key and t.status = 'waiting' limit 1) t
where t.instance_id is not null`

// makeTriggers makes the triggers that the outcomes wait for, of those that will count, and leaves out of the group the outcomes that cannot
// have theirs. It takes the locks that the commit would take, in the same order, so that what it finds stands.
func (s *Store) makeTriggers(ctx context.Context, os []Outcome, a *outcomeArrays, targets []uuid.UUID, g *Group, settled *Settled) ([]Outcome, *outcomeArrays, error) {
	if !slices.ContainsFunc(os, func(o Outcome) bool { return len(o.Waits) > 0 }) {
		return os, a, nil
	}
	passing := map[uuid.UUID]int32{}
	err := s.each(ctx, "lock group", s.text.lockGroup, func(r pgx.Rows) error {
		var id uuid.UUID
		var rev int32
		err := r.Scan(&id, &rev)
		passing[id] = rev
		return err
	}, a.tokens, a.ids, a.revs, append(targets, a.ids...), g.Last)
	if err != nil {
		return nil, nil, err
	}
	var ns []NewTrigger
	for i := range os {
		if rev, passes := passing[os[i].ID]; passes && rev == os[i].Rev {
			ns = append(ns, os[i].Waits...)
		}
	}
	made, ended, err := s.CreateTriggers(ctx, ns, g.MaxTriggers)
	if err != nil {
		return nil, nil, err
	}
	for i, m := range made {
		switch m.Creation {
		case KeyWaits, OverQuota, NoInstance:
			if settled.Refused == nil {
				settled.Refused = map[uuid.UUID]MadeTrigger{}
			}
			m.Key = ns[i].Key
			settled.Refused[ns[i].InstanceID] = m
		case Created, CreatedReceived:
			settled.Made = append(settled.Made, ns[i])
		}
	}
	settled.ended(ended)
	if len(settled.Refused) == 0 {
		return os, a, nil
	}
	os = slices.DeleteFunc(slices.Clone(os), func(o Outcome) bool {
		_, refused := settled.Refused[o.ID]
		refused = refused && passing[o.ID] == o.Rev
		if refused {
			g.Last = slices.DeleteFunc(slices.Clone(g.Last), func(token uuid.UUID) bool { return token == o.Token })
		}
		return refused
	})
	a, err = newOutcomeArrays(os)
	return os, a, err
}

// lockGroupText (arrays: $1 tokens, $2 ids, $3 revs; $4 all instances to lock, $5 leases to drop) takes the locks of commitText, and returns
// whose outcome will count.
const lockGroupText = `
with /* lock group */ l as materialized (
  select token from pointsman.leases where token = any($1::uuid[] || $5::uuid[]) order by token for no key update
), lk as materialized (
  select i.id, i.rev, i.live from pointsman.instances i where i.id = any($4) and (select count(*) from l) > 0 order by i.id for no key update
)
select o.id, o.rev from unnest($1::uuid[], $2::uuid[], $3::int[]) o(token, id, rev) join lk using (id)
where lk.rev = o.rev and lk.live and o.token in (select token from l)`

// emit sends the events of the outcomes that passed. One for a key that nobody has used is held; one that its trigger does not take is a
// dead letter.
func (s *Store) emit(ctx context.Context, os []Outcome, settled *Settled) error {
	var sends []EventSend
	for i := range os {
		if settled.Counted(&os[i]) {
			sends = append(sends, os[i].Emits...)
		}
	}
	if len(sends) == 0 {
		return nil
	}
	out, ended, err := s.SendEvents(ctx, sends)
	if err != nil {
		return err
	}
	settled.ended(ended)
	var dead []DeadLetter
	for i, d := range out {
		if why := d.Refusal(sends[i].Key); why != "" {
			reason := subjects.ReasonNoTarget
			if d.Verdict == Conflict {
				reason = subjects.ReasonConflict
			}
			dead = append(dead, deadEvent(&sends[i], reason+why))
		}
	}
	return s.AddDeadLetters(ctx, dead)
}

// tellParked wakes those that have parked on a key whose trigger ended while they were busy.
func (s *Store) tellParked(ctx context.Context, os []Outcome, settled *Settled) error {
	var parked []uuid.UUID
	for i := range os {
		if len(os[i].Waits) > 0 && settled.Counted(&os[i]) {
			parked = append(parked, os[i].ID)
		}
	}
	if len(parked) == 0 {
		return nil
	}
	woken, err := s.Tell(ctx, parked)
	settled.Woken = append(settled.Woken, woken...)
	return err
}

func (settled *Settled) ended(ended []EndedTrigger) {
	settled.Ended = append(settled.Ended, ended...)
	settled.Woken = append(settled.Woken, queuesOf(ended)...)
}
