package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// inSQL are calls of SQL functions in a transaction of a program that has its own tables here. It begins again where Postgres ended it for a
// deadlock, as a program does whose calls are in no order.
func inSQL(calls ...string) op { return userTransaction(true, calls) }

// inSQLRolledBack are the same, and then the program thinks better of it.
func inSQLRolledBack(calls ...string) op { return userTransaction(false, calls) }

func userTransaction(commit bool, calls []string) op {
	return func(ctx context.Context, s *Store) error {
		for {
			err := userAttempt(ctx, s, commit, calls)
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "40P01" {
				return err
			}
		}
	}
}

func userAttempt(ctx context.Context, s *Store, commit bool, calls []string) error {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit it does nothing
	for _, call := range calls {
		s.gate("sql")
		if _, err := tx.Exec(ctx, call, pgx.QueryExecModeExec); err != nil {
			return err
		}
	}
	if !commit {
		s.gate("rollback")
		return tx.Rollback(ctx)
	}
	s.gate("commit")
	return tx.Commit(ctx)
}

// paying is the call that sends what pay does, and notes for the invariants that it did.
func paying(n int, dedup string) string { return sending(n, "pay", dedup) }

func sending(n int, name, dedup string) string {
	return fmt.Sprintf(`with s as materialized (select result from signal('%s', '%s', '{"d": "%s"}', '%s', '%s', on_missing => 'hold', on_terminal => 'drop'))
		insert into accepted select '%s' from s where result in ('delivered', 'held', 'duplicate')`, key(n), name, dedup, dedup, project, dedup)
}

func startingInSQL(n int, key string) string {
	return fmt.Sprintf(`select start('%s', '%s', '{"n": %d}', 'by %d', '%s', version => 1, step => 'begin', queue => '%s')`, machine, key, n, n, project, queue)
}

// beginOnce is startingInSQL where another may have the key.
func beginOnce(n int, key string) string {
	return fmt.Sprintf(`select * from start_many('{%s}', '{%s}', array['{"n": %d}'::jsonb], null, '%s', version => 1, step => 'begin', queue => '%s')`, machine, key, n, project, queue)
}

func sqlScenarios() []scenario {
	nothing := `select 1 from pointsman.witness union all select 2 from pointsman.held union all select 3 from pointsman.ledger union all select 4 from pointsman.instances where not parked and live and awaits <> '{}'`
	deliveredOnce := `select count(*) from pointsman.witness having count(*) <> 1`
	// Key locks are the database's, and who plays another scenario has no part in this deadlock: nobody else has these keys.
	two := awaiting(101, 1, "signal/pay") + awaiting(102, 1, "signal/pay")
	return []scenario{
		{"sql signal / park", leased(90, valid, 1), together(inSQL(paying(1, "d1")), committing(parks(1, 90))), ""},
		{"sql signal, rolled back / park", leased(90, valid, 1), together(inSQLRolledBack(paying(1, "d1")), committing(parks(1, 90))), nothing},
		{"sql signal / park / deliver", leased(90, valid, 1), together(inSQL(paying(1, "d1")), committing(parks(1, 90)), delivering(pay(1, "d2"))), ""},
		{"sql signal / end", leased(90, valid, 1), together(inSQL(paying(1, "d1")), committing(of(1, 90, OutcomeDone))), ""},
		{"sql signal / cancel", awaiting(1, 1, "signal/pay"), together(inSQL(paying(1, "d1")), canceling(1)), ""},
		{"sql signal / timer sweep", due(1), together(inSQL(paying(1, "d1")), sweepingTimers), ""},
		{"sql signal / deliver, one dedup", awaiting(1, 1, "signal/pay"), together(inSQL(paying(1, "d1")), delivering(pay(1, "d1"))), deliveredOnce},
		{"sql signal, rolled back / deliver, one dedup", awaiting(1, 1, "signal/pay"), together(inSQLRolledBack(paying(1, "d1")), delivering(pay(1, "d1"))), deliveredOnce},
		{"sql signal / sql signal, 2 of 2", awaiting(1, 2, "signal/a,signal/b"), together(inSQL(sending(1, "a", "d1")), inSQL(sending(1, "b", "d2"))), ""},
		{"sql signal / deliver, 2 of 2", awaiting(1, 2, "signal/a,signal/b"), together(inSQL(sending(1, "a", "d1")), delivering(signal(key(1), "b", "d2"))), ""},
		{"sql signals / sql signals, crossing", two, together(inSQL(paying(101, "d1"), paying(102, "d2")), inSQL(paying(102, "d3"), paying(101, "d4"))), `select count(*) from pointsman.witness having count(*) <> 4`},
		{"sql hold / sql start", "", together(inSQL(paying(1, "d1")), inSQL(startingInSQL(1, "k1"))), deliveredOnce},
		{"sql hold / start", "", together(inSQL(paying(1, "d1")), starting(fresh(1, "k1"))), deliveredOnce},
		{"sql start / hold", "", together(inSQL(startingInSQL(1, "k1")), delivering(pay(1, "d1"))), deliveredOnce},
		{
			"sql start, rolled back / hold", "", together(inSQLRolledBack(startingInSQL(1, "k1")), delivering(pay(1, "d1"))),
			`select 1 from pointsman.instances union all select count(*) from pointsman.held having count(*) <> 1`,
		},
		{"sql start, signal / start", "", together(inSQL(beginOnce(1, "k1"), paying(1, "d1")), starting(fresh(2, "k1"))), one + " union all " + deliveredOnce},
		{"sql start / sql start, one key", "", together(inSQL(beginOnce(1, "k1")), inSQL(beginOnce(2, "k1"))), one},
	}
}
