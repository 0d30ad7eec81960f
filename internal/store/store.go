// Package store holds every SQL statement of the system, one function each, by concern. It takes and returns plain rows, starts
// no goroutine and decides no policy.
//
// All statements need READ COMMITTED. Locks are taken in one order everywhere: advisory key locks (sorted), lease rows (by
// token), instances (by id), the rest. Rows of ready, timers and held are only ever taken with skip locked, so nobody waits on one.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/migrations"
)

// conn is what a transaction or a batch is begun on: a pool, a connection, or a transaction of the caller's.
type conn interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Store runs the statements against one schema of one database.
type Store struct {
	db   conn
	text texts
	// local says that db is a pool without the settings of this package: each transaction makes them.
	local bool
	// gate is called before every statement and before every commit, and nil but in the tests that force interleavings. With a
	// gate nothing is pipelined.
	gate   func(name string)
	shared *shared
	// fence is the first statement of every transaction, where there is one.
	fence *statement
	// patience is for locks, where it is another than that of the settings.
	patience *statement
	// moved are the instances that this transaction has brought into the scope of their unique key, or out of it.
	moved []uuid.UUID
	// starting are the instances that this transaction will start children of yet: whoever asks whether they have live ones is told so.
	starting []uuid.UUID
}

// shared is what all stores that were made of one share.
type shared struct {
	keyed     sync.Map // of laneName: picks from it meet instances with keys
	unguarded atomic.Int64
	diverted  atomic.Int64
}

// New returns a store for the schema ("" is pointsman). Where the pool has not been through [Tune], or there is a pooler, each
// transaction makes the settings of this package for itself.
func New(db *pgxpool.Pool, schema string) (*Store, error) {
	if err := migrations.CheckSchema(schema); err != nil {
		return nil, err
	}
	s := &Store{db: db, text: flawed(newTexts(func(sql string) string { return migrations.Qualify(sql, schema) })), shared: &shared{}}
	if !tuned(db) {
		s.db, s.local = untuned{db}, true
	}
	return s, nil
}

// InTx returns the same store inside a transaction of the caller's, whose settings are the caller's too. It must be READ COMMITTED:
// under a higher level a signal can be held beside its live instance.
func (s *Store) InTx(ctx context.Context, tx pgx.Tx) (*Store, error) {
	var level string
	if err := tx.QueryRow(ctx, `select current_setting('transaction_isolation')`).Scan(&level); err != nil {
		return nil, err
	}
	if level != "read committed" {
		return nil, fmt.Errorf("the transaction is %s: begin it with isolation level read committed", level)
	}
	return s.on(tx), nil
}

// on is the same store inside a transaction.
func (s *Store) on(tx pgx.Tx) *Store {
	return &Store{db: tx, text: s.text, gate: s.gate, shared: s.shared} // what comes first stands at the beginning
}

// statement is one of a transaction's, with what reads each of its rows.
type statement struct {
	name string
	sql  string
	args []any
	scan func(pgx.Rows) error
}

// run executes one statement, inside the caller's transaction where there is one.
func (s *Store) run(ctx context.Context, st statement) error {
	if s.local {
		return s.together(ctx, st)
	}
	if s.gate != nil {
		s.gate(st.name)
	}
	rows, err := s.db.Query(ctx, st.sql, encodable(st.args)...)
	return st.read(rows, err)
}

func (st statement) read(rows pgx.Rows, err error) error {
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			if st.scan != nil {
				err = st.scan(rows)
			}
		}
		rows.Close()
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", st.name, err)
	}
	return nil
}

// together executes statements that do not need one another's results as one transaction in one round trip.
func (s *Store) together(ctx context.Context, sts ...statement) error {
	if s.gate != nil {
		return s.inTx(ctx, func(tx *Store) error {
			for _, st := range sts {
				if err := tx.run(ctx, st); err != nil {
					return err
				}
			}
			return nil
		})
	}
	sts = append(s.first(), sts...)
	if s.local {
		sts = slices.Insert(sts, 0, statement{name: "settings", sql: localSettings})
	}
	batch := &pgx.Batch{}
	for _, st := range sts {
		batch.Queue(st.sql, encodable(st.args)...)
	}
	results := s.db.SendBatch(ctx, batch)
	for _, st := range sts {
		rows, err := results.Query()
		if err := st.read(rows, err); err != nil {
			_ = results.Close()
			return err
		}
	}
	return results.Close()
}

// first are the statements that every transaction begins with.
func (s *Store) first() (sts []statement) {
	for _, st := range []*statement{s.patience, s.fence} {
		if st != nil {
			sts = append(sts, *st)
		}
	}
	return sts
}

// inTx runs fn in a transaction; inside a transaction of the caller's, in a savepoint of it. Its last statement is for the unique keys
// of what fn has moved.
func (s *Store) inTx(ctx context.Context, fn func(tx *Store) error) error {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit it does nothing
	inside := s.on(tx)
	for _, st := range s.first() {
		if err := inside.run(ctx, st); err != nil {
			return err
		}
	}
	if err := fn(inside); err != nil {
		return err
	}
	if _, err := inside.guard(ctx, "", nil, nil); err != nil {
		return err
	}
	if s.gate != nil {
		s.gate("commit")
	}
	return tx.Commit(ctx)
}

// each executes a statement by itself and calls scan for every row.
func (s *Store) each(ctx context.Context, name, sql string, scan func(pgx.Rows) error, args ...any) error {
	return s.run(ctx, statement{name, sql, args, scan})
}
