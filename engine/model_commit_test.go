package engine_test

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// modelMaxAttempts is the policy of the machine "m"; the machine "h" has an error handler instead.
const modelMaxAttempts = 2

// script is what a step does.
type script struct {
	kind    string // next, replay, await, done, stop; error, terminal, panic, nothing (no outcome); release: its worker gives it back
	step    string
	names   []string
	ticks   int // of a replay's delay or an await's deadline; 0: none
	consume bool
	state   int // what it leaves as its state; 0: what it found
	payload string
	modelWait
	handler *script // what the handler of the machine makes of an error

	signals []scriptSignal
	starts  []*modelStart
	events  map[string]string
	publish []string
}

type scriptSignal struct {
	modelSignal     // key "": by number
	n           int // of the target
}

// modelVisit is an execution as it was picked.
type modelVisit struct {
	modelInstance // as it was
	in            *modelInstance
	awaited       []*modelSignal
	script        *script
	mayGoOn       bool
	rev           int32 // told by the pick: it is what names effects
}

// pick checks that a pick took whom it had to, and makes them execute. leases has the lease of each.
func (m *model) pick(worker, queue string, alone bool, n int, picked []int, leases []uuid.UUID, ticks int) ([]*modelVisit, error) {
	if err := m.checkPick(queue, alone, n, picked); err != nil {
		return nil, err
	}
	var visits []*modelVisit
	for k, number := range picked {
		in := m.numbered(number)
		l := m.leases[leases[k]]
		if l == nil {
			l = &modelLease{due: m.now + ticks, worker: worker, alone: alone}
			m.leases[leases[k]] = l
		}
		visits = append(visits, m.visit(in, l))
	}
	m.turns = slices.ContainsFunc(leases, func(token uuid.UUID) bool { return token != leases[0] })
	for _, v := range visits {
		if v.solo && len(v.lease.members) > 1 {
			return nil, fmt.Errorf("instance %d lost its last lease and is not leased alone", v.n)
		}
		v.in.solo, v.in.alone = false, false
	}
	return visits, nil
}

// visit has an instance execute.
func (m *model) visit(in *modelInstance, l *modelLease) *modelVisit {
	l.members = append(l.members, in)
	in.status, in.lease = engine.StatusExecuting, l
	if in.partition != "" {
		m.partitions[in.partition] = modelTurn{in, l}
	}
	v := &modelVisit{modelInstance: *in, in: in}
	v.inbox = slices.Clone(in.inbox)
	for _, g := range in.inbox {
		if in.awaited(g) {
			v.awaited = append(v.awaited, g)
		}
	}
	return v
}

func (in *modelInstance) ready() bool {
	return in.status == engine.StatusRunnable && in.due == 0 && !in.paused
}

// checkPick wants the lowest priorities, then the longest ready: of each partition key that nobody executes with one.
func (m *model) checkPick(queue string, alone bool, n int, picked []int) error {
	turn := map[string]int{} // partition keys of the picked
	for _, number := range picked {
		in := m.numbered(number)
		switch {
		case in == nil || !in.ready() || in.queue != queue || in.alone != alone:
			return fmt.Errorf("picked instance %d, which is not ready in queue %s", number, queue)
		case in.partition != "" && m.partitions[in.partition].instance != nil:
			return fmt.Errorf("picked instance %d, while instance %d executes with its partition key", number, m.partitions[in.partition].instance.n)
		case in.partition != "" && turn[in.partition] != 0:
			return fmt.Errorf("picked instances %d and %d with one partition key", turn[in.partition], number)
		}
		turn[in.partition] = number
	}
	free, keys := 0, map[string]bool{}
	for _, in := range m.instances {
		if !in.ready() || in.queue != queue || in.alone != alone || m.partitions[in.partition].instance != nil {
			continue
		}
		if in.partition == "" || !keys[in.partition] {
			free++
			keys[in.partition] = true
		}
		if slices.Contains(picked, in.n) {
			continue
		}
		for _, number := range picked {
			p := m.numbered(number)
			rival := turn[in.partition] == 0 || in.partition == "" || in.partition == p.partition
			if rival && (in.priority < p.priority || in.priority == p.priority && in.since < p.since) {
				return fmt.Errorf("picked instance %d before %d", number, in.n)
			}
		}
	}
	if len(picked) != min(n, free) {
		return fmt.Errorf("picked %d of %d that may run, asked for %d", len(picked), free, n)
	}
	return nil
}

// commit settles visits as one transaction: their own rows, then the signals they send, then who of them parks on what is there
// already, then the starts. It returns those that go on at once, under one lease; those of the visits that came to nothing do not.
func (m *model) commit(visits []*modelVisit, last []uuid.UUID, ticks int) (ahead []*modelVisit) {
	var passed, parked, on []*modelVisit
	for _, v := range visits {
		if m.partitions[v.partition].instance == v.in && m.partitions[v.partition].lease == v.lease {
			delete(m.partitions, v.partition)
		}
		if v.in.status != engine.StatusExecuting || v.in.lease != v.lease {
			continue
		}
		v.script = v.outcome()
		m.settle(v)
		passed = append(passed, v)
		if v.goesOn() {
			v.in.status = engine.StatusExecuting // a wake or a pick finds it so
			on = append(on, v)
		}
		if v.in.status == engine.StatusAwaiting {
			parked = append(parked, v)
		}
	}
	for _, token := range last {
		delete(m.leases, token)
	}
	ended := slices.DeleteFunc(slices.Clone(passed), func(v *modelVisit) bool { return v.in.status.Live() || v.in.parent == nil })
	slices.SortFunc(ended, func(a, b *modelVisit) int { return a.n - b.n })
	for _, v := range ended {
		m.put(v.in)
	}
	bears := map[*modelInstance]bool{}
	for _, v := range passed {
		bears[v.in] = slices.ContainsFunc(v.script.starts, func(s *modelStart) bool { return s.child })
	}
	missing := m.send(sentBy(passed))
	for _, v := range parked {
		m.recheckAs(v.in, bears[v.in])
	}
	for _, v := range ended {
		m.wakeParent(v.in.parent, bears[v.in.parent])
	}
	m.moveUniqueKeys()
	var refused []*modelInstance
	for _, v := range passed {
		for i, s := range v.script.starts {
			n := *s
			if n.dedup == "" {
				n.dedup = v.effectKey("start", i)
			}
			if r, got := m.start(n, n.machine+" "+n.state, true); n.child && m.bear(v, n, r, got) {
				refused = append(refused, v.in)
			}
		}
	}
	for _, in := range refused {
		m.recheck(in)
	}
	for _, e := range m.send(missing) {
		m.bury(e)
	}
	l := &modelLease{due: m.now + ticks}
	for _, v := range on {
		next := m.visit(v.in, l)
		// Its inbox was read before the starts.
		next.inbox = slices.DeleteFunc(next.inbox, func(g *modelSignal) bool { return g.tx == m.tx })
		ahead = append(ahead, next)
	}
	return ahead
}

// goesOn: not who has to give a key back in between, or is to be seen without it.
func (v *modelVisit) goesOn() bool {
	tells := slices.Contains(v.scope, engine.StatusRunnable) != slices.Contains(v.scope, engine.StatusExecuting)
	return v.mayGoOn && v.script.kind == "next" && v.partition == "" && !(v.uniqueKey != "" && tells) && !v.in.paused
}

// recheck wakes one that is parked for what is there already.
func (m *model) recheck(in *modelInstance) {
	m.recheckAs(in, false)
}

// recheckAs is recheck, of one for whom the same transaction starts children yet.
func (m *model) recheckAs(in *modelInstance, starts bool) {
	if in.status == engine.StatusAwaiting && !in.paused && (in.enough() || m.joined(in, starts)) {
		m.wake(in)
	}
}

// outcome is what an execution comes to.
func (v *modelVisit) outcome() *script {
	if v.tired() {
		return &script{kind: "stop", payload: v.tiredOf()}
	}
	cause := map[string]string{"error": "boom", "terminal": "fatal", "panic": "panic: ouch", "nothing": "the step returned no outcome"}[v.script.kind]
	switch {
	case cause == "":
		return v.script
	case v.machine == "h":
		o := *v.script.handler
		if o.kind == "replay" {
			o.payload = cause
		}
		return &o
	case v.script.kind == "terminal" || v.counted+1 >= modelMaxAttempts:
		return &script{kind: "stop", payload: cause}
	}
	return &script{kind: "replay", ticks: retryTicks, payload: cause}
}

// tired: its workers died with it as often as its errors may be retried.
func (v *modelVisit) tired() bool {
	return v.script.kind != "release" && v.machine == "m" && v.counted >= modelMaxAttempts
}

func (v *modelVisit) tiredOf() string {
	reason := fmt.Sprintf("step %q: %d executions and no outcome", v.step, v.counted)
	if v.lastError != "" {
		reason += ": " + v.lastError
	}
	return reason
}

// settle is what an outcome does to its own instance.
func (m *model) settle(v *modelVisit) {
	in, o := v.in, v.script
	in.lease, in.looks = nil, in.tellsApart(o.kind)
	if o.state != 0 {
		in.state = stateOf(o.state)
	}
	var consumed []*modelSignal
	if o.kind == "next" || o.kind == "done" || o.consume {
		consumed = v.awaited
	}
	if o.kind != "release" {
		in.history = append(in.history, modelTransition{v.step, o.kind, v.attempt, consumed})
	}
	in.inbox = slices.DeleteFunc(in.inbox, func(g *modelSignal) bool { return slices.Contains(consumed, g) })
	m.wake(in)
	switch o.kind {
	case "next":
		in.step, in.attempt, in.counted, in.visit, in.awaits, in.timedOut, in.lastError = o.step, 0, 0, in.visit+1, nil, false, ""
		in.modelWait, in.handed, in.handedFor = modelWait{}, nil, 0
	case "replay":
		in.attempt++
		if o.payload != "" {
			in.counted++
			in.lastError = o.payload
		}
		if o.ticks > 0 {
			in.due = m.now + o.ticks
		}
	case "await":
		in.status, in.counted, in.visit, in.timedOut = engine.StatusAwaiting, 0, in.visit+1, false
		in.awaits, in.handed, in.handedFor, in.modelWait = o.names, v.awaited, v.children, o.modelWait
		if o.consume && slices.ContainsFunc(v.awaited, func(g *modelSignal) bool { return g.child }) {
			in.handedFor = 0
		}
		if o.step != "" {
			in.step = o.step
		}
		if o.consume {
			in.attempt, in.lastError = 0, ""
		}
		if o.ticks > 0 {
			in.due = m.now + o.ticks
		}
	case "done":
		in.result, in.lastError = o.payload, ""
		m.finish(in, engine.StatusDone)
	case "stop":
		in.lastError = o.payload
		m.finish(in, engine.StatusFailed)
	}
	for key, value := range o.events {
		in.events[key] = value
	}
	for _, body := range o.publish {
		m.publish("publish s %d: %s", in.n, body)
	}
}

// tellsApart reports whether some of the statuses that an outcome may lead through are in the unique scope, and some are not. A park
// may be woken at once.
func (in *modelInstance) tellsApart(outcome string) bool {
	passes := []engine.Status{engine.StatusExecuting}
	switch outcome {
	case "done":
		passes = append(passes, engine.StatusDone)
	case "stop":
		passes = append(passes, engine.StatusFailed)
	case "await":
		passes = append(passes, engine.StatusAwaiting, engine.StatusRunnable)
	default:
		passes = append(passes, engine.StatusRunnable)
	}
	within := 0
	for _, status := range passes {
		if slices.Contains(in.scope, status) {
			within++
		}
	}
	return within > 0 && within < len(passes)
}

func stateOf(n int) string { return fmt.Sprintf(`{"n": %d}`, n) }

// effectKey is the dedup key of an effect that has none: one for each commit.
func (v *modelVisit) effectKey(what string, i int) string {
	return fmt.Sprintf("%s:%d/%s/%d", idOf(v.n), v.rev, what, i)
}

func (v *modelVisit) idempotencyKey() string { return idOf(v.n).String() + "-" + strconv.Itoa(v.visit) }

// sentBy are the signals that the visits send, those to keys first.
func sentBy(visits []*modelVisit) (byKey []*scriptSignal) {
	var byID []*scriptSignal
	for _, v := range visits {
		for i := range v.script.signals {
			e := v.script.signals[i]
			if e.dedup == "" {
				e.dedup = v.effectKey("signal", i)
			}
			e.known, e.route = e.dedup, "effects"
			if e.key != "" {
				byKey = append(byKey, &e)
			} else {
				byID = append(byID, &e)
			}
		}
	}
	return append(byKey, byID...)
}

func (e *scriptSignal) intake() *modelIntake { return &modelIntake{modelSignal: e.modelSignal, n: e.n} }

// send delivers what has a live target, and returns the rest.
func (m *model) send(es []*scriptSignal) (missing []*scriptSignal) {
	for _, e := range es {
		if target := e.intake().target(m); target != nil {
			if m.deliver(target, &e.modelSignal, false) == engine.Conflict {
				m.publish("dead %s conflict: %s", e.route, e.payload)
			}
		} else {
			missing = append(missing, e)
		}
	}
	return missing
}

// bury is for an effect without a live target: held where nobody has had its key, a dead letter where who had it has ended.
func (m *model) bury(e *scriptSignal) {
	in := e.intake()
	switch {
	case m.known(in) == engine.Conflict:
		m.publish("dead %s conflict: %s", e.route, e.payload)
	case m.known(in) != "":
	case e.key != "" && !m.hadTarget(in):
		e.due = m.now + holdTicks
		m.hold(&e.modelSignal)
	default:
		m.publish("dead %s no_target: %s", e.route, e.payload)
	}
}
