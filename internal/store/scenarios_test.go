package store

import "testing"

// TestInterleavings plays every scenario in every order of its statements, or in as many as [ordersVar] says.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	free := newExplorers(t)
	bound := ordersOf(t)
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			e := <-free
			defer func() { free <- e }()
			orders, waited, violations, err := e.explore(t.Context(), sc, bound)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range violations {
				t.Error(v)
			}
			t.Logf("%d orders, %d with a wait for a lock", orders, waited)
		})
	}
}

func scenarios() (all []scenario) {
	for _, part := range [][]scenario{deliveries(), slowDeliveries(), sweeps(), starts(), messageStarts(), ends(), effectScenarios(), partitions(), uniques(), aheads(), fences(), retries(), pauses(), resumes(), retentions(), ages(), combinations()} {
		all = append(all, part...)
	}
	all = append(all, rewinds()...)
	all = append(all, triggerScenarios()...)
	all = append(all, joining()...)
	all = append(all, conditions()...)
	all = append(all, updateScenarios()...)
	all = append(all, webhooks()...)
	all = append(all, jobScenarios()...)
	all = append(all, sqlScenarios()...)
	return all
}

// wokenForNothing finds who is ready with nothing of what it awaits.
const wokenForNothing = `
select i.id from pointsman.instances i join pointsman.ready r on r.instance_id = i.id and r.rev = i.rev
where not exists (select from pointsman.signals s where s.instance_id = i.id and s.kind || '/' || s.name = any(i.awaits))`

func pay(n int, dedup string) Signal { return signal(key(n), "pay", dedup) }

func deliveries() []scenario {
	handed := parks(1, 90)
	handed.Handed, handed.HandedTo = []string{"signal/pay"}, 500
	consumed := parks(1, 90)
	consumed.Consumed = []int64{500}
	return []scenario{
		{"deliver / park", leased(90, valid, 1), together(delivering(pay(1, "d1")), committing(parks(1, 90))), ""},
		{"deliver / park again, handed", leased(90, valid, 1) + inbox(1, 500, "d0"), together(delivering(pay(1, "d1")), committing(handed)), ""},
		{"deliver / park, consume", leased(90, valid, 1) + inbox(1, 500, "d0"), together(delivering(pay(1, "d1")), committing(consumed)), ""},
		{"deliver of another name / park, consume", leased(90, valid, 1) + inbox(1, 500, "d0"), together(delivering(signal(key(1), "other", "d1")), committing(consumed)), wokenForNothing},
		{"deliver / next / work", leased(90, valid, 1), together(delivering(pay(1, "d1")), committing(of(1, 90, OutcomeNext)), working(1)), ""},
		{"deliver / work / work", awaiting(1, 1, "signal/pay"), together(delivering(pay(1, "d1"), pay(1, "d2")), working(1), working(1)), ""},
		{"deliver / end", leased(90, valid, 1), together(delivering(pay(1, "d1")), committing(of(1, 90, OutcomeDone))), ""},
		{"deliver / cancel", awaiting(1, 1, "signal/pay"), together(delivering(pay(1, "d1")), canceling(1)), ""},
		{"deliver / deliver, one dedup", awaiting(1, 1, "signal/pay"), together(delivering(pay(1, "d1")), delivering(pay(1, "d1"))), ""},
		{
			"deliver / deliver, crossing", awaiting(1, 1, "signal/pay") + awaiting(2, 1, "signal/pay"),
			together(delivering(pay(1, "d1"), pay(2, "d2")), delivering(pay(2, "d3"), pay(1, "d4"))), "",
		},
		{
			"deliver / deliver, crossing / cancel", awaiting(1, 1, "signal/pay") + awaiting(2, 2, "signal/a,signal/b"),
			together(delivering(pay(1, "d1"), signal(key(2), "a", "d2")), delivering(signal(key(2), "b", "d3"), pay(1, "d4")), canceling(2)), "",
		},
		{"deliver by key / by id", awaiting(1, 1, "signal/pay"), together(delivering(pay(1, "d1")), delivering(signalID(u(1), "pay", "d1"))), ""},
		{"deliver by key / by id / end", leased(90, valid, 1), together(delivering(pay(1, "d1")), delivering(signalID(u(1), "pay", "d1")), committing(of(1, 90, OutcomeDone))), ""},
	}
}

func slowDeliveries() []scenario {
	both := parks(1, 90)
	both.Awaits, both.AwaitN = []string{"signal/a", "signal/b"}, 2
	message := sourced(pay(1, "d1"), 1)
	return []scenario{
		{"deliver / deliver, 2 of 2", awaiting(1, 2, "signal/a,signal/b"), together(delivering(signal(key(1), "a", "d1")), delivering(signal(key(1), "b", "d2"))), ""},
		{"deliver / deliver by id, 2 of 2", awaiting(1, 2, "signal/a,signal/b"), together(delivering(signalID(u(1), "a", "d1")), delivering(signalID(u(1), "b", "d2"))), ""},
		{"deliver / deliver by id, 2 of 2, one dedup", awaiting(1, 2, "signal/a,signal/b"), together(delivering(signalID(u(1), "a", "d1")), delivering(signalID(u(1), "a", "d1"))), ""},
		{"deliver / deliver / park, 2 of 2", leased(90, valid, 1), together(delivering(signal(key(1), "a", "d1")), delivering(signal(key(1), "b", "d2")), committing(both)), ""},
		{"deliver / redelivery", awaiting(1, 1, "signal/pay"), together(delivering(message), delivering(again(message, "d1"))), ""},
		{"redelivery / under another dedup", awaiting(1, 1, "signal/pay"), together(delivering(again(message, "d1")), delivering(again(message, "d2"))), `select count(*) from pointsman.witness having count(*) <> 1`},
		{
			"redelivery by id / under another dedup", awaiting(1, 2, "signal/a,signal/b"),
			together(delivering(again(sourced(signalID(u(1), "a", "d1"), 1), "d1")), delivering(again(sourced(signalID(u(1), "a", "d1"), 1), "d2"))), `select count(*) from pointsman.witness having count(*) <> 1`,
		},
	}
}

func sweeps() []scenario {
	return []scenario{
		{"deliver / timer sweep", due(1), together(delivering(pay(1, "d1")), sweepingTimers), ""},
		{"deliver / timer sweep / pick", due(1), together(delivering(pay(1, "d1")), sweepingTimers, picking(2)), ""},
		{"deliver / timer sweep / work, work", due(1), together(delivering(pay(1, "d1")), sweepingTimers, inTurn(working(2), working(2))), ""},
		{"timer sweep / timer sweep", due(1) + due(2), together(sweepingTimers, sweepingTimers), ""},
		{"timer sweep / cancel", due(1), together(sweepingTimers, canceling(1)), ""},
		{"lease sweep / late commit", leased(90, expired, 1, 2), together(sweepingLeases, committing(of(1, 90, OutcomeNext), parks(2, 90))), ""},
		{"lease sweep / late commit / work", leased(90, expired, 1), together(sweepingLeases, committing(parks(1, 90)), working(1)), ""},
		{"lease sweep / lease sweep", leased(90, expired, 1, 2) + leased(91, expired, 3), together(sweepingLeases, sweepingLeases), ""},
		{"lease sweep / deliver", leased(90, expired, 1), together(sweepingLeases, delivering(pay(1, "d1"))), ""},
		{"lease sweep / cancel", leased(90, expired, 1, 2), together(sweepingLeases, canceling(2, 1)), ""},
		{"lease sweep / heartbeat, commit", leased(90, expired, 1), together(sweepingLeases, inTurn(extending(90), committing(parks(1, 90)))), ""},
		{"lease sweep / part of a commit, the rest", leased(90, expired, 1, 2), together(sweepingLeases, inTurn(committingPart(parks(1, 90)), committing(parks(2, 90)))), ""},
		{"commit of two leases / sweep of one", leased(90, expired, 1, 3) + leased(91, valid, 2, 4), together(committing(parks(4, 91), parks(3, 90), of(2, 91, OutcomeDone), of(1, 90, OutcomeNext)), sweepingLeases), ""},
		{"commit that drops another lease / sweep of it / deliver", leased(90, expired, 1, 2) + hasParked(1) + pickedAgain(2, 91), together(dropping(90, withRev(parks(2, 91), 1)), sweepingLeases, delivering(pay(1, "d1"))), ""},
		{"pick / pick", ready(1) + ready(2), together(picking(1), picking(2)), ""},
		{"pick / pick / deliver", ready(1) + awaiting(2, 1, "signal/pay"), together(picking(2), picking(2), delivering(pay(2, "d1"), pay(1, "d2"))), ""},
		{"cancel / pick", ready(1) + ready(2), together(canceling(1), picking(2)), ""},
	}
}

func starts() []scenario {
	message := sourced(pay(1, "d1"), 1)
	deliveredOnce := `select count(*) from pointsman.witness having count(*) <> 1`
	return []scenario{
		{"start / start, one key", "", together(starting(fresh(1, "k1")), starting(fresh(2, "k1"))), one},
		{"start / start, crossing keys", "", together(starting(fresh(1, "k1"), fresh(2, "k2")), starting(fresh(3, "k2"), fresh(4, "k1"))), `select count(*) from pointsman.instances having count(*) <> 2`},
		{"start / start, one dedup, no key", "", together(starting(deduped(fresh(1, ""), "d")), starting(deduped(fresh(2, ""), "d"))), one},
		{"hold / start", "", together(delivering(pay(1, "d1")), starting(fresh(1, "k1"))), deliveredOnce},
		{"hold / hold, one dedup / start", "", together(delivering(pay(1, "d1")), delivering(pay(1, "d1")), starting(fresh(1, "k1"))), deliveredOnce},
		{"redelivery held / under another dedup / start", "", together(delivering(again(message, "d1")), delivering(again(message, "d2")), starting(fresh(1, "k1"))), deliveredOnce},
		{
			"hold of two keys, crossing / start", "", together(delivering(pay(1, "d1"), pay(2, "d2")), delivering(pay(2, "d3"), pay(1, "d4")), starting(fresh(1, "k1"))),
			`select count(*) from (select from pointsman.witness union all select from pointsman.held) x having count(*) <> 4`,
		},
		{
			"signal that starts / signal that starts", "", together(accepting(map[string]NewInstance{"k1": fresh(1, "k1")}, pay(1, "d1")), accepting(map[string]NewInstance{"k1": fresh(2, "k1")}, pay(1, "d2"))),
			one + ` union all select count(*) from pointsman.witness having count(*) <> 2`,
		},
		{"signal that starts / hold", "", together(accepting(map[string]NewInstance{"k1": fresh(1, "k1")}, pay(1, "d1")), delivering(pay(1, "d2"))), `select count(*) from pointsman.witness having count(*) <> 2`},
		{
			"expire held / start", onHold(1, expired, "d1") + onHold(1, valid, "d2"), together(expiringHeld, starting(fresh(1, "k1"))),
			`select 1 where (select count(*) from pointsman.witness) <> 1 or (select count(*) from pointsman.outbox where kind = 'dead') <> 1`,
		},
		{"expire held / expire held / hold", onHold(1, expired, "d1"), together(expiringHeld, expiringHeld, delivering(pay(1, "d1"))), ""},
		{"end / redelivery / start", leased(90, valid, 1) + inbox(1, 500, "d1"), together(committing(of(1, 90, OutcomeDone)), delivering(pay(1, "d1")), starting(fresh(2, "k1"))), `select 1 from pointsman.held`},
		{"end / redelivered start", leased(90, valid, 1) + startedBy(1, "s"), together(committing(of(1, 90, OutcomeDone)), starting(deduped(fresh(2, "k1"), "s"))), one},
	}
}

// messageStarts are starts by messages that come again, to another bridge, under another dedup key. The third instance is that of the
// redelivery, and one too many.
func messageStarts() []scenario {
	first := func(key string) NewInstance { return ofMessage(fresh(2, key), 1, "s") }
	anew := func(key string) NewInstance { return ofMessage(fresh(3, key), 1, "by now") }
	const notTwice = `select 1 from pointsman.instances where id = '00000000-0000-7000-8000-000000000003'`
	return []scenario{
		{"start by a message / redelivery under another dedup, no key", "", together(starting(first("")), starting(anew(""))), one},
		{"start by a message / redelivery under another dedup", "", together(starting(first("k2")), starting(anew("k2"))), one},
		{"start by a message / redelivery under another dedup / work to the end", "", together(inTurn(starting(first("k2")), starting(anew("k2"))), ending(2)), notTwice},
		{"end / start by a message, redelivery", leased(90, valid, 1), together(committing(of(1, 90, OutcomeDone)), inTurn(starting(first(key(1))), starting(anew(key(1))))), notTwice},
		{
			"end / start by a message, redelivery, one unique key", leased(90, valid, 1) + scopedUnique(1, uKey, 7),
			together(committing(scoped(of(1, 90, OutcomeDone), 7)), inTurn(starting(withUnique(first("k2"), uKey)), starting(withUnique(anew("k2"), uKey)))), notTwice,
		},
	}
}

func ends() []scenario {
	consumed := of(1, 90, OutcomeNext)
	consumed.Consumed = []int64{500}
	return []scenario{
		{"cancel / commit", leased(90, valid, 1), together(canceling(1), committing(of(1, 90, OutcomeDone))), ""},
		{"cancel of the one / commit of both / deliver", leased(90, valid, 1, 2), together(canceling(2), committing(parks(2, 90), parks(1, 90)), delivering(pay(1, "d1"), pay(2, "d2"))), ""},
		{"cancel / commit / deliver", leased(90, valid, 1, 2), together(canceling(2, 1), committing(parks(2, 90), parks(1, 90)), delivering(pay(1, "d1"), pay(2, "d2"))), ""},
		{"cancel / cancel", awaiting(1, 1, "signal/pay") + awaiting(2, 1, "signal/pay"), together(canceling(1, 2), canceling(2, 1)), ""},
		{"commit / the same commit", leased(90, valid, 1, 2) + inbox(1, 500, "d1"), together(committingPart(consumed), committingPart(consumed)), `select count(*) from pointsman.history having count(*) <> 1`},
		{"commit / commit of one lease", leased(90, valid, 1, 2), together(committingPart(parks(1, 90)), committingPart(parks(2, 90))), ""},
		{"commit / commit, crossing leases", leased(90, valid, 1, 2) + leased(91, valid, 3, 4), together(committingPart(parks(1, 90), parks(4, 91)), committingPart(parks(3, 91), parks(2, 90))), ""},
	}
}

func effectScenarios() []scenario {
	two := leased(90, valid, 1) + leased(91, valid, 2)
	ending := func(n, token int, effect Signal) Outcome {
		o := of(n, token, OutcomeDone)
		o.Signals = []Signal{effect}
		return o
	}
	starts := of(1, 90, OutcomeNext)
	starts.Starts = []NewInstance{fresh(2, "k2")}
	also := of(3, 91, OutcomeNext)
	also.Starts, also.Signals = []NewInstance{fresh(4, "k2")}, []Signal{pay(2, "e2")}
	return []scenario{
		{"effects, crossing", two, together(committing(parks(1, 90, pay(2, "e1"))), committing(parks(2, 91, pay(1, "e2")))), ""},
		{"effects by id, crossing", two, together(committing(parks(1, 90, signalID(u(2), "pay", "e1"))), committing(parks(2, 91, signalID(u(1), "pay", "e2")))), ""},
		{"effects, crossing, both end", two, together(committing(ending(1, 90, pay(2, "e1"))), committing(ending(2, 91, pay(1, "e2")))), ""},
		{"effects, crossing / deliver", two, together(committing(parks(1, 90, pay(2, "e1"))), committing(parks(2, 91, pay(1, "e2"))), delivering(pay(2, "d1"), pay(1, "d2"))), ""},
		{"effect within the group / deliver", leased(90, valid, 1, 2), together(committing(parks(1, 90, pay(2, "e1")), parks(2, 90)), delivering(pay(2, "d1"))), ""},
		{"effect / cancel of the target", leased(90, valid, 1) + awaiting(2, 1, "signal/pay"), together(committing(parks(1, 90, pay(2, "e1"))), canceling(2)), ""},
		{
			"effect / lease sweep", leased(90, expired, 1) + awaiting(2, 1, "signal/pay"), together(committing(parks(1, 90, pay(2, "e1"))), sweepingLeases),
			`select w.id from pointsman.witness w where not exists (select from pointsman.history)`,
		},
		{"effect to nobody / start", leased(90, valid, 1), together(committing(parks(1, 90, pay(2, "e1"))), starting(fresh(2, "k2"))), `select 1 where not exists (select from pointsman.witness)`},
		{
			"effect to nobody / hold of its dedup / start", leased(90, valid, 1), together(committing(parks(1, 90, pay(2, "e1"))), delivering(pay(2, "e1")), starting(fresh(2, "k2"))),
			`select count(*) from pointsman.witness having count(*) <> 1`,
		},
		{"effect starts / start of its key", leased(90, valid, 1), together(committing(starts), starting(fresh(3, "k2"))), `select count(*) from pointsman.instances where correlation_key = 'k2' having count(*) <> 1`},
		{
			"effects start one key", leased(90, valid, 1) + leased(91, valid, 3), together(committing(starts), committing(also)),
			`select count(*) from pointsman.instances where correlation_key = 'k2' having count(*) <> 1 union all select count(*) from pointsman.witness having count(*) <> 1`,
		},
		{"effect / work of the target", leased(90, valid, 1) + awaiting(2, 1, "signal/pay"), together(committing(parks(1, 90, pay(2, "e1"))), working(2), delivering(pay(2, "d1"))), ""},
	}
}
