package store

import (
	"context"
	"fmt"
	"time"
)

// update is one to instance n, under an idempotency key.
func update(n int, dedup string) Signal {
	g := signalID(u(n), "decide", dedup)
	g.Kind, g.Dedup, g.Hash = "update", UpdateDedup("decide", dedup), SignalHash("update", "decide", g.Payload)
	return g
}

// updating delivers an update that was accepted, unless it was judged before or its instance has ended.
func updating(n int, dedup string) op {
	return func(ctx context.Context, s *Store) error {
		g := update(n, dedup)
		d, first, err := s.Update(ctx, project, KeyScope(project, key(n)), g)
		switch {
		case err != nil:
			return err
		case first != nil && first.Accepted, first == nil && (d.Verdict == Delivered || d.Verdict == Duplicate):
			return accepted(ctx, s, g)
		case first == nil && d.Verdict != Ended:
			return fmt.Errorf("verdict %d on %s", d.Verdict, dedup)
		}
		return nil
	}
}

// refusing keeps the refusal of an update.
func refusing(n int, dedup string) op {
	return func(ctx context.Context, s *Store) error {
		g := update(n, dedup)
		_, err := s.Refuse(ctx, KeyScope(project, key(n)), g.Dedup, UpdateVerdict{Reason: "no", InstanceID: u(n), Hash: g.Hash})
		return err
	}
}

func forgettingVerdicts(ctx context.Context, s *Store) error {
	_, err := s.ForgetVerdicts(ctx)
	return err
}

// refused is the verdict on an update to instance n, so long ago.
func refused(n int, dedup, ago string) string {
	g := update(n, dedup)
	return fmt.Sprintf(`insert into pointsman.verdicts values ('%s', '%s', '%s', '{"accepted": false, "reason": "no"}', now() - interval '%s');`+"\n", KeyScope(project, key(n)), g.Dedup, g.Hash, ago)
}

// publishing publishes the value of a step that executes instance n at this rev under a lease. That it may not is no error.
func publishing(n, token int, rev int32, value string) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.SetEvent(ctx, Leased{Token: u(token), ID: u(n)}, rev, Event{Key: "progress", Value: []byte(value)})
		return err
	}
}

// pickingAndPublishing picks one and publishes a value of it.
func pickingAndPublishing(value string) op {
	return func(ctx context.Context, s *Store) error {
		works, err := s.Pick(ctx, queue, "", "w", known, 1, time.Hour)
		for _, w := range works {
			_, err = s.SetEvent(ctx, Leased{Token: w.Token, ID: w.ID}, w.Rev, Event{Key: "progress", Value: []byte(value)})
		}
		return err
	}
}

const (
	oneUpdate = `select count(*) from pointsman.witness having count(*) <> 1 union all select count(*) from pointsman.verdicts having count(*) <> 1`
	// asJudged: one verdict stands for the key, and the update is in the inbox if it accepts.
	asJudged = `select 1 where (select count(*) from pointsman.verdicts) <> 1 or (select count(*) from pointsman.witness) <> (select count(*) from pointsman.verdicts where (verdict->>'accepted')::boolean)`
	// lateValue: what the step published before its commit stands in place of what it committed.
	lateValue = `select value from pointsman.events e join pointsman.instances i on i.id = e.instance_id and i.rev > 0 where e.value = '"step"'`
)

func updateScenarios() []scenario {
	const decide = "update/decide"
	awaits := awaiting(1, 1, decide)
	parksOn := func(tags ...string) Outcome {
		o := parks(1, 90)
		o.Awaits = tags
		return o
	}
	commits := of(1, 90, OutcomeNext)
	commits.Events = []Event{{"progress", []byte(`"committed"`)}}
	dueOn := instance(1, "parked = true, awaits = '{"+decide+"}', due_at = now() - interval '1 s'") +
		fmt.Sprintf("insert into pointsman.timers select id, rev, due_at from pointsman.instances where id = '%s';\n", u(1))
	set := publishing(1, 90, 0, `"step"`)
	return []scenario{
		{"update / park", leased(90, valid, 1), together(updating(1, "d1"), committing(parksOn(decide))), oneUpdate},
		{"update / park / work", leased(90, valid, 1), together(updating(1, "d1"), committing(parksOn(decide)), working(1)), oneUpdate},
		{"update / park on two updates / signal of its name", leased(90, valid, 1), together(updating(1, "d1"), committing(parksOn("update/other", decide)), delivering(signal(key(1), "decide", "d2"))), ""},
		{"signal of its name / park on an update", leased(90, valid, 1), together(delivering(signal(key(1), "decide", "d1")), committing(parksOn(decide))), `select 1 where not exists (select from pointsman.instances where parked)`},
		{"update / end", leased(90, valid, 1), together(updating(1, "d1"), committing(of(1, 90, OutcomeDone))), `select 1 where (select count(*) from pointsman.witness) <> (select count(*) from pointsman.verdicts)`},
		{"update / cancel", awaits, together(updating(1, "d1"), canceling(1)), `select 1 where (select count(*) from pointsman.witness) <> (select count(*) from pointsman.verdicts)`},
		{"update / cancel, retry", awaits, together(updating(1, "d1"), inTurn(canceling(1), retrying(1))), ""},
		{"update / timer sweep", dueOn, together(updating(1, "d1"), sweepingTimers), oneUpdate},
		{"update / timer sweep / work, work", dueOn, together(updating(1, "d1"), sweepingTimers, inTurn(working(1), working(1))), oneUpdate},
		{"update / lease sweep", leased(90, expired, 1), together(updating(1, "d1"), sweepingLeases), oneUpdate},
		{"update / pause, resume", awaits, together(updating(1, "d1"), inTurn(pausing(1), resuming(1))), oneUpdate},
		{"update / deliver", awaiting(1, 1, decide+",signal/pay"), together(updating(1, "d1"), delivering(pay(1, "d2"))), ""},
		{"update / deliver, 2 of 2", awaiting(1, 2, decide+",signal/pay"), together(updating(1, "d1"), delivering(pay(1, "d2"))), ""},
		{"update / update, one key", awaits, together(updating(1, "d1"), updating(1, "d1")), oneUpdate},
		{"update / update, one key / work", awaits, together(updating(1, "d1"), updating(1, "d1"), working(1)), oneUpdate},
		{"update / update, one key / end", leased(90, valid, 1), together(updating(1, "d1"), updating(1, "d1"), committing(of(1, 90, OutcomeDone))), `select 1 where (select count(*) from pointsman.witness) <> (select count(*) from pointsman.verdicts)`},
		{"update / update, two keys", awaits, together(updating(1, "d1"), updating(1, "d2")), `select count(*) from pointsman.witness having count(*) <> 2 union all select count(*) from pointsman.verdicts having count(*) <> 2`},
		{"update / refusal, one key", awaits, together(updating(1, "d1"), refusing(1, "d1")), asJudged},
		{"update / refusal, one key / cancel", awaits, together(updating(1, "d1"), refusing(1, "d1"), canceling(1)), asJudged},
		{"refusal / refusal, one key", awaits, together(refusing(1, "d1"), refusing(1, "d1")), asJudged},
		{"update / end of the time of a refusal", awaits + refused(1, "d1", "25 h"), together(updating(1, "d1"), forgettingVerdicts), `select 1 where (select count(*) from pointsman.witness) <> (select count(*) from pointsman.verdicts where (verdict->>'accepted')::boolean)`},
		{"refusal / end of the time of a refusal", awaits + refused(1, "d1", "25 h"), together(refusing(1, "d1"), forgettingVerdicts), `select count(*) from pointsman.verdicts having count(*) > 1`},

		{"set event / commit", leased(90, valid, 1), together(set, committing(commits)), lateValue},
		{"set event / part of a commit", leased(90, valid, 1, 2), together(set, inTurn(committingPart(commits), committing(parks(2, 90)))), lateValue},
		{"set event / commit of another of its lease", leased(90, valid, 1, 2), together(set, committingPart(parks(2, 90)), extending(90)), `select 1 where not exists (select from pointsman.events)`},
		{"set event / lease sweep, pick, set event", leased(90, expired, 1), together(set, inTurn(sweepingLeases, pickingAndPublishing(`"next worker"`))), lateValue},
		{"set event / cancel / deliver", leased(90, valid, 1), together(set, canceling(1), delivering(pay(1, "d1"))), ""},
		{"set event / set event", leased(90, valid, 1), together(set, publishing(1, 90, 0, `"other"`)), ""},
		{"set event under a lease that is gone", ready(1), together(set), `select value from pointsman.events`},
	}
}
