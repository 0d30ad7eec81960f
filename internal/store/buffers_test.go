package store

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/migrations"
)

// touches is something that the store does to a batch, and how many buffers that may cost: so many an item, and so many besides.
type touches struct {
	name          string
	each, besides int
	// prepare makes it ready, and returns what is measured.
	prepare func(f *fixture, tx *Store, n int) func() error
}

// call is a case that needs no preparation.
func call(fn func(f *fixture, tx *Store, n int) error) func(*fixture, *Store, int) func() error {
	return func(f *fixture, tx *Store, n int) func() error { return func() error { return fn(f, tx, n) } }
}

// signalsTo makes a signal for each of n keys with a prefix.
func signalsTo(prefix, name string, n int) (sigs []Signal) {
	for i := range n {
		sigs = append(sigs, signal(fmt.Sprint(prefix, dueOnes+1+i), name, "d"))
	}
	return sigs
}

// idsOf are the instances with such keys.
func (f *fixture) idsOf(prefix string, n int) (ids []uuid.UUID) {
	f.t.Helper()
	rows := must(f.db.Pool.Query(f.t.Context(), migrations.Qualify(`
		select i.id from generate_series($2::int, $3) g join pointsman.instances i on i.project = 'p' and i.correlation_key = $1 || g`, f.schema), prefix, dueOnes+1, dueOnes+n))(f.t)
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		must(0, rows.Scan(&id))(f.t)
		ids = append(ids, id)
	}
	return ids
}

// touchCommit settles n instances that were ready, each with what makes an outcome of its work.
func touchCommit(from string, of func(i int, w Work) Outcome) func(*fixture, *Store, int) func() error {
	return func(f *fixture, tx *Store, n int) func() error {
		var works []Work
		for len(works) < n {
			more := must(tx.Pick(f.t.Context(), from, "", "w", known, n-len(works), time.Minute))(f.t)
			if len(more) == 0 {
				f.t.Fatalf("%s has only %d", from, len(works))
			}
			works = append(works, more...)
		}
		os := make([]Outcome, n)
		for i := range os {
			os[i] = of(i, works[i])
		}
		return func() error {
			settled, err := tx.tryCommit(f.t.Context(), os...)
			if err == nil && len(settled.Passed) != n {
				err = fmt.Errorf("%d of %d passed", len(settled.Passed), n)
			}
			return err
		}
	}
}

func plainly(kind string) func(int, Work) Outcome {
	return func(_ int, w Work) Outcome { return outcome(w, kind) }
}

func withTimer(o Outcome) Outcome {
	hour := time.Hour
	o.Delay, o.Timed = &hour, true
	return o
}

func touchPick(from string) func(*fixture, *Store, int) func() error {
	return call(func(f *fixture, tx *Store, n int) error {
		works, err := tx.Pick(f.t.Context(), from, "", "w", known, n, time.Minute)
		if err == nil && len(works) < min(n, 2)/2 {
			err = fmt.Errorf("picked %d of %d", len(works), n)
		}
		return err
	})
}

func touchList(filter Filter) func(*fixture, *Store, int) func() error {
	filter.Project = project
	return call(func(f *fixture, tx *Store, n int) error {
		_, _, err := tx.List(f.t.Context(), filter, uuid.Max, n)
		return err
	})
}

// allTouches are the statements whose cost must not grow with the tables.
var allTouches = []touches{
	{"deliver, waking", 50, 100, call(func(f *fixture, tx *Store, n int) error {
		return wanting(n, Delivered)(tx.Deliver(f.t.Context(), project, false, signalsTo("k", "pay", n)))
	})},
	{"deliver, not waking", 40, 100, call(func(f *fixture, tx *Store, n int) error {
		return wanting(n, Delivered)(tx.Deliver(f.t.Context(), project, false, signalsTo("k", "note", n)))
	})},
	{"deliver, duplicates", 40, 100, func(f *fixture, tx *Store, n int) func() error {
		must(tx.Deliver(f.t.Context(), project, false, signalsTo("k", "note", n)))(f.t)
		return func() error {
			return wanting(n, Duplicate)(tx.Deliver(f.t.Context(), project, false, signalsTo("k", "note", n)))
		}
	}},
	{"deliver by id", 60, 100, func(f *fixture, tx *Store, n int) func() error {
		var sigs []Signal
		for _, id := range f.idsOf("k", n) {
			sigs = append(sigs, signalID(id, "pay", "d"))
		}
		return func() error { return wanting(n, Delivered)(tx.Deliver(f.t.Context(), project, true, sigs)) }
	}},
	{"deliver, slow", 80, 100, call(func(f *fixture, tx *Store, n int) error {
		sigs := signalsTo("k", "pay", n)
		for i := range sigs {
			sigs[i] = again(sourced(sigs[i], uint64(i)), "again")
		}
		return wanting(n, Delivered)(tx.DeliverSlow(f.t.Context(), project, false, sigs))
	})},
	{"nobody: new keys", 15, 60, call(func(f *fixture, tx *Store, n int) error {
		return wanting(n, Missing)(tx.Nobody(f.t.Context(), project, false, signalsTo("new", "pay", n)))
	})},
	{"nobody: held keys", 15, 60, call(func(f *fixture, tx *Store, n int) error {
		return wanting(n, Missing)(tx.Nobody(f.t.Context(), project, false, signalsTo("h", "pay", n)))
	})},
	{"nobody: ended keys", 20, 60, call(func(f *fixture, tx *Store, n int) error {
		return wanting(min(n, 1), Ended)(tx.Nobody(f.t.Context(), project, false, signalsTo("e", "pay", n)))
	})},
	{"hold", 25, 60, call(func(f *fixture, tx *Store, n int) error {
		var hs []Hold
		for _, g := range signalsTo("new", "pay", n) {
			hs = append(hs, Hold{Signal: g, For: time.Hour, Original: &Original{Route: "r"}})
		}
		return tx.Hold(f.t.Context(), project, hs)
	})},
	{"start", 50, 60, call(func(f *fixture, tx *Store, n int) error { return touchStart(f, tx, "new", n, Started) })},
	{"start, adopting", 70, 60, call(func(f *fixture, tx *Store, n int) error { return touchStart(f, tx, "h", n, Started) })},
	{"start, keys taken", 20, 60, call(func(f *fixture, tx *Store, n int) error { return touchStart(f, tx, "k", n, Taken) })},
	{"pick", 25, 100, touchPick("q")},
	{"pick, with keys", 60, 200, touchPick("keyed")},
	{"commit next", 45, 60, touchCommit("q", plainly(OutcomeNext))},
	{"commit await", 60, 60, touchCommit("q", func(_ int, w Work) Outcome { return withTimer(await(w, "signal/pay")) })},
	{"commit replay", 50, 60, touchCommit("q", func(_ int, w Work) Outcome { return withTimer(outcome(w, OutcomeReplay)) })},
	{"commit done", 70, 60, touchCommit("q", plainly(OutcomeDone))},
	{"commit stop", 70, 60, touchCommit("q", plainly(OutcomeStop))},
	{"commit release", 45, 60, touchCommit("q", plainly(OutcomeRelease))},
	{"commit next, with keys", 70, 100, touchCommit("keyed", plainly(OutcomeNext))},
	{"commit with outputs", 70, 60, touchCommit("q", func(_ int, w Work) Outcome {
		o := outcome(w, OutcomeNext)
		o.Events, o.Publish = []Event{{"e", []byte("1")}}, []Publish{{Subject: "s"}}
		return o
	})},
	{"commit with effects", 250, 200, touchCommit("q", func(i int, w Work) Outcome {
		o := outcome(w, OutcomeDone)
		o.Signals = []Signal{signalsTo("k", "pay", i+1)[i], signalsTo("new", "pay", i+1)[i]}
		o.Starts = []NewInstance{newInstance(fmt.Sprint("child", i))}
		return o
	})},
	{"sweep timers", 45, 60, call(func(f *fixture, tx *Store, n int) error {
		_, fired, err := tx.SweepTimers(f.t.Context(), n)
		return counted(fired, n, err)
	})},
	{"sweep leases", 90, 60, call(func(f *fixture, tx *Store, n int) error {
		reaped, err := tx.SweepLeases(f.t.Context(), n)
		return counted(len(reaped), n, err)
	})},
	{"expire held", 25, 60, call(func(f *fixture, tx *Store, n int) error {
		expired, err := tx.ExpireHeld(f.t.Context(), n)
		return counted(expired, n, err)
	})},
	{"next due", 0, 60, call(func(f *fixture, tx *Store, _ int) error { _, err := tx.NextDue(f.t.Context(), time.Hour); return err })},
	{"extend", 65, 60, func(f *fixture, tx *Store, n int) func() error {
		var tokens []uuid.UUID
		for token := range strings.SplitSeq(f.rows(`select token::text from pointsman.leases order by token limit $1`, n), ",") {
			tokens = append(tokens, uuid.MustParse(token))
		}
		return func() error { _, _, err := tx.Extend(f.t.Context(), tokens, time.Minute); return err }
	}},
	{"cancel", 100, 60, func(f *fixture, tx *Store, n int) func() error {
		ids := f.idsOf("k", n)
		return func() error {
			canceled, err := tx.Cancel(f.t.Context(), ids, "", publish)
			return counted(len(canceled.IDs), n, err)
		}
	}},
	{"outbox", 10, 300, func(f *fixture, tx *Store, n int) func() error {
		f.exec(`vacuum (index_cleanup on) pointsman.outbox`) // of what the cases before it have rolled back
		return func() error { _, err := tx.Outbox(f.t.Context(), allShards(), 0, n); return err }
	}},
	{"published", 15, 60, func(f *fixture, tx *Store, n int) func() error {
		var rows []int64
		for _, r := range must(tx.Outbox(f.t.Context(), allShards(), 0, n))(f.t) {
			rows = append(rows, r.ID)
		}
		return func() error { return tx.Published(f.t.Context(), rows) }
	}},
	{"list", 20, 1000, touchList(Filter{})},
	{"list awaiting", 20, 1000, touchList(Filter{Status: "awaiting_signal"})},
	{"list runnable", 20, 2 * ListWindow, touchList(Filter{Status: "runnable"})},
	{"list executing", 20, ListWindow * 5, touchList(Filter{Status: "executing"})},
	{"list done", 20, 2 * ListWindow, touchList(Filter{Status: "done"})},
	{"list a rare machine", 20, 2 * ListWindow, touchList(Filter{Machine: "rare"})},
	{"list none of a machine", 20, 2 * ListWindow, touchList(Filter{Machine: "none"})},
	{"list a key", 20, 60, touchList(Filter{CorrelationKey: "k7"})},
	{"list a short prefix", 20, 2 * ListWindow, touchList(Filter{CorrelationPrefix: "k"})},
	{"list a long prefix", 20, 600, touchList(Filter{CorrelationPrefix: "k7777"})},
	{"get by key", 0, 60, call(func(f *fixture, tx *Store, _ int) error {
		_, found, err := tx.GetByKey(f.t.Context(), project, "k7")
		return counted(map[bool]int{true: 1}[found], 1, err)
	})},
	{"get one that executes", 0, 60, call(func(f *fixture, tx *Store, _ int) error {
		_, found, err := tx.GetByKey(f.t.Context(), project, "x7")
		return counted(map[bool]int{true: 1}[found], 1, err)
	})},
	{"queue depths", 0, 2 * MaxDepth, call(func(f *fixture, tx *Store, _ int) error {
		_, err := tx.QueueDepths(f.t.Context(), []string{"q", "other"})
		return err
	})},
	{"outbox depth", 0, 2 * MaxDepth, call(func(f *fixture, tx *Store, _ int) error { _, err := tx.OutboxDepth(f.t.Context()); return err })},
	{"inbox", 0, 30, func(f *fixture, tx *Store, n int) func() error {
		id := f.idsOf("k", 1)[0]
		return func() error { _, err := tx.Inbox(f.t.Context(), id, 0, n); return err }
	}},
	{"history", 0, 30, func(f *fixture, tx *Store, n int) func() error {
		id := f.idsOf("e", 1)[0]
		return func() error { _, err := tx.History(f.t.Context(), id, 1<<30, 0, n); return err }
	}},
	{"fate", 0, 60, call(func(f *fixture, tx *Store, _ int) error {
		source := Source("r", "S", time.Unix(1, 0), 7)
		_, err := tx.Fates(f.t.Context(), []Question{{Project: project, Key: "k7", Scope: KeyScope(project, "k7"), Dedup: SignalDedup("x"), Source: &source}})
		return err
	})},
	{"update", 0, 200, func(f *fixture, tx *Store, _ int) func() error {
		id := f.idsOf("k", 1)[0]
		return func() error {
			d, _, err := tx.Update(f.t.Context(), project, KeyScope(project, "k1"), updateOf(id, "i", `1`))
			return counted(map[bool]int{true: 1}[d.Verdict == Delivered], 1, err)
		}
	}},
	{"forget verdicts", 20, 60, call(func(f *fixture, tx *Store, n int) error { _, err := tx.ForgetVerdicts(f.t.Context()); return err })},
	{"held", 5, 60, call(func(f *fixture, tx *Store, n int) error {
		_, err := tx.Held(f.t.Context(), project, "", "", HeldPlace{}, n)
		return err
	})},
	{"job, by a status", 40, 2 * ListWindow, touchJob(Filter{Status: "awaiting_signal"})},
	{"job, by a machine", 40, 2 * ListWindow, touchJob(Filter{Machine: "m"})},
	{"job, by a rare machine", 40, 2 * ListWindow, touchJob(Filter{Machine: "rare"})},
	{"job, by a long prefix", 40, 600, touchJob(Filter{CorrelationPrefix: "k7777"})},
	{"job, by a key", 40, 200, touchJob(Filter{CorrelationKey: "k7"})},
	{"job, by a time", 40, 2 * ListWindow, touchJob(Filter{InsertedBefore: &longAgo})},
	{"job, for a retry", 40, 2 * ListWindow, touchJob(Filter{Status: "failed", Only: OnlyRetriable})},
	{"sql signal, waking", 80, 100, touchSQL("k", `select count(*) from pointsman.signal_many($1, array_fill('pay'::text, array[$2::int]), project => 'p') where result = 'delivered'`)},
	{"sql signal, held", 40, 200, touchSQL("new", `select count(*) from pointsman.signal_many($1, array_fill('pay'::text, array[$2::int]), project => 'p', on_missing => 'hold') where result = 'held'`)},
	{"sql start", 50, 60, touchSQL("new", `select count(*) from pointsman.start_many(array_fill('m'::text, array[$2::int]), $1, project => 'p') where result = 'started'`)},
	{"sql start, adopting", 70, 60, touchSQL("h", `select count(*) from pointsman.start_many(array_fill('m'::text, array[$2::int]), $1, project => 'p') where result = 'started'`)},
	{"sql publish", 15, 60, touchSQL("s", `select count(*) from pointsman.publish_many($1) where $2 > 0 and result = 'published'`)},
	{"publish", 15, 60, call(func(f *fixture, tx *Store, n int) error {
		return tx.Publish(f.t.Context(), project, slices.Repeat([]string{"m"}, n), slices.Repeat([]Publish{{Subject: "s", Body: []byte("1")}}, n))
	})},
}

var longAgo = time.Unix(0, 0)

// touchJob finds a batch of a job, locks it, and looks at it again.
func touchJob(filter Filter) func(*fixture, *Store, int) func() error {
	filter.Project = project
	if filter.Only == "" {
		filter.Only = OnlyLive
	}
	return call(func(f *fixture, tx *Store, n int) error {
		ids, _, err := tx.Matching(f.t.Context(), filter, uuid.Max, n)
		if err != nil {
			return err
		}
		_, err = tx.StillMatching(f.t.Context(), filter, ids, false)
		return err
	})
}

// touchSQL calls an SQL function with n keys and their number, and wants it to do what it is to do to each.
func touchSQL(prefix, sql string) func(*fixture, *Store, int) func() error {
	return call(func(f *fixture, tx *Store, n int) error {
		var keys []string
		for _, g := range signalsTo(prefix, "", n) {
			keys = append(keys, g.Key)
		}
		return tx.each(f.t.Context(), "sql", migrations.Qualify(sql, f.schema), func(r pgx.Rows) error {
			var done int
			err := r.Scan(&done)
			return counted(done, n, err)
		}, keys, n)
	})
}

// wanting is for deliveries of which n have this verdict, at least.
func wanting(n int, v Verdict) func([]Delivery, error) error {
	return func(ds []Delivery, err error) error {
		got := 0
		for _, d := range ds {
			if d.Verdict == v {
				got++
			}
		}
		return counted(got, n, err)
	}
}

func counted(got, n int, err error) error {
	if err == nil && got < n {
		return fmt.Errorf("%d, want %d", got, n)
	}
	return err
}

func touchStart(f *fixture, tx *Store, prefix string, n int, v Verdict) error {
	var ns []NewInstance
	for _, g := range signalsTo(prefix, "", n) {
		ns = append(ns, newInstance(g.Key))
	}
	started, err := tx.tryBegin(f.t.Context(), ns...)
	got := 0
	for _, st := range started {
		if st.Verdict == v {
			got++
		}
	}
	return counted(got, n, err)
}

// plansSize is how many parked instances the long form of the test has beside a tenth as many of other kinds: make plans.
const plansSize = 1_000_000

// What the store does costs by what it does it to, and not by what else is in the tables.
func TestBuffers(t *testing.T) {
	t.Parallel()
	size, sizes, show := 8_000, []int{1, 200}, os.Getenv("POINTSMAN_PLANS") != ""
	if show {
		size, sizes = plansSize, []int{1, 50, 200}
	}
	f := setup(t)
	f.exec(`do $$ declare t regclass; begin
		for t in select oid from pg_class where relkind = 'r' and relnamespace = (select relnamespace from pg_class where oid = 'pointsman.instances'::regclass) loop
			execute format('alter table %s set (autovacuum_enabled = off)', t); -- it moves rows while their buffers are counted
		end loop; end $$`)
	f.gather(size)
	for _, pooler := range []bool{false, true} {
		e := explains(f, pooler)
		for _, c := range allTouches {
			var line strings.Builder
			for _, n := range sizes {
				seen := e.explain(t, func(tx *Store) func() error { return c.prepare(f, tx, n) })
				total, of := 0, []string{}
				for _, s := range seen {
					total += s.buffers
					of = append(of, fmt.Sprint(s.name, " ", s.buffers))
				}
				if len(seen) == 0 {
					t.Errorf("%s of %d: nothing was explained", c.name, n)
				}
				fmt.Fprintf(&line, " | %d", total)
				if n == 200 {
					fmt.Fprintf(&line, " | %s", strings.Join(of, ", "))
				}
				if most := c.each*n + c.besides; total > most {
					t.Errorf("%s of %d, pooler: %t: %d buffers, want at most %d\n%s", c.name, n, pooler, total, most, strings.Join(costly(seen), "\n"))
				}
			}
			if show {
				fmt.Printf("| %s%s | %d n + %d |\n", c.name, line.String(), c.each, c.besides)
			}
		}
	}
}

// costly are the nodes that touch the most buffers, to find the reason.
func costly(seen []explained) (lines []string) {
	type node struct {
		buffers int
		line    string
	}
	var nodes []node
	for _, s := range seen {
		s.plan.walk(func(p plan) {
			own := p.Hit + p.Read
			for _, child := range p.Plans {
				own -= child.Hit + child.Read
			}
			nodes = append(nodes, node{own, fmt.Sprintf("%s: %d in %s %s %s %s, %d loops", s.name, own, p.Node, p.Relation, p.Index, p.Subplan, p.Loops)})
		})
	}
	slices.SortFunc(nodes, func(a, b node) int { return b.buffers - a.buffers })
	for _, n := range nodes[:min(5, len(nodes))] {
		lines = append(lines, n.line)
	}
	return lines
}
