package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// OrEvent lets an await also end with an event, for which a trigger is made in the same transaction: anybody can send it by its key
// ([Client.SendEvent]). The next step is handed the event as a signal of the kind [KindEvent] with the key as its name; where the trigger's
// time is over first it runs with TimedOut, and where it is canceled with Canceled. A key that another trigger waits with, and a quota that
// is used up, are errors of this step.
//
// The wait goes on until one of these: an await of the same key by this instance that comes before goes on with the same trigger, until the
// time that it has. The end of the instance cancels it.
func (o Outcome) OrEvent(w EventWait) Outcome {
	if o.kind != store.OutcomeAwait {
		o.check(fmt.Errorf("OrEvent(%q): only an await can wait for an event, and this is %q", w.Key, o.kind))
	}
	o.check(w.check())
	if slices.ContainsFunc(o.waits, func(other EventWait) bool { return other.Key == w.Key }) {
		o.check(&InvalidError{Field: "event_key", Reason: fmt.Sprintf("%q is awaited twice", w.Key)})
	}
	o.waits = append(slices.Clip(o.waits), w)
	o.awaits = append(slices.Clip(o.awaits), KindEvent+"/"+w.Key)
	o.bytes += len(w.RequestPayload)
	return o
}

// WaitRefusedError is the error of a step whose outcome awaits an event that it cannot wait for; [errors.As] finds why, a [*ConflictError] or a
// [*QuotaError].
type WaitRefusedError struct {
	Key string // of the event
	Err error
}

func (e *WaitRefusedError) Error() string { return e.Err.Error() }

func (e *WaitRefusedError) Unwrap() error { return e.Err }

// Triggers are those that this instance has waited with, the latest first: a step that has waited for several events, and finds TimedOut or
// Canceled, learns here of which.
func (v *Visit[S]) Triggers(ctx context.Context) ([]Trigger, error) {
	if v.triggers == nil {
		return nil, errors.New("triggers: this visit is of no worker")
	}
	return v.triggers(ctx)
}

func (c *Client) triggersOf(ctx context.Context, project string, instance uuid.UUID) (all []Trigger, err error) {
	const page = 200
	for before, more := uuid.Nil, true; more; more = before != uuid.Nil {
		some, next, err := c.Triggers(ctx, TriggerFilter{Project: project, InstanceID: instance}, before, page)
		if err != nil {
			return nil, err
		}
		all, before = append(all, some...), next
	}
	return all, nil
}

// Emit sends an event to the trigger of this project that waits with the key, as [Client.SendEvent] does, when this outcome commits. Where
// nobody has used the key it is held for an hour; where the last trigger of it has ended otherwise than with the same payload, it is a dead letter.
func (o Outcome) Emit(key string, payload any) Outcome {
	e := NewEvent{Key: key, Payload: o.json("payload", payload)}
	o.check(e.check())
	o.emits = append(slices.Clip(o.emits), e)
	o.bytes += len(e.Payload)
	return o
}

// addEvents adds what an outcome waits for and emits. A park that consumes has consumed when it waits.
func addEvents(row *store.Outcome, work *store.Work, o Outcome) {
	for _, w := range o.waits {
		n, err := w.row(work.Project, work.ID, work.Step)
		if err != nil {
			continue // no random numbers: the await is then for the others
		}
		n.Await, n.Consumed = true, row.Consumed
		row.Waits = append(row.Waits, n)
	}
	for _, e := range o.emits {
		row.Emits = append(row.Emits, store.EventSend{
			Project: work.Project, Key: e.Key, Payload: e.Payload, SentBy: work.Machine + "/" + work.Step, Hold: store.HoldEmitted, Original: &store.Original{Route: store.EffectsRoute}, Body: e.Payload,
		})
	}
}
