package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What scenarios keep: instances for an hour, ledgers for as long or for a week.
const (
	hour   = time.Hour
	longer = 7 * 24 * time.Hour
)

// over is instance n, which ended two hours ago with a history, two signals that it consumed and a published value.
func over(n int) string {
	id := u(n)
	return instance(n, "live = false, status = 'done', rev = 2, inserted_at = now() - interval '3 h', finished_at = now() - interval '2 h'") + inbox(n, 500+10*n, fmt.Sprint("d", n)) + inbox(n, 501+10*n, fmt.Sprint("e", n)) +
		fmt.Sprintf("delete from pointsman.signals where instance_id = '%s';\n", id) +
		fmt.Sprintf("insert into pointsman.history (instance_id, rev, attempt, step, outcome, consumed) values ('%s', 1, 0, 's', 'next', '{%d}'), ('%s', 2, 0, 's', 'done', '{%d}');\n", id, 500+10*n, id, 501+10*n) +
		fmt.Sprintf("insert into pointsman.events (instance_id, key, rev, value) values ('%s', 'e', 1, '1');\n", id) +
		fmt.Sprintf("insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, body) values (0, 'outcome', '%s', '%s', 'm.done', '%s:2', '{}');\n", id, project, id)
}

// departed is over, noted an hour ago; gone: and deleted.
func departed(n int) string {
	return over(n) + fmt.Sprintf("insert into pointsman.departed (instance_id, due, scope, project) values ('%s', now() - interval '1 h', '%s', '%s');\n", u(n), KeyScope(project, key(n)), project)
}

func gone(n int) string {
	sql := departed(n)
	for _, table := range []string{"history", "events"} {
		sql += fmt.Sprintf("delete from pointsman.%s where instance_id = '%s';\n", table, u(n))
	}
	return sql + fmt.Sprintf("delete from pointsman.instances where id = '%s';\n", u(n))
}

// next is live instance n, which has the key that another had before.
func next(n, before int) string {
	return awaiting(n, 1, "signal/pay") + fmt.Sprintf("update pointsman.instances set correlation_key = '%s', scope = '%s' where id = '%s';\n", key(before), KeyScope(project, key(before)), u(n))
}

func retiring(dedup time.Duration) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Retire(ctx, hour, dedup)
		return err
	}
}

func noting(ctx context.Context, s *Store) error {
	_, err := s.Note(ctx, hour)
	return err
}

func forgetting(ctx context.Context, s *Store) error {
	_, _, err := s.Forget(ctx, hour)
	return err
}

// reviving is what a retry does to an ended instance, as far as it concerns the retention. The step says how long the ledger was then.
func reviving(n int) op {
	return func(ctx context.Context, s *Store) error {
		return s.inTx(ctx, func(tx *Store) error {
			found := false
			err := tx.run(ctx, statement{"lock ended", "select from instances where id = $1 and not live for no key update", []any{u(n)}, func(pgx.Rows) error { found = true; return nil }})
			if err != nil || !found {
				return err
			}
			err = tx.each(ctx, "live again", `update instances i set live = true, status = null, finished_at = null, rev = rev + 1, parked = true, step = (select count(*) from ledger l where l.instance_id = i.id) where id = $1`, nil, u(n))
			if err != nil {
				return err
			}
			return tx.each(ctx, "unpublish", `delete from outbox where instance_id = $1`, nil, u(n)) // the invariants know one end of each
		})
	}
}

// redelivering is of a signal that was taken in, and has to be found out as such, or to get one of the other verdicts.
func redelivering(g Signal, or ...Verdict) op {
	return func(ctx context.Context, s *Store) error {
		ds, err := s.trySlow(ctx, nil, g)
		if err != nil {
			return err
		}
		for _, v := range append(or, Duplicate) {
			if ds[0].Verdict == v {
				return nil
			}
		}
		return fmt.Errorf("verdict %d on a duplicate", ds[0].Verdict)
	}
}

// taken is the signal that over(n) consumed.
func taken(n int) Signal { return signal(key(n), "pay", fmt.Sprint("d", n)) }

func takenID(n int) Signal { return signalID(u(n), "pay", fmt.Sprint("d", n)) }

func retentions() []scenario {
	untouched := `select i.id::text from pointsman.instances i where i.live and i.step <> 'begin' and (i.step <> (select count(*) from pointsman.ledger l where l.instance_id = i.id)::text
		or not exists (select from pointsman.history h where h.instance_id = i.id) or not exists (select from pointsman.events e where e.instance_id = i.id))
		union all select 'retried, and gone' where not exists (select from pointsman.outbox) and not exists (select from pointsman.instances)`
	haveFailed := `update pointsman.instances set status = 'failed';` + "\n"
	whole := `select i.id from pointsman.instances i where i.live and not (exists (select from pointsman.history h where h.instance_id = i.id and h.rev = 1) and exists (select from pointsman.events e where e.instance_id = i.id))`
	unheld := `select 1 from pointsman.held`
	restarted := fmt.Sprintf(`select 1 from pointsman.instances where id = '%s'`, u(2))
	keyed := scopedUnique(1, uKey, ScopeDone)
	return []scenario{
		{"retirement / redelivery by key", over(1), together(retiring(longer), redelivering(taken(1))), unheld},
		{"retirement / redelivery by id", over(1), together(retiring(longer), redelivering(takenID(1))), ""},
		{"retirement / late signal by key", over(1), together(retiring(longer), delivering(pay(1, "late"))), ""},
		{"retirement / late signal by id / redelivery by id", over(1), together(retiring(longer), redelivering(signalID(u(1), "pay", "late"), Ended, Missing), redelivering(takenID(1))), ""},
		{"retirement, forgetting / redelivery by key / start", over(1), together(inTurn(retiring(hour), forgetting), redelivering(taken(1), Held, Delivered), starting(fresh(2, "k1"))), ""},
		{"retirement / retry", over(1), together(retiring(longer), reviving(1)), untouched},
		{"retirement / retry / redelivery", over(1), together(retiring(longer), reviving(1), redelivering(taken(1))), untouched + ` union all ` + `select key from pointsman.held`},
		{"retirement / retry of a failed one", over(1) + haveFailed, together(retiring(longer), retrying(1)), whole},
		{"retirement / retry of a failed one / deliver", over(1) + haveFailed, together(retiring(longer), retrying(1), redelivering(taken(1))), whole},
		{"forgetting / retry of a failed one", departed(1) + haveFailed, together(forgetting, retrying(1)), whole},
		{"retirement / cancel", over(1) + awaiting(2, 1, "signal/pay"), together(retiring(longer), canceling(1, 2)), ""},
		{"retirement / start of its key", over(1), together(retiring(longer), starting(fresh(2, "k1"))), `select 1 where not exists (` + restarted + `)`},
		{"retirement / redelivered start", over(1) + startedBy(1, "s"), together(retiring(longer), starting(deduped(fresh(2, "k1"), "s"))), restarted},
		{"retirement / start, one unique key", over(1) + keyed, together(retiring(longer), starting(freshUnique(2, uKey, live))), ""},
		{"retirement / timer sweep of what it left", over(1) + staleTimer(1) + due(2), together(retiring(longer), sweepingTimers), `select t.instance_id from pointsman.timers t`},
		{"retirement / retirement", over(1) + over(2), together(retiring(longer), retiring(longer)), `select 1 from pointsman.instances`},
		{"retirement, forgetting / the same", over(1) + over(2), together(inTurn(retiring(hour), forgetting), inTurn(retiring(hour), forgetting)), ""},
		{"retirement / note / note", over(1) + over(2), together(retiring(hour), noting, noting), `select 1 from pointsman.instances`},
		{"note / note, forgetting", over(1) + over(2), together(noting, inTurn(noting, forgetting)), ""},
		{"note, forgetting / retry", over(1), together(inTurn(noting, forgetting), reviving(1)), ""},
		{"forgetting / retirement", departed(1), together(forgetting, retiring(hour)), ""},
		{"forgetting / retry", departed(1), together(forgetting, reviving(1)), untouched},
		{"forgetting / retry / deliver", departed(1), together(forgetting, reviving(1), redelivering(signalID(u(1), "pay", "x"), Ended, Missing, Delivered)), ""},
		{"forgetting / forgetting", gone(1) + gone(2), together(forgetting, forgetting), ""},
		{"forgetting / deliver to the next of the key", gone(1) + next(2, 1), together(forgetting, delivering(taken(1)), delivering(pay(1, "x"))), ""},
		{"forgetting / deliver crossing / forgetting", gone(1) + gone(2) + next(3, 1) + next(4, 2), together(forgetting, delivering(taken(2), taken(1)), forgetting), ""},
		{"forgetting / redelivered start", gone(1) + startedBy(1, "s"), together(forgetting, starting(deduped(fresh(2, "k1"), "s"))), ""},
	}
}

// staleTimer is of an await that instance n ended from; it is due.
func staleTimer(n int) string {
	return fmt.Sprintf("insert into pointsman.timers values ('%s', 0, now() - interval '1 s');\n", u(n))
}
