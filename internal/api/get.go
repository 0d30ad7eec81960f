package api

import (
	"context"
	"errors"
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
	in, err := a.Client.Get(ctx, ref)
	if err != nil {
		return Instance{}, err
	}
	if in.Status.Live() && wait > 0 {
		in, err = a.untilEnd(ctx, in, wait)
	}
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

// How often a wait looks: at first for those that end at once, then seldom enough for thousands of them.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// untilEnd looks at an instance until it has ended or the time is up, and returns how it was found last.
func (a *API) untilEnd(ctx context.Context, in engine.Instance, wait time.Duration) (engine.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pause := firstLook
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return in, nil
		case <-timer.C:
		}
		now, err := a.Client.Get(ctx, engine.ByID(in.ID).In(in.Project))
		switch {
		case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return in, nil
		case err != nil:
			return in, err
		case !now.Status.Live():
			return now, nil
		}
		in, pause = now, min(2*pause, lastLook)
		timer.Reset(pause)
	}
}
