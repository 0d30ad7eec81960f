package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settings are what the statements of this package are made for. A plan made while a table was near empty would scan it whole until the
// next analyze; jit costs a thousand times what it saves on statements of a millisecond.
var settings = []struct{ name, value string }{
	{"plan_cache_mode", "force_generic_plan"},
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"jit", "off"},
	{"lock_timeout", "10s"},
	// Of a process that stands still, or is cut off, in the middle of a transaction, which keeps its locks from all others.
	{"idle_in_transaction_session_timeout", "10s"},
}

// hastyText is for the search of a row that somebody has locked: all transactions of it together must not take much longer than one
// that waits to the end of its patience.
const hastyText = `select /* hasty */ set_config('lock_timeout', '500ms', true)`

// Hasty is the same store, whose transactions wait half a second for a lock.
func (s *Store) Hasty() *Store {
	hasty := *s
	hasty.patience = &statement{"hasty", s.text.hasty, nil, nil}
	return &hasty
}

// tablesLockedText finds out whether somebody has a table to himself. The nowait fails with lock_not_available.
const tablesLockedText = `
lock table /* tables locked */ pointsman.instances, pointsman.ready, pointsman.signals, pointsman.ledger, pointsman.held in row exclusive mode nowait`

// TablesLocked reports whether a whole table is locked against deliveries (DDL, a vacuum full, a backup of the wrong kind): then a lock
// time-out is an outage, and no row's.
func (s *Store) TablesLocked(ctx context.Context) (bool, error) {
	err := s.inTx(ctx, func(tx *Store) error { return tx.each(ctx, "tables locked", tx.text.tablesLocked, nil) })
	if Blame(err) == BlameLock {
		return true, nil
	}
	return false, err
}

// Tune sets a connection configuration up for the statements of this package. With a pooler in transaction mode between, the next
// transaction may be in another session: no setting of a session holds, and what one has prepared another does not know. So only what
// statements take and return is remembered, each is sent with its text, and planned each time.
func Tune(cfg *pgxpool.Config, pooler bool) {
	if pooler {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		return
	}
	for _, s := range settings {
		cfg.ConnConfig.RuntimeParams[s.name] = s.value
	}
	watchGrowth(cfg)
}

// tuned says that the sessions of a pool have the settings.
func tuned(db *pgxpool.Pool) bool {
	return db.Config().ConnConfig.RuntimeParams[settings[0].name] == settings[0].value
}

// localSettings makes the settings for the rest of the transaction. It goes with the first message of each, and costs no round trip.
var localSettings = func() string {
	calls := make([]string, len(settings))
	for i, s := range settings {
		calls[i] = "set_config('" + s.name + "', '" + s.value + "', true)"
	}
	return "select /* settings */ " + strings.Join(calls, ", ")
}()

// untuned is a pool whose sessions are not ours to set up: its transactions begin with the settings.
type untuned struct{ *pgxpool.Pool }

func (p untuned) Begin(ctx context.Context) (pgx.Tx, error) {
	return p.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin; " + localSettings})
}
