package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/subjects"
)

// HoldEffects is how long a signal that a step sent to a key that nobody has is kept.
const HoldEffects = time.Hour

// effects are what the outcomes of one project do to other instances.
type effects struct {
	project     string
	byKey, byID []Signal
	starts      []NewInstance
}

// Scopes of the keys that the effects name, in the project of the instance: those whose locks the commit needs.
func (o *Outcome) Scopes() (scopes []uuid.UUID) {
	for _, g := range o.Signals {
		if g.Key != "" {
			scopes = append(scopes, KeyScope(o.Project, g.Key))
		}
	}
	for _, n := range o.Starts {
		scopes = append(scopes, n.Locks(o.Project)...)
	}
	for _, n := range o.Waits {
		scopes = append(scopes, EventScope(o.Project, n.Key))
	}
	for _, e := range o.Emits {
		scopes = append(scopes, EventScope(o.Project, e.Key))
	}
	return scopes
}

// commitEffects is Commit for outcomes that touch other instances, parents among them, or that move in or out of the scope of their unique key. The locks of
// the keys that effects name come first, then one statement locks own and other instances in one ascending order; whom the effects find
// missing stays missing until the end. Unique keys come last, those of the starts with those of the instances that have moved.
func (s *Store) commitEffects(ctx context.Context, os []Outcome, a *outcomeArrays, g Group, settled *Settled) error {
	var scopes []uuid.UUID
	for i := range os {
		scopes = append(scopes, os[i].Scopes()...)
	}
	return s.inTx(ctx, func(tx *Store) error {
		if len(scopes) > 0 {
			if err := tx.LockScopes(ctx, scopes); err != nil {
				return err
			}
		}
		targets, err := tx.resolve(ctx, os)
		if err != nil {
			return err
		}
		if targets, err = tx.resolveEvents(ctx, os, targets); err != nil {
			return err
		}
		if os, a, err = tx.makeTriggers(ctx, os, a, targets, &g, settled); err != nil {
			return err
		}
		if err := tx.run(ctx, tx.commit(a, append(targets, a.ids...), g, settled)); err != nil {
			return err
		}
		if err := tx.emit(ctx, os, settled); err != nil {
			return err
		}
		waiting, err := tx.tellParents(ctx, told(os, settled))
		if err != nil {
			return err
		}
		tx.starting = a.starting
		all := collect(os, settled)
		for _, e := range all {
			if err := tx.send(ctx, e, settled); err != nil {
				return err
			}
		}
		if err := tx.tellParked(ctx, os, settled); err != nil {
			return err
		}
		for _, st := range tx.settle(a, settled) {
			if err := tx.run(ctx, st); err != nil {
				return err
			}
		}
		if err := tx.wakeParents(ctx, waiting, settled.wake); err != nil {
			return err
		}
		for i := range os {
			if os[i].moves() && settled.Counted(&os[i]) {
				tx.moved = append(tx.moved, os[i].ID)
			}
		}
		tx.starting = nil // from here on they are there, those of each project when it begins
		for _, e := range all {
			if err := tx.begin(ctx, e, settled); err != nil {
				return err
			}
		}
		return nil
	})
}

// told are those whose ends counted, and whose parents are told.
func told(os []Outcome, settled *Settled) (ended []uuid.UUID) {
	for i := range os {
		if os[i].tells() && settled.Counted(&os[i]) {
			ended = append(ended, os[i].ID)
		}
	}
	return ended
}

// resolve finds the parents that ends are told, and the instances that effects by key will touch, so that they are locked in one order
// with the others.
func (s *Store) resolve(ctx context.Context, os []Outcome) (targets []uuid.UUID, err error) {
	var projects, keys []string
	for i := range os {
		if os[i].tells() {
			targets = append(targets, os[i].ParentID)
		}
		for _, g := range os[i].Signals {
			if g.Key != "" {
				projects, keys = append(projects, os[i].Project), append(keys, g.Key)
			} else {
				targets = append(targets, g.ID)
			}
		}
	}
	if len(keys) == 0 {
		return targets, nil
	}
	err = s.each(ctx, "resolve", s.text.resolve, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		targets = append(targets, id)
		return err
	}, projects, keys)
	return targets, err
}

// collect sorts the effects of the outcomes that passed by project, in the order of the projects: that is the order of unique keys.
func collect(os []Outcome, settled *Settled) (all []*effects) {
	of := map[string]*effects{}
	for i := range os {
		o := &os[i]
		if !settled.Counted(o) || len(o.Signals)+len(o.Starts) == 0 {
			continue
		}
		e := of[o.Project]
		if e == nil {
			e = &effects{project: o.Project}
			of[o.Project], all = e, append(all, e)
		}
		for _, g := range o.Signals {
			if g.Key != "" {
				e.byKey = append(e.byKey, g)
			} else {
				e.byID = append(e.byID, g)
			}
		}
		e.starts = append(e.starts, o.Starts...)
	}
	slices.SortFunc(all, func(a, b *effects) int { return strings.Compare(a.project, b.project) })
	return all
}

// send delivers the signals of e that have a live target; the others stay in e.
func (s *Store) send(ctx context.Context, e *effects, settled *Settled) (err error) {
	if e.byKey, err = s.sendTo(ctx, e.project, false, e.byKey, settled); err != nil {
		return err
	}
	e.byID, err = s.sendTo(ctx, e.project, true, e.byID, settled)
	return err
}

func (s *Store) sendTo(ctx context.Context, project string, byID bool, sigs []Signal, settled *Settled) (missing []Signal, err error) {
	delivered, err := s.DeliverSlow(ctx, project, byID, sigs)
	if err != nil {
		return nil, err
	}
	var conflicts []DeadLetter
	for i, d := range delivered {
		settled.wake(d.Queue)
		switch d.Verdict {
		case Missing:
			missing = append(missing, sigs[i])
		case Conflict:
			conflicts = append(conflicts, conflictDeadLetter(sigs[i], project))
		}
	}
	return missing, s.AddDeadLetters(ctx, conflicts)
}

// begin runs the starts of e, gives what has started the signals that are for it, and keeps or buries the rest.
func (s *Store) begin(ctx context.Context, e *effects, settled *Settled) error {
	if len(e.starts) > 0 {
		started, err := s.Start(ctx, e.project, e.starts)
		if err != nil {
			return err
		}
		for _, st := range started {
			settled.wake(st.Queue)
		}
		if err := s.unstarted(ctx, e.starts, started, settled); err != nil {
			return err
		}
		if err := s.send(ctx, e, settled); err != nil {
			return err
		}
	}
	if err := s.bury(ctx, e.project, false, e.byKey); err != nil {
		return err
	}
	return s.bury(ctx, e.project, true, e.byID)
}

// unstarted tells parents of children that were not started, and wakes those that wait for no others. Nearly always there are none; a
// parent whose unique key tells one that awaits from one that is ready has it looked at once more then, after those of the starts.
func (s *Store) unstarted(ctx context.Context, ns []NewInstance, started []Start, settled *Settled) error {
	parents, err := s.tellUnstarted(ctx, ns, started)
	if err != nil || len(parents) == 0 {
		return err
	}
	woken, err := s.Recheck(ctx, parents)
	for _, queue := range woken {
		settled.wake(queue)
	}
	return err
}

// bury is for effects without a live target. One for a key that nobody has is held; one for who has ended, or for an id that nobody
// has, is a dead letter.
func (s *Store) bury(ctx context.Context, project string, byID bool, missing []Signal) error {
	verdicts, err := s.Nobody(ctx, project, byID, missing)
	if err != nil {
		return err
	}
	var holds []Hold
	var dead []DeadLetter
	type place struct {
		key   string
		dedup uuid.UUID
	}
	held := map[place]uuid.UUID{}
	for i, v := range verdicts {
		at := place{missing[i].Key, missing[i].Dedup}
		before, again := held[at]
		switch {
		case v.Verdict == Missing && !byID && again:
			if before != missing[i].Hash {
				dead = append(dead, conflictDeadLetter(missing[i], project))
			}
		case v.Verdict == Missing && !byID:
			held[at] = missing[i].Hash
			holds = append(holds, Hold{Signal: missing[i], For: HoldEffects, Original: &Original{Route: EffectsRoute}, Body: missing[i].Payload})
		case v.Verdict == Missing:
			dead = append(dead, effectDeadLetter(missing[i], project, "there is no instance "+missing[i].ID.String()))
		case v.Verdict == Conflict:
			dead = append(dead, conflictDeadLetter(missing[i], project))
		case v.Verdict == Ended:
			dead = append(dead, effectDeadLetter(missing[i], project, "instance "+v.InstanceID.String()+" is "+v.Status+" since "+v.EndedAt.UTC().Format(time.RFC3339)))
		}
	}
	if err := s.Hold(ctx, project, holds); err != nil {
		return err
	}
	return s.AddDeadLetters(ctx, dead)
}

func (settled *Settled) wake(queue string) {
	if queue != "" {
		settled.Woken = append(settled.Woken, queue)
	}
}

// EffectsRoute stands in a dead letter for the route where a step and no message sent the signal.
const EffectsRoute = "effects"

// DeadLetter is one that goes out through the outbox.
type DeadLetter struct {
	Project string
	Route   string
	MsgID   string
	Headers map[string][]string
	Body    []byte
}

// effectDeadLetter is of a signal without a target.
func effectDeadLetter(g Signal, project, why string) DeadLetter {
	return deadEffect(g, project, "effect:"+g.Dedup.String(), subjects.ReasonNoTarget+why)
}

// conflictDeadLetter is for a signal whose dedup key stands for another one: that one stands.
func conflictDeadLetter(g Signal, project string) DeadLetter {
	return deadEffect(g, project, "effect:"+g.Dedup.String()+":"+g.Hash.String(), subjects.ReasonConflict+ConflictOf(g.DedupKey))
}

// ConflictOf says why a Conflict is one.
func ConflictOf(dedupKey string) string {
	return fmt.Sprintf("the dedup key %q was used before with another name or body", dedupKey)
}

func deadEffect(g Signal, project, msgID, reason string) DeadLetter {
	d := DeadLetter{Project: project, Route: EffectsRoute, MsgID: msgID, Body: g.Payload, Headers: map[string][]string{subjects.HeaderReason: {reason}}}
	if g.Key != "" {
		d.Headers[subjects.HeaderCorrelationKey] = []string{g.Key}
	} else {
		d.Headers[subjects.HeaderInstanceID] = []string{g.ID.String()}
	}
	d.describeEffect(g.Name, project, g.DedupKey)
	return d
}

// describeEffect says of a step's signal what it takes to send it again.
func (d *DeadLetter) describeEffect(name, project, dedupKey string) {
	d.Headers[subjects.HeaderSubject] = []string{"signal." + name}
	for header, v := range map[string]string{subjects.HeaderProject: project, subjects.HeaderDedupKey: dedupKey} {
		if v != "" {
			d.Headers[header] = []string{v}
		}
	}
}

// AddDeadLetters puts dead letters into the outbox.
func (s *Store) AddDeadLetters(ctx context.Context, ds []DeadLetter) error {
	if len(ds) == 0 {
		return nil
	}
	projects, routes, msgIDs, headers, bodies := make([]string, len(ds)), make([]string, len(ds)), make([]string, len(ds)), make([]string, len(ds)), make([][]byte, len(ds))
	for i, d := range ds {
		text, err := json.Marshal(d.Headers)
		if err != nil {
			return err
		}
		projects[i], routes[i], msgIDs[i], headers[i], bodies[i] = d.Project, d.Route, d.MsgID, string(text), append([]byte{}, d.Body...)
	}
	return s.each(ctx, "dead letters", s.text.deadLetters, nil, projects, routes, msgIDs, headers, bodies)
}

const resolveText = `
select /* resolve */ i.id from unnest($1::text[], $2::text[]) t(project, key)
cross join lateral (select i.id from pointsman.instances i where i.project = t.project and i.correlation_key = t.key and i.live limit 1) i`

const deadLettersText = `
insert /* dead letters */ into pointsman.outbox (shard, kind, project, subject, msg_id, headers, body)
select get_byte(convert_to(t.msg_id, 'UTF8'), length(convert_to(t.msg_id, 'UTF8')) - 1) & 15, 'dead', t.project, t.route, t.msg_id, t.headers, t.body
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[]) t(project, route, msg_id, headers, body)`
