package store

import (
	"context"
	"fmt"
	"time"
)

// The keys of scenarios: two partition keys and three unique ones, in their order.
const (
	aKey = "K"
	bKey = "L"
	tKey = "T"
	uKey = "U"
	vKey = "V"
)

const (
	unserved = "a-slow" // a queue that nobody picks from
	one      = `select count(*) from pointsman.instances having count(*) <> 1`
)

// partitioned instances have this partition key; those that are leased already hold it.
func partitioned(key string, ns ...int) (sql string) {
	for _, n := range ns {
		sql += fmt.Sprintf("update pointsman.instances set partition_key = '%s' where id = '%s';\n", key, u(n)) +
			fmt.Sprintf(`insert into pointsman.running_keys select i.project, i.partition_key, i.id, x.rev, l.token
				from pointsman.instances i, pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) where i.id = '%s' and x.id = i.id;`+"\n", u(n))
	}
	return sql
}

// waiting instances wait in a queue for the key, in the order in which they are named.
func waiting(key, in string, ns ...int) (sql string) {
	for i, n := range ns {
		sql += instance(n, fmt.Sprintf("partition_key = '%s', queue = '%s'", key, in)) +
			fmt.Sprintf("insert into pointsman.waiters select project, partition_key, queue, '', 0, now() + %d * interval '1 us', id, rev, false from pointsman.instances where id = '%s';\n", i, u(n))
	}
	return sql
}

// scopedUnique gives instance n a unique key; if it is in its scope it holds it.
func scopedUnique(n int, key string, scope int16) string {
	return fmt.Sprintf("update pointsman.instances set unique_key = '%s', unique_scope = %d where id = '%s';\n", key, scope, u(n)) +
		fmt.Sprintf("insert into pointsman.unique_keys select project, unique_key, id from pointsman.instances i where id = '%s' and %s;\n", u(n), occupies)
}

// holding is an outcome of an instance that has this partition key.
func holding(key string, o Outcome) Outcome {
	o.PartitionKey = key
	return o
}

func scoped(o Outcome, scope int16) Outcome {
	o.UniqueScope = scope
	return o
}

func freshUnique(n int, key string, scope int16) NewInstance {
	in := fresh(n, fmt.Sprint("k", n))
	in.UniqueKey, in.UniqueScope = key, scope
	return in
}

// met is o by a worker whose picks have met instances with keys before.
func met(o op) op {
	return func(ctx context.Context, s *Store) error {
		s.shared.keyed.Store(laneName{queue: queue}, true)
		return o(ctx, s)
	}
}

// diverting picks from the queue's own lane as a worker that does not know the machine.
func diverting(ctx context.Context, s *Store) error {
	_, err := s.Pick(ctx, queue, "", "w", []string{"other@1"}, 2, time.Hour)
	return err
}

// pickingDiverted picks from the lane where diverting puts what it meets.
func pickingDiverted(ctx context.Context, s *Store) error {
	_, err := s.Pick(ctx, queue, known[0], "w", known, 2, time.Hour)
	return err
}

func partitions() []scenario {
	parksKeyed := func(n, token int) Outcome { return holding(aKey, parks(n, token)) }
	pair := leased(90, valid, 1) + ready(2) + partitioned(aKey, 1, 2)
	three := ready(1) + ready(2) + ready(3) + partitioned(aKey, 1, 2, 3)
	crossing := ready(1) + ready(2) + ready(3) + ready(4) + partitioned(aKey, 1, 4) + partitioned(bKey, 2, 3)
	waiters := leased(90, valid, 1) + partitioned(aKey, 1)
	stays := fmt.Sprintf(`select 1 from pointsman.waiters where instance_id = '%s'`, u(2))
	return []scenario{
		{"pick / pick, one partition key", three, together(met(picking(1)), met(picking(1))), ""},
		{"pick / pick, one partition key, met for the first time", three, together(picking(1), picking(2)), ""},
		{"pick / pick, crossing partition keys", crossing, together(met(picking(2)), met(picking(2))), ""},
		{"pick / pick / pick, crossing partition keys", crossing, together(met(picking(2)), met(picking(1)), met(picking(2))), ""},
		{"pick-loser / release", pair, together(met(picking(1)), committing(parksKeyed(1, 90))), ""},
		{"pick-loser / pick-loser / release", pair + ready(3) + partitioned(aKey, 3), together(met(picking(1)), met(picking(1)), committing(parksKeyed(1, 90))), ""},
		{"pick-loser, first met / release", pair, together(picking(1), committing(parksKeyed(1, 90))), ""},
		{"release / pick of the promoted / pick", waiters + waiting(aKey, queue, 2) + ready(3) + partitioned(aKey, 3), together(committing(parksKeyed(1, 90)), met(picking(2)), met(picking(2))), ""},
		{"release / cancel of the waiter / pick, pick", waiters + waiting(aKey, queue, 2, 3), together(committing(parksKeyed(1, 90)), canceling(2), met(inTurn(picking(1), picking(1)))), ""},
		{
			"next / cancel of the waiter / pick of both turns, pick", waiters + waiting(aKey, queue, 2, 3),
			together(committing(holding(aKey, of(1, 90, OutcomeNext))), canceling(2), met(inTurn(picking(4), picking(4)))), "",
		},
		{
			"releases of two keys, crossing / pick", leased(90, valid, 1) + leased(91, valid, 2) + partitioned(aKey, 1) + partitioned(bKey, 2) + waiting(aKey, queue, 3) + ready(4) + ready(5) + partitioned(bKey, 4) + partitioned(aKey, 5),
			together(committing(holding(bKey, parks(2, 91))), committing(parksKeyed(1, 90)), met(picking(2))), "",
		},
		{
			"release of two keys / pick, crossing", leased(90, valid, 1, 2) + partitioned(aKey, 1) + partitioned(bKey, 2) + waiting(aKey, queue, 3) + ready(4) + ready(5) + partitioned(bKey, 4) + partitioned(aKey, 5),
			together(committing(holding(bKey, parks(2, 90)), parksKeyed(1, 90)), met(picking(2))), "",
		},
		{"release with waiters of two queues / pick", waiters + waiting(aKey, queue, 2) + waiting(aKey, unserved, 3), together(committing(parksKeyed(1, 90)), met(picking(1))), stays},
		{"diverting pick / release", waiters + waiting(aKey, queue, 2, 3), together(met(diverting), committing(parksKeyed(1, 90))), ""},
		{"diverting pick, pick / release", waiters + waiting(aKey, queue, 2) + ready(3) + partitioned(aKey, 3), together(inTurn(met(diverting), pickingDiverted), committing(parksKeyed(1, 90))), ""},
		{"cancel / pick, partition key", three, together(canceling(1), met(picking(2))), ""},
		{"cancel of the holder / late commit / pick", waiters + waiting(aKey, queue, 2), together(canceling(1), committing(parksKeyed(1, 90)), met(picking(1))), ""},
		{
			"lease sweep / late commit, partition keys", leased(90, expired, 1, 2) + partitioned(aKey, 1) + partitioned(bKey, 2) + waiting(aKey, queue, 3),
			together(sweepingLeases, committing(parksKeyed(1, 90), holding(bKey, of(2, 90, OutcomeNext)))), "",
		},
		{"lease sweep / late commit / pick, partition key", leased(90, expired, 1) + partitioned(aKey, 1) + waiting(aKey, queue, 2), together(sweepingLeases, committing(parksKeyed(1, 90)), met(picking(2))), ""},
		{"lease sweep / cancel of the holder / pick-loser", leased(90, expired, 1) + ready(2) + partitioned(aKey, 1, 2), together(sweepingLeases, canceling(1), met(picking(1))), ""},
		{"lease sweep / lease sweep, partition keys", leased(90, expired, 1) + leased(91, expired, 2) + partitioned(aKey, 1) + partitioned(bKey, 2) + waiting(aKey, queue, 3), together(sweepingLeases, sweepingLeases), ""},
		{"next / work / work, partition key", leased(90, valid, 1) + partitioned(aKey, 1) + ready(2) + partitioned(aKey, 2), together(committing(holding(aKey, of(1, 90, OutcomeNext))), met(working(2)), met(working(2))), ""},
		{
			"part of a commit, the rest / pick, partition keys", leased(90, valid, 1, 2) + partitioned(aKey, 1) + partitioned(bKey, 2) + waiting(aKey, queue, 3) + waiting(bKey, queue, 4),
			together(inTurn(committingPart(parksKeyed(1, 90)), committing(holding(bKey, parks(2, 90)))), met(inTurn(picking(1), picking(1)))), "",
		},
	}
}

func uniques() []scenario {
	live := ScopeRunnable | ScopeExecuting | ScopeAwaiting
	done := func(n, token int, scope int16, starts ...NewInstance) Outcome {
		o := scoped(of(n, token, OutcomeDone), scope)
		o.Starts = starts
		return o
	}
	running := leased(90, valid, 1) + scopedUnique(1, uKey, live)
	return []scenario{
		{"start / start, one unique key", "", together(starting(freshUnique(1, uKey, live)), starting(freshUnique(2, uKey, live))), one},
		{
			"start / start, crossing unique keys", "", together(starting(freshUnique(1, uKey, live), freshUnique(2, vKey, live)), starting(freshUnique(3, vKey, live), freshUnique(4, uKey, live))),
			`select count(*) from pointsman.instances having count(*) <> 2`,
		},
		{
			"start / start / cancel, one unique key", ready(3) + scopedUnique(3, uKey, live), together(starting(freshUnique(1, uKey, live)), starting(freshUnique(2, uKey, live)), canceling(3)),
			`select count(*) from pointsman.instances where live having count(*) > 1`,
		},
		{"end / newcomer", running, together(committing(done(1, 90, live)), starting(freshUnique(2, uKey, live))), ""},
		{"unique re-entry / newcomer", leased(90, valid, 1) + scopedUnique(1, uKey, ScopeRunnable), together(committing(scoped(of(1, 90, OutcomeNext), ScopeRunnable)), starting(freshUnique(2, uKey, ScopeRunnable)), met(picking(1))), ""},
		{"unique re-entry by the lease sweep / newcomer", leased(90, expired, 1) + scopedUnique(1, uKey, ScopeRunnable), together(sweepingLeases, starting(freshUnique(2, uKey, ScopeRunnable))), ""},
		{"unique re-entry by the timer sweep / newcomer / deliver", due(1) + scopedUnique(1, uKey, ScopeRunnable), together(sweepingTimers, starting(freshUnique(2, uKey, ScopeRunnable)), delivering(pay(1, "d1"))), ""},
		{"wake into a unique scope / newcomer", awaiting(1, 1, "signal/pay") + scopedUnique(1, uKey, ScopeRunnable), together(delivering(pay(1, "d1")), starting(freshUnique(2, uKey, ScopeRunnable))), ""},
		{"wake into a unique scope / deliver", awaiting(1, 1, "signal/pay") + scopedUnique(1, uKey, ScopeRunnable), together(delivering(pay(1, "d1")), delivering(pay(1, "d2"))), ""},
		{"wake out of a unique scope / newcomer", awaiting(1, 1, "signal/pay") + scopedUnique(1, uKey, ScopeAwaiting|ScopeExecuting), together(delivering(pay(1, "d1")), starting(freshUnique(2, uKey, live))), ""},
		{"park into a unique scope / deliver / newcomer", leased(90, valid, 1) + scopedUnique(1, uKey, ScopeAwaiting), together(committing(scoped(parks(1, 90), ScopeAwaiting)), delivering(pay(1, "d1")), starting(freshUnique(2, uKey, live))), ""},
		{"pick gives up a unique key / newcomer", ready(1) + scopedUnique(1, uKey, ScopeRunnable), together(met(picking(1)), starting(freshUnique(2, uKey, ScopeRunnable))), ""},
		{"pick takes a unique key / newcomer", ready(1) + scopedUnique(1, uKey, ScopeExecuting), together(picking(1), starting(freshUnique(2, uKey, live))), ""},
		{"cancel / pick, unique while executing", ready(1) + scopedUnique(1, uKey, ScopeExecuting), together(canceling(1), met(picking(1))), `select 1 from pointsman.unique_keys`},
		{"cancel / pick / newcomer, unique while runnable", ready(1) + scopedUnique(1, uKey, ScopeRunnable), together(canceling(1), met(picking(1)), starting(freshUnique(2, uKey, ScopeRunnable))), ""},
		{
			"pick of both keys, loser / release / newcomer", leased(90, valid, 1) + ready(2) + partitioned(aKey, 1, 2) + scopedUnique(2, uKey, ScopeRunnable),
			together(met(picking(1)), committing(holding(aKey, parks(1, 90))), starting(freshUnique(3, uKey, live))), "",
		},
		{
			"pick takes a unique key / guard of a release", leased(90, valid, 1) + ready(2) + ready(3) + partitioned(aKey, 1, 2) + scopedUnique(3, uKey, ScopeExecuting) + scopedUnique(1, uKey, ScopeAwaiting),
			together(met(picking(2)), committing(holding(aKey, scoped(parks(1, 90), ScopeAwaiting)))), "",
		},
		{
			"moves, crossing unique keys / newcomer", leased(90, valid, 1, 2, 5) + leased(91, valid, 3, 4) +
				scopedUnique(1, uKey, ScopeExecuting) + scopedUnique(2, vKey, ScopeRunnable) + scopedUnique(3, vKey, ScopeExecuting) + scopedUnique(4, uKey, ScopeRunnable) + scopedUnique(5, tKey, ScopeRunnable),
			together(starting(freshUnique(6, tKey, live)),
				committing(scoped(of(1, 90, OutcomeNext), ScopeExecuting), scoped(of(2, 90, OutcomeNext), ScopeRunnable), scoped(of(5, 90, OutcomeNext), ScopeRunnable)),
				committing(scoped(of(3, 91, OutcomeNext), ScopeExecuting), scoped(of(4, 91, OutcomeNext), ScopeRunnable))), "",
		},
		{
			"end that starts its successor / newcomer", running, together(committing(done(1, 90, live, freshUnique(2, uKey, live))), starting(freshUnique(3, uKey, live))),
			`select 1 where not exists (select from pointsman.unique_keys where instance_id = '` + u(2).String() + `')`,
		},
		{
			"ends that start, crossing unique keys", running + leased(91, valid, 2) + scopedUnique(2, vKey, live),
			together(committing(done(1, 90, live, freshUnique(3, vKey, live))), committing(done(2, 91, live, freshUnique(4, uKey, live)))), "",
		},
		{
			"start effect / guard, crossing unique keys", running + leased(91, valid, 2) + scopedUnique(2, vKey, ScopeRunnable),
			together(committing(done(1, 90, live, freshUnique(3, vKey, live))), committing(scoped(of(2, 91, OutcomeNext), ScopeRunnable)), starting(freshUnique(4, vKey, live), freshUnique(5, uKey, live))), "",
		},
		{
			"start / start, one unique key, a key between them is taken", ready(5), together(starting(key5(freshUnique(1, uKey, live)), freshUnique(2, vKey, live)), starting(freshUnique(3, uKey, live))),
			`select count(*) from pointsman.instances having count(*) <> 3`,
		},
	}
}

// key5 is a start with the correlation key of instance 5.
func key5(n NewInstance) NewInstance {
	n.CorrelationKey = key(5)
	return n
}
