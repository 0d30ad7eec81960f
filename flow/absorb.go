package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/ident"
)

// absorb gives the steps that wait what has come for them. What nobody has a use for yet stays in the inbox.
func (r *visit) absorb(ctx context.Context) error {
	if err := r.judge(ctx); err != nil {
		return err
	}
	r.complete()
	r.inbox = slices.DeleteFunc(r.inbox, func(s engine.Signal) bool {
		if !r.take(s) {
			return false
		}
		r.taken = append(r.taken, s)
		return true
	})
	return nil
}

// complete gives signals to the steps for which enough are there, in the order of the flow, before any is given to one that has to wait on.
func (r *visit) complete() {
	for _, w := range r.run.In(dag.Waiting) {
		if w.Type != dag.WaitForSignal || r.run.State.Failure != nil {
			continue
		}
		_, need := r.run.Wanted(w)
		var enough []engine.Signal
		for _, s := range r.inbox {
			again := slices.ContainsFunc(enough, func(other engine.Signal) bool { return other.Name == s.Name })
			if len(enough) < need && !again && r.fits(w, s) && !slices.Contains(r.run.State.Absorbed, s.ID) {
				enough = append(enough, s)
			}
		}
		if len(enough) < need {
			continue
		}
		for _, s := range enough {
			if r.run.State.Steps[w.Ref].Status != dag.Waiting {
				break // the signal before was too large for the flow
			}
			r.run.Receive(w, s.Name, s.Payload)
			r.inbox = slices.DeleteFunc(r.inbox, func(other engine.Signal) bool { return other.ID == s.ID })
			r.taken = append(r.taken, s)
		}
	}
}

// judge asks Postgres which signals pass the conditions of the steps that wait for them.
func (r *visit) judge(ctx context.Context) error {
	if r.run.State.Failure != nil {
		return nil
	}
	for _, w := range r.run.In(dag.Waiting) {
		names, _ := r.run.Wanted(w)
		for name, path := range w.Where {
			if !slices.Contains(names, name) {
				continue
			}
			var unknown []engine.Signal
			for _, s := range r.inbox {
				if _, known := r.passes[judged{path, s.ID}]; !known && s.Kind == engine.KindSignal && s.Name == name {
					unknown = append(unknown, s)
				}
			}
			if len(unknown) == 0 {
				continue
			}
			passing, err := r.Passing(ctx, path, unknown...)
			if err != nil {
				return fmt.Errorf("step %q: where.%s: %w", w.Ref, name, err)
			}
			for _, s := range unknown {
				r.passes[judged{path, s.ID}] = slices.ContainsFunc(passing, func(p engine.Signal) bool { return p.ID == s.ID })
			}
		}
	}
	return nil
}

// judged is a condition and a signal of the inbox.
type judged struct {
	path string
	id   int64
}

// fits says whether a step that waits has a use for a signal.
func (r *visit) fits(w *dag.Step, s engine.Signal) bool {
	switch s.Kind {
	case engine.KindUpdate:
		return w.Type == dag.OnUpdate && w.Name == s.Name
	case engine.KindSignal:
		if w.Type != dag.WaitForSignal {
			return false
		}
		names, _ := r.run.Wanted(w)
		path := w.Where[s.Name]
		return slices.Contains(names, s.Name) && (path == "" || r.passes[judged{path, s.ID}])
	}
	return false
}

// take gives an entry of the inbox to the step that it is for, and reports whether the entry is done with.
func (r *visit) take(s engine.Signal) bool {
	if slices.Contains(r.run.State.Absorbed, s.ID) {
		return true
	}
	if r.run.State.Failure != nil && s.Kind != engine.KindChild {
		return false // nothing more begins, and a retry may want it
	}
	switch s.Kind {
	case engine.KindChild:
		r.childEnded(s)
		return true
	case engine.KindEvent:
		return r.event(s)
	}
	for _, w := range r.run.In(dag.Waiting) {
		switch {
		case !r.fits(w, s):
			continue
		case w.Type == dag.OnUpdate:
			r.run.Succeed(w.Ref, s.Payload)
		default:
			r.run.Receive(w, s.Name, s.Payload)
		}
		return true
	}
	return false
}

// event settles the step that waits for one. One that nobody waits for is of a step that has ended otherwise.
func (r *visit) event(s engine.Signal) bool {
	if s.Name == r.deadline("") {
		r.run.FailFlow(&dag.Failure{Reason: fmt.Sprintf("the time limit of the flow, %s, is over", r.flow.Timeout)})
		return true
	}
	for _, w := range r.run.In(dag.Waiting) {
		switch {
		case r.run.State.Steps[w.Ref].Key == s.Name:
			r.run.Succeed(w.Ref, s.Payload)
			return true
		case s.Name == r.deadline(w.Ref):
			r.run.Fail(w.Ref, w.Late())
			return true
		}
	}
	return slices.ContainsFunc(r.Awaited, func(other engine.Signal) bool { return other.ID == s.ID })
}

func (r *visit) childEnded(s engine.Signal) {
	var e engine.ChildEnd
	if err := s.Decode(&e); err != nil {
		r.log.Error("the end of a child cannot be read", "machine", r.flow.Name, "instance", r.Instance.ID, "error", err)
		return
	}
	for _, t := range r.run.Running() {
		if !r.run.At(t).Child || e.CorrelationKey != r.keyOf(t) {
			continue
		}
		switch e.Status {
		case engine.StatusDone:
			r.run.End(t, e.Result, "")
		case engine.StatusFailed:
			r.run.End(t, nil, cmp.Or(e.Reason, "failed"))
		default:
			reason := string(e.Status)
			if e.Reason != "" {
				reason += ": " + e.Reason
			}
			r.run.End(t, nil, reason)
		}
		return
	}
}

// keyOf is the correlation key of the child of a task.
func (r *visit) keyOf(t dag.Task) string {
	if r.run.Body(t).Type == dag.Start {
		if n, err := r.run.StartOf(t); err == nil && n.CorrelationKey != "" {
			return n.CorrelationKey
		}
	}
	return r.childKey(t)
}

// missed fails the steps whose time is over, or whose trigger was canceled. Where one step alone waits it is that one; else the triggers say.
func (r *visit) missed(ctx context.Context) error {
	if !r.TimedOut && !r.Canceled || r.run.State.Failure != nil {
		return nil
	}
	waiting := r.run.In(dag.Waiting)
	if len(waiting) == 0 {
		return nil // a call is made again
	}
	if len(waiting) == 1 && r.flow.Timeout == 0 && len(r.run.In(dag.Running)) == 0 {
		switch s := waiting[0]; {
		case r.Canceled && r.run.State.Steps[s.Ref].Key != "":
			r.run.Fail(s.Ref, "its trigger was canceled")
		case r.TimedOut:
			r.run.Fail(s.Ref, s.Late())
		}
		return nil
	}
	triggers, err := r.Triggers(ctx)
	if err != nil {
		return err
	}
	for _, s := range waiting {
		key := r.run.State.Steps[s.Ref].Key
		if key == "" {
			continue // its time limit comes as an event
		}
		i := slices.IndexFunc(triggers, func(t engine.Trigger) bool { return t.EventKey == key })
		switch {
		case i < 0:
			r.run.Fail(s.Ref, "its trigger has ended, and is purged")
		case triggers[i].Status == engine.TriggerTimedOut:
			r.run.Fail(s.Ref, s.Late())
		case triggers[i].Status == engine.TriggerCanceled:
			r.run.Fail(s.Ref, "its trigger was canceled")
		}
	}
	return nil
}

// gone fails what runs as children that are not there any more, as when a flow is retried long after it was canceled: what wakes an instance that
// waits for children, and brings nothing, is that none is live.
func (r *visit) gone() {
	if len(r.taken) > 0 || r.InboxMore || r.TimedOut || r.Canceled || r.run.Changed || r.run.State.Onward {
		return
	}
	for _, t := range r.run.Running() {
		if r.run.At(t).Child {
			r.run.End(t, nil, "the instance that it ran as is gone")
		}
	}
}

// target of a signal.
func target(s *dag.SignalTo) engine.Ref {
	if s.InstanceID != "" {
		if id, err := uuid.Parse(s.InstanceID); err == nil {
			return engine.ByID(id)
		}
	}
	return engine.ByKey("", s.CorrelationKey)
}

// errorDelay is before the second execution of a visit that failed; it doubles.
const errorDelay = time.Second

// onError is for what is wrong with a visit as a whole. A wait that is refused is a failure of its step: the visit runs again and finds that noted.
func (m *machine) onError(ctx context.Context, v *engine.Visit[json.RawMessage], cause error) engine.Outcome {
	var refused *engine.WaitRefusedError
	if !errors.As(cause, &refused) {
		if v.Instance.Attempt+1 >= maxLost {
			return engine.Stop(cause.Error())
		}
		return engine.Replay(errorDelay << v.Instance.Attempt)
	}
	r, err := m.newVisit(v)
	if err != nil {
		return engine.Stop(err.Error())
	}
	ref := r.wants(ctx, refused.Key)
	if ref == "" {
		return engine.Stop(cause.Error())
	}
	st := r.run.State
	if st.Refused == nil {
		st.Refused = map[string]string{}
	}
	st.Refused[ref] = cause.Error()
	if v.State, err = ident.Encode(st); err != nil {
		return engine.Stop(err.Error())
	}
	if v.Instance.Step == beginStep {
		return engine.Next(joinStep)
	}
	return engine.Replay(0)
}

// wants finds the step that wants to wait with a key, as it would in this visit.
func (r *visit) wants(ctx context.Context, key string) string {
	dry, err := r.newVisit(r.Visit)
	if err != nil || dry.settle(ctx) != nil {
		return ""
	}
	if dry.advance(ctx) != nil {
		return ""
	}
	for _, s := range dry.run.In(dag.Waiting) {
		if dry.run.State.Steps[s.Ref].Key == key {
			return s.Ref
		}
	}
	return ""
}
