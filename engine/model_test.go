package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// model is what the specs and the contract (sections 8 and 12) say of the engine's state, with nothing of how it is kept. Each method
// is a transaction. Time is in ticks, and only a jump of the clock moves it.
type model struct {
	now, tx    int
	instances  []*modelInstance // in the order of their starts
	held       []*modelSignal
	ledger     map[string]map[string]*modelEntry // by scope and dedup key
	unique     map[string]*modelInstance         // unique keys to their holders
	contested  map[string][]*modelInstance       // unique keys that more than one came for in the last transaction; nil is nobody
	turns      bool                              // the last transaction may have been several
	partitions map[string]modelTurn              // partition keys to who executes
	leases     map[uuid.UUID]*modelLease
	outbox     []string // of the last transaction
}

// modelEntry is what is known of a dedup key: what came with it, from where, and for a start whose it is.
type modelEntry struct {
	hash, source string
	by           *modelInstance
}

type modelTurn struct {
	instance *modelInstance
	lease    *modelLease
}

type modelLease struct {
	due     int
	members []*modelInstance // as it was picked
	worker  string
	alone   bool // of the lane of those that a worker has one at a time
}

type modelSignal struct {
	key, name, payload, dedup string // dedup as shown: "" where there was none
	known                     string // dedup as the ledger has it
	source                    string
	route                     string // of its dead letter
	due                       int    // of a held one
	id                        int64  // learned when it is first seen in an inbox
	child                     bool   // the end of a child
	tx                        int    // of the transaction, where it is of one that was not started
}

func (g *modelSignal) hash() string { return g.name + " " + g.payload }

// modelStart is an instance to be started.
type modelStart struct {
	n                                    int
	key, queue, machine                  string
	partition, uniqueKey, dedup, replyTo string
	scope                                []engine.Status
	priority                             int
	delay                                int // in ticks; 0: none
	state                                string
	child                                bool
}

type modelInstance struct {
	modelStart
	status  engine.Status
	step    string
	attempt int
	counted int // executions of this step that count towards max_attempts
	visit   int
	awaits  []string
	modelWait
	handed    []*modelSignal // to the step that parked
	handedFor int            // children that this step came from an await of, knowing how they stood
	parent    *modelInstance
	untold    bool // its end
	timedOut  bool
	due       int // of the await or the delay; 0: none
	inbox     []*modelSignal
	result    string
	lastError string
	events    map[string]string
	history   []modelTransition
	since     int  // the moment since when it has been ready, or that it ended at
	solo      bool // its last lease was lost: it is leased alone
	alone     bool // and is in a lane of its own kind
	lease     *modelLease
	paused    bool
	kept      []*modelSignal // the inbox of a failed or canceled one
	rests     modelRest      // where it was when it was canceled
	occupies  bool           // its status was in its unique scope at the end of the last transaction
	looks     bool           // it has made a transition that its unique scope may tell apart
}

// modelRest is what one that does not run waits for.
type modelRest struct {
	status engine.Status
	due    int
}

type modelTransition struct {
	step, outcome string
	attempt       int
	consumed      []*modelSignal
}

func newModel() *model {
	return &model{ledger: map[string]map[string]*modelEntry{}, unique: map[string]*modelInstance{}, partitions: map[string]modelTurn{}, leases: map[uuid.UUID]*modelLease{}}
}

// begin and end are around each transaction, or a few that the caller cannot tell apart.
func (m *model) begin() {
	m.tx++
	m.outbox, m.contested, m.turns = nil, map[string][]*modelInstance{}, false
}

func (m *model) end() { m.moveUniqueKeys() }

// moment is now, in the order of time: by the halves of ticks, in which deadlines lie, and within one by transaction.
func (m *model) moment() int { return 2*m.now*momentsOfAHalf + m.tx }

const momentsOfAHalf = 1 << 32

func (m *model) live(key string) *modelInstance {
	for _, in := range m.instances {
		if key != "" && in.key == key && in.status.Live() {
			return in
		}
	}
	return nil
}

// last is who has the key, or had it last.
func (m *model) last(key string) (last *modelInstance) {
	for _, in := range m.instances {
		if in.key == key && (last == nil || in.since > last.since) {
			last = in
		}
	}
	return last
}

func (m *model) numbered(n int) *modelInstance {
	for _, in := range m.instances {
		if in.n == n {
			return in
		}
	}
	return nil
}

// scopeOf a ledger: redeliveries are known to all that ever had the key.
func (s *modelStart) scopeOf() string {
	switch {
	case s.key != "":
		return "key " + s.key
	case s.dedup != "":
		return "start " + s.dedup
	}
	return "instance " + strconv.Itoa(s.n)
}

func (m *model) knows(scope, dedup string) *modelEntry { return m.ledger[scope][dedup] }

func (m *model) learn(scope, dedup string, e *modelEntry) {
	if m.ledger[scope] == nil {
		m.ledger[scope] = map[string]*modelEntry{}
	}
	m.ledger[scope][dedup] = e
}

// Verdicts on a start beside the engine's own results.
const taken engine.Result = "taken"

// start returns the verdict, and the instance that it is about. hash is of what the start says. One that settles is known by its dedup key
// from here on where it finds a key taken, too: it does not come again to try once more.
func (m *model) start(s modelStart, hash string, settles bool) (engine.Result, *modelInstance) {
	in := &modelInstance{modelStart: s, status: engine.StatusRunnable, step: "begin", events: map[string]string{}, since: m.moment()}
	entry := &modelEntry{hash: hash}
	if s.dedup != "" {
		if e := m.knows(s.scopeOf(), "start "+s.dedup); e != nil && e.hash == entry.hash {
			return engine.Duplicate, e.by
		} else if e != nil {
			return engine.Conflict, e.by
		}
	}
	holder := m.live(s.key)
	if holder == nil && in.inScope() {
		holder = m.unique[s.uniqueKey]
	}
	if holder != nil {
		if entry.by = holder; settles && s.dedup != "" {
			m.learn(s.scopeOf(), "start "+s.dedup, entry)
		}
		return taken, holder
	}
	entry.by = in
	if in.occupies = in.inScope(); in.occupies {
		m.unique[s.uniqueKey] = in
	}
	if s.dedup != "" {
		m.learn(s.scopeOf(), "start "+s.dedup, entry)
	}
	if s.delay > 0 {
		in.due = m.now + s.delay
	}
	m.instances = append(m.instances, in)
	m.adopt(in)
	return engine.Started, in
}

// adopt gives an instance what is held for its key.
func (m *model) adopt(in *modelInstance) {
	m.held = slices.DeleteFunc(m.held, func(g *modelSignal) bool {
		if g.key != in.key || g.due <= m.now {
			return false
		}
		m.learn(in.scopeOf(), g.known, &modelEntry{g.hash(), g.source, nil})
		in.inbox = append(in.inbox, g)
		return true
	})
}

// modelIntake is an intake, with its target as the caller names it: a key, or else a number.
type modelIntake struct {
	modelSignal
	n          int
	again      bool // Redelivered
	onMissing  engine.OnMissing
	onTerminal engine.OnTerminal
	start      *modelStart
}

func (i *modelIntake) target(m *model) *modelInstance {
	if i.key != "" {
		return m.live(i.key)
	}
	if in := m.numbered(i.n); in != nil && in.status.Live() {
		return in
	}
	return nil
}

// judge compares with what is on record: "" is new.
func judge(e *modelEntry, hash, source string) engine.Result {
	switch {
	case e == nil:
		return ""
	case e.source != "" && e.source == source || e.hash == hash:
		return engine.Duplicate
	}
	return engine.Conflict
}

func (m *model) recorded(scope string, g *modelSignal, again bool) engine.Result {
	if again {
		for _, e := range m.ledger[scope] {
			if g.source != "" && e.source == g.source {
				return engine.Duplicate
			}
		}
	}
	return judge(m.knows(scope, g.known), g.hash(), g.source)
}

// deliver puts a signal into the inbox of a live instance, and wakes it if it waits for one of that name.
func (m *model) deliver(in *modelInstance, g *modelSignal, again bool) engine.Result {
	if r := m.recorded(in.scopeOf(), g, again); r != "" {
		return r
	}
	m.learn(in.scopeOf(), g.known, &modelEntry{g.hash(), g.source, nil})
	in.inbox = append(in.inbox, g)
	if in.status == engine.StatusAwaiting && !in.paused && in.enough() {
		m.wake(in)
	}
	return engine.Delivered
}

func (m *model) wake(in *modelInstance) {
	in.status, in.since, in.due = engine.StatusRunnable, m.moment(), 0
}

// accept is one batch of intakes; it returns a result for each, and the instance where one got it.
func (m *model) accept(batch []*modelIntake) ([]engine.Result, []*modelInstance) {
	results, got := make([]engine.Result, len(batch)), make([]*modelInstance, len(batch))
	firsts := map[string]int{}
	same := make([]int, len(batch))
	var todo []int
	for i, in := range batch {
		same[i] = i
		id := fmt.Sprint(in.key, in.n, in.name == "", in.dedup)
		if first, ok := firsts[id]; ok && in.dedup != "" {
			same[i] = first
			continue
		}
		firsts[id] = i
		todo = append(todo, i)
	}
	for len(todo) > 0 {
		m.acceptOnce(batch, todo, results, got)
		todo = nil
		for i := range batch {
			if results[i] != "" {
				continue
			}
			first := same[i]
			switch equal := batch[i].hash() == batch[first].hash(); {
			case results[first] == engine.NoTarget, results[first] == engine.Dropped, results[first] == engine.Conflict && equal:
				results[i] = results[first]
			case results[first] == engine.Conflict: // it may be what is on record
				todo = append(todo, i)
			case equal:
				results[i] = engine.Duplicate
			default:
				results[i] = engine.Conflict
			}
		}
	}
	return results, got
}

// acceptOnce delivers what has a live target, decides about the rest, and then holds, starts, and delivers to what was started.
func (m *model) acceptOnce(batch []*modelIntake, todo []int, results []engine.Result, got []*modelInstance) {
	starts, began := []int{}, map[string]int{}
	var missing, holds, waiting []int
	for _, i := range todo {
		in := batch[i]
		if in.name == "" {
			starts = append(starts, i)
			if _, ok := began[in.key]; !ok {
				began[in.key] = i
			}
		} else if target := in.target(m); target != nil {
			results[i], got[i] = m.deliver(target, &in.modelSignal, in.again), target
		} else {
			missing = append(missing, i)
		}
	}
	turnAway := func(i int) {
		in := batch[i]
		switch {
		case m.hadTarget(in) && in.onTerminal == "drop", !m.hadTarget(in) && in.onMissing == engine.MissingDrop:
			results[i] = engine.Dropped
		case !m.hadTarget(in) && in.key != "" && in.onMissing == engine.MissingHold:
			results[i] = engine.Held
			holds = append(holds, i)
		default:
			results[i] = engine.NoTarget
		}
	}
	for _, i := range missing {
		in := batch[i]
		first, before := began[in.key]
		before = before && first < i && in.key != ""
		wants := in.start != nil && (m.hadTarget(in) && in.onTerminal == "start" || !m.hadTarget(in) && in.onMissing == engine.MissingStart)
		switch r := m.known(in); {
		case r != "":
			results[i] = r
		case wants && !before:
			began[in.key] = i
			starts, waiting = append(starts, i), append(waiting, i)
		case before:
			waiting = append(waiting, i)
		default:
			turnAway(i)
		}
	}
	keep := func() {
		for _, i := range holds {
			m.hold(&batch[i].modelSignal)
		}
		holds = nil
	}
	keep()
	m.moveUniqueKeys() // one that is given up by this transaction is free for its starts
	slices.Sort(starts)
	for _, i := range starts {
		s := *batch[i].start
		s.key, s.dedup = batch[i].key, ""
		if batch[i].name == "" {
			s.dedup = batch[i].dedup
		}
		r, in := m.start(s, batch[i].hash(), true)
		if r == taken {
			r = engine.Duplicate
		}
		if batch[i].name == "" {
			results[i], got[i] = r, in
		}
	}
	for _, i := range waiting {
		target := m.live(batch[i].key)
		if target == nil {
			turnAway(i)
			continue
		}
		results[i], got[i] = m.deliver(target, &batch[i].modelSignal, batch[i].again), target
		if results[i] == engine.Delivered && slices.Contains(starts, i) {
			results[i] = engine.Started
		}
	}
	keep()
}

// hadTarget reports whether an instance that has ended is who the intake is for.
func (m *model) hadTarget(i *modelIntake) bool {
	if i.key != "" {
		last := m.last(i.key)
		return last != nil && !last.status.Live()
	}
	in := m.numbered(i.n)
	return in != nil && !in.status.Live()
}

// known says of a signal without a live target whether it was taken in before.
func (m *model) known(i *modelIntake) engine.Result {
	scope := "key " + i.key
	if i.key == "" {
		in := m.numbered(i.n)
		if in == nil {
			return ""
		}
		scope = in.scopeOf()
	}
	if r := m.recorded(scope, &i.modelSignal, i.again); r != "" {
		return r
	}
	for _, bySource := range []bool{true, false} {
		for _, h := range m.held {
			if h.key == i.key && (bySource && i.again && i.source != "" && h.source == i.source || !bySource && h.known == i.known) {
				return judge(&modelEntry{h.hash(), h.source, nil}, i.hash(), i.source)
			}
		}
	}
	return ""
}

func (m *model) hold(g *modelSignal) {
	if slices.ContainsFunc(m.held, func(h *modelSignal) bool { return h.key == g.key && h.known == g.known }) {
		return
	}
	m.held = append(m.held, g)
}

// finish is the end of an instance. The inbox of one that may be retried is kept.
func (m *model) finish(in *modelInstance, status engine.Status) {
	if status != engine.StatusDone {
		in.kept = in.inbox
	}
	in.untold = in.parent != nil
	in.status, in.inbox, in.due, in.since, in.rests = status, nil, 0, m.moment(), modelRest{}
	reason := in.lastError
	if status == engine.StatusDone {
		reason = ""
	}
	subjects := []string{"outcome " + in.machine + "." + string(status)}
	if in.replyTo != "" {
		subjects = append(subjects, "reply "+in.replyTo)
	}
	for _, subject := range subjects {
		m.publish("%s %d: %s", subject, in.n, strings.Join([]string{in.machine, "1", string(status), in.key, in.result, reason}, " "))
	}
}

func (m *model) publish(format string, args ...any) {
	m.outbox = append(m.outbox, fmt.Sprintf(format, args...))
}

func (m *model) cancel(in *modelInstance, reason string) {
	if !in.status.Live() {
		return
	}
	rests := modelRest{in.status, in.due}
	in.lastError, in.looks = reason, true
	in.note("cancel")
	m.finish(in, engine.StatusCanceled)
	in.rests = rests
	m.tell(in)
}

// sweepTimers wakes what waits for a time that has come. It has been ready since then.
func (m *model) sweepTimers() {
	for _, in := range m.instances {
		if in.due == 0 || in.due > m.now || in.paused {
			continue
		}
		since := (2*in.due - 1) * momentsOfAHalf
		in.timedOut = in.timedOut || in.status == engine.StatusAwaiting
		m.wake(in)
		in.since = since
	}
}

// sweepLeases takes back what expired leases hold. An expiry counts towards max_attempts where the instance was leased alone, and its worker
// had no other lease; where it had, the next one is of those of which a worker has one at a time, and counts.
func (m *model) sweepLeases() {
	of := map[string]int{}
	for _, l := range m.leases {
		of[l.worker]++
	}
	maps.DeleteFunc(m.leases, func(_ uuid.UUID, l *modelLease) bool {
		if l.due > m.now {
			return false
		}
		for _, in := range l.members {
			if m.partitions[in.partition].lease == l && m.partitions[in.partition].instance == in {
				delete(m.partitions, in.partition)
			}
			if in.status != engine.StatusExecuting || in.lease != l {
				continue
			}
			m.wake(in)
			in.attempt, in.solo, in.lease = in.attempt+1, true, nil
			lone := len(l.members) == 1
			blamed := l.alone || lone && of[l.worker] == 1
			if in.alone = l.alone || lone && !blamed; blamed {
				in.counted++
			}
		}
		return true
	})
}

func (m *model) expireHeld() {
	m.held = slices.DeleteFunc(m.held, func(g *modelSignal) bool {
		if g.due <= m.now {
			m.publish("dead %s expired: %s", g.route, g.payload)
		}
		return g.due <= m.now
	})
}

func (in *modelInstance) inScope() bool {
	return in.uniqueKey != "" && slices.Contains(in.scope, in.status)
}

// moveUniqueKeys gives the keys of those that have left their scope up, to those that have come into theirs. Who finds its key held
// goes on without it until its next transition.
func (m *model) moveUniqueKeys() {
	given := map[string]bool{}
	for _, in := range m.instances {
		if in.occupies && !in.inScope() && m.unique[in.uniqueKey] == in {
			delete(m.unique, in.uniqueKey)
			given[in.uniqueKey] = true
		}
	}
	came := map[string][]*modelInstance{}
	for _, in := range m.instances {
		if (!in.occupies || in.looks) && in.inScope() && m.unique[in.uniqueKey] == nil {
			came[in.uniqueKey] = append(came[in.uniqueKey], in)
		}
		in.occupies, in.looks = in.inScope(), false
	}
	for key, ins := range came {
		m.unique[key] = ins[0]
		if m.turns && given[key] { // it may have come before the other left
			ins = append(ins, nil)
		}
		if len(ins) > 1 {
			m.contested[key] = ins
		}
	}
}
