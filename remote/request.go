package remote

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// request is what a service is sent.
type request struct {
	InstanceID     uuid.UUID       `json:"instance_id"`
	Project        string          `json:"project"`
	Machine        string          `json:"machine"`
	Version        int             `json:"version"`
	Step           string          `json:"step"`
	Attempt        int             `json:"attempt"`
	CorrelationKey *string         `json:"correlation_key"`
	State          json.RawMessage `json:"state"`
	Awaited        []signal        `json:"awaited"`
	All            []signal        `json:"all"`
	TimedOut       bool            `json:"timed_out"`
	Canceled       bool            `json:"canceled"`
	InboxMore      bool            `json:"inbox_more"`
	IdempotencyKey string          `json:"idempotency_key"`
}

type signal struct {
	ID         int64           `json:"id"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Payload    json.RawMessage `json:"payload"`
	DedupKey   *string         `json:"dedup_key"`
	InsertedAt time.Time       `json:"inserted_at"`
}

// request makes the message that asks for a visit. Where the whole inbox is more than the server takes, what was not awaited stays
// out and inbox_more says so; what was awaited has to be sent, since a next consumes it.
func (s *service) request(v *engine.Visit[json.RawMessage]) (*nats.Msg, error) {
	r := request{
		InstanceID: v.Instance.ID, Project: v.Instance.Project, Machine: v.Instance.Machine, Version: v.Instance.Version, Step: v.Instance.Step,
		Attempt: v.Instance.Attempt, CorrelationKey: optional(v.Instance.CorrelationKey), State: v.State, Awaited: signals(v.Awaited), All: signals(v.Inbox),
		TimedOut: v.TimedOut, Canceled: v.Canceled, InboxMore: v.InboxMore, IdempotencyKey: v.IdempotencyKey(),
	}
	msg := nats.NewMsg(s.space.Step(s.machine, v.Instance.Step))
	if trace := v.Traceparent(); trace != "" {
		msg.Header.Set(subjects.HeaderTraceparent, trace)
	}
	var err error
	if msg.Data, err = encode(r); err != nil {
		return nil, err
	}
	// What was awaited stands in all once more: where that is too much, all gives way.
	for _, all := range [][]signal{r.Awaited, {}} {
		if most := s.conn.MaxPayload(); most > 0 && int64(msg.Size()) > most && len(r.All) > len(all) {
			r.All, r.InboxMore = all, true
			if msg.Data, err = encode(r); err != nil {
				return nil, err
			}
		}
	}
	return msg, nil
}

func encode(r request) ([]byte, error) {
	b, err := ident.Encode(r)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return b, nil
}

func signals(in []engine.Signal) []signal {
	out := make([]signal, len(in))
	for i, s := range in {
		out[i] = signal{ID: s.ID, Kind: s.Kind, Name: s.Name, Payload: s.Payload, DedupKey: optional(s.DedupKey), InsertedAt: s.InsertedAt.UTC()}
	}
	return out
}

// optional is null for nothing.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
