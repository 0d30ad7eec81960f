package api

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/tracing"
)

// NewSignal asks for a signal in the inbox of a live instance, which is named by its key or its id.
type NewSignal struct {
	CorrelationKey string          `json:"correlation_key,omitempty"`
	InstanceID     string          `json:"instance_id,omitempty"`
	Name           string          `json:"name"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	DedupKey       string          `json:"dedup_key,omitempty"`

	wrong error // that decoding alone can see
}

// UnmarshalJSON reads it strictly.
func (s *NewSignal) UnmarshalJSON(body []byte) error {
	type plain NewSignal
	if err := strict(body, (*plain)(s)); err != nil {
		return err
	}
	s.wrong = emptyKey(body, "correlation_key", "dedup_key")
	return nil
}

// SignalRequest sends one signal, or each of an array.
type SignalRequest struct {
	Items          Items[NewSignal] `http:"body"`
	Atomic         bool             `http:"query,atomic"`           // of an array: all or nothing
	IdempotencyKey string           `http:"header,Idempotency-Key"` // the dedup key of a single one, where that has none of its own
}

// SignalToRequest sends one signal to an instance.
type SignalToRequest struct {
	Ref            string          `json:"ref"`
	Name           string          `json:"name"`
	Payload        json.RawMessage `json:"payload,omitempty" http:"body"`
	IdempotencyKey string          `json:"idempotency_key,omitempty" http:"header,Idempotency-Key"` // its dedup key
}

// SignalTo is [API.Signal] of one, to whom a reference names.
func (a *API) SignalTo(ctx context.Context, project string, r SignalToRequest) (Signaled, error) {
	s := NewSignal{Name: r.Name, Payload: r.Payload, DedupKey: r.IdempotencyKey}
	ref, err := refOf(project, r.Ref)
	if err != nil {
		return Signaled{}, err
	}
	if s.CorrelationKey = ref.Key(); s.CorrelationKey == "" {
		s.InstanceID = ref.ID().String()
	}
	in, err := s.intake(ctx, project)
	return a.signal(ctx, in, err)
}

// Signaled is what became of one signal.
type Signaled struct {
	SignalID   *int64 `json:"signal_id"`
	InstanceID string `json:"instance_id"`
	Result     string `json:"result"` // delivered, or duplicate
}

// Signal answers one signal with [Signaled], and an array with [Results].
func (a *API) Signal(ctx context.Context, project string, r SignalRequest) (any, error) {
	if err := r.Items.check(); err != nil {
		return nil, err
	}
	intakes, errs := make([]engine.Intake, len(r.Items.All)), make([]error, len(r.Items.All))
	for i, s := range r.Items.All {
		if r.Items.One && s.DedupKey == "" {
			s.DedupKey = r.IdempotencyKey
		}
		if intakes[i], errs[i] = s.intake(ctx, project); errs[i] != nil && r.Atomic {
			return nil, &engine.BatchError{Index: i, Err: errs[i]}
		}
	}
	if r.Items.One {
		done, err := a.signal(ctx, intakes[0], errs[0])
		if err != nil {
			return nil, err
		}
		return done, nil
	}
	accept := a.acceptSome
	if r.Atomic {
		accept = func(ctx context.Context, intakes []engine.Intake, _ []error) ([]engine.Receipt, error) {
			return a.Client.AcceptAll(ctx, intakes)
		}
	}
	receipts, err := accept(ctx, intakes, errs)
	if err != nil {
		return nil, err
	}
	out := Results{Results: make([]Item, len(receipts))}
	for i, r := range receipts {
		if errs[i] == nil {
			errs[i] = r.Err()
		}
		item := Item{InstanceID: optionalID(r.InstanceID), SignalID: optionalNumber(r.SignalID), Error: ErrorOf(errs[i])}
		if errs[i] == nil {
			item.Result = string(r.Result)
		}
		out.Results[i] = item
	}
	return out, nil
}

func (a *API) signal(ctx context.Context, in engine.Intake, err error) (Signaled, error) {
	if err != nil {
		return Signaled{}, err
	}
	receipts, err := a.Client.Accept(ctx, []engine.Intake{in})
	if err != nil {
		return Signaled{}, err
	}
	if err := receipts[0].Err(); err != nil {
		return Signaled{}, err
	}
	return Signaled{SignalID: optionalNumber(receipts[0].SignalID), InstanceID: receipts[0].InstanceID.String(), Result: string(receipts[0].Result)}, nil
}

// acceptSome takes in those without an error.
func (a *API) acceptSome(ctx context.Context, intakes []engine.Intake, errs []error) ([]engine.Receipt, error) {
	var good []engine.Intake
	for i, in := range intakes {
		if errs[i] == nil {
			good = append(good, in)
		}
	}
	some, err := a.Client.Accept(ctx, good)
	if err != nil {
		return nil, err
	}
	all := make([]engine.Receipt, len(intakes))
	for i := range all {
		if errs[i] == nil {
			all[i], some = some[0], some[1:]
		}
	}
	return all, nil
}

func (s NewSignal) intake(ctx context.Context, project string) (engine.Intake, error) {
	in := engine.Intake{To: engine.ByKey(project, s.CorrelationKey), Name: s.Name, Payload: s.Payload, DedupKey: s.DedupKey, SentBy: auth.Caller(ctx), Traceparent: tracing.Of(ctx)}
	if s.wrong != nil {
		return in, s.wrong
	}
	if err := ident.Name("name", s.Name); err != nil {
		return in, err
	}
	if s.DedupKey != "" {
		if err := ident.Key("dedup_key", s.DedupKey); err != nil {
			return in, err
		}
	}
	if err := payload(s.Payload); err != nil {
		return in, err
	}
	if s.CorrelationKey == "" && s.InstanceID == "" || s.CorrelationKey != "" && s.InstanceID != "" {
		return in, invalid("correlation_key", "and instance_id: want one of them")
	}
	if s.InstanceID == "" {
		return in, ident.Key("correlation_key", s.CorrelationKey)
	}
	id, err := uuid.Parse(s.InstanceID)
	if err != nil || id == uuid.Nil {
		return in, invalid("instance_id", "%.60q is no UUID", s.InstanceID)
	}
	in.To = engine.ByID(id).In(project)
	return in, nil
}

func payload(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return ident.JSON("payload", b, ident.MaxJSON)
}
