package api

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// GetRequest asks for an instance.
type GetRequest struct {
	Ref  string `json:"ref"`
	Wait string `json:"wait,omitempty"` // for its end, at most this long; a duration as 30s
}

// Get returns an instance: by id, or the one that has the key now, or else had it last.
func (a *API) Get(ctx context.Context, project string, r GetRequest) (Instance, error) {
	ref, err := refOf(project, r.Ref)
	if err != nil {
		return Instance{}, err
	}
	wait, err := waitOf(r.Wait)
	if err != nil {
		return Instance{}, err
	}
	if wait > 0 {
		in, err := a.untilEnd(ctx, ref, wait)
		return instanceOf(in), err
	}
	in, err := a.Client.Get(ctx, ref)
	return instanceOf(in), err
}

func waitOf(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(s)
	if err != nil || wait < 0 || wait > MaxWait {
		return 0, invalid("wait", "%.40q: want a duration of at most %s, as 30s", s, MaxWait)
	}
	return wait, nil
}

// untilEnd returns an instance when it has ended, or as it is when the time is up.
func (a *API) untilEnd(ctx context.Context, ref engine.Ref, wait time.Duration) (engine.Instance, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(a.waiting, cancel)()
	in, err := a.Client.Wait(waiting, ref)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return a.Client.Get(ctx, ref)
	}
	return in, err
}
