package dag

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
)

// Instance is what expressions find of it.
type Instance struct {
	ID             string `json:"id"`
	Project        string `json:"project"`
	Machine        string `json:"machine"`
	Version        int    `json:"version"`
	CorrelationKey string `json:"correlation_key"`
}

// Run goes on with a flow. It is for one goroutine.
type Run struct {
	Flow     *Flow
	State    *State
	Instance Instance
	// Effects of the steps that have begun or ended, in their order.
	Effects []Effect
	// Changed says that something was settled.
	Changed bool
	// Began is told of each step that begins, and Settled of each that ends; nil: nobody.
	Began, Settled func(t Task)

	identity json.RawMessage
	inputs   map[string]*expr.Input // of steps that have begun: what they depend on is settled
	lists    map[string][]json.RawMessage
}

// Effect is what a step does to others: it commits with the state. One of these is set.
type Effect struct {
	Task    Task
	Publish *Message
	Signal  *SignalTo
	Start   *NewInstance
	Set     *NamedValue
	Emit    *NamedValue
}

// Message is a publication.
type Message struct {
	Subject string
	Data    json.RawMessage
	Headers map[string][]string
}

// SignalTo another instance.
type SignalTo struct {
	CorrelationKey, InstanceID string
	Name                       string
	Payload                    json.RawMessage
	DedupKey                   string
}

// NewInstance to start.
type NewInstance struct {
	Machine        string
	Version        int
	Step           string
	Queue          string
	Priority       int
	CorrelationKey string
	PartitionKey   string
	UniqueKey      string
	State          json.RawMessage
}

// NamedValue is one under a key.
type NamedValue struct {
	Key   string
	Value json.RawMessage
}

// MaxState is how many bytes payload and outputs of a flow may have together: the state of an instance has its bound.
const MaxState = ident.MaxJSON - 64<<10

// statusOf a step, as long as the state has one.
func (r *Run) at(ref string) *StepState {
	s := r.State.Steps[ref]
	if s == nil {
		s = &StepState{}
		r.State.Steps[ref] = s
	}
	return s
}

// input of expressions, with what the steps that ref depends on have come to, and itself.
func (r *Run) input(ref string) (*expr.Input, error) {
	if in := r.inputs[ref]; in != nil {
		return in, nil
	}
	if r.identity == nil {
		b, err := ident.Encode(r.Instance)
		if err != nil {
			return nil, err
		}
		r.identity = b
	}
	type shown struct {
		Output json.RawMessage `json:"output"`
		Status Status          `json:"status"`
		Error  string          `json:"error"`
	}
	steps := map[string]shown{}
	for i := range r.Flow.Steps {
		other := r.Flow.Steps[i].Ref
		if other != ref && !r.Flow.before[r.Flow.index[ref]][other] {
			continue
		}
		s := r.State.of(other)
		if s.Output == nil {
			s.Output = json.RawMessage("null")
		}
		steps[other] = shown{s.Output, s.Status, s.Error}
	}
	doc, err := ident.Encode(steps)
	if err != nil {
		return nil, err
	}
	in := &expr.Input{Payload: r.State.Payload, Documents: map[string]json.RawMessage{"steps": doc, "instance": r.identity}}
	if r.inputs == nil {
		r.inputs = map[string]*expr.Input{}
	}
	r.inputs[ref] = in
	return in, nil
}

// Advance begins all that may begin, until nothing more does. What only has effects is done at once.
func (r *Run) Advance() {
	for progress := true; progress && r.State.Failure == nil; {
		progress = false
		for i := range r.Flow.Steps {
			s := &r.Flow.Steps[i]
			if r.State.Failure != nil || r.State.of(s.Ref).Status != Pending {
				continue
			}
			ready, cut := r.ready(s)
			if cut {
				r.at(s.Ref).Cut = true
			}
			if ready || cut {
				r.begin(s, cut)
				progress = true
			}
		}
	}
	if r.State.Failure != nil {
		r.halt()
	}
}

// Refuse fails the steps that wait for an event already and cannot; those that would begin to fail then.
func (r *Run) Refuse() {
	for _, s := range r.In(Waiting) {
		if why, refused := r.State.Refused[s.Ref]; refused {
			delete(r.State.Refused, s.Ref)
			r.Fail(s.Ref, why)
		}
	}
}

// ready says whether all that a step depends on is settled, or whether one of these has cut it off.
func (r *Run) ready(s *Step) (ready, cut bool) {
	ready = true
	for _, on := range s.DependsOn {
		switch o := r.State.of(on); o.Status {
		case Done:
		case Skipped:
			cut = cut || o.Cut
		case Failed:
			cut = cut || r.Flow.step(on).OnFailure != Continue
		default:
			ready = false
		}
	}
	return ready, cut
}

func (r *Run) begin(s *Step, cut bool) {
	if !cut {
		runs, err := r.runs(s)
		if err != nil {
			r.Fail(s.Ref, err.Error())
			return
		}
		cut = !runs
	}
	if cut {
		r.at(s.Ref).Status = Skipped
		r.settle(s.Ref)
		return
	}
	if r.Began != nil {
		r.Began(Whole(s.Ref))
	}
	if why, refused := r.State.Refused[s.Ref]; refused {
		delete(r.State.Refused, s.Ref)
		r.Fail(s.Ref, why)
		return
	}
	if err := r.enter(s); err != nil {
		r.Fail(s.Ref, err.Error())
	}
}

func (r *Run) runs(s *Step) (bool, error) {
	if s.When == nil {
		return true, nil
	}
	in, err := r.input(s.Ref)
	if err != nil {
		return false, err
	}
	holds, err := s.When.Eval(in)
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	return holds, nil
}

// enter does what a step does when its turn has come, or notes what it waits for.
func (r *Run) enter(s *Step) error {
	t := Whole(s.Ref)
	switch {
	case s.ForEach != nil:
		return r.enterItems(s)
	case s.runs():
		return r.ask(t)
	case s.Type == WaitForSignal, s.Type == OnUpdate:
		r.at(s.Ref).Status = Waiting
		return nil
	case s.Type == WaitForEvent, s.Type == Sleep:
		return r.enterWait(s)
	}
	output, err := r.apply(t)
	if err != nil {
		return err
	}
	r.Succeed(s.Ref, output)
	return nil
}

func (r *Run) enterWait(s *Step) error {
	w, err := r.Wait(s.Ref)
	if err != nil {
		return err
	}
	for _, other := range r.In(Waiting) {
		if r.State.Steps[other.Ref].Key == w.Key {
			return fmt.Errorf("event_key: step %q of this flow waits for %q already", other.Ref, w.Key)
		}
	}
	r.at(s.Ref).Status, r.at(s.Ref).Key = Waiting, w.Key
	return nil
}

// size of the state, but for one step.
func (r *Run) size(but string) int {
	size := len(r.State.Payload)
	for ref, other := range r.State.Steps {
		if ref != but {
			size += other.size()
		}
	}
	return size
}

// Succeed settles a step with its output.
func (r *Run) Succeed(ref string, output json.RawMessage) { r.succeed(ref, output, "") }

// succeed may say what has failed of a step that is done.
func (r *Run) succeed(ref string, output json.RawMessage, failed string) {
	s, st := r.Flow.step(ref), r.at(ref)
	if output == nil {
		output = json.RawMessage("null")
	}
	if size := r.size(ref) + len(output); size > MaxState {
		r.Fail(ref, fmt.Sprintf("its output of %d bytes makes payload and outputs of the flow %d: at most %d", len(output), size, MaxState))
		return
	}
	done := StepState{TaskState: TaskState{Status: Done, Output: output, Error: failed}, Run: st.Run, Undone: st.Undone}
	if s.Compensate != nil {
		for _, other := range r.State.Steps {
			done.Completed = max(done.Completed, other.Completed)
		}
		done.Completed++
	}
	*st = done
	delete(r.inputs, ref) // it may name itself from here on
	if s.EventEmitKey != nil {
		in, err := r.input(ref)
		if err != nil {
			r.Fail(ref, err.Error())
			return
		}
		d := rendering{in: in}
		key := d.key("event_emit_key", s.EventEmitKey, ident.EventKey)
		if d.err != nil {
			r.Fail(ref, d.err.Error())
			return
		}
		r.Effects = append(r.Effects, Effect{Task: Whole(ref), Emit: &NamedValue{key, output}})
	}
	r.settle(ref)
}

// maxError is how much of the reason of a failure is kept.
const maxError = 4 << 10

// Fail settles a step. Of one that a retry of the flow runs again the items that are done stay done.
func (r *Run) Fail(ref, reason string) {
	s, st := r.Flow.step(ref), r.at(ref)
	failed := StepState{TaskState: TaskState{Status: Failed, Error: clean(reason, maxError)}, Run: st.Run, Undone: st.Undone}
	if s.OnFailure == FailWorkflow {
		failed.Items = st.Items
		r.FailFlow(&Failure{Ref: ref, Reason: failed.Error})
	}
	*st = failed
	r.settle(ref)
}

// clean makes a reason one that can be kept.
func clean(reason string, most int) string {
	if len(reason) > most {
		reason = reason[:most] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(reason, "\uFFFD"), "\x00", "\uFFFD")
}

// FailFlow ends it as a whole, when what runs has ended. The first failure is the one that is told.
func (r *Run) FailFlow(f *Failure) {
	if r.State.Failure == nil {
		r.State.Failure, r.Changed = f, true
	}
}

func (r *Run) settle(ref string) {
	r.Changed = true
	if r.Settled != nil {
		r.Settled(Whole(ref))
	}
}

// In are the steps that have this status, in the order of the flow.
func (r *Run) In(status Status) (steps []*Step) {
	for i := range r.Flow.Steps {
		if r.State.of(r.Flow.Steps[i].Ref).Status == status {
			steps = append(steps, &r.Flow.Steps[i])
		}
	}
	return steps
}

// Ended says that there is nothing more to wait for.
func (r *Run) Ended() bool {
	if r.State.Failure != nil {
		return len(r.In(Running)) == 0
	}
	return len(r.In(Pending))+len(r.In(Running))+len(r.In(Waiting)) == 0
}

// Reason why a flow has failed, and what of it is not undone.
func (r *Run) Reason() string {
	reason := r.State.Failure.Reason
	if ref := r.State.Failure.Ref; ref != "" {
		reason = fmt.Sprintf("step %q: %s", ref, reason)
	}
	if more := r.notUndone(); more != "" {
		reason += "; " + more
	}
	return reason
}

// Result is the output of each leaf.
func (r *Run) Result() map[string]json.RawMessage {
	result := map[string]json.RawMessage{}
	for _, ref := range r.Flow.Leaves() {
		output := r.State.of(ref).Output
		if output == nil {
			output = json.RawMessage("null")
		}
		result[ref] = output
	}
	return result
}

// Retry makes a flow that has failed go on: the steps that failed it run again, but for their items that are done, and those that were compensated.
// A step that could not be compensated is done as before.
func (r *Run) Retry() {
	r.State.Failure, r.State.Stopped = nil, false
	for i := range r.Flow.Steps {
		s := &r.Flow.Steps[i]
		switch st := r.State.of(s.Ref); {
		case st.Status == Failed && s.OnFailure == FailWorkflow:
			again := st.again()
			for _, item := range st.Items {
				if item.Status != Done {
					item = TaskState{}
				}
				again.Items = append(again.Items, item)
			}
			*r.at(s.Ref) = again
		case st.Compensation == nil:
		case st.Compensation.Status == Done:
			again := st.again()
			again.Undone++
			*r.at(s.Ref) = again
		default:
			r.at(s.Ref).Compensation = nil
		}
	}
}

// Waited is what a step waits for.
type Waited struct {
	Key       string
	Timeout   time.Duration
	NotifyURL string
	Request   json.RawMessage
	EmitKey   string // where it is known already
}

// Wait of a step that waits for an event or a time.
func (r *Run) Wait(ref string) (w Waited, err error) {
	s := r.Flow.step(ref)
	in, err := r.input(ref)
	if err != nil {
		return w, err
	}
	d := rendering{in: in}
	if t := s.EventEmitKey; t != nil && !slices.ContainsFunc(t.Uses(), func(u expr.Use) bool { return u.Variable == "steps" && len(u.Path) > 0 && u.Path[0] == ref }) {
		if key, err := t.String(in); err == nil && ident.EventKey("", key) == nil {
			w.EmitKey = key // what is wrong with it is said when the step is done
		}
	}
	if s.Type == Sleep {
		w.Key = r.Key(Whole(ref))
		text := d.text("sleep_duration", s.Duration)
		if d.err != nil {
			return w, d.err
		}
		if w.Timeout, err = time.ParseDuration(text); err != nil || w.Timeout <= 0 || w.Timeout > MaxSleep {
			return w, fmt.Errorf("sleep_duration: is %q, want a duration from 1s to %s, as 30m", text, MaxSleep)
		}
		return w, nil
	}
	w.Key, w.Timeout = d.key("event_key", s.Key, ident.EventKey), s.Timeout
	if s.NotifyURL != nil {
		w.NotifyURL = d.key("notify_url", s.NotifyURL, ident.URL)
	}
	if s.Data != nil {
		w.Request = d.value("request_payload", s.Data)
	}
	return w, d.err
}

// MaxSleep is the longest wait.
const MaxSleep = 10 * 365 * 24 * time.Hour

// StartOf is the instance that a task starts and waits for.
func (r *Run) StartOf(t Task) (*NewInstance, error) {
	in, err := r.inputOf(t)
	if err != nil {
		return nil, err
	}
	d := rendering{in: in}
	n := d.start(r.Body(t))
	return n, d.err
}

// rendering keeps the first error of several templates.
type rendering struct {
	in  *expr.Input
	err error
}

func (d *rendering) check(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *rendering) text(field string, t *expr.Template) string {
	if t == nil {
		return ""
	}
	s, err := t.String(d.in)
	if err != nil {
		d.check(fmt.Errorf("%s: %w", field, err))
	}
	return s
}

// key is a text that has to pass a check; nothing where there is no template.
func (d *rendering) key(field string, t *expr.Template, check func(field, s string) error) string {
	if t == nil {
		return ""
	}
	s := d.text(field, t)
	if d.err == nil {
		d.check(check(field, s))
	}
	return s
}

func (d *rendering) value(field string, v *Value) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	doc, err := v.Render(d.in)
	if err != nil {
		var e *ident.Error
		if errors.As(err, &e) {
			err = e
		}
		d.check(fmt.Errorf("%s: %w", field, err))
	}
	return doc
}

func (d *rendering) headers(headers map[string]*expr.Template) map[string][]string {
	all := map[string][]string{}
	for name, t := range headers {
		all[name] = []string{d.text("headers."+name, t)}
	}
	return all
}

func (d *rendering) signal(s *Step) *SignalTo {
	return &SignalTo{
		CorrelationKey: d.key("correlation_key", s.Target, ident.Key), InstanceID: d.key("instance_id", s.TargetID, checkID),
		Name: d.key("signal", s.SignalName, ident.Name), Payload: d.value("payload", s.Data), DedupKey: d.key("dedup_key", s.DedupKey, ident.Key),
	}
}

func (d *rendering) start(s *Step) *NewInstance {
	n := &NewInstance{
		Machine: s.Machine, Version: s.MachineVersion, Step: s.FirstStep, Queue: s.ToQueue, Priority: s.Priority, CorrelationKey: d.key("correlation_key", s.CorrelationKey, ident.Key),
		PartitionKey: d.key("partition_key", s.PartitionKey, ident.Key), UniqueKey: d.key("unique_key", s.UniqueKey, ident.Key), State: json.RawMessage("{}"),
	}
	if s.Data != nil {
		n.State = d.value("state", s.Data)
	}
	return n
}
