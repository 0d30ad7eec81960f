package store

import (
	"context"
	"fmt"
	"time"
)

// combinations are of what one who runs ahead, retries, pauses or deletes meets of the others.
func combinations() []scenario {
	message := inbox(1, 500, "d0")
	running := leased(90, valid, 1) + message
	again := goingOn(1, 90, time.Hour)
	moved := `select 1 where not exists (select from pointsman.history where outcome = 'next')`
	waiters := leased(90, valid, 1) + partitioned(aKey, 1)
	release := committing(holding(aKey, parks(1, 90)))
	turns := met(inTurn(picking(1), picking(1)))
	return []scenario{
		{"run ahead / pause, resume", running, together(again, inTurn(pausing(1), resuming(1))), moved},
		{"run ahead / pause, pick / deliver", running, together(again, inTurn(pausing(1), without(1)), delivering(pay(1, "d1"))), moved},
		{"run ahead / cancel / lease sweep", leased(90, expired, 1) + message, together(again, canceling(1), sweepingLeases), ""},
		{"run ahead, its lease is lost / pause, resume / lease sweep", running, together(goingOn(1, 90, -time.Hour), inTurn(pausing(1), resuming(1)), sweepingLeases), moved},
		{"run ahead / cancel, retry / work", running, together(again, inTurn(canceling(1), retrying(1)), working(1)), ""},
		{"effect / resume of its target / work", leased(90, valid, 1) + awaiting(2, 1, "signal/pay") + paused(2), together(committing(parks(1, 90, pay(2, "e1"))), resuming(2), working(2)), ""},
		{"effects / resume, 2 of 2", leased(90, valid, 1) + leased(91, valid, 3) + awaiting(2, 2, "signal/a,signal/b") + paused(2), together(committing(parks(1, 90, signal(key(2), "a", "e1"))), committing(parks(3, 91, signal(key(2), "b", "e2"))), resuming(2)), ""},
		{"effect by key / retry of its target / cancel", leased(90, valid, 1) + ended(2, "canceled", asleep), together(committing(parks(1, 90, pay(2, "e1"))), retrying(2), canceling(2)), ""},
		{"cancel, retry of a waiter / release / pick, pick", waiters + waiting(aKey, queue, 2, 3), together(inTurn(canceling(2), retrying(2)), release, turns), ""},
		{"retirement of a waiter / release / pick, pick", waiters + waiting(aKey, queue, 2, 3) + canceledLongAgo(2), together(retiring(longer), release, turns), ""},
		{"retirement of the promoted / pick", ready(2) + partitioned(aKey, 2) + promoted(2) + canceledLongAgo(2) + waiting(aKey, queue, 3), together(retiring(longer), met(picking(1))), ""},
		{"retirement of the canceled that executes / lease sweep / pick", leased(90, expired, 1) + partitioned(aKey, 1) + waiting(aKey, queue, 2) + canceledLongAgo(1), together(retiring(longer), sweepingLeases, met(picking(1))), ""},
		{
			"end / message that starts, retry of the holder / redelivery", leased(90, valid, 1), together(committing(of(1, 90, OutcomeStop)),
				starting(ofMessage(fresh(2, key(1)), 1, "s")), inTurn(retrying(1), starting(ofMessage(fresh(3, key(1)), 1, "by now")))), oneHolderAtMost,
		},
		{"fenced hold / takeover, deliver / start", expiredRoute, together(fencedSlow(1, pay(1, "old")), inTurn(takingOver(), fencedSlow(2, pay(1, "new"))), starting(fresh(1, key(1)))), outOfOrder},
		{"holds / start, cancel, retry", "", together(inTurn(delivering(pay(1, "d1")), delivering(pay(1, "d2"))), inTurn(starting(fresh(1, key(1))), canceling(1), retrying(1))), adoptedInOrder},
	}
}

const (
	oneHolderAtMost = `select count(*) from pointsman.instances where live and correlation_key = 'k1' having count(*) > 1`
	adoptedInOrder  = `select o.id from pointsman.witness o, pointsman.witness n where o.dedup_key = 'd1' and n.dedup_key = 'd2' and o.id > n.id`
	expiredRoute    = `insert into pointsman.routes (name, epoch, owner, expires_at) values ('r', 1, 'a', now() - interval '1 s');` + "\n"
	outOfOrder      = `select o.id from pointsman.witness o, pointsman.witness n where o.dedup_key = 'old' and n.dedup_key = 'new' and o.id > n.id`
)

// canceledLongAgo is an instance, made before, that was canceled two hours ago: it moved on, and is nowhere but where it was left.
func canceledLongAgo(n int) string {
	return fmt.Sprintf("update pointsman.instances set live = false, status = 'canceled', rev = rev + 1, finished_at = now() - interval '2 h' where id = '%s';\n", u(n)) +
		fmt.Sprintf("insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, body) select 0, 'outcome', id, project, 'm', id || ':' || rev, '' from pointsman.instances where id = '%s';\n", u(n))
}

// promoted says that instance n, ready, has the turn of its partition key.
func promoted(n int) string {
	return fmt.Sprintf("update pointsman.ready r set project = i.project, key = i.partition_key from pointsman.instances i where i.id = r.instance_id and i.id = '%s';\n", u(n))
}

// fencedSlow takes in under an epoch as [delivering] does.
func fencedSlow(epoch int64, sigs ...Signal) op {
	return func(ctx context.Context, s *Store) error {
		f := s.Fenced("r", epoch)
		if err := delivering(sigs...)(ctx, f); !IsFenced(err) {
			return err
		}
		return nil
	}
}
