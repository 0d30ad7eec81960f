package dag

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/internal/ident"
)

// enterItems begins a step with for_each, or goes on with one that was interrupted by the failure of the flow: what is done of it stays done.
func (r *Run) enterItems(s *Step) error {
	list, err := r.list(s.Ref)
	if err != nil {
		return err
	}
	st := r.at(s.Ref)
	if len(st.Items) != len(list) {
		st.Items = make([]TaskState, len(list))
	}
	if size := r.size(s.Ref) + st.size(); size > MaxState {
		return fmt.Errorf("for_each: its %d items make payload and outputs of the flow %d bytes: at most %d", len(list), size, MaxState)
	}
	st.Status, r.Changed = Running, true
	r.feed(s)
	return nil
}

// feed begins as many items as may run beside each other, and settles the step when there is nothing left of it.
func (r *Run) feed(s *Step) {
	st := r.at(s.Ref)
	running := 0
	for i := range st.Items {
		if st.Items[i].Status == Running {
			running++
		}
	}
	failed := slices.IndexFunc(st.Items, func(i TaskState) bool { return i.Status == Failed })
	stop := failed >= 0 && s.OnItemFailure != Continue
	for i := 0; i < len(st.Items) && !stop && running < s.Concurrency && r.State.Failure == nil; i++ {
		if st.Items[i].Status != Pending {
			continue
		}
		t := Task{Ref: s.Ref, Item: i}
		if r.Began != nil {
			r.Began(t)
		}
		err := r.ask(t)
		if err == nil {
			err = r.apart(t)
		}
		if err != nil {
			r.noteItem(t, nil, err.Error())
			stop = s.OnItemFailure != Continue
			continue
		}
		running++
	}
	switch {
	case running > 0:
	case stop:
		failed = slices.IndexFunc(st.Items, func(i TaskState) bool { return i.Status == Failed })
		r.Fail(s.Ref, fmt.Sprintf("item %d: %s", failed, st.Items[failed].Error))
	case !slices.ContainsFunc(st.Items, func(i TaskState) bool { return i.Status == Pending }):
		r.gather(s)
	}
}

// apart refuses an item whose instance has the correlation key of another one that runs: they could not be told apart.
func (r *Run) apart(t Task) error {
	if r.Body(t).Type != Start {
		return nil
	}
	own, err := r.StartOf(t)
	if err != nil || own.CorrelationKey == "" {
		return err
	}
	for i := range r.at(t.Ref).Items {
		if i == t.Item || r.at(t.Ref).Items[i].Status != Running {
			continue
		}
		if other, err := r.StartOf(Task{Ref: t.Ref, Item: i}); err == nil && other.CorrelationKey == own.CorrelationKey {
			return fmt.Errorf("correlation_key: %q is that of item %d too: give each its own", own.CorrelationKey, i)
		}
	}
	return nil
}

// gather makes the output of a step of those of its items: null for what failed.
func (r *Run) gather(s *Step) {
	st := r.at(s.Ref)
	outputs := make([]json.RawMessage, len(st.Items))
	var failed []int
	for i, item := range st.Items {
		if outputs[i] = item.Output; item.Status == Failed {
			outputs[i] = json.RawMessage("null")
			failed = append(failed, i)
		}
	}
	text := ""
	if len(failed) > 0 {
		text = fmt.Sprintf("%d of %d items failed, the first is item %d: %s", len(failed), len(st.Items), failed[0], st.Items[failed[0]].Error)
	}
	output, err := ident.Encode(outputs)
	if err != nil {
		r.Fail(s.Ref, err.Error())
		return
	}
	r.succeed(s.Ref, output, text)
}

// maxItemError is how much of the reason of the failure of an item is kept.
const maxItemError = 256

func (r *Run) endItem(t Task, output json.RawMessage, failure string) {
	r.noteItem(t, output, failure)
	r.feed(r.Flow.step(t.Ref))
}

func (r *Run) noteItem(t Task, output json.RawMessage, failure string) {
	st := r.at(t.Ref)
	item := TaskState{Status: Done, Output: output}
	if output == nil {
		item.Output = json.RawMessage("null")
	}
	if size := r.size(t.Ref) + st.size() + len(item.Output); failure == "" && size > MaxState {
		failure = fmt.Sprintf("its output of %d bytes makes payload and outputs of the flow %d: at most %d", len(output), size, MaxState)
	}
	if failure != "" {
		item = TaskState{Status: Failed, Error: clean(failure, maxItemError)}
	}
	st.Items[t.Item], r.Changed = item, true
	if r.Settled != nil {
		r.Settled(t)
	}
}

// halt takes back what was about to be asked of others when the flow has failed: it begins when the flow is retried.
func (r *Run) halt() {
	for _, s := range r.In(Running) {
		st := r.State.Steps[s.Ref]
		switch {
		case s.ForEach == nil && !st.Child:
			*st = StepState{Run: st.Run, Undone: st.Undone}
		case s.ForEach != nil:
			running := false
			for i := range st.Items {
				if item := &st.Items[i]; item.Status == Running && !item.Child {
					*item = TaskState{}
				}
				running = running || st.Items[i].Status == Running
			}
			if !running {
				st.Status = Pending
			}
		}
	}
}
