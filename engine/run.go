package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// finished is an outcome on its way to the commit, with the slot it holds until then.
type finished struct {
	outcome store.Outcome
	queue   *queue
	party   *party      // who began with it
	ahead   chan *visit // of one that wants to go on with the next step: answered once, nil for no
	// refused is what comes of an outcome that cannot wait for its event: an error of the step. nil: it awaits none.
	refused func(cause error) store.Outcome
}

// hand an outcome to the commit.
func (w *Worker) hand(f finished) {
	f.queue.end()
	w.outcomes <- f
}

// visit is a leased instance whose step is to be executed.
type visit struct {
	ctx   context.Context
	work  *store.Work
	party *party
}

// runVisit executes one step and hands on what it came to. ahead is where the answer comes of an instance that may go on at once.
func (w *Worker) runVisit(begun *visit, q *queue, mayGoOn bool) (ahead chan *visit) {
	ctx, work := begun.ctx, begun.work
	w.metrics.wakeToRun.Observe(max(0, time.Since(work.ReadyAt).Seconds()))
	m := w.machines[work.Machine+"@"+strconv.Itoa(work.Version)]
	if work.Step == "" {
		work.Step = m.start
	}
	v := visitOf(work)
	v.setEvent = func(ctx context.Context, key string, value json.RawMessage) error {
		return w.setEvent(ctx, work, key, value)
	}
	v.triggers = func(ctx context.Context) ([]Trigger, error) { return w.client.triggersOf(ctx, work.Project, work.ID) }
	v.passing = func(ctx context.Context, path string, signals []int64) ([]int64, error) {
		return w.passing(ctx, work.ID, path, signals)
	}
	var o Outcome
	var state json.RawMessage
	label := ""
	defer func() {
		if label == "" { // runtime.Goexit, as of a test's FailNow: no error comes back from it, and nobody goes on
			o, state = w.failed(ctx, m, work, v, errGoexit)
			label, mayGoOn = labelError, false
		}
		w.metrics.steps.WithLabelValues(m.name, w.metrics.stepLabels.label(m, work.Step), label).Inc()
		f := finished{outcome: w.settle(m, work, v, o, state), queue: q, party: begun.party}
		if len(o.waits) > 0 {
			f.refused = func(cause error) store.Outcome {
				o, state := w.failed(ctx, m, work, v, cause)
				if len(o.waits) > 0 { // of the error handler, which waits in vain as the step did: once is enough
					o, state = Stop(fmt.Sprintf("the error handler awaits an event again: it was called for: %v", cause)), nil
				}
				return w.settle(m, work, v, o, state)
			}
		}
		if mayGoOn && o.kind == store.OutcomeNext && work.CanGoOn() {
			ahead = make(chan *visit, 1)
			f.ahead, f.outcome.Ahead = ahead, work.GoOn(&f.outcome)
		}
		w.hand(f)
	}()
	o, state, label = w.execute(ctx, m, work, v)
	return nil
}

// labelError is what the metrics call a step that failed.
const labelError = "error"

var (
	errGoexit        = errors.New("the step ended its goroutine")
	errHandlerGoexit = errors.New("it ended its goroutine")
)

func visitOf(work *store.Work) *Visit[json.RawMessage] {
	v := &Visit[json.RawMessage]{
		Instance: Instance{
			ID: work.ID, Project: work.Project, Machine: work.Machine, Version: work.Version, Status: StatusExecuting, Step: work.Step, Attempt: work.Attempt,
			CorrelationKey: work.CorrelationKey, Queue: work.Queue, Priority: work.Priority,
			PartitionKey: work.PartitionKey, UniqueKey: work.UniqueKey, UniqueScope: statuses(work.UniqueKey, work.UniqueScope), State: work.State, InsertedAt: work.InsertedAt, InboxCount: len(work.Inbox), ParentID: work.ParentID,
		},
		State: work.State, InboxMore: work.More, TimedOut: work.TimedOut, Canceled: work.WaitCanceled, visit: work.Visit, trace: work.Traceparent,
	}
	for _, g := range work.Inbox {
		s := Signal{ID: g.ID, Kind: g.Kind, Name: g.Name, Payload: g.Payload, DedupKey: g.DedupKey, InsertedAt: g.InsertedAt, Traceparent: g.Traceparent}
		if len(v.Inbox) < store.MaxInbox {
			v.Inbox = append(v.Inbox, s)
		}
		if slices.Contains(work.Awaits, g.Tag()) && !g.Unmet {
			v.Awaited = append(v.Awaited, s)
		}
	}
	return v
}

// execute runs the step and, where it fails, what the machine has for that. label is what the metrics say of it.
func (w *Worker) execute(ctx context.Context, m *Machine, work *store.Work, v *Visit[json.RawMessage]) (o Outcome, state json.RawMessage, label string) {
	// A step that kills its worker never returns an error: its executions are counted here.
	if n := work.Attempt - work.Uncounted; !m.onError && n >= m.retry.MaxAttempts {
		reason := fmt.Sprintf("step %q: %d executions and no outcome", work.Step, n)
		if work.LastError != "" {
			reason += ": " + work.LastError
		}
		return Stop(reason), nil, store.OutcomeStop
	}
	begin := time.Now()
	spanned, span := w.startSpan(ctx, work, v)
	o, state, err := w.callStep(spanned, m, work.Step, v)
	w.metrics.stepSeconds.WithLabelValues(m.name, w.metrics.stepLabels.label(m, work.Step)).Observe(time.Since(begin).Seconds())
	if err == nil {
		err = w.checkOutcome(ctx, m, o, work.Project)
	}
	endSpan(span, o, err)
	if err == nil {
		return o, state, o.kind
	}
	if canceledBy(ctx, ErrShutdown) || canceledBy(ctx, ErrLeaseLost) {
		return Outcome{kind: store.OutcomeRelease}, nil, store.OutcomeRelease
	}
	w.log.Debug("a step failed", "machine", m.name, "version", m.version, "step", work.Step, "instance", work.ID, "attempt", work.Attempt, "error", err)
	o, state = w.failed(ctx, m, work, v, err)
	return o, state, labelError
}

// callStep turns a panic into the step's error.
func (w *Worker) callStep(ctx context.Context, m *Machine, step string, v *Visit[json.RawMessage]) (o Outcome, state json.RawMessage, err error) {
	if !m.hasStep(step) {
		return o, nil, Terminal(fmt.Errorf("machine %s version %d has no step %q", m.name, m.version, step))
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			w.log.Error("a step panicked", "machine", m.name, "version", m.version, "step", step, "instance", v.Instance.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return m.run(ctx, step, v)
}

func (w *Worker) checkOutcome(ctx context.Context, m *Machine, o Outcome, project string) error {
	if err := m.checkOutcome(o, project); err != nil {
		return err
	}
	return w.checkPaths(ctx, o)
}

// checkOutcome finds what no commit could make sense of, for an instance of this project.
func (m *Machine) checkOutcome(o Outcome, project string) error {
	switch {
	case o.err != nil:
		return fmt.Errorf("outcome %s: %w", o.kind, o.err)
	case o.kind == "":
		return errors.New("the step returned no outcome")
	case o.kind == store.OutcomeNext && !m.hasStep(o.step), o.kind == store.OutcomeAwait && o.step != "" && !m.hasStep(o.step):
		return Terminal(fmt.Errorf("outcome %s: machine %s version %d has no step %q", o.kind, m.name, m.version, o.step))
	case o.kind == store.OutcomeAwait && len(o.awaits) == 0 && o.delay == nil:
		return errors.New("outcome await: waits for no signal and has no deadline")
	case o.effects() > MaxEffects:
		return fmt.Errorf("outcome %s: %d effects: at most %d", o.kind, o.effects(), MaxEffects)
	case o.bytes > MaxEffectBytes:
		return fmt.Errorf("outcome %s: effects of %d bytes: at most %d", o.kind, o.bytes, MaxEffectBytes)
	}
	if o.step != "" {
		if err := ident.Name("step", o.step); err != nil {
			return err
		}
	}
	return o.checkEffects(project)
}

// failed is what an error comes to: the machine's handler, or its retry policy.
func (w *Worker) failed(ctx context.Context, m *Machine, work *store.Work, v *Visit[json.RawMessage], cause error) (Outcome, json.RawMessage) {
	if m.onError {
		o, state, err := w.callHandler(ctx, m, v, cause)
		if err == nil {
			err = w.checkOutcome(ctx, m, o, work.Project)
		}
		if err != nil {
			return Stop(fmt.Sprintf("the error handler failed: %v; it was called for: %v", err, cause)), nil
		}
		if o.kind == store.OutcomeReplay {
			o.reason = cause.Error()
		}
		return o, state
	}
	if isTerminal(cause) || work.Attempt-work.Uncounted+1 >= m.retry.MaxAttempts {
		return Stop(cause.Error()), nil
	}
	o := Replay(m.retry.delay(work.Attempt))
	o.reason = cause.Error()
	return o, nil
}

// callHandler has a goroutine for the handler: one that ends its goroutine, as a test's FailNow does, ends no other.
func (w *Worker) callHandler(ctx context.Context, m *Machine, v *Visit[json.RawMessage], cause error) (o Outcome, state json.RawMessage, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		err = errHandlerGoexit
		o, state = m.handle(ctx, v, cause)
		err = nil
	}()
	<-done
	return o, state, err
}

// settle makes a row of an outcome.
func (w *Worker) settle(m *Machine, work *store.Work, v *Visit[json.RawMessage], o Outcome, state json.RawMessage) store.Outcome {
	row := store.Outcome{
		ID: work.ID, Project: work.Project, Rev: work.Rev, Token: work.Token, Timed: work.Timed, PartitionKey: work.PartitionKey, UniqueScope: work.UniqueScope, Notifies: work.Notifies,
		Kind: o.kind, Step: o.step, State: state, Awaits: o.awaits, Delay: o.delay, Result: o.result, Reason: clean(o.reason), Attempt: work.Attempt, Publish: o.publish,
		ParentID: work.ParentID, AwaitN: int16(o.awaitN), Where: o.conditions(),
	}
	if row.Step == "" {
		row.Step = work.Step // the start may not have known it
	}
	if !m.noHistory && o.kind != store.OutcomeRelease {
		row.Ran = work.Step
	}
	row.Progress = o.kind == store.OutcomeNext || o.consume || o.only != nil
	if o.only != nil {
		row.Consumed = *o.only
		if o.kind == store.OutcomeAwait {
			row.Handed, row.HandedTo = work.Awaits, work.SeenTo
			if n := len(v.Awaited); work.More && n > 0 && len(row.Consumed) > 0 {
				row.HandedTo = v.Awaited[n-1].ID // what stands behind these was not handed, and there is room for it now
			}
		}
	} else if row.Progress || o.kind == store.OutcomeDone { // the inbox of a done one goes anyway; its history says what it ended with
		for _, s := range v.Awaited {
			row.Consumed = append(row.Consumed, s.ID)
		}
		if o.kind == store.OutcomeAwait {
			row.Handed = handedChildren(work, v.Awaited)
		}
	} else if o.kind == store.OutcomeAwait {
		row.Handed, row.HandedTo = work.Awaits, work.SeenTo
	}
	for key, value := range o.events {
		row.Events = append(row.Events, store.Event{Key: key, Value: value})
	}
	for i, s := range o.signals {
		row.Signals = append(row.Signals, effect(work, i, s))
	}
	addEvents(&row, work, o)
	for i, n := range o.starts {
		n.Project = work.Project
		visited := n.DedupKey == ""
		if full, err := n.withDefaults(); err == nil {
			n = full
		}
		if visited {
			n.DedupKey = effectKey(work, "start", i)
		}
		start := n.row()
		start.Visited, start.Settles = visited, true
		if n.child {
			start.ParentID = work.ID
		}
		row.Starts = append(row.Starts, start)
	}
	return row
}

// release gives an instance back as it was picked.
func release(work *store.Work) store.Outcome {
	return store.Outcome{
		ID: work.ID, Project: work.Project, Rev: work.Rev, Token: work.Token, Timed: work.Timed, PartitionKey: work.PartitionKey, UniqueScope: work.UniqueScope,
		Kind: store.OutcomeRelease,
	}
}

// effect is a signal that a step sends. One without a dedup key gets one of this commit.
func effect(work *store.Work, i int, s send) store.Signal {
	in := intakeOf(Ref{project: work.Project, key: s.to.key, id: s.to.id}, s.signal)
	if in.DedupKey == "" {
		in.DedupKey = effectKey(work, "signal", i)
	}
	return in.signal()
}

// effectKey is of the commit and not of the visit: a visit may commit more than once, by replays and retries, with other effects each time.
func effectKey(work *store.Work, what string, i int) string {
	return fmt.Sprintf("%s:%d/%s/%d", work.ID, work.Rev, what, i)
}

// clean makes any text one that Postgres can hold, and short enough to be read.
func clean(reason string) string {
	const most = 8 << 10
	if len(reason) > most {
		reason = reason[:most] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(reason, "\uFFFD"), "\x00", "\uFFFD")
}
