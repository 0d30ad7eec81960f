package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/pointsman/pointsman/engine"
)

// TestModel plays random histories on a real database, one action after another, and wants each visit to see, each call to answer and
// all tables to hold what the model says. Interleavings are for the explorer of internal/store; this test is for the breadth of the rules.
//
// A history that fails is shrunk and printed with its seed. Among all tests these are a few, the same each time; `make model` plays
// many, and others each time: the seed of all of them is printed first, and given again plays them again.
func TestModel(t *testing.T) {
	given := func(name string) bool { f := flag.Lookup(name); return f.Value.String() != f.DefValue }
	seed := strconv.FormatUint(rand.Uint64(), 10)
	if !given("rapid.checks") {
		must(0, flag.Set("rapid.checks", "20"))(t)
		seed = "1"
	}
	if !given("rapid.seed") {
		must(0, flag.Set("rapid.seed", seed))(t)
	}
	t.Log("histories:", flag.Lookup("rapid.checks").Value, "of seed", flag.Lookup("rapid.seed").Value)
	t.Parallel()
	stage := newStage(t)
	rapid.Check(t, stage.play)
}

// The clock of a history moves in ticks. What the engine is told to wait for lies well between two of them, so that the time
// a history itself takes, and the jitter of retries, change nothing.
const (
	tick       = 40 * time.Minute
	oneTick    = 20 * time.Minute
	twoTicks   = time.Hour
	retryTicks = 2
	leaseTicks = 2
	holdTicks  = 2
)

func lengthOf(ticks int) time.Duration { return [...]time.Duration{0, oneTick, twoTicks}[ticks] }

func idOf(n int) uuid.UUID { return uuid.UUID{0: 1, 14: byte(n >> 8), 15: byte(n)} }

func numberOf(id uuid.UUID) int { return int(id[14])<<8 | int(id[15]) }

// nobody is the number of an instance that is never started.
const nobody = 9999

// stage is a database with machines whose steps follow scripts.
type stage struct {
	*bundle
	machines []*engine.Machine
	game     *game // the one that is played
}

func newStage(t testing.TB) *stage {
	s := &stage{bundle: setup(t)}
	retry := engine.RetryPolicy{MaxAttempts: modelMaxAttempts, Initial: twoTicks, Max: twoTicks, Factor: 1}
	run := func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) { return s.game.run(v) }
	handle := func(_ context.Context, v *engine.Visit[raw], _ error) engine.Outcome { return s.game.handle(v) }
	s.machines = []*engine.Machine{
		define(t, engine.Definition[raw]{Name: "m", Any: run, Retry: retry}),
		define(t, engine.Definition[raw]{Name: "h", Any: run, OnError: handle}),
	}
	return s
}

// game is one history.
type game struct {
	*stage
	*rapid.T
	m       *model
	ctx     context.Context
	worker  *modelWorker
	workers []*modelWorker // with those that were cut off, and may come back with what they executed
	started int            // numbers that were given out
	origins map[string]bool
	running *modelVisit
	calls   int // of its step
	unnamed int // signals without a dedup key
	at      time.Time
	stepped bool // the server's clock went back: order in time means nothing
}

// modelWorker is a worker with what it executes.
type modelWorker struct {
	*engine.ByHand
	name string
	work []*execution
}

type execution struct {
	*engine.Execution
	*modelVisit
}

// play is one history.
func (s *stage) play(t *rapid.T) {
	s.exec(emptyAll)
	g := &game{stage: s, T: t, m: newModel(), ctx: s.t.Context(), origins: map[string]bool{}}
	s.game = g
	g.hire()
	actions := map[string]func(*rapid.T){}
	often := func(n int, name string, acts ...func(*rapid.T)) {
		for i := range n {
			actions[name+strings.Repeat(" ", i)] = func(t *rapid.T) { g.act(t, acts...) }
		}
	}
	often(2, "start", g.start)
	often(3, "accept", g.accept)
	often(3, "pick", g.pick)
	often(1, "pick alone", g.pickAlone)
	often(5, "finish", g.finish)
	often(1, "cancel", g.cancel)
	often(2, "retry", g.retry)
	often(1, "pause", g.pause)
	often(2, "resume", g.resume)
	often(1, "crash", g.crash)
	often(1, "heartbeat", g.heartbeat)
	often(1, "jump", g.jump)
	sweeps := []func(*rapid.T){
		g.sweep((*engine.ByHand).SweepTimers, (*model).sweepTimers), g.sweep((*engine.ByHand).SweepLeases, (*model).sweepLeases),
		g.sweep((*engine.ByHand).ExpireHeld, (*model).expireHeld),
	}
	often(1, "sweep timers", sweeps[0])
	often(1, "sweep leases", sweeps[1])
	often(1, "expire held", sweeps[2])
	often(2, "time passes", append([]func(*rapid.T){g.jump}, sweeps...)...)
	t.Repeat(actions)
}

// act does one thing after another, and looks at what has come of each.
func (g *game) act(t *rapid.T, acts ...func(*rapid.T)) {
	for _, act := range acts {
		act(t)
		g.m.end()
		g.compare()
	}
}

func (g *game) ok(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *game) hire() {
	name := fmt.Sprint("w", len(g.workers)+1)
	w, err := engine.NewByHand(g.Client, engine.WorkerConfig{Machines: g.machines, Queues: map[string]int{"q1": 64}, Name: name, Lease: twoTicks})
	g.ok(err)
	g.worker = &modelWorker{ByHand: w, name: name}
	g.workers = append(g.workers, g.worker)
}

// draw, chance and some draw from few values, so that histories meet themselves.
func draw[T any](g *game, label string, of ...T) T { return rapid.SampledFrom(of).Draw(g.T, label) }

// chance is one in n, and shrinks to never.
func (g *game) chance(n int, label string) bool {
	return rapid.IntRange(1, n).Draw(g.T, label) == n && n > 1
}

func (g *game) key() string     { return draw(g, "key", "k1", "k2", "k3") }
func (g *game) name() string    { return draw(g, "name", "a", "b", "c") }
func (g *game) payload() string { return draw(g, "payload", "1", "2") }

func (g *game) dedup() string {
	if !g.chance(2, "has dedup") {
		return ""
	}
	return draw(g, "dedup", "d1", "d2", "d3")
}

// number is one of an instance that there was, or rarely of nobody.
func (g *game) number() int {
	if len(g.m.instances) == 0 || g.chance(8, "nobody") {
		return nobody
	}
	return g.m.instances[rapid.IntRange(0, len(g.m.instances)-1).Draw(g.T, "instance")].n
}

// drawStart draws an instance but for its correlation key and dedup key.
func (g *game) drawStart() *modelStart {
	g.started++
	s := &modelStart{n: g.started, queue: "q1", machine: "m", state: stateOf(0)}
	if g.chance(4, "other queue") {
		s.queue = "q2"
	}
	if g.chance(3, "has handler") {
		s.machine = "h"
	}
	if g.chance(3, "has priority") {
		s.priority = draw(g, "priority", -1, 1)
	}
	if g.chance(3, "has partition key") {
		s.partition = draw(g, "partition key", "p1", "p2")
	}
	if g.chance(3, "has unique key") {
		s.uniqueKey = draw(g, "unique key", "u1", "u2")
		bits := rapid.IntRange(1, 63).Draw(g.T, "unique scope")
		for i, status := range []engine.Status{engine.StatusRunnable, engine.StatusExecuting, engine.StatusAwaiting, engine.StatusDone, engine.StatusFailed, engine.StatusCanceled} {
			if bits&(1<<i) != 0 {
				s.scope = append(s.scope, status)
			}
		}
	}
	if g.chance(4, "later") {
		s.delay = draw(g, "delay", 1, 2)
	}
	if g.chance(4, "has reply") {
		s.replyTo = "r"
	}
	return s
}

func (s *modelStart) instance() engine.NewInstance {
	n := engine.NewInstance{
		ID: idOf(s.n), Machine: s.machine, Version: 1, Start: "begin", CorrelationKey: s.key, State: raw(s.state), Queue: s.queue, Priority: int16(s.priority),
		PartitionKey: s.partition, UniqueKey: s.uniqueKey, UniqueScope: s.scope, ReplyTo: s.replyTo, DedupKey: s.dedup,
	}
	if s.delay > 0 {
		n.RunAt = time.Now().Add(lengthOf(s.delay))
	}
	return n
}

func (g *game) start(*rapid.T) {
	s := g.drawStart()
	if !g.chance(4, "no key") {
		s.key = g.key()
	}
	s.dedup = g.dedup()
	got, err := g.Client.Start(g.ctx, s.instance())
	g.Logf("start %+v: %v", *s, err)
	g.m.begin()
	want, holder := g.m.start(*s, s.machine+" "+s.state, false)
	var conflict *engine.ConflictError
	switch isConflict := errors.As(err, &conflict); {
	case err != nil && !isConflict:
		g.Fatal(err)
	case want == engine.Started && (err != nil || got.ID != idOf(s.n)), want == engine.Duplicate && (err != nil || got.ID == idOf(s.n)):
		g.Fatalf("start: instance %d, %v; want %s", numberOf(got.ID), err, want)
	case want == engine.Conflict && !isConflict, want == taken && (!isConflict || conflict.ID != idOf(holder.n)):
		g.Fatalf("start: instance %d, %v; want %s by %+v", numberOf(got.ID), err, want, holder)
	}
}

// drawSignal draws all of a signal but its target.
func (g *game) drawSignal() modelSignal {
	sig := modelSignal{name: g.name(), payload: g.payload(), dedup: g.dedup()}
	if sig.known = sig.dedup; sig.dedup == "" {
		g.unnamed++
		sig.known = fmt.Sprint("none ", g.unnamed)
	}
	return sig
}

// accept takes in a batch of signals and starts: all by key, or all by id.
func (g *game) accept(*rapid.T) {
	byID := g.chance(3, "by id")
	var batch []*modelIntake
	var intakes []engine.Intake
	here := map[string]*modelIntake{}
	for range rapid.IntRange(1, 3).Draw(g.T, "intakes") {
		in := g.drawIntake(byID)
		// One message is there once for a target; what repeats a dedup key has the policies of the first, as of one route.
		if first := here[fmt.Sprint(in.key, in.n, in.dedup)]; first != nil && in.dedup != "" && (in.name == "") == (first.name == "") {
			in.onMissing, in.onTerminal = first.onMissing, first.onTerminal
			if in.start = nil; first.start != nil {
				in.start = g.drawStart()
			}
		}
		if in.source != "" && here[fmt.Sprint(in.key, in.n, in.source)] != nil {
			in.source, in.again = "", false
		}
		here[fmt.Sprint(in.key, in.n, in.dedup)], here[fmt.Sprint(in.key, in.n, in.source)] = in, in
		batch, intakes = append(batch, in), append(intakes, in.engine())
	}
	for _, in := range batch {
		g.origins[in.source] = true
	}
	receipts, err := g.Client.Accept(g.ctx, intakes)
	g.ok(err)
	g.m.begin()
	results, got := g.m.accept(batch)
	for i, in := range batch {
		g.Logf("accept %+v: %s", *in, receipts[i].Result)
	}
	for i, r := range receipts {
		if r.Result != results[i] || got[i] != nil && (r.Result == engine.Delivered || r.Result == engine.Started) && r.InstanceID != idOf(got[i].n) {
			g.Fatalf("intake %d of %d is %s by instance %d, want %s (%+v)", i+1, len(batch), r.Result, numberOf(r.InstanceID), results[i], batch[i])
		}
	}
}

func (g *game) drawIntake(byID bool) *modelIntake {
	in := &modelIntake{modelSignal: g.drawSignal()}
	in.route, in.due = "r", g.m.now+holdTicks
	in.onMissing = draw(g, "on missing", engine.MissingReject, engine.MissingHold, engine.MissingStart, engine.MissingDrop)
	in.onTerminal = draw(g, "on terminal", engine.TerminalReject, engine.TerminalDrop, engine.TerminalStart)
	if byID {
		in.n = g.number()
	} else {
		in.key = g.key()
		if in.onMissing == engine.MissingStart || in.onTerminal == engine.TerminalStart {
			in.start = g.drawStart()
		}
		if in.start != nil && g.chance(4, "start alone") {
			in.name = ""
			return in
		}
	}
	if g.chance(3, "has origin") {
		in.source = draw(g, "origin", "1", "2", "3")
		in.again = g.origins[in.source]
	}
	return in
}

func (i *modelIntake) engine() engine.Intake {
	in := engine.Intake{
		To: engine.ByKey("", i.key), Name: i.name, Payload: raw(i.payload), DedupKey: i.dedup, Redelivered: i.again, OnMissing: i.onMissing, OnTerminal: i.onTerminal,
		HoldFor: lengthOf(holdTicks), Message: &engine.Message{Route: i.route},
	}
	if i.key == "" {
		in.To = engine.ByID(idOf(i.n))
	}
	if i.source != "" {
		in.Origin = engine.Origin{Route: "r", Stream: "S", Created: time.Unix(1, 0), Sequence: uint64(i.source[0])}
	}
	if i.start != nil {
		n := i.start.instance()
		in.Start = &n
	}
	return in
}

func (g *game) pick(*rapid.T) {
	g.pickFrom(draw(g, "queue", "q1", "q1", "q2"), "", draw(g, "n", 4, 2, 1))
}

func (g *game) pickAlone(*rapid.T) { g.pickFrom(draw(g, "queue", "q1", "q2"), engine.AloneLane, 1) }

func (g *game) pickFrom(queue, lane string, n int) {
	picked, err := g.worker.Pick(g.ctx, queue, lane, n)
	g.ok(err)
	g.m.begin()
	var numbers []int
	var leases []uuid.UUID
	for _, p := range picked {
		numbers, leases = append(numbers, numberOf(p.Work.ID)), append(leases, p.Work.Token)
	}
	g.Logf("%s picked %v from %s%s", g.worker.name, numbers, queue, lane)
	if g.stepped {
		for _, in := range g.m.instances {
			in.since = 0
		}
	}
	visits, err := g.m.pick(g.worker.name, queue, lane != "", n, numbers, leases, leaseTicks)
	g.ok(err)
	for i, v := range visits {
		v.rev = picked[i].Work.Rev
		g.worker.work = append(g.worker.work, &execution{picked[i], v})
	}
}

// finish runs the steps of some of what a worker executes, and commits what they come to. The worker may have lost any of it.
func (g *game) finish(*rapid.T) {
	busy := slices.DeleteFunc(slices.Clone(g.workers), func(w *modelWorker) bool { return len(w.work) == 0 })
	if len(busy) == 0 {
		g.Skip("nobody executes")
	}
	w := busy[rapid.IntRange(0, len(busy)-1).Draw(g.T, "worker")]
	byID := g.chance(3, "effects by id")
	var visits []*modelVisit
	var done []*execution
	var last []uuid.UUID // leases of which nothing is left
	for range rapid.IntRange(1, min(3, len(w.work))).Draw(g.T, "finished") {
		i := rapid.IntRange(0, len(w.work)-1).Draw(g.T, "which")
		e := w.work[i]
		w.work = slices.Delete(w.work, i, i+1)
		if token := e.Work.Token; !slices.ContainsFunc(w.work, func(o *execution) bool { return o.Work.Token == token }) {
			last = append(last, token)
		}
		e.script, e.mayGoOn = g.drawScript(e.modelVisit, true, byID), !g.chance(3, "others wait")
		visits, done = append(visits, e.modelVisit), append(done, e)
		g.Logf("%s finishes rev %d of %d: %+v", w.name, e.Work.Rev, e.n, *e.script)
		g.step(w, e)
	}
	w.Commit(g.ctx)
	g.m.begin()
	g.goOn(w, done, g.m.commit(visits, last, leaseTicks))
}

// goOn gives a worker what it goes on with, and wants it to be what the model says.
func (g *game) goOn(w *modelWorker, done []*execution, want []*modelVisit) {
	for _, e := range done {
		next := e.Ahead()
		if next == nil {
			continue
		}
		i := slices.IndexFunc(want, func(v *modelVisit) bool { return v.in == e.in })
		if i < 0 {
			g.Fatalf("instance %d goes on with step %s, and should not", e.n, next.Work.Step)
		}
		g.Logf("%s goes on with %d", w.name, e.n)
		want[i].in.lease.worker = w.name
		g.m.leases[next.Work.Token] = want[i].in.lease
		want[i].rev = next.Work.Rev
		w.work = append(w.work, &execution{next, want[i]})
		want = slices.Delete(want, i, i+1)
	}
	if len(want) > 0 {
		g.Fatalf("instance %d does not go on, and should", want[0].n)
	}
}

// step runs one step, whose outcome is not committed yet.
func (g *game) step(w *modelWorker, e *execution) {
	if e.script.kind == "release" {
		w.Release(e.Execution)
		return
	}
	g.running, g.calls = e.modelVisit, 0
	w.Step(e.Execution, e.mayGoOn)
	if want := !e.tired(); (g.calls == 1) != want {
		g.Fatalf("the step of instance %d ran %d times; want it to run: %t", e.n, g.calls, want)
	}
}

func (g *game) drawScript(v *modelVisit, mayFail, byID bool) *script {
	kinds := []string{"next", "await", "await", "replay", "done", "stop"}
	if mayFail {
		kinds = append(kinds, "error", "error", "terminal", "panic", "nothing", "release")
	}
	o := &script{kind: draw(g, "outcome", kinds...), events: map[string]string{}}
	if o.kind == "release" {
		return o
	}
	if g.chance(2, "new state") {
		o.state = rapid.IntRange(1, 9).Draw(g.T, "state")
	}
	switch o.kind {
	case "next":
		o.step = draw(g, "step", "s1", "s2")
	case "replay":
		o.ticks = draw(g, "delay", 0, 1, 2)
	case "await":
		o.step = draw(g, "step", "", "s1", "s2")
		o.ticks = draw(g, "deadline", 0, 1, 2)
		bits := rapid.IntRange(0, 7).Draw(g.T, "names")
		for i, name := range []string{"a", "b", "c"} {
			if bits&(1<<i) != 0 {
				o.names = append(o.names, name)
			}
		}
		g.drawWait(o)
		if len(o.names) == 0 && o.children == 0 {
			o.ticks = max(1, o.ticks)
		}
		o.consume = g.chance(3, "consuming")
	case "done":
		o.payload = "7"
	case "stop":
		o.payload = "enough"
	}
	if v.machine == "h" && mayFail {
		o.handler = g.drawScript(v, false, byID)
	}
	if g.chance(3, "has effects") {
		g.drawEffects(o, byID)
	}
	return o
}

func (g *game) drawEffects(o *script, byID bool) {
	for range rapid.IntRange(0, 2).Draw(g.T, "signals") {
		e := scriptSignal{modelSignal: modelSignal{name: g.name(), payload: g.payload(), dedup: g.dedup()}}
		if byID {
			e.n = g.number()
		} else {
			e.key = g.key()
		}
		o.signals = append(o.signals, e)
	}
	if g.chance(3, "starts") {
		s := g.drawStart()
		if !g.chance(4, "no key") {
			s.key = g.key()
		}
		s.dedup, s.child = g.dedup(), g.chance(2, "child")
		o.starts = append(o.starts, s)
	}
	if g.chance(3, "sets event") {
		o.events[draw(g, "event", "e1", "e2")] = g.payload()
	}
	if g.chance(3, "publishes") {
		o.publish = append(o.publish, g.payload())
	}
}

// run is the step of every machine: it wants to see what the model says, and does what its script says.
func (g *game) run(v *engine.Visit[raw]) (engine.Outcome, error) {
	g.calls++
	g.checkVisit(v)
	o := g.running.script
	if o.state != 0 {
		v.State = raw(stateOf(o.state))
	}
	switch o.kind {
	case "error":
		return engine.Outcome{}, errors.New("boom")
	case "terminal":
		return engine.Outcome{}, engine.Terminal(errors.New("fatal"))
	case "panic":
		panic("ouch")
	case "nothing":
		return engine.Outcome{}, nil
	}
	return o.engine(), nil
}

// handle is the error handler of the machine "h".
func (g *game) handle(v *engine.Visit[raw]) engine.Outcome {
	g.checkVisit(v)
	o := g.running.script.handler
	if o.state != 0 {
		v.State = raw(stateOf(o.state))
	}
	return o.engine()
}

func (g *game) checkVisit(v *engine.Visit[raw]) {
	want := g.running
	see := func(sigs []engine.Signal) (s string) {
		for _, sig := range sigs {
			dedup, payload := shown(sig)
			s += fmt.Sprint(sig.ID, " ", sig.Name, " ", dedup, " ", payload, "; ")
		}
		return s
	}
	show := func(sigs []*modelSignal) (s string) {
		for _, sig := range sigs {
			s += fmt.Sprint(sig.id, " ", sig.name, " ", sig.dedup, " ", sig.payload, "; ")
		}
		return s
	}
	got := fmt.Sprintf("instance %d step %s attempt %d state %s timed out %t key %s\nawaited %s\nall %s", numberOf(v.Instance.ID), v.Instance.Step, v.Instance.Attempt, compact(v.State), v.TimedOut, v.IdempotencyKey(), see(v.Awaited), see(v.Inbox))
	if wanted := fmt.Sprintf("instance %d step %s attempt %d state %s timed out %t key %s\nawaited %s\nall %s", want.n, want.step, want.attempt, want.state, want.timedOut, want.idempotencyKey(), show(want.awaited), show(want.inbox)); got != wanted {
		g.Errorf("a visit sees\n%s\nwant\n%s", got, wanted)
	}
}

func compact(state raw) string {
	var v struct {
		N int `json:"n"`
	}
	_ = json.Unmarshal(state, &v)
	return stateOf(v.N)
}

func (o *script) engine() (out engine.Outcome) {
	switch o.kind {
	case "next":
		out = engine.Next(o.step)
	case "replay":
		out = engine.Replay(lengthOf(o.ticks))
	case "await":
		out = o.waits(engine.Await(o.step, o.names...))
		if o.ticks > 0 {
			out = out.Within(lengthOf(o.ticks))
		}
		if o.consume {
			out = out.Consuming()
		}
	case "done":
		out = engine.Done(raw(o.payload))
	case "stop":
		out = engine.Stop(o.payload)
	}
	for _, e := range o.signals {
		to := engine.ByKey("", e.key)
		if e.key == "" {
			to = engine.ByID(idOf(e.n))
		}
		out = out.Signal(to, engine.Signal{Name: e.name, Payload: raw(e.payload), DedupKey: e.dedup})
	}
	for _, s := range o.starts {
		if s.child {
			out = out.StartChild(s.instance())
		} else {
			out = out.Start(s.instance())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.events)) {
		out = out.SetEvent(key, raw(o.events[key]))
	}
	for _, body := range o.publish {
		out = out.Publish("s", raw(body), nil)
	}
	return out
}

func (g *game) cancel(*rapid.T) {
	n := g.number()
	_, err := g.Client.Cancel(g.ctx, engine.ByID(idOf(n)), "gone")
	g.Logf("cancel %d", n)
	g.m.begin()
	in := g.m.numbered(n)
	if in == nil {
		if !errors.Is(err, engine.ErrNotFound) {
			g.Fatalf("cancel of nobody: %v", err)
		}
		return
	}
	g.ok(err)
	g.m.cancel(in, "gone")
}

// crash cuts the worker off: its leases run out, and what it executes may come back.
func (g *game) crash(*rapid.T) {
	g.hire()
	g.m.begin()
}

func (g *game) heartbeat(*rapid.T) {
	g.ok(g.worker.Beat(g.ctx))
	g.m.begin()
	for _, token := range g.worker.Tokens() {
		if l := g.m.leases[token]; l != nil {
			l.due = g.m.now + leaseTicks
		}
	}
}

func (g *game) jump(*rapid.T) {
	ticks := draw(g, "ticks", 1, 2)
	g.ok(g.worker.Age(g.ctx, time.Duration(ticks)*tick))
	g.m.begin()
	g.m.now += ticks
}

func (g *game) sweep(real func(*engine.ByHand, context.Context) error, modeled func(*model)) func(*rapid.T) {
	return func(*rapid.T) {
		g.ok(real(g.worker.ByHand, g.ctx))
		g.m.begin()
		modeled(g.m)
	}
}
