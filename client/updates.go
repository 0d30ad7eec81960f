package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
)

// NewUpdate steers an instance by an argument that can be refused. Only Name is required.
type NewUpdate struct {
	Name           string        // of the update
	Arg            any           // what can be written as JSON; nil is null
	IdempotencyKey string        // a second request with it gets the first verdict, for 24 hours; with another Arg it is a conflict
	Wait           time.Duration // for the step that takes it, at most this long; zero: not at all
}

// Update asks the validator of an update and, where it accepts, delivers the argument. A refusal is an answer, and no error. Run is the
// instance after the step that took the update; nil: none has within Wait. Without an IdempotencyKey it is given one, so that it is
// delivered once however often the request is sent. The code of the error is not_found where there is no such instance, no_target where it
// has ended, conflict where the key was used with another argument, and unavailable where the validator failed or cannot be asked: nothing
// was delivered then. Once an update is accepted no error follows, whatever becomes of the wait.
func (c *Client) Update(ctx context.Context, ref Ref, u NewUpdate) (done Updated, err error) {
	if u.IdempotencyKey == "" {
		u.IdempotencyKey = uuid.NewString()
	}
	arg, err := ident.Encode(u.Arg)
	if err != nil {
		return done, err
	}
	ask := func(ctx context.Context, wait time.Duration) (verdict Updated, err error) {
		query := url.Values{}
		if wait != 0 {
			query.Set("wait", wait.String())
		}
		r := call{method: http.MethodPost, path: []string{"v1", "instances", ref.text, "updates", u.Name}, query: query, body: json.RawMessage(arg), key: u.IdempotencyKey, again: true}
		r.alsoAnswer = http.StatusUnprocessableEntity
		err = c.do(ctx, r, &verdict)
		return verdict, err
	}
	until := time.Now().Add(u.Wait)
	if done, err = ask(ctx, min(u.Wait, waitTurn)); err != nil {
		return done, err
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for done.Accepted && done.Run == nil && time.Now().Before(until) {
		verdict, err := ask(waiting, max(min(time.Until(until), waitTurn), 1))
		if err != nil {
			break // it is accepted all the same
		}
		done = verdict
	}
	return done, nil
}
