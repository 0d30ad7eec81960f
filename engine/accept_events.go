package engine

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

func (in *Intake) checkEvent() error {
	switch {
	case in.Name != "" || in.Start != nil:
		return &InvalidError{Field: "event", Reason: "stands beside a signal or a start: an intake has one of them"}
	case in.To.key != "" || in.To.id != uuid.Nil:
		return &InvalidError{Field: "event", Reason: "stands beside an instance: an event is found by its own key"}
	case in.OnMissing == MissingStart || in.OnTerminal == TerminalStart:
		return &InvalidError{Field: "event", Reason: "starts nothing"}
	}
	err := errors.Join(ident.Token("project", in.project()), ident.EventKey("event", in.Event), checkJSON("payload", in.Payload))
	if in.DedupKey != "" {
		err = errors.Join(err, ident.Key("dedup_key", in.DedupKey))
	}
	return err
}

// event is the row of an intake.
func (in *Intake) event() store.EventSend {
	body := in.Body
	if body == nil {
		body = in.Payload
	}
	e := store.EventSend{Project: in.project(), Key: in.Event, Payload: in.Payload, SentBy: in.Origin.Route, Body: body}
	if in.DedupKey != "" || !in.Origin.IsZero() {
		m := &store.EventMessage{Dedup: uuid.New(), Hash: store.SignalHash(KindEvent, in.Event, body), Recheck: in.Redelivered && !in.Origin.IsZero()}
		if in.DedupKey != "" {
			m.Dedup = store.SignalDedup(in.DedupKey)
		}
		if !in.Origin.IsZero() {
			source := store.Source(in.Origin.Route, in.Origin.Stream, in.Origin.Created, in.Origin.Sequence)
			m.Source = &source
		}
		e.Message = m
	}
	if in.OnMissing == MissingHold {
		e.Hold = in.holdFor()
		e.Original = in.original()
	}
	return e
}

// original is the message of an intake that is held; nil: there is none.
func (in *Intake) original() *store.Original {
	m := in.Message
	if m == nil {
		return nil
	}
	return &store.Original{
		Route: m.Route, Subject: m.Subject, Headers: m.Headers, Deliveries: m.Deliveries,
		Stream: in.Origin.Stream, Created: in.Origin.Created, Sequence: in.Origin.Sequence,
		Stored: m.Stored, ReadStream: m.Stream, ReadSequence: m.Sequence,
	}
}

// sendEvents sends the events of the batch, as many in a transaction as it should lock keys.
func (a *acceptance) sendEvents(items []int) error {
	for chunk := range a.chunks(items) {
		if _, err := a.bisect(chunk, func(items []int) ([]int, error) { return nil, a.sendSome(items) }); err != nil {
			return err
		}
	}
	return nil
}

func (a *acceptance) sendSome(items []int) error {
	sends := make([]store.EventSend, len(items))
	var scopes []uuid.UUID
	for k, i := range items {
		sends[k] = a.batch[i].event()
		if !a.locked {
			scopes = append(scopes, a.locks(i)...)
		}
	}
	var out []store.EventDelivery
	var ended []store.EndedTrigger
	err := a.st.InScopes(a.ctx, scopes, func(tx *store.Store) (err error) {
		out, ended, err = tx.SendEvents(a.ctx, sends)
		return err
	})
	if err != nil {
		return err
	}
	for _, e := range ended {
		a.queues = append(a.queues, e.Queues...)
	}
	a.ended = append(a.ended, ended...)
	for k, i := range items {
		a.settle(i, a.batch[i].eventReceipt(out[k]))
	}
	return nil
}

// eventReceipt says what became of an event.
func (in *Intake) eventReceipt(d store.EventDelivery) Receipt {
	r := Receipt{Result: in.eventResult(d), SignalID: d.SignalID, Reason: d.Refusal(in.Event)}
	if d.Instance != nil {
		r.InstanceID = *d.Instance
	}
	return r
}

func (in *Intake) eventResult(d store.EventDelivery) Result {
	switch d.Verdict {
	case store.Delivered:
		return Delivered
	case store.Duplicate:
		return Duplicate
	case store.Held:
		return Held
	case store.Conflict:
		return Conflict
	}
	missing := d.Verdict == store.Missing
	if missing && in.OnMissing == MissingDrop || !missing && in.OnTerminal == TerminalDrop {
		return Dropped
	}
	return NoTarget
}

// eventRecord is what is on record of an event, and would become of it now.
func (in *Intake) eventRecord(found store.EventRecord) Record {
	e := in.event()
	d := found.Judge(&e)
	r := Record{Would: in.eventResult(d)}
	if d.Verdict == store.Missing && in.OnMissing == MissingHold {
		r.Would = Held
	}
	if t := found.Trigger; t != nil && t.InstanceID != nil {
		r.InstanceID = *t.InstanceID
	}
	mine := func(source *uuid.UUID) bool {
		return e.Message != nil && e.Message.Source != nil && source != nil && *source == *e.Message.Source
	}
	switch {
	case found.Taken != nil:
		r.At, r.Result = found.Taken.At, r.Would
		if mine(found.Taken.Source) {
			r.Result, r.Changed, r.Would = Delivered, found.Taken.Hash != e.Message.Hash, Duplicate
		}
	case found.Held != nil:
		r.At, r.Result = found.Held.At, r.Would
		if mine(found.Held.Source) {
			r.Result, r.Would = Held, Duplicate
		}
	}
	return r
}

// lookEvents fills in the records of the events of a batch. As in [Client.Look], the message may be on record under another dedup.
func (c *Client) lookEvents(ctx context.Context, batch []Intake, at []int, records []Record) error {
	sends := make([]store.EventSend, len(at))
	for k, i := range at {
		if sends[k] = batch[i].event(); sends[k].Message != nil {
			sends[k].Message.Recheck = sends[k].Message.Source != nil
		}
	}
	found, err := c.store.LookEvents(ctx, sends)
	for k, i := range at {
		if err == nil {
			records[i] = batch[i].eventRecord(found[k])
		}
	}
	return err
}
