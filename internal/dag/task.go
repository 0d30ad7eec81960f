package dag

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
)

// Task is what runs, or is done: a step, one item of it, or its compensation.
type Task struct {
	Ref  string
	Item int  // -1: of no list
	Undo bool // the compensation
}

// Whole is the task of a step that has no items.
func Whole(ref string) Task { return Task{Ref: ref, Item: -1} }

// String names it, as in the answers of a simulation: the ref, with /compensate or the index of the item.
func (t Task) String() string {
	switch {
	case t.Undo:
		return t.Ref + "/compensate"
	case t.Item >= 0:
		return t.Ref + "/" + strconv.Itoa(t.Item)
	}
	return t.Ref
}

// Body says what is done.
func (r *Run) Body(t Task) *Step {
	s := r.Flow.step(t.Ref)
	if t.Undo {
		return s.Compensate
	}
	return s
}

// At is what has become of it, of which the state has something.
func (r *Run) At(t Task) *TaskState {
	st := r.at(t.Ref)
	switch {
	case t.Undo:
		return st.Compensation
	case t.Item >= 0:
		return &st.Items[t.Item]
	}
	return &st.TaskState
}

// Key of a task, the same for each execution of it: what it is asked for by an idempotency key. A step that was compensated and runs again has
// another one: whoever was asked to undo it would else believe to have done it already.
func (r *Run) Key(t Task) string {
	whole := t
	whole.Ref = r.Instance.ID + "/" + t.Ref
	if n := r.State.of(t.Ref).Undone; n > 0 {
		whole.Ref += ":" + strconv.Itoa(n+1)
	}
	return whole.String()
}

// Running are the tasks that run, or are about to.
func (r *Run) Running() (tasks []Task) {
	for i := range r.Flow.Steps {
		ref := r.Flow.Steps[i].Ref
		st := r.State.of(ref)
		switch {
		case st.Compensation != nil && st.Compensation.Status == Running:
			tasks = append(tasks, Task{Ref: ref, Item: -1, Undo: true})
		case st.Status != Running:
		case r.Flow.Steps[i].ForEach == nil:
			tasks = append(tasks, Whole(ref))
		default:
			for k := range st.Items {
				if st.Items[k].Status == Running {
					tasks = append(tasks, Task{Ref: ref, Item: k})
				}
			}
		}
	}
	return tasks
}

// End settles a task with its output, or with the reason of its failure where there is one.
func (r *Run) End(t Task, output json.RawMessage, failure string) {
	switch {
	case t.Undo:
		r.endCompensation(t, output, failure)
	case t.Item >= 0:
		r.endItem(t, output, failure)
	case failure != "":
		r.Fail(t.Ref, failure)
	default:
		r.Succeed(t.Ref, output)
	}
}

// inputOf the expressions of a task.
func (r *Run) inputOf(t Task) (*expr.Input, error) {
	in, err := r.input(t.Ref)
	if err != nil || t.Item < 0 || t.Undo {
		return in, err
	}
	list, err := r.list(t.Ref)
	if err != nil {
		return nil, err
	}
	if t.Item >= len(list) {
		return nil, fmt.Errorf("for_each: has no item %d any more", t.Item)
	}
	own := *in
	own.Documents = maps.Clone(in.Documents)
	own.Documents["item"], own.Documents["index"] = list[t.Item], json.RawMessage(strconv.Itoa(t.Item))
	return &own, nil
}

// list of a for_each, from what it depends on: it is the same each time.
func (r *Run) list(ref string) ([]json.RawMessage, error) {
	if list, there := r.lists[ref]; there {
		return list, nil
	}
	in, err := r.input(ref)
	if err != nil {
		return nil, err
	}
	d := rendering{in: in}
	doc := d.value("for_each", r.Flow.step(ref).ForEach)
	if d.err != nil {
		return nil, d.err
	}
	var list []json.RawMessage
	if len(doc) == 0 || doc[0] != '[' {
		return nil, fmt.Errorf("for_each: is %.100s, want a list", doc)
	}
	if err := json.Unmarshal(doc, &list); err != nil {
		return nil, fmt.Errorf("for_each: %w", err)
	}
	if len(list) > MaxItems {
		return nil, fmt.Errorf("for_each: has %d items: at most %d; leave some to a flow that a step starts", len(list), MaxItems)
	}
	if r.lists == nil {
		r.lists = map[string][]json.RawMessage{}
	}
	r.lists[ref] = list
	return list, nil
}

// ask checks that a task can be asked for, and has it run.
func (r *Run) ask(t Task) error {
	var err error
	if r.Body(t).Calls() {
		_, err = r.Request(t)
	} else {
		_, err = r.StartOf(t)
	}
	if err == nil {
		r.At(t).Status = Running
	}
	return err
}

// apply does what a task does that has only effects, and returns what comes of it.
func (r *Run) apply(t Task) (output json.RawMessage, err error) {
	s := r.Body(t)
	in, err := r.inputOf(t)
	if err != nil {
		return nil, err
	}
	d := rendering{in: in}
	e := Effect{Task: t}
	switch s.Type {
	case Publish:
		e.Publish = &Message{Subject: d.text("subject", s.Subject), Data: d.value("data", s.Data), Headers: d.headers(s.Headers)}
		d.check(checkSubject("subject", e.Publish.Subject))
		output = e.Publish.Data
	case Signal:
		e.Signal = d.signal(s)
		if e.Signal.DedupKey == "" {
			e.Signal.DedupKey = "flow:" + r.Key(t)
		}
		output = e.Signal.Payload
	case Start:
		e.Start = d.start(s)
		output = e.Start.State
	case SetEvent:
		e.Set = &NamedValue{d.key("key", s.Key, ident.Key), d.value("value", s.Data)}
		output = e.Set.Value
	}
	if d.err != nil {
		return nil, d.err
	}
	r.Effects = append(r.Effects, e)
	return output, nil
}
