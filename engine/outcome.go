package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// How many effects one outcome may have, on how many keys, and of how many bytes. A key is one that a signal goes to or a start has, that of an
// event that is awaited or emitted, and the dedup key of a start without; signals to ids and starts without any key are as many as there are effects.
const (
	MaxEffects     = 1000
	MaxEffectKeys  = maxScopes
	MaxEffectBytes = 32 << 20
)

// Outcome is what a step returns: what happens next, and effects that commit with it. Its methods return a changed copy.
// The zero Outcome is an error of the step.
type Outcome struct {
	kind    string
	step    string
	awaits  []string // tags
	awaitN  int      // of their names; 0: one
	where   map[string]string
	delay   *time.Duration
	consume bool
	only    *[]int64 // what of the inbox is consumed; nil: what the kind of outcome says
	result  json.RawMessage
	reason  string

	events  map[string]json.RawMessage
	publish []store.Publish
	signals []send
	starts  []NewInstance
	waits   []EventWait
	emits   []NewEvent
	bytes   int   // of the effects
	err     error // the first mistake in building it
}

type send struct {
	to     Ref
	signal Signal
}

// Next runs another step at once. It consumes exactly the signals that this step was handed as Awaited.
func Next(step string) Outcome { return Outcome{kind: store.OutcomeNext, step: step} }

// Replay runs this step again after the delay, counts an attempt, and keeps what was awaited.
func Replay(after time.Duration) Outcome {
	o := Outcome{kind: store.OutcomeReplay}
	if after > 0 {
		o.delay = &after
	}
	return o
}

// Await parks the instance until a signal with one of the names arrives that this step was not handed, then runs the step next
// ("" is this step). It consumes nothing: what stays in the inbox is handed out again with what arrives.
func Await(next string, signals ...string) Outcome {
	o := Outcome{kind: store.OutcomeAwait, step: next}
	for _, name := range signals {
		o.check(ident.Name("signal", name))
		o.awaits = append(o.awaits, KindSignal+"/"+name)
	}
	return o
}

// Done ends the instance with a result.
func Done(result any) Outcome {
	o := Outcome{kind: store.OutcomeDone}
	o.result = o.json("result", result)
	return o
}

// Stop ends the instance as failed.
func Stop(reason string) Outcome { return Outcome{kind: store.OutcomeStop, reason: reason} }

// OrUpdate makes an await one of updates too: the next step also runs when an update with one of the names is delivered
// ([Client.Update]), and finds it among Awaited with the kind update. A signal of that name is none. Await(next).OrUpdate(name) awaits
// updates alone.
func (o Outcome) OrUpdate(names ...string) Outcome {
	if o.kind != store.OutcomeAwait {
		o.check(fmt.Errorf("OrUpdate: only an await can be for updates, %q is none", o.kind))
	}
	o.awaits = slices.Clip(o.awaits)
	for _, name := range names {
		o.check(ident.Name("update", name))
		o.awaits = append(o.awaits, KindUpdate+"/"+name)
	}
	return o
}

// Within gives an await a deadline. When it is over the next step runs with TimedOut, and with what of the signals has arrived.
func (o Outcome) Within(d time.Duration) Outcome {
	if o.kind != store.OutcomeAwait || d <= 0 {
		o.check(fmt.Errorf("Within(%s): wants an await and a time above 0", d))
	}
	o.delay = &d
	return o
}

// Consuming makes an await consume the signals that this step was handed as Awaited, as [Next] does. An instance that handles
// signals one after another parks this way in one commit.
func (o Outcome) Consuming() Outcome {
	if o.kind != store.OutcomeAwait {
		o.check(fmt.Errorf("Consuming: only an await can be told to consume, %q does what it does", o.kind))
	}
	o.consume = true
	return o
}

// ConsumingOnly makes a next, or an await, consume these entries of the inbox that the step was handed, and leave all others: what it has no
// use for yet. An await that is told so counts as progress, as with [Outcome.Consuming]; what it leaves does not wake it again as long as it
// awaits the same name.
func (o Outcome) ConsumingOnly(signals ...Signal) Outcome {
	if o.kind != store.OutcomeAwait && o.kind != store.OutcomeNext {
		o.check(fmt.Errorf("ConsumingOnly: only a next or an await can be told what to consume, %q does what it does", o.kind))
	}
	ids := make([]int64, len(signals))
	for i, s := range signals {
		ids[i] = s.ID
	}
	o.only = &ids
	return o
}

// SetEvent publishes a named value of this instance, in place of the one before.
func (o Outcome) SetEvent(key string, value any) Outcome {
	o.check(ident.Key("event", key))
	o.events = maps.Clone(o.events)
	if o.events == nil {
		o.events = map[string]json.RawMessage{}
	}
	o.bytes -= len(o.events[key])
	o.events[key] = o.json("event "+key, value)
	o.bytes += len(o.events[key])
	return o
}

// Signal sends a signal to another instance of the same project; one of another project is an error of the step. A signal for a key that nobody has is held for an hour; one for an
// instance that has ended becomes a dead letter.
func (o Outcome) Signal(to Ref, s Signal) Outcome {
	if to.key == "" && to.id == uuid.Nil {
		o.check(&InvalidError{Field: "signal " + s.Name, Reason: "names neither a key nor an id to go to"})
	}
	o.check(checkRef(to))
	o.check(checkSignal(s.Name, s.Payload, s.DedupKey))
	o.signals = append(slices.Clip(o.signals), send{to, s})
	o.bytes += len(s.Payload)
	return o
}

// Start starts another instance in the same project; another project is an error of the step. Where its key is live, or its unique key is
// held, nothing happens, also when a step with the same DedupKey asks for it again later.
func (o Outcome) Start(n NewInstance) Outcome {
	o.check(n.check())
	o.starts = append(slices.Clip(o.starts), n)
	o.bytes += len(n.State)
	return o
}

// Publish sends a message to a JetStream subject, at least once, with the same Nats-Msg-Id each time. Messages of one instance go
// out in order. data is JSON unless it is a []byte.
func (o Outcome) Publish(subject string, data any, headers map[string][]string) Outcome {
	body, ok := data.([]byte)
	if !ok {
		body = o.json("data", data)
	}
	if subject == "" {
		o.check(&InvalidError{Field: "subject", Reason: "is empty"})
	}
	if len(body) > ident.MaxJSON {
		o.check(&InvalidError{Field: "data", Reason: fmt.Sprintf("has %d bytes: at most %d", len(body), ident.MaxJSON)})
	}
	o.publish = append(slices.Clip(o.publish), store.Publish{Subject: subject, Headers: headers, Body: body})
	o.bytes += len(body)
	return o
}

func (o *Outcome) effects() int {
	return len(o.events) + len(o.publish) + len(o.signals) + len(o.starts) + len(o.waits) + len(o.emits)
}

// checkEffects: they are for the project of the instance, and for no more keys than its commit may lock.
func (o *Outcome) checkEffects(project string) error {
	elsewhere := func(what, other string) error {
		return fmt.Errorf("%s: is for the project %q, and the effects of this instance are for its own, %q: leave the project out, or publish a message that a route of the other project reads", what, other, project)
	}
	keys := map[string]bool{}
	for _, s := range o.signals {
		if s.to.project != "" && s.to.project != project {
			return elsewhere("signal "+s.signal.Name, s.to.project)
		}
		if s.to.key != "" {
			keys["key "+s.to.key] = true
		}
	}
	for _, n := range o.starts {
		switch {
		case n.Project != "" && n.Project != project:
			return elsewhere("start of "+n.Machine, n.Project)
		case n.CorrelationKey != "":
			keys["key "+n.CorrelationKey] = true
		case n.DedupKey != "":
			keys["dedup "+n.DedupKey] = true
		}
	}
	for _, w := range o.waits {
		keys["event "+w.Key] = true
	}
	for _, e := range o.emits {
		keys["event "+e.Key] = true
	}
	if len(keys) > MaxEffectKeys {
		return fmt.Errorf("outcome %s: effects on %d keys: at most %d; leave the others to a later step", o.kind, len(keys), MaxEffectKeys)
	}
	return nil
}

func (o *Outcome) check(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *Outcome) json(field string, v any) json.RawMessage {
	b, err := ident.Encode(v)
	if err == nil {
		err = ident.JSON(field, b, ident.MaxJSON)
	}
	o.check(err)
	return b
}
