package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/ident"
)

// machine is a flow as the engine runs it.
type machine struct {
	flow   *dag.Flow
	caller *caller
	log    *slog.Logger
}

// visit is one execution.
type visit struct {
	*machine
	*engine.Visit[json.RawMessage]
	run   *dag.Run
	inbox []engine.Signal // what is there to be absorbed, in its order
	taken []engine.Signal // what was
	// passes says of conditions and signals what Postgres has said of them in this visit.
	passes map[judged]bool
	// called says that a call was made in this visit, whose output is to be committed before anything that may be refused.
	called bool
}

// step goes on with the flow as far as it goes.
func (m *machine) step(ctx context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
	if n := v.Instance.Attempt; n >= maxLost+len(m.flow.Steps) { // refused waits count too, each step at most once
		return engine.Stop(fmt.Sprintf("step %q: %d executions and no outcome", v.Instance.Step, n)), nil
	}
	r, err := m.newVisit(v)
	if err != nil {
		return engine.Stop(err.Error()), nil
	}
	o, err := r.goOn(ctx)
	if err != nil {
		return engine.Outcome{}, err
	}
	if st := r.run.State; !st.Stopped {
		st.Absorbed = slices.DeleteFunc(st.Absorbed, func(id int64) bool {
			return slices.ContainsFunc(r.taken, func(s engine.Signal) bool { return s.ID == id })
		})
	}
	if v.State, err = ident.Encode(r.run.State); err != nil {
		return engine.Outcome{}, err
	}
	return r.effects(o), nil
}

func (m *machine) newVisit(v *engine.Visit[json.RawMessage]) (*visit, error) {
	in := v.Instance
	r := &visit{machine: m, Visit: v, passes: map[judged]bool{}, run: &dag.Run{
		Flow:     m.flow,
		Instance: dag.Instance{ID: in.ID.String(), Project: in.Project, Machine: in.Machine, Version: in.Version, CorrelationKey: in.CorrelationKey},
	}}
	if in.Step == beginStep {
		r.run.State = dag.NewState(slices.Clone(v.State))
		return r, nil
	}
	r.run.State = dag.NewState(nil)
	if err := json.Unmarshal(v.State, r.run.State); err != nil || r.run.State.Payload == nil {
		return nil, fmt.Errorf("the state is none of a flow: start it without a step (%w)", cmp.Or(err, errors.New("no payload")))
	}
	for _, s := range slices.Concat(v.Awaited, v.Inbox) {
		if !slices.ContainsFunc(r.inbox, func(other engine.Signal) bool { return other.ID == s.ID }) {
			r.inbox = append(r.inbox, s)
		}
	}
	slices.SortFunc(r.inbox, func(a, b engine.Signal) int { return cmp.Compare(a.ID, b.ID) })
	return r, nil
}

// settle settles the steps for which something has come, or whose time is over.
func (r *visit) settle(ctx context.Context) error {
	if r.run.State.Stopped {
		r.run.Retry()
	}
	r.run.Refuse()
	if err := r.absorb(ctx); err != nil {
		return err
	}
	if err := r.missed(ctx); err != nil {
		return err
	}
	r.gone()
	return nil
}

// goOn settles and begins until all that is left is to wait, to call, or to end.
func (r *visit) goOn(ctx context.Context) (engine.Outcome, error) {
	if err := r.settle(ctx); err != nil {
		return engine.Outcome{}, err
	}
	for {
		if err := r.advance(ctx); err != nil {
			return engine.Outcome{}, err
		}
		if r.run.Ended() && !r.compensating() {
			return r.end(), nil
		}
		tasks := r.undecided()
		if len(tasks) != 1 || !r.alone(tasks[0]) {
			return r.park(tasks), nil
		}
		t := tasks[0]
		if r.run.Changed || len(r.run.Effects)+len(r.taken) > 0 {
			return engine.Next(stepOf(t)).ConsumingOnly(r.taken...), nil // first what is known, then the call
		}
		wait, err := r.ask(ctx, t)
		if err != nil {
			return engine.Outcome{}, err
		}
		if wait > 0 {
			return engine.Await(stepOf(t)).Within(wait).ConsumingOnly(), nil
		}
	}
}

// advance also gives what is in the inbox to steps that have begun to wait for it.
func (r *visit) advance(ctx context.Context) error {
	for before := -1; before != len(r.taken); {
		before = len(r.taken)
		r.run.Advance()
		if err := r.absorb(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compensating goes on with undoing a flow that has failed, and says whether there is something to be asked for yet.
func (r *visit) compensating() bool {
	if r.run.State.Failure == nil {
		return false
	}
	_, more := r.run.Compensate()
	return more
}

// undecided are the tasks that are to be called and are not yet instances of their own.
func (r *visit) undecided() []dag.Task {
	return slices.DeleteFunc(r.run.Running(), func(t dag.Task) bool { return r.run.At(t).Child })
}

// alone says whether a call is all that the flow is about. Beside a compensation nothing is.
func (r *visit) alone(t dag.Task) bool {
	if !r.run.Body(t).Calls() || t.Item >= 0 || len(r.run.Running()) != 1 {
		return false
	}
	return t.Undo || r.flow.Timeout == 0 && len(r.run.In(dag.Waiting)) == 0
}

// stepOf the engine, in which a task is executed or waited for.
func stepOf(t dag.Task) string {
	if t.Undo {
		return t.Ref + undoSuffix
	}
	return t.Ref
}

// ask makes a call and settles its task. wait is after how long it is to be made again.
func (r *visit) ask(ctx context.Context, t dag.Task) (wait time.Duration, err error) {
	q, err := r.run.Request(t)
	if err != nil {
		r.run.End(t, nil, err.Error())
		return 0, nil
	}
	out, err := r.caller.ask(ctx, q, r.Traceparent())
	r.called = true
	st := r.run.At(t)
	switch {
	case err == nil:
		r.run.End(t, out, "")
		return 0, nil
	case ctx.Err() != nil: // told to stop, or not its own any more
		return 0, err
	case errors.Is(err, errAway):
		return awayDelay, nil
	}
	st.Attempts, st.Error = st.Attempts+1, err.Error()
	if !isFinal(err) && st.Attempts < q.Retry.MaxAttempts {
		return delay(q.Retry, st.Attempts-1), nil
	}
	r.run.End(t, nil, cmp.Or(err.Error(), "failed"))
	return 0, nil
}

// end of the flow.
func (r *visit) end() engine.Outcome {
	if r.run.State.Failure == nil {
		return engine.Done(r.run.Result())
	}
	if r.Instance.Step == beginStep { // a retry runs the last step again, and this one begins anew
		return engine.Next(endStep)
	}
	st := r.run.State
	st.Stopped = true
	for _, s := range r.taken { // it is kept for a retry, and is in the state already
		if !slices.Contains(st.Absorbed, s.ID) {
			st.Absorbed = append(st.Absorbed, s.ID)
		}
	}
	return engine.Stop(r.run.Reason())
}

// maxStartBytes is how much one commit starts of instances, about.
const maxStartBytes = 16 << 20

// park waits for all that is waited for, and for one of it at first.
func (r *visit) park(tasks []dag.Task) engine.Outcome {
	waiting := r.run.In(dag.Waiting)
	if r.run.State.Failure != nil {
		waiting = nil // only what runs is waited for
	}
	step, running := joinStep, r.run.Running()
	switch {
	case len(waiting)+len(running) != 1:
	case len(waiting) == 1:
		step = waiting[0].Ref
	default:
		step = stepOf(running[0])
	}
	if r.called && slices.ContainsFunc(waiting, func(s *dag.Step) bool { return s.Type == dag.WaitForEvent }) {
		return engine.Next(step).ConsumingOnly(r.taken...) // a wait may be refused, and the call is not to be made again for that
	}
	starts, more := r.children(tasks, engine.MaxEffectKeys-len(r.run.Effects)-len(waiting)-1)
	o := engine.Next(joinStep)
	if r.run.State.Onward = more; !more {
		o = r.await(step, waiting)
		if len(running) > 0 {
			o = o.OrChildren(engine.AnyChild)
		}
	}
	for _, n := range starts {
		o = o.StartChild(n)
	}
	return o.ConsumingOnly(r.taken...)
}

// children are the instances of tasks, as many as one commit has room for; more says that there are others, or that something else has changed.
func (r *visit) children(tasks []dag.Task, room int) (starts []engine.NewInstance, more bool) {
	bytes := 0
	for _, t := range tasks {
		n, err := r.child(t)
		if err != nil { // it could be made when the task began
			r.run.End(t, nil, err.Error())
			more = true
			continue
		}
		if bytes += len(n.State); len(starts) >= room || bytes > maxStartBytes && len(starts) > 0 {
			return starts, true
		}
		starts = append(starts, n)
		r.run.At(t).Child = true
	}
	return starts, more
}

// await is for the waiting steps together.
func (r *visit) await(step string, waiting []*dag.Step) engine.Outcome {
	var signals, updates []string
	var events []engine.EventWait
	alone := len(waiting) == 1 && len(r.run.Running()) == 0 && r.flow.Timeout == 0
	var within time.Duration
	limit := func(s *dag.Step) {
		switch st := r.run.State.Steps[s.Ref]; {
		case s.Timeout == 0:
		case alone && !st.Timed:
			within = s.Timeout
		default: // once it has a trigger that one goes on with the time that it has
			st.Timed = true
			events = append(events, engine.EventWait{Key: r.deadline(s.Ref), Timeout: s.Timeout, Sleep: true, FlowStep: s.Ref})
		}
	}
	wanting := map[string][]*dag.Step{}
	need := 0
	for _, s := range waiting {
		switch s.Type {
		case dag.WaitForSignal:
			names, n := r.run.Wanted(s)
			for _, name := range names {
				if wanting[name] == nil {
					signals = append(signals, name)
				}
				wanting[name] = append(wanting[name], s)
			}
			if need == 0 || n < need {
				need = n // whichever has enough first
			}
			limit(s)
		case dag.OnUpdate:
			if !slices.Contains(updates, s.Name) {
				updates = append(updates, s.Name)
			}
			limit(s)
		case dag.WaitForEvent, dag.Sleep:
			w, err := r.run.Wait(s.Ref)
			if err != nil {
				continue // it could be made when the step began
			}
			events = append(events, engine.EventWait{
				Key: w.Key, Timeout: w.Timeout, NotifyURL: w.NotifyURL, RequestPayload: w.Request, Sleep: s.Type == dag.Sleep, FlowStep: s.Ref, EmitKey: w.EmitKey,
			})
		}
	}
	if r.flow.Timeout > 0 && r.run.State.Failure == nil {
		events = append(events, engine.EventWait{Key: r.deadline(""), Timeout: r.flow.Timeout, Sleep: true, FlowStep: joinStep})
	}
	o := engine.Await(step, signals...)
	if need > 1 {
		o = o.NOf(need)
	}
	for _, name := range signals {
		if path := dag.Where(name, wanting[name]); path != "" {
			o = o.Where(name, path)
		}
	}
	if len(updates) > 0 {
		o = o.OrUpdate(updates...)
	}
	for _, w := range events {
		o = o.OrEvent(w)
	}
	if within > 0 {
		o = o.Within(within)
	}
	return o
}

// deadline is the key of the time limit of a step, or of the flow.
func (r *visit) deadline(ref string) string {
	if ref == "" {
		return r.run.Instance.ID + "/deadline"
	}
	return r.run.Key(dag.Whole(ref)) + "/deadline"
}

// child is the instance that a task runs as.
func (r *visit) child(t dag.Task) (n engine.NewInstance, err error) {
	if r.run.Body(t).Type == dag.Start {
		spec, err := r.run.StartOf(t)
		if err != nil {
			return n, err
		}
		n = newInstance(spec)
		n.DedupKey = r.childKey(t) // it is not started twice, whatever becomes of the flow
	} else {
		q, err := r.run.Request(t)
		if err != nil {
			return n, err
		}
		n = engine.NewInstance{Machine: r.flow.Name + callSuffix, Version: r.flow.Version, Queue: r.Instance.Queue, Priority: r.Instance.Priority, State: engine.MustJSON(callState{Request: *q})}
	}
	if n.CorrelationKey == "" {
		n.CorrelationKey = r.childKey(t)
	}
	n.Traceparent = r.Traceparent()
	return n, nil
}

// childKey names the child of a task.
func (r *visit) childKey(t dag.Task) string {
	return fmt.Sprintf("flow:%s/%d", r.run.Key(t), r.run.State.Steps[t.Ref].Run)
}

func newInstance(s *dag.NewInstance) engine.NewInstance {
	return engine.NewInstance{
		Machine: s.Machine, Version: s.Version, Start: s.Step, Queue: s.Queue, Priority: int16(s.Priority), CorrelationKey: s.CorrelationKey,
		PartitionKey: s.PartitionKey, UniqueKey: s.UniqueKey, State: s.State,
	}
}

// effects adds to an outcome what the steps do to others.
func (r *visit) effects(o engine.Outcome) engine.Outcome {
	for _, e := range r.run.Effects {
		switch {
		case e.Publish != nil:
			o = o.Publish(e.Publish.Subject, []byte(e.Publish.Data), e.Publish.Headers)
		case e.Signal != nil:
			o = o.Signal(target(e.Signal), engine.Signal{Name: e.Signal.Name, Payload: e.Signal.Payload, DedupKey: e.Signal.DedupKey})
		case e.Start != nil:
			n := newInstance(e.Start)
			n.DedupKey, n.Traceparent = "flow:"+r.run.Key(e.Task), r.Traceparent()
			o = o.Start(n)
		case e.Set != nil:
			o = o.SetEvent(e.Set.Key, e.Set.Value)
		case e.Emit != nil:
			o = o.Emit(e.Emit.Key, e.Emit.Value)
		}
	}
	return o
}
