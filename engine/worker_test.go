package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/engine"
)

// slow is a poll interval that no test outlasts: what happens, a poke or a full pick brought about.
const slow = time.Hour

// A backlog is worked off without a pause, however its size and what stands before it relate to the slots.
func TestBacklogWithoutPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ slots, backlog, stale, foreign int }{
		{1, 5, 0, 0}, {3, 20, 0, 0}, {48, 300, 0, 0}, {64, 10, 500, 0}, {5, 10, 0, 200}, {300, 600, 10, 10},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var canceled []uuid.UUID
			for range tt.stale {
				canceled = append(canceled, b.begin("m", "").ID)
			}
			for _, id := range canceled {
				must(b.Cancel(t.Context(), engine.ByID(id), ""))(t)
			}
			for range tt.foreign {
				b.begin("foreign", "")
			}
			for range tt.backlog {
				b.begin("m", "")
			}
			b.work(engine.WorkerConfig{PollInterval: slow, Queues: map[string]int{"default": tt.slots}, Machines: []*engine.Machine{steps(t, map[string]step{"begin": to(engine.Next("end")), "end": to(engine.Done(nil))})}})
			eventually(t, "all done", func() bool {
				return b.count(`select count(*) from pointsman.instances where status = 'done'`) == tt.backlog
			})
			equal(t, "foreign ones are diverted", b.count(`select count(*) from pointsman.ready where lane = 'foreign@1'`), tt.foreign)
		})
	}
}

// Workers with different machines in one queue pick each other's instances: who does not know one pokes the others, and who is poked
// and finds nothing looks whether there is something of its own beside. Nobody waits for a poll.
func TestMachinesOfTwoWorkersInOneQueue(t *testing.T) {
	t.Parallel()
	waker := &pokes{}
	b := setupWith(t, engine.Config{Waker: waker})
	only := func(name string) engine.WorkerConfig {
		step := map[string]step{"begin": to(engine.Done(nil))}
		return engine.WorkerConfig{PollInterval: slow, Machines: []*engine.Machine{must(engine.Define(engine.Definition[raw]{Name: name, Start: "begin", Steps: step}))(t)}}
	}
	other := b.another(b.db.URL) // its pokes and those of b do not reach each other
	start := func(c *engine.Client, machine string) uuid.UUID {
		return must(c.Start(t.Context(), engine.NewInstance{Machine: machine}))(t).ID
	}
	// Each is found by the first look of its worker, after which nothing but a poke brings that to look again.
	m := start(b.Client, "m")
	b.work(only("m"))
	b.ends(m, engine.StatusDone)
	n := start(other, "n")
	b.workAs(other, only("n"))
	b.ends(n, engine.StatusDone)
	before := waker.count("default")
	foreign := start(b.Client, "n")
	eventually(t, "it is told that there is another's", func() bool { return waker.count("default") == before+2 })
	other.Wake("default")
	b.ends(foreign, engine.StatusDone)
}

// Slots that are free are used while steps that take long hold most of the others.
func TestLongStepsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	leave := make(chan struct{})
	var long atomic.Int32
	b.work(engine.WorkerConfig{PollInterval: slow, Queues: map[string]int{"default": 10}, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": to(engine.Done(nil)),
		"long": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			long.Add(1)
			<-leave
			return engine.Done(nil), nil
		},
	})}})
	t.Cleanup(func() { close(leave) })
	for range 9 {
		b.start(engine.NewInstance{Machine: "m", Start: "long"})
	}
	eventually(t, "the long ones run", func() bool { return long.Load() == 9 })
	for range 100 {
		b.begin("m", "")
	}
	eventually(t, "the others are done", func() bool { return b.count(`select count(*) from pointsman.instances where status = 'done'`) == 100 })
}

// No more steps than slots run at once, in each queue; a queue that is not served waits.
func TestSlotsAndQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	now, most := map[string]int{}, map[string]int{}
	full := make(chan struct{})
	b.work(engine.WorkerConfig{Queues: map[string]int{"a": 1, "b": 3}, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			q := v.Instance.Queue
			mu.Lock()
			now[q]++
			most[q] = max(most[q], now[q])
			mu.Unlock()
			<-full
			mu.Lock()
			now[q]--
			mu.Unlock()
			return engine.Done(nil), nil
		},
	})}})
	other := b.start(engine.NewInstance{Machine: "m", Queue: "other"}).ID
	for range 20 {
		b.start(engine.NewInstance{Machine: "m", Queue: "a"})
		b.start(engine.NewInstance{Machine: "m", Queue: "b"})
	}
	eventually(t, "every slot is taken", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return now["a"] == 1 && now["b"] == 3
	})
	close(full)
	eventually(t, "both are done", func() bool { return b.count(`select count(*) from pointsman.instances where status = 'done'`) == 40 })
	mu.Lock()
	defer mu.Unlock()
	equal(t, "at once", fmt.Sprint(most), "map[a:1 b:3]")
	equal(t, "not served", b.get(other).Status, engine.StatusRunnable)
}

// With one slot the order is that of priority, lower first, then of becoming ready.
func TestPriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, p := range []int16{0, 5, -5, 0, 5, -5} {
		b.start(engine.NewInstance{Machine: "m", Priority: p, CorrelationKey: fmt.Sprint(i)})
	}
	var d diary
	b.work(engine.WorkerConfig{Queues: map[string]int{"default": 1}, Machines: []*engine.Machine{steps(t, map[string]step{"begin": d.around(to(engine.Done(nil)))})}})
	eventually(t, "all ran", func() bool { return len(d.all()) == 6 })
	var order []string
	for _, v := range d.all() {
		order = append(order, v.Instance.CorrelationKey)
	}
	equal(t, "order", fmt.Sprint(order), "[2 5 0 3 1 4]")
}

func TestDelayedStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil))}))
	never := b.start(engine.NewInstance{Machine: "m", RunAt: time.Now().Add(time.Hour)}).ID
	past := b.start(engine.NewInstance{Machine: "m", RunAt: time.Now().Add(-time.Hour)}).ID
	at := time.Now().Add(100 * time.Millisecond)
	soon := b.start(engine.NewInstance{Machine: "m", RunAt: at}).ID
	b.ends(past, engine.StatusDone)
	in := b.ends(soon, engine.StatusDone)
	if in.FinishedAt.Before(at.Add(-time.Millisecond)) {
		t.Errorf("ran %s early", at.Sub(*in.FinishedAt))
	}
	equal(t, "the other", b.get(never).Status, engine.StatusRunnable)
	equal(t, "attempt", in.Attempt, 0)
}

// Versions of a machine live side by side: an instance ends on its own; one started without a version takes the newest that was
// ever served.
func TestVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	version := func(v int) *engine.Machine {
		return define(t, engine.Definition[raw]{Version: v, Start: fmt.Sprint("begin", v), Steps: map[string]step{fmt.Sprint("begin", v): to(engine.Await("end", "s")), "end": to(engine.Done(v))}})
	}
	old := b.serve(version(1))
	one := b.parked("one")
	old.stop()
	newer := b.serve(version(1), version(2))
	eventually(t, "version 2 is registered", func() bool { return b.count(`select count(*) from pointsman.machines where version = 2`) == 1 })
	two, three := b.parked("two"), b.begin("m", "three").ID
	equal(t, "version", fmt.Sprintln(b.get(two).Version, b.get(three).Version, b.get(two).Step), "2 2 end\n")
	pinned := b.start(engine.NewInstance{Machine: "m", Version: 1, CorrelationKey: "pinned"}).ID
	for _, k := range []string{"one", "two", "three", "pinned"} {
		b.send(k, "s", k)
	}
	for id, want := range map[uuid.UUID]string{one: "1", two: "2", three: "2", pinned: "1"} {
		equal(t, "ran on", string(b.ends(id, engine.StatusDone).Result), want)
	}
	newer.stop()
}

// A worker leaves what it does not know alone, for one that does: attempt untouched, no lease, and the others behind it run on.
func TestUnknownVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := define(t, engine.Definition[raw]{Version: 1, Steps: map[string]step{"begin": to(engine.Done(1))}})
	two := define(t, engine.Definition[raw]{Version: 2, Steps: map[string]step{"begin": to(engine.Done(2))}})
	b.serve(one)
	newer := b.start(engine.NewInstance{Machine: "m", Version: 2, Start: "begin"}).ID
	b.ends(b.start(engine.NewInstance{Machine: "m", Version: 1}).ID, engine.StatusDone)
	eventually(t, "diverted", func() bool { return b.count(`select count(*) from pointsman.ready where lane = 'm@2'`) == 1 })
	in := b.get(newer)
	equal(t, "left alone", fmt.Sprintln(in.Status, in.Attempt, in.Lease == nil), "runnable 0 true\n")
	b.workAs(b.another(b.db.URL), engine.WorkerConfig{Machines: []*engine.Machine{two}, PollInterval: 10 * time.Millisecond})
	equal(t, "ran", string(b.ends(newer, engine.StatusDone).Result), "2")
}

// What another worker diverted is worked off without a pause, also while the queue's own lane is never empty.
func TestLanesAreServedUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 200
	for range n {
		b.start(engine.NewInstance{Machine: "known", Start: "begin"})
	}
	ignorant := b.work(engine.WorkerConfig{PollInterval: slow, Machines: []*engine.Machine{steps(t, map[string]step{"begin": to(engine.Done(nil))})}})
	eventually(t, "diverted", func() bool { return b.count(`select count(*) from pointsman.ready where lane = 'known@1'`) == n })
	ignorant.stop()
	for range 4 {
		b.start(engine.NewInstance{Machine: "busy"})
	}
	b.work(engine.WorkerConfig{PollInterval: slow, Queues: map[string]int{"default": 4}, Machines: []*engine.Machine{
		define(t, engine.Definition[raw]{Name: "busy", Steps: map[string]step{"begin": to(engine.Next("begin"))}}),
		define(t, engine.Definition[raw]{Name: "known", Steps: map[string]step{"begin": to(engine.Done(nil))}}),
	}})
	eventually(t, "all done", func() bool { return b.count(`select count(*) from pointsman.instances where status = 'done'`) == n })
}

// Several workers share a backlog, and run each step once.
func TestWorkersShare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 200
	var runs sync.Map
	var twice atomic.Int32
	m := steps(t, map[string]step{"begin": to(engine.Await("end", "s")), "end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		if _, again := runs.LoadOrStore(v.Instance.ID, true); again {
			twice.Add(1)
		}
		return engine.Done(nil), nil
	}})
	for i := range 3 {
		b.workAs(b.another(b.db.URL), engine.WorkerConfig{Machines: []*engine.Machine{m}, PollInterval: 5 * time.Millisecond, Name: fmt.Sprint("worker", i)})
	}
	var batch []engine.Intake
	for i := range n {
		in := key(fmt.Sprint(i), "d")
		in.OnMissing, in.Start = engine.MissingStart, &engine.NewInstance{Machine: "m"}
		batch = append(batch, in)
	}
	for _, r := range b.accept(batch...) {
		b.ends(r.InstanceID, engine.StatusDone)
	}
	equal(t, "ran twice", twice.Load(), 0)
}

// waker is a [engine.Waker] between the clients of one process.
type waker struct {
	mu    sync.Mutex
	poke  map[*func(string)][]string
	woken []string
}

func (w *waker) Wake(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, queues...)
	for poke, listens := range w.poke {
		for _, q := range queues {
			if slices.Contains(listens, q) {
				(*poke)(q)
			}
		}
	}
}

func (w *waker) Listen(queues []string, poke func(string)) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poke == nil {
		w.poke = map[*func(string)][]string{}
	}
	w.poke[&poke] = queues
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.poke, &poke)
	}, nil
}

// Tell and Hear are not what these tests are about.
func (w *waker) Tell(string, []uuid.UUID) {}

func (w *waker) Hear(string, func([]uuid.UUID)) (func(), error) { return func() {}, nil }

// A poke from another process brings a worker to its work at once; it stops listening with Run.
func TestWaker(t *testing.T) {
	t.Parallel()
	wk := &waker{}
	b := setupWith(t, engine.Config{Waker: wk})
	w := b.work(engine.WorkerConfig{PollInterval: slow, Queues: map[string]int{"q": 1}, Machines: []*engine.Machine{steps(t, map[string]step{"begin": to(engine.Done(nil))})}})
	other := must(engine.NewClient(b.connect(b.db.URL), engine.Config{Schema: b.db.Schema, Waker: wk, Logger: quiet}))(t)
	for range 3 {
		b.ends(must(other.Start(t.Context(), engine.NewInstance{Machine: "m", Queue: "q"}))(t).ID, engine.StatusDone)
	}
	w.stop()
	equal(t, "listeners", len(wk.poke), 0)
	equal(t, "the outbox is poked too", slices.Contains(wk.woken, engine.OutboxQueue), true)
	queues := []string{"z", "", "a", "z"}
	other.Wake(queues...)
	equal(t, "the caller's slice", fmt.Sprint(queues), "[z  a z]")
	equal(t, "poked once each", fmt.Sprint(wk.woken[len(wk.woken)-2:]), "[a z]")
}

// A transaction of the caller's and a Wake after it need no poll.
func TestWakeAfterTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work(engine.WorkerConfig{PollInterval: slow, Machines: []*engine.Machine{steps(t, map[string]step{"begin": to(engine.Done(nil))})}})
	b.ends(b.begin("m", "").ID, engine.StatusDone) // it is up, and idle
	tx := must(b.pool.Begin(t.Context()))(t)
	id := must(b.StartTx(t.Context(), tx, engine.NewInstance{Machine: "m"}))(t).ID
	must(0, tx.Commit(t.Context()))(t)
	b.Wake("default")
	b.ends(id, engine.StatusDone)
}

// The labels of metrics are bounded by what is registered, and where any step is, by a number.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := setupWith(t, engine.Config{Metrics: reg})
	anyStep := define(t, engine.Definition[raw]{Name: "any", Start: "s0", Any: to(engine.Done(nil))})
	b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil))}), anyStep)
	b.ends(b.begin("m", "").ID, engine.StatusDone)
	for i := range 3 {
		b.ends(b.start(engine.NewInstance{Machine: "m", Start: fmt.Sprint("unknown", i)}).ID, engine.StatusFailed)
	}
	equal(t, "steps", stepCounts(t, reg, "m"), "map[machine=m outcome=done step=begin :1 machine=m outcome=error step= :3]")
	const n = 100
	b.ends(b.begin("any", "").ID, engine.StatusDone) // the first
	var rest []uuid.UUID
	for i := range n + 2 {
		rest = append(rest, b.start(engine.NewInstance{Machine: "any", Start: fmt.Sprint("s", i)}).ID)
	}
	for _, id := range rest {
		b.ends(id, engine.StatusDone)
	}
	of := stepCounts(t, reg, "any")
	equal(t, "one of any", strings.Contains(of, "machine=any outcome=done step=s0 :2"), true)
	equal(t, "beyond the bound", strings.Contains(of, "machine=any outcome=done step= :2"), true)
	equal(t, "labels", strings.Count(of, "machine="), n+1)
}

// stepCounts are the executions of a machine's steps as the metrics have them.
func stepCounts(t *testing.T, reg *prometheus.Registry, machine string) string {
	t.Helper()
	got := map[string]float64{}
	for _, family := range must(reg.Gather())(t) {
		if family.GetName() != "pointsman_steps_total" {
			continue
		}
		for _, m := range family.Metric {
			labels := ""
			for _, l := range m.Label {
				labels += l.GetName() + "=" + l.GetValue() + " "
			}
			if strings.HasPrefix(labels, "machine="+machine+" ") {
				got[labels] = m.GetCounter().GetValue()
			}
		}
	}
	return fmt.Sprint(got)
}

// An instance for whose slot nobody waits goes on with its next step without being picked again; where another waits it goes behind it.
func TestRunAhead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`create table pointsman.picks (instance_id uuid)`)
	b.exec(`create function pointsman.note_pick() returns trigger language plpgsql as $$ begin insert into pointsman.picks values (new.instance_id); return null; end $$`)
	b.exec(`create trigger note_pick after insert on pointsman.ready for each row execute function pointsman.note_pick()`)
	const steps = 30
	chain := must(engine.Define(engine.Definition[struct{ N int }]{Name: "chain", Version: 1, Start: "count", Steps: map[string]engine.Step[struct{ N int }]{
		"count": func(_ context.Context, v *engine.Visit[struct{ N int }]) (engine.Outcome, error) {
			if v.State.N++; v.State.N == steps {
				return engine.Done(v.State.N), nil
			}
			return engine.Next("count"), nil
		},
	}}))(t)
	b.work(engine.WorkerConfig{PollInterval: slow, Machines: []*engine.Machine{chain}}) // a poll stands for others who wait
	id := b.begin("chain", "").ID
	in := b.ends(id, engine.StatusDone)
	equal(t, "result", string(in.Result), "30")
	equal(t, "transitions", b.count(`select count(*) from pointsman.history where instance_id = $1`, id), steps)
	if picks := b.count(`select count(*) from pointsman.picks where instance_id = $1`, id); picks > steps-8 {
		t.Errorf("%d picks for %d steps", picks, steps)
	}
}

// With one slot and another that waits for it, the steps of both take turns.
func TestNobodyRunsAheadOfWhoWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []string{"a", "b"} {
		b.start(engine.NewInstance{Machine: "m", CorrelationKey: key})
	}
	var d diary
	b.work(engine.WorkerConfig{Queues: map[string]int{"default": 1}, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": d.around(to(engine.Next("then"))), "then": d.around(to(engine.Next("last"))), "last": d.around(to(engine.Done(nil))),
	})}})
	eventually(t, "both are done", func() bool { return len(d.all()) == 6 })
	var order []string
	for _, v := range d.all() {
		order = append(order, v.Instance.CorrelationKey+" "+v.Instance.Step)
	}
	equal(t, "order", fmt.Sprint(order), "[a begin b begin a then b then a last b last]")
}
