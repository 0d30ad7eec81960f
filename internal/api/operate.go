package api

import (
	"context"

	"github.com/pointsman/pointsman/engine"
)

// CancelRequest asks to end an instance.
type CancelRequest struct {
	Ref      string `json:"ref"`
	Reason   string `json:"reason,omitempty"`
	Children bool   `json:"children,omitempty"` // and what is live below it
}

// Cancel ends an instance, and returns it; one that has ended already stays as it ended. Where there are more children than can be ended in
// the time of a request, the error says so: another goes on.
func (a *API) Cancel(ctx context.Context, project string, r CancelRequest) (Instance, error) {
	ref, err := refOf(project, r.Ref)
	if err != nil {
		return Instance{}, err
	}
	if len(r.Reason) > maxReason {
		return Instance{}, invalid("reason", "has %d bytes: at most %d are allowed", len(r.Reason), maxReason)
	}
	if !r.Children {
		in, err := a.Client.Cancel(ctx, ref, r.Reason)
		return instanceOf(in), err
	}
	in, err := a.Client.Cancel(ctx, ref, r.Reason, engine.WithChildren())
	if err != nil && ctx.Err() != nil {
		err = &Error{Code: CodeUnavailable, Message: "not all children are canceled yet: ask again to go on", cause: err}
	}
	return instanceOf(in), err
}

const maxReason = 1024

// RefRequest names an instance.
type RefRequest struct {
	Ref string `json:"ref"`
}

// Retry runs the step of a failed or canceled instance again, and returns the instance.
func (a *API) Retry(ctx context.Context, project string, r RefRequest) (Instance, error) {
	return operate(ctx, project, r, a.Client.Retry)
}

// Pause keeps an instance from running while its inbox fills, and returns it.
func (a *API) Pause(ctx context.Context, project string, r RefRequest) (Instance, error) {
	return operate(ctx, project, r, a.Client.Pause)
}

// Resume lets a paused instance run again, and returns it.
func (a *API) Resume(ctx context.Context, project string, r RefRequest) (Instance, error) {
	return operate(ctx, project, r, a.Client.Resume)
}

func operate(ctx context.Context, project string, r RefRequest, do func(context.Context, engine.Ref) (engine.Instance, error)) (Instance, error) {
	ref, err := refOf(project, r.Ref)
	if err != nil {
		return Instance{}, err
	}
	in, err := do(ctx, ref)
	return instanceOf(in), err
}
