package dag

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Compensate goes on with undoing a flow that has failed, of which nothing runs any more: one step after the other, the last that was done
// first. What only has effects is done at once. It returns the task that is to be asked of others now; ok is false when all is settled.
func (r *Run) Compensate() (t Task, ok bool) {
	for {
		last := -1
		for i := range r.Flow.Steps {
			st := r.State.of(r.Flow.Steps[i].Ref)
			open := r.Flow.Steps[i].Compensate != nil && st.Status == Done && (st.Compensation == nil || st.Compensation.Status == Running)
			if open && (last < 0 || st.Completed > r.State.of(r.Flow.Steps[last].Ref).Completed) {
				last = i
			}
		}
		if last < 0 {
			return Task{}, false
		}
		t = Task{Ref: r.Flow.Steps[last].Ref, Item: -1, Undo: true}
		st := r.at(t.Ref)
		if st.Compensation != nil {
			return t, true
		}
		st.Compensation, r.Changed = &TaskState{}, true
		if r.Began != nil {
			r.Began(t)
		}
		if r.Body(t).runs() {
			if err := r.ask(t); err != nil {
				r.End(t, nil, err.Error())
				continue
			}
			return t, true
		}
		output, err := r.apply(t)
		if err != nil {
			r.End(t, nil, err.Error())
			continue
		}
		r.End(t, output, "")
	}
}

// endCompensation keeps no output, which nobody reads.
func (r *Run) endCompensation(t Task, output json.RawMessage, failure string) {
	st := r.at(t.Ref)
	*st.Compensation = TaskState{Status: Done}
	if failure != "" {
		*st.Compensation = TaskState{Status: Failed, Error: clean(failure, maxError)}
	}
	r.Changed = true
	if r.Settled != nil {
		r.Settled(t)
	}
}

// notUndone says which compensations have failed; "": none.
func (r *Run) notUndone() string {
	var failed []string
	for i := range r.Flow.Steps {
		ref := r.Flow.Steps[i].Ref
		if c := r.State.of(ref).Compensation; c != nil && c.Status == Failed {
			failed = append(failed, fmt.Sprintf("step %q is not undone: %s", ref, c.Error))
		}
	}
	return strings.Join(failed, "; ")
}
