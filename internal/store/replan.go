package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres keeps a session's plans until a table is analyzed again. What was planned beside a few rows reads all of them, which is soon wrong
// where a backlog grows: up to a minute later, or where nobody analyzes, for good. So plans are made anew when a table has outgrown them.
const (
	outgrown  = 4           // times the rows that a table had
	slack     = 500         // and so many more
	growthAge = time.Second // how often the tables are looked at, at most
)

// grownTables are those of the statements that come with messages and steps. Their names are looked up in all schemas: a pool knows no schema, and
// planning once too often costs little.
var grownTables = []string{
	"instances", "ready", "timers", "signals", "ledger", "leases", "held", "outbox", "history", "waiters", "running_keys", "unique_keys",
	"triggers", "held_events", "webhook_deliveries", "events", "departed",
}

// rowsText ($1 tables) asks what Postgres has counted, a second ago or so. The size of a table would be exact, and asking for it waits for whoever
// has that table locked.
const rowsText = `
select /* rows */ array(select pg_stat_get_live_tuples(c.oid) from pg_class c where c.relname = any($1) and c.relkind = 'r' and c.relpersistence = 'p' order by c.oid)`

// growth is what the plans of a pool's sessions were made beside.
type growth struct {
	mu         sync.Mutex
	next       time.Time // when the tables are looked at again
	rows       []int64   // the least since the plans were made
	generation int       // of plans
}

// watchGrowth has the sessions of a pool plan anew what they have prepared, as they are taken from it, when tables have grown.
func watchGrowth(cfg *pgxpool.Config) *growth {
	g := &growth{next: time.Now().Add(growthAge)}
	before := cfg.PrepareConn
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if before != nil {
			if ok, err := before(ctx, conn); !ok || err != nil {
				return ok, err
			}
		}
		if g.prepare(ctx, conn) != nil {
			return !conn.IsClosed(), ctx.Err()
		}
		return true, nil
	}
	return g
}

// plansOf is where a connection keeps the generation of its plans.
const plansOf = "pointsman plans"

func (g *growth) prepare(ctx context.Context, conn *pgx.Conn) error {
	if conn.PgConn().ParameterStatus("server_version") < "15" {
		return nil // who asks it what it has counted may wait for the process that counts
	}
	if g.due() {
		var rows []int64
		if err := conn.QueryRow(ctx, rowsText, grownTables).Scan(&rows); err != nil {
			return err
		}
		g.note(rows)
	}
	g.mu.Lock()
	now := g.generation
	g.mu.Unlock()
	data := conn.PgConn().CustomData()
	had, planned := data[plansOf].(int)
	if !planned { // it is new
		data[plansOf] = now
	}
	if !planned || had == now {
		return nil
	}
	if _, err := conn.Exec(ctx, `discard plans`); err != nil {
		return err
	}
	data[plansOf] = now
	return nil
}

// due reports whether it is time to look, to one caller.
func (g *growth) due() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Before(g.next) {
		return false
	}
	g.next = now.Add(growthAge)
	return true
}

func (g *growth) note(rows []int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	grown := len(g.rows) != len(rows) // the first look, or a migration
	for i := 0; i < len(rows) && !grown; i++ {
		grown = rows[i] > outgrown*g.rows[i]+slack
	}
	if grown {
		g.rows = rows
		g.generation++
		return
	}
	for i, n := range rows {
		g.rows[i] = min(g.rows[i], n)
	}
}
