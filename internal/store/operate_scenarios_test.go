package store

const (
	retriedOnce = `select count(*) from pointsman.history where outcome = 'retry' having count(*) <> 1`
	oneHolder   = `select count(*) from pointsman.instances where live and correlation_key = 'k1' having count(*) <> 1`
	asleep      = "parked = true, due_at = now() - interval '1 s'" // canceled while it awaited until a time that has passed since
)

func retries() []scenario {
	failed := ended(1, "failed", "") + keeps(1, 500, "d0")
	canceled := ended(1, "canceled", asleep) + keeps(1, 500, "d0")
	// What canceled while it slept had been handed does not wake it.
	slept := ended(1, "canceled", asleep+", handed = '{signal/pay}', handed_to = 500") + keeps(1, 500, "d0")
	live := ScopeRunnable | ScopeExecuting | ScopeAwaiting
	return []scenario{
		{"retry / deliver", failed, together(retrying(1), delivering(pay(1, "d1"))), retriedOnce},
		{"retry / deliver by id", failed, together(retrying(1), delivering(signalID(u(1), "pay", "d1"))), retriedOnce},
		{"retry of a sleeper / deliver", slept, together(retrying(1), delivering(pay(1, "d1"))), retriedOnce},
		{"retry of a sleeper / deliver by id / work", slept, together(retrying(1), delivering(signalID(u(1), "pay", "d1")), working(1)), retriedOnce},
		{"retry of a sleeper that was not handed / redelivery", canceled, together(retrying(1), delivering(pay(1, "d0"))), retriedOnce},
		{"retry of a sleeper / timer sweep / deliver", slept, together(retrying(1), sweepingTimers, delivering(pay(1, "d1"))), retriedOnce},
		{"retry / start of its key", failed, together(retrying(1), starting(fresh(2, "k1"))), oneHolder},
		{"retry / start of its key / deliver", failed, together(retrying(1), starting(fresh(2, "k1")), delivering(pay(1, "d1"))), oneHolder},
		{"retry / signal that starts", failed, together(retrying(1), accepting(map[string]NewInstance{"k1": fresh(2, "k1")}, pay(1, "d1"))), oneHolder},
		{"retry / retry", failed, together(retrying(1), retrying(1)), retriedOnce},
		{"retry / retry of the one before / start of their key", failed + formerly(2, key(1)), together(retrying(1), retryingAs(2, 1), starting(fresh(3, "k1"))), oneHolder},
		{"retry / hold / expire held", failed + onHold(1, valid, "d1") + onHold(1, expired, "d2"), together(retrying(1), expiringHeld), `select count(*) from pointsman.witness where dedup_key = 'd1' having count(*) <> 1`},
		{"retry / work / cancel", failed, together(retrying(1), working(1), canceling(1)), retriedOnce},
		{"cancel of what has more / retry", awaiting(1, 1, "signal/other") + inbox(1, 500, "d0"), together(canceling(1), retrying(1)), ""},
		{"cancel, retry / commit", leased(90, valid, 1) + inbox(1, 500, "d0"), together(inTurn(canceling(1), retrying(1)), committing(of(1, 90, OutcomeStop))), `select 1 where not exists (select from pointsman.instances where live)`},
		{"cancel / retry / commit", leased(90, valid, 1) + inbox(1, 500, "d0"), together(canceling(1), retrying(1), committing(of(1, 90, OutcomeStop))), ""},
		{"cancel, retry / lease sweep", leased(90, expired, 1, 2), together(inTurn(canceling(1), retrying(1)), sweepingLeases), ""},
		{"cancel, retry / timer sweep", due(1) + inbox(1, 500, "d0"), together(inTurn(canceling(1), retrying(1)), sweepingTimers), ""},
		{"cancel, retry / timer sweep / timer sweep", due(1), together(inTurn(canceling(1), retrying(1)), sweepingTimers, sweepingTimers), ""},
		{"cancel, retry / deliver / work", awaiting(1, 1, "signal/pay"), together(inTurn(canceling(1), retrying(1)), delivering(pay(1, "d1")), working(1)), ""},
		{"retry, unique / newcomer", failed + scopedUnique(1, uKey, live), together(retrying(1), starting(freshUnique(2, uKey, live))), retriedOnce},
		{"retry, unique / deliver", failed + scopedUnique(1, uKey, live), together(retrying(1), delivering(pay(1, "d1"))), retriedOnce},
		{"retry, unique while awaiting / newcomer / deliver", slept + scopedUnique(1, uKey, ScopeAwaiting), together(retrying(1), starting(freshUnique(2, uKey, live)), delivering(pay(1, "d1"))), retriedOnce},
		{"cancel, retry / late commit / pick, partition key", leased(90, valid, 1) + partitioned(aKey, 1), together(inTurn(canceling(1), retrying(1)), committing(holding(aKey, parks(1, 90))), met(picking(2))), ""},
	}
}

func pauses() []scenario {
	next := committing(of(1, 90, OutcomeNext))
	counts := `select 1 where not exists (select from pointsman.history where outcome in ('next', 'await', 'done'))`
	return []scenario{
		{"pause, pick / commit", leased(90, valid, 1), together(inTurn(pausing(1), without(1)), next), counts},
		{"pause, pick / park / deliver", leased(90, valid, 1), together(inTurn(pausing(1), without(1)), committing(parks(1, 90)), delivering(pay(1, "d1"))), counts},
		{"pause, pick / lease sweep", leased(90, expired, 1), together(inTurn(pausing(1), without(1)), sweepingLeases), ""},
		{"pause, pick / lease sweep / late commit", leased(90, expired, 1), together(inTurn(pausing(1), without(1)), sweepingLeases, next), ""},
		{"pause, pick / deliver", awaiting(1, 1, "signal/pay"), together(inTurn(pausing(1), without(1)), delivering(pay(1, "d1"))), ""},
		{"pause, pick / timer sweep", due(1), together(inTurn(pausing(1), without(1)), sweepingTimers), ""},
		{"timer sweep of a paused / deliver", due(1) + paused(1), together(sweepingTimers, delivering(pay(1, "d1"))), `select id from pointsman.instances where not parked union all select instance_id from pointsman.ready`},
		{"pause / end", leased(90, valid, 1), together(pausing(1), committing(of(1, 90, OutcomeDone))), counts},
		{"pause / pause / park", leased(90, valid, 1), together(pausing(1), pausing(1), committing(parks(1, 90))), counts},
		{"pause / cancel / deliver", awaiting(1, 1, "signal/pay"), together(pausing(1), canceling(1), delivering(pay(1, "d1"))), ""},
		{"cancel of a paused / resume / deliver", awaiting(1, 1, "signal/pay") + paused(1), together(canceling(1), resuming(1), delivering(pay(1, "d1"))), ""},
		{"pause of a waiter, pick / release", leased(90, valid, 1) + partitioned(aKey, 1) + waiting(aKey, queue, 2, 3), together(met(inTurn(pausing(2), without(2))), committing(holding(aKey, parks(1, 90)))), ""},
	}
}

func resumes() []scenario {
	counts := `select 1 where not exists (select from pointsman.history where outcome in ('next', 'await', 'done'))`
	executing := leased(90, valid, 1) + paused(1)
	again := inTurn(pausing(1), resuming(1))
	return []scenario{
		{"pause, resume / deliver", awaiting(1, 1, "signal/pay"), together(again, delivering(pay(1, "d1"))), ""},
		{"pause / resume / deliver", awaiting(1, 1, "signal/pay"), together(pausing(1), resuming(1), delivering(pay(1, "d1"))), ""},
		{"pause, resume / deliver / deliver, 2 of 2", awaiting(1, 2, "signal/a,signal/b"), together(again, delivering(signal(key(1), "a", "d1")), delivering(signal(key(1), "b", "d2"))), ""},
		{"pause, resume / deliver / work", awaiting(1, 1, "signal/pay"), together(again, delivering(pay(1, "d1")), working(1)), ""},
		{"resume / commit", executing, together(resuming(1), committing(of(1, 90, OutcomeNext))), counts},
		{"resume / park / deliver", executing, together(resuming(1), committing(parks(1, 90)), delivering(pay(1, "d1"))), counts},
		{"resume / part of a commit, the rest", leased(90, valid, 1, 2) + paused(1), together(resuming(1), inTurn(committingPart(parks(1, 90)), committing(parks(2, 90)))), counts},
		{"pause, resume / commit", leased(90, valid, 1), together(again, committing(of(1, 90, OutcomeNext))), counts},
		{"resume / pick / pick", ready(1) + paused(1), together(resuming(1), picking(1), picking(1)), ""},
		{"pause, resume / pick", ready(1), together(again, picking(1)), ""},
		{"pause, resume / pick / pick, partition key", ready(1) + ready(2) + partitioned(aKey, 1, 2), together(again, met(picking(2)), met(picking(2))), ""},
		{"resume / release / pick of the waiter", leased(90, valid, 1) + partitioned(aKey, 1) + waiting(aKey, queue, 2) + paused(2), together(resuming(2), committing(holding(aKey, parks(1, 90))), met(picking(2))), ""},
		{"resume / timer sweep", due(1) + paused(1), together(resuming(1), sweepingTimers), ""},
		{"pause, resume / timer sweep / deliver", due(1), together(again, sweepingTimers, delivering(pay(1, "d1"))), ""},
		{"resume / lease sweep", leased(90, expired, 1) + paused(1), together(resuming(1), sweepingLeases), `select 1 from pointsman.ready where not solo`},
		{"resume / lease sweep / late commit", leased(90, expired, 1) + paused(1), together(resuming(1), sweepingLeases, committing(parks(1, 90))), ""},
		{"resume / resume", ready(1) + paused(1), together(resuming(1), resuming(1)), `select count(*) from pointsman.history having count(*) <> 1`},
		{"resume / cancel / pick", ready(1) + paused(1), together(resuming(1), canceling(1), picking(1)), ""},
		{"pause, resume / pick, unique while executing", ready(1) + scopedUnique(1, uKey, ScopeExecuting), together(again, met(picking(1))), ""},
		{"pause, resume / deliver / newcomer, unique while runnable", awaiting(1, 1, "signal/pay") + scopedUnique(1, uKey, ScopeRunnable), together(again, delivering(pay(1, "d1")), starting(freshUnique(2, uKey, ScopeRunnable))), ""},
	}
}
