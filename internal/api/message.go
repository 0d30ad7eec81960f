package api

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/ident"
)

// MessageRequest asks for the fate of a message: by its place, or by its Nats-Msg-Id, in one stream or any that a route reads.
type MessageRequest struct {
	Stream string `json:"stream,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	MsgID  string `json:"msg_id,omitempty"`
}

// Message is the fate of one message. Where several routes read it, it is that by the first, and Others are those by the others.
type Message struct {
	Stream     string      `json:"stream"`
	Seq        uint64      `json:"seq"`
	MsgID      *string     `json:"msg_id"`
	Subject    string      `json:"subject"`
	Route      *string     `json:"route"`
	Fate       string      `json:"fate"`
	Reason     *string     `json:"reason"`
	InstanceID *string     `json:"instance_id"`
	SignalID   *int64      `json:"signal_id"`
	ConsumedBy *ConsumedBy `json:"consumed_by"`
	At         *time.Time  `json:"at"`
	Others     []Message   `json:"others,omitempty"`
}

// ConsumedBy is the step that consumed a signal.
type ConsumedBy struct {
	Step string    `json:"step"`
	Rev  int       `json:"rev"`
	At   time.Time `json:"at"`
}

// Message returns the fate of a message.
func (a *API) Message(ctx context.Context, r MessageRequest) (Message, error) {
	if err := r.check(); err != nil {
		return Message{}, err
	}
	if r.MsgID != "" {
		var err error
		if r.Stream, r.Seq, err = a.Tracer.Find(ctx, r.Stream, r.MsgID); err != nil {
			return Message{}, err
		}
	}
	traces, err := a.Tracer.Trace(ctx, r.Stream, r.Seq)
	if err != nil {
		return Message{}, err
	}
	all := make([]Message, len(traces))
	for i, t := range traces {
		if all[i], err = a.messageOf(ctx, t); err != nil {
			return Message{}, err
		}
	}
	all[0].Others = all[1:]
	return all[0], nil
}

func (r MessageRequest) check() error {
	switch {
	case r.MsgID != "" && r.Seq != 0:
		return invalid("msg_id", "and seq: want one of them")
	case r.MsgID != "":
		return ident.Key("msg_id", r.MsgID)
	case r.Stream == "" || r.Seq == 0:
		return invalid("stream", "and seq, or msg_id, are missing: say which message")
	}
	return nil
}

func (a *API) messageOf(ctx context.Context, t bridge.Trace) (Message, error) {
	m := Message{
		Stream: t.Stream, Seq: t.Seq, MsgID: optional(t.MsgID), Subject: t.Subject, Route: optional(t.Route), Fate: t.Fate, Reason: optional(t.Reason),
		InstanceID: optionalID(t.InstanceID), SignalID: optionalNumber(t.SignalID), At: utc(&t.At),
	}
	if t.InstanceID == uuid.Nil || t.SignalID == 0 {
		return m, nil
	}
	by, err := a.Client.ConsumedBy(ctx, t.InstanceID, t.SignalID)
	if err == nil && by != nil {
		m.ConsumedBy = &ConsumedBy{Step: by.Step, Rev: by.Rev, At: by.At.UTC()}
	}
	return m, err
}
