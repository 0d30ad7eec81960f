package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
)

// Step is the code of one step. It runs outside of any transaction, and runs again from the start whenever its worker dies before
// its outcome has committed, so what it does to the world has to bear that; [Visit.IdempotencyKey] helps.
// An error, or a panic, is retried by the machine's policy.
type Step[S any] func(ctx context.Context, v *Visit[S]) (Outcome, error)

// Definition describes a machine with the state S, which is kept as JSON.
type Definition[S any] struct {
	Name    string
	Version int    // zero: 1. An instance ends on the version it began with.
	Start   string // the first step
	Steps   map[string]Step[S]
	Any     Step[S] // any step that is not in Steps
	Queue   string  // of instances whose start names none; zero: DefaultQueue

	Retry RetryPolicy
	// OnError decides what an error comes to, instead of Retry, and may return any outcome. Its own panic fails the instance.
	OnError func(ctx context.Context, v *Visit[S], cause error) Outcome

	// Validators by update, as [Client.Validate] registers them.
	Validators map[string]Validator

	NoHistory bool // keep no list of transitions

	// Content stands for what the machine does, as a hash of its text. [Client.CheckContent] refuses another one under the same name and
	// version; "": nothing is known of it.
	Content string
}

// Visit is one execution of a step.
type Visit[S any] struct {
	Instance  Instance // as it was picked
	State     S        // as the step leaves it, it commits with the outcome
	Awaited   []Signal // of the inbox, what the instance was parked for, the oldest first, at most 1,000
	Inbox     []Signal // the oldest 1,000
	InboxMore bool     // there is more
	TimedOut  bool     // the deadline of the await is over
	Canceled  bool     // the event that was awaited is canceled
	visit     int
	trace     string // of the start
	span      string // of this visit, where it is traced
	setEvent  func(ctx context.Context, key string, value json.RawMessage) error
	triggers  func(ctx context.Context) ([]Trigger, error)
	passing   func(ctx context.Context, path string, signals []int64) ([]int64, error)
}

// IdempotencyKey is the same for every execution of this step until it progresses or is woken from an await.
func (v *Visit[S]) IdempotencyKey() string { return idempotencyKey(v.Instance.ID, v.visit) }

// Traceparent is the trace context that what this visit asks of others continues: of its span, where there is tracing ([Config.Tracing]); else of
// the newest signal in Awaited that has one, else of the start; "" where none has.
func (v *Visit[S]) Traceparent() string {
	if v.span != "" {
		return v.span
	}
	for _, s := range slices.Backward(v.Awaited) {
		if s.Traceparent != "" {
			return s.Traceparent
		}
	}
	return v.trace
}

func idempotencyKey(id uuid.UUID, visit int) string { return fmt.Sprintf("%s-%d", id, visit) }

// Machine is a checked [Definition].
type Machine struct {
	name      string
	version   int
	start     string
	queue     string
	steps     []string // nil: any
	retry     RetryPolicy
	onError   bool
	noHistory bool
	content   string

	validators map[string]Validator
	// run executes a step, handle the error handler; both give back the state as it was left, or nil where it is known to be the same.
	run    func(ctx context.Context, step string, v *Visit[json.RawMessage]) (Outcome, json.RawMessage, error)
	handle func(ctx context.Context, v *Visit[json.RawMessage], cause error) (Outcome, json.RawMessage)
}

// Name of the machine.
func (m *Machine) Name() string { return m.name }

// Version of the machine.
func (m *Machine) Version() int { return m.version }

// known is how stored instances name the machine.
func (m *Machine) known() string { return fmt.Sprintf("%s@%d", m.name, m.version) }

func (m *Machine) hasStep(step string) bool { return m.steps == nil || slices.Contains(m.steps, step) }

// Define checks a definition.
func Define[S any](d Definition[S]) (*Machine, error) {
	if d.Version == 0 {
		d.Version = 1
	}
	if d.Queue == "" {
		d.Queue = DefaultQueue
	}
	d.Retry = d.Retry.withDefaults()
	err := errors.Join(ident.Token("machine", d.Name), ident.Queue("queue", d.Queue), d.checkSteps(), d.checkValidators(), d.Retry.check())
	if d.Version < 1 || d.Version > math.MaxInt32 {
		err = errors.Join(err, &InvalidError{Field: "version", Reason: "is not between 1 and 2147483647"})
	}
	if err != nil {
		return nil, fmt.Errorf("machine %q: %w", d.Name, err)
	}
	m := &Machine{name: d.Name, version: d.Version, start: d.Start, queue: d.Queue, retry: d.Retry, onError: d.OnError != nil, noHistory: d.NoHistory, content: d.Content, validators: maps.Clone(d.Validators)}
	if d.Any == nil {
		m.steps = slices.Sorted(maps.Keys(d.Steps))
	}
	m.run = func(ctx context.Context, step string, v *Visit[json.RawMessage]) (Outcome, json.RawMessage, error) {
		fn := d.Steps[step]
		if fn == nil {
			fn = d.Any
		}
		typed, err := decodeVisit[S](v)
		if err != nil {
			return Outcome{}, nil, Terminal(err)
		}
		o, err := fn(ctx, typed)
		if err != nil {
			return Outcome{}, nil, err
		}
		state, err := encodeState(typed.State, v.State)
		return o, state, err
	}
	m.handle = func(ctx context.Context, v *Visit[json.RawMessage], cause error) (Outcome, json.RawMessage) {
		typed, err := decodeVisit[S](v)
		if err != nil {
			return Stop(err.Error()), nil
		}
		o := d.OnError(ctx, typed, cause)
		state, err := encodeState(typed.State, v.State)
		if err != nil {
			return Stop(err.Error()), nil
		}
		return o, state
	}
	return m, nil
}

func (d *Definition[S]) checkSteps() (err error) {
	for _, step := range slices.Sorted(maps.Keys(d.Steps)) {
		err = errors.Join(err, ident.Name("step", step))
		if d.Steps[step] == nil {
			err = errors.Join(err, &InvalidError{Field: "step " + step, Reason: "has no code"})
		}
	}
	if d.Steps[d.Start] == nil && (d.Any == nil || ident.Name("start", d.Start) != nil) {
		err = errors.Join(err, &InvalidError{Field: "start", Reason: fmt.Sprintf("is %q, which is no step of the machine", d.Start)})
	}
	return err
}

func (d *Definition[S]) checkValidators() (err error) {
	for _, update := range slices.Sorted(maps.Keys(d.Validators)) {
		err = errors.Join(err, checkValidator("m", update, d.Validators[update]))
	}
	return err
}

func decodeVisit[S any](v *Visit[json.RawMessage]) (*Visit[S], error) {
	typed := &Visit[S]{Instance: v.Instance, Awaited: v.Awaited, Inbox: v.Inbox, InboxMore: v.InboxMore, TimedOut: v.TimedOut, Canceled: v.Canceled, visit: v.visit, trace: v.trace, span: v.span, setEvent: v.setEvent, triggers: v.triggers, passing: v.passing}
	if raw, ok := any(&typed.State).(*json.RawMessage); ok {
		// What comes from the database is a document. A step may write into what it is given, and v is what it leaves compared with.
		*raw, typed.Instance.State = bytes.Clone(v.State), bytes.Clone(v.State)
		return typed, nil
	}
	if err := json.Unmarshal(v.State, &typed.State); err != nil {
		return nil, fmt.Errorf("the state does not fit the machine: %w", err)
	}
	return typed, nil
}

// encodeState is the state as a step leaves it; nil where it is a document that the step has left as it was.
func encodeState(state any, was json.RawMessage) (json.RawMessage, error) {
	if raw, ok := state.(json.RawMessage); ok && bytes.Equal(raw, was) {
		return nil, nil
	}
	b, err := ident.Encode(state)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return b, ident.JSON("state", b, ident.MaxJSON)
}
