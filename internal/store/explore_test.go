package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

// The explorer plays the orders in which the statements of a few sessions can run, as Postgres's isolation tester does, but the
// sessions are the functions of this package: each stops at its gate before a statement and before a commit, and goes on when it
// is chosen. One that waits for a lock cannot be chosen. Every order begins from the same rows and ends with the invariants.

// op is what a session does.
type op func(ctx context.Context, s *Store) error

type scenario struct {
	name     string
	given    string // SQL that makes the rows every order begins with
	sessions []op
	wrong    string // SQL; what it finds violates the scenario
}

// ordersVar sets how many orders of a scenario are played: all of them where they are not more, else as many, half of them at random.
const ordersVar = "POINTSMAN_EXPLORE_ORDERS"

const (
	defaultOrders = 24
	orderTimeout  = 2 * time.Minute
	pollBlocked   = time.Millisecond // at first; where a session takes longer, twice as long each time, up to
	pollSlow      = 16 * time.Millisecond
)

func ordersOf(t testing.TB) int {
	t.Helper()
	text := os.Getenv(ordersVar)
	if text == "" {
		return defaultOrders
	}
	return must(strconv.Atoi(text))(t)
}

// explorer plays one order at a time on a schema of its own.
type explorer struct {
	schema  string
	text    texts
	monitor *pgx.Conn
	players []*pgx.Conn
	orders  atomic.Int64
	waited  atomic.Int64 // orders in which a session waited for a lock
}

// newExplorers returns as many as can play at once; a parallel subtest takes one and gives it back.
func newExplorers(t *testing.T) chan *explorer {
	free := make(chan *explorer, runtime.GOMAXPROCS(0))
	for range cap(free) {
		db := pgtest.New(t) // an order is told by who waits for whom: nobody may wait for another explorer
		e := &explorer{schema: db.Schema, text: must(New(db.Pool, db.Schema))(t).text}
		for range 4 {
			cfg := must(pgx.ParseConfig(db.URL))(t)
			cfg.RuntimeParams["search_path"] = db.Schema
			cfg.RuntimeParams["plan_cache_mode"], cfg.RuntimeParams["enable_seqscan"] = "force_generic_plan", "off"
			cfg.RuntimeParams["enable_bitmapscan"], cfg.RuntimeParams["jit"] = "off", "off"
			conn := must(pgx.ConnectConfig(t.Context(), cfg))(t)
			t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
			e.players = append(e.players, conn)
		}
		e.monitor, e.players = e.players[0], e.players[1:]
		if err := e.exec(t.Context(), witnesses); err != nil {
			t.Fatal(err)
		}
		free <- e
	}
	t.Cleanup(func() {
		var orders, waited int64
		for range cap(free) {
			e := <-free
			orders, waited = orders+e.orders.Load(), waited+e.waited.Load()
		}
		t.Logf("%d orders, %d with a wait for a lock", orders, waited)
	})
	return free
}

func (e *explorer) exec(ctx context.Context, sql string) error {
	_, err := e.monitor.Exec(ctx, migrations.Qualify(sql, e.schema), pgx.QueryExecModeSimpleProtocol)
	return err
}

// explore plays at most so many orders, and returns what the first bad one violates.
func (e *explorer) explore(ctx context.Context, sc scenario, bound int) (orders, waited int, violations []string, err error) {
	c := &chooser{rng: rand.New(rand.NewPCG(1, 2))}
	for orders < bound {
		o, err := e.play(ctx, sc, c.choose)
		if err != nil {
			return orders, waited, nil, fmt.Errorf("%s: %w", o, err)
		}
		orders++
		if o.waited {
			waited++
		}
		if len(o.violations) > 0 {
			return orders, waited, append(o.violations, "after "+o.String()), nil
		}
		if !c.next(orders >= bound/2) {
			break
		}
	}
	return orders, waited, nil, nil
}

// chooser walks the tree of choices: depth first, then at random.
type chooser struct {
	prefix        []int
	taken, widths []int
	random        bool
	rng           *rand.Rand
}

func (c *chooser) choose(n int) int {
	k := 0
	switch at := len(c.taken); {
	case c.random:
		k = c.rng.IntN(n)
	case at < len(c.prefix):
		k = min(c.prefix[at], n-1)
	}
	c.taken, c.widths = append(c.taken, k), append(c.widths, n)
	return k
}

// next moves on to another order; false: there is none.
func (c *chooser) next(random bool) bool {
	i := len(c.taken) - 1
	for i >= 0 && c.taken[i]+1 >= c.widths[i] {
		i--
	}
	if i >= 0 && !c.random {
		c.prefix = append(append([]int{}, c.taken[:i]...), c.taken[i]+1)
		c.random = random
	}
	c.taken, c.widths = nil, nil
	return i >= 0 || c.random
}

// order is one that was played.
type order struct {
	steps      []string
	waited     bool
	violations []string
}

func (o *order) String() string { return strings.Join(o.steps, ", ") }

// player is a session of an order.
type player struct {
	store *Store
	pid   uint32
	turn  chan struct{}
	at    string // the gate it stands at; "": it runs, or has finished
	done  bool
	err   error
}

// arrival is a player's word that it stands at a gate, or has finished.
type arrival struct {
	player *player
	gate   string
	err    error
}

func (e *explorer) play(ctx context.Context, sc scenario, choose func(int) int) (*order, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	o := &order{}
	if err := e.exec(ctx, "select pointsman.reset();"+sc.given); err != nil {
		return o, err
	}
	arrivals := make(chan arrival, 2*len(sc.sessions))
	players := e.begin(ctx, sc.sessions, arrivals)
	var err error
	for {
		if err = e.settle(ctx, players, arrivals, o); err != nil {
			break
		}
		var standing []int
		for i, p := range players {
			if p.at != "" {
				standing = append(standing, i)
			}
		}
		if len(standing) == 0 {
			break
		}
		i := standing[0]
		if len(standing) > 1 {
			i = standing[choose(len(standing))]
		}
		o.steps = append(o.steps, fmt.Sprintf("%d %s", i+1, players[i].at))
		players[i].at = ""
		players[i].turn <- struct{}{}
	}
	if err != nil { // let everybody run out before the next order
		cancel()
		for _, p := range players {
			for !p.done {
				a := <-arrivals
				a.player.done = a.player.done || a.gate == ""
			}
		}
		return o, err
	}
	e.orders.Add(1)
	if o.waited {
		e.waited.Add(1)
	}
	return o, e.judge(ctx, sc, players, o)
}

func (e *explorer) begin(ctx context.Context, sessions []op, arrivals chan<- arrival) (players []*player) {
	for i, session := range sessions {
		p := &player{pid: e.players[i].PgConn().PID(), turn: make(chan struct{})}
		p.store = &Store{db: e.players[i], text: e.text, shared: &shared{}, gate: func(name string) {
			arrivals <- arrival{player: p, gate: name}
			select {
			case <-p.turn:
			case <-ctx.Done():
			}
		}}
		players = append(players, p)
		go func() { arrivals <- arrival{player: p, err: session(ctx, p.store)} }()
	}
	return players
}

// settle returns when every player stands at a gate, has finished, or waits for a lock that one of these holds. Where all wait for
// one another it is for the server to find the deadlock.
func (e *explorer) settle(ctx context.Context, players []*player, arrivals <-chan arrival, o *order) error {
	for poll := pollBlocked; ; {
		var running []uint32
		standing := 0
		for _, p := range players {
			if p.at != "" {
				standing++
			} else if !p.done {
				running = append(running, p.pid)
			}
		}
		if len(running) == 0 {
			return nil
		}
		select {
		case a := <-arrivals:
			a.player.at, a.player.done, a.player.err = a.gate, a.gate == "", a.err
			poll = pollBlocked
			continue
		case <-time.After(poll):
			poll = min(2*poll, pollSlow)
		case <-ctx.Done():
			return ctx.Err()
		}
		blocked := 0
		const sql = `select count(*) from unnest($1::int[]) pid where cardinality(pg_blocking_pids(pid)) > 0`
		if err := e.monitor.QueryRow(ctx, sql, running).Scan(&blocked); err != nil {
			return err
		}
		if blocked == len(running) && len(arrivals) == 0 {
			o.waited = true
			if standing > 0 {
				return nil
			}
		}
	}
}

// judge collects the errors of the players, and what violates the invariants.
func (e *explorer) judge(ctx context.Context, sc scenario, players []*player, o *order) error {
	for i, p := range players {
		if p.err != nil {
			o.violations = append(o.violations, fmt.Sprintf("session %d: %v", i+1, p.err))
		}
	}
	queries := []string{invariantsText}
	if sc.wrong != "" {
		queries = append(queries, `select 'wrong', v::text from (`+sc.wrong+`) q(v)`)
	}
	for _, sql := range queries { // prepared: to plan them takes longer than the whole order
		rows, err := e.monitor.Query(ctx, migrations.Qualify(sql, e.schema))
		if err != nil {
			return err
		}
		var rule, what string
		_, err = pgx.ForEachRow(rows, []any{&rule, &what}, func() error {
			o.violations = append(o.violations, rule+": "+what)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
