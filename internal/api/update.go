package api

import (
	"context"
	"encoding/json"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/tracing"
)

// UpdateRequest steers an instance by an update.
type UpdateRequest struct {
	Ref            string          `json:"ref"`
	Name           string          `json:"name"`
	Arg            json.RawMessage `json:"arg,omitempty" http:"body"`
	Wait           string          `json:"wait,omitempty" http:"query,wait"`                        // for the step that takes it, at most this long; a duration as 5s
	IdempotencyKey string          `json:"idempotency_key,omitempty" http:"header,Idempotency-Key"` // a second request with it gets the first verdict
}

// Updated is the verdict on an update. A refusal is an answer, and no error.
type Updated struct {
	Accepted bool
	Reason   string    // of a refusal
	Run      *Instance // after the step that took it; nil: none has yet
}

// MarshalJSON writes {"accepted": true, "run": …} or {"accepted": false, "reason": …}.
func (u Updated) MarshalJSON() ([]byte, error) {
	if u.Accepted {
		return json.Marshal(struct {
			Accepted bool      `json:"accepted"`
			Run      *Instance `json:"run"`
		}{true, u.Run})
	}
	return json.Marshal(struct {
		Accepted bool   `json:"accepted"`
		Reason   string `json:"reason"`
	}{false, u.Reason})
}

// Update asks the validator of an update and delivers what it accepts. With a wait it answers with the instance after the step that took
// it; when the time is up, or this process stops, without.
func (a *API) Update(ctx context.Context, project string, r UpdateRequest) (Updated, error) {
	ref, err := refOf(project, r.Ref)
	if err != nil {
		return Updated{}, err
	}
	wait, err := waitOf(r.Wait)
	if err != nil {
		return Updated{}, err
	}
	res, err := a.Client.Update(ctx, ref, engine.UpdateRequest{Name: r.Name, Arg: r.Arg, IdempotencyKey: r.IdempotencyKey, SentBy: auth.Caller(ctx), Traceparent: tracing.Of(ctx)})
	if err != nil || !res.Accepted {
		return Updated{Reason: res.Reason}, err
	}
	out := Updated{Accepted: true}
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		defer context.AfterFunc(a.waiting, cancel)()
		if in, err := a.Client.UpdateTaken(waiting, res.InstanceID, res.SignalID); err == nil {
			run := instanceOf(in)
			out.Run = &run
		}
	}
	return out, nil
}
