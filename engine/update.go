package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// UpdateRequest steers an instance by an update. Only Name is required.
type UpdateRequest struct {
	Name string          // of the update point, as in [Outcome.OrUpdate]
	Arg  json.RawMessage // JSON, at most 1 MiB; nil is null
	// IdempotencyKey makes a second request with it, for the same update of the same instance, one that gets the verdict of the first: for 24
	// hours, refusals too. As with a signal's dedup key, instances that have one correlation key one after another count as one. With another
	// argument it is a conflict. After these 24 hours what was delivered is still not delivered again while its instance lives.
	IdempotencyKey string
	Wait           time.Duration // for the step that takes it, at most this long; zero: not at all
	SentBy         string        // who asks, as the inbox shows it
	Traceparent    string        // of the request: the step that takes it continues the trace
}

// UpdateResult is the verdict on an update.
type UpdateResult struct {
	Accepted bool
	Reason   string // of a refusal

	InstanceID uuid.UUID
	SignalID   int64 // in the inbox, of one that was accepted
	// Run is the instance after the step that took the update, or as it ended without one; nil where no step has taken it within Wait: it is
	// in the inbox then, for when one awaits it.
	Run *Instance
}

// Update asks the validator of an update and, where it accepts, delivers the argument: the instance that awaits it ([Outcome.OrUpdate])
// goes on with it, and one that does not yet finds it in its inbox. What is refused leaves the instance as it was. Without a validator
// every update is accepted.
//
// The error is [ErrNotFound] where there is no such instance, [ErrNoTarget] where it has ended, a [*ConflictError] where the idempotency
// key was used with another argument, and a [*ValidatorError] where the validator failed or cannot be asked: nothing was delivered then.
// Once an update is accepted no error follows, whatever becomes of the wait.
func (c *Client) Update(ctx context.Context, ref Ref, r UpdateRequest) (UpdateResult, error) {
	if err := r.check(); err != nil {
		return UpdateResult{}, err
	}
	res, err := c.update(ctx, ref, r)
	if err != nil {
		return UpdateResult{}, err
	}
	if res.Accepted && r.Wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, r.Wait)
		defer cancel()
		if in, err := c.UpdateTaken(waiting, res.InstanceID, res.SignalID); err == nil {
			res.Run = &in
		}
	}
	return res, nil
}

func (r *UpdateRequest) check() error {
	if err := ident.Name("name", r.Name); err != nil {
		return err
	}
	if r.IdempotencyKey != "" {
		if err := ident.Key("idempotency_key", r.IdempotencyKey); err != nil {
			return err
		}
	}
	if r.Traceparent != "" {
		if err := ident.Key("traceparent", r.Traceparent); err != nil {
			return err
		}
	}
	return checkJSON("arg", r.Arg)
}

func (c *Client) update(ctx context.Context, ref Ref, r UpdateRequest) (UpdateResult, error) {
	in, err := c.Get(ctx, ref)
	if err != nil {
		return UpdateResult{}, err
	}
	g, err := r.signal(in.ID)
	if err != nil {
		return UpdateResult{}, err
	}
	scope := in.ID
	if in.CorrelationKey != "" {
		scope = store.KeyScope(in.Project, in.CorrelationKey)
	}
	if r.IdempotencyKey != "" { // before all else: a retry may come after the end, or with a validator that would say something else now
		if v, found, err := c.store.Judged(ctx, scope, g.Dedup); err != nil || found {
			return r.verdict(v, g.Hash, err)
		}
	}
	if !in.Status.Live() {
		return UpdateResult{}, &NoTargetError{Ended{ID: in.ID, Status: in.Status, At: *in.FinishedAt}}
	}
	err = c.validate(ctx, in, r.Name, g.Payload)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused) && r.IdempotencyKey == "":
		return UpdateResult{Reason: refused.Reason, InstanceID: in.ID}, nil
	case errors.As(err, &refused):
		v, err := c.store.Refuse(ctx, scope, g.Dedup, store.UpdateVerdict{Reason: refused.Reason, InstanceID: in.ID, Hash: g.Hash})
		return r.verdict(v, g.Hash, err)
	case err != nil:
		return UpdateResult{}, err
	}
	return c.deliverUpdate(ctx, in, scope, r, g)
}

// signal is the update as it goes into the inbox. Two spellings of one argument are the same but for the space between the tokens.
func (r *UpdateRequest) signal(instance uuid.UUID) (store.Signal, error) {
	arg := bytes.NewBufferString("null")
	if len(r.Arg) > 0 {
		arg.Reset()
		if err := json.Compact(arg, r.Arg); err != nil {
			return store.Signal{}, err
		}
	}
	g := store.Signal{
		ID: instance, Kind: KindUpdate, Name: r.Name, Payload: arg.Bytes(), DedupKey: r.IdempotencyKey, Dedup: uuid.New(),
		Hash: store.SignalHash(KindUpdate, r.Name, arg.Bytes()), Traceparent: r.Traceparent, SentBy: r.SentBy,
	}
	if r.IdempotencyKey != "" {
		g.Dedup = store.UpdateDedup(r.Name, r.IdempotencyKey)
	}
	return g, nil
}

// deliverUpdate delivers what was accepted, and keeps the verdict with it.
func (c *Client) deliverUpdate(ctx context.Context, in Instance, scope uuid.UUID, r UpdateRequest, g store.Signal) (UpdateResult, error) {
	d, first, err := c.store.Update(ctx, in.Project, scope, g)
	switch {
	case err != nil:
		return UpdateResult{}, blamed(err)
	case first != nil:
		return r.verdict(*first, g.Hash, nil)
	}
	c.Wake(d.Queue)
	switch d.Verdict {
	case store.Delivered, store.Duplicate:
		return UpdateResult{Accepted: true, InstanceID: d.InstanceID, SignalID: d.SignalID}, nil
	case store.Conflict:
		return UpdateResult{}, r.conflict(d.InstanceID)
	case store.Ended:
		return UpdateResult{}, &NoTargetError{Ended{ID: d.InstanceID, Status: Status(d.Status), At: d.EndedAt}}
	case store.Missing:
		return UpdateResult{}, ErrNotFound
	default:
		return UpdateResult{}, errors.New("its instance changed at the same time")
	}
}

// verdict is one that was kept, for a request whose argument has this hash.
func (r *UpdateRequest) verdict(v store.UpdateVerdict, hash uuid.UUID, err error) (UpdateResult, error) {
	switch {
	case err != nil:
		return UpdateResult{}, err
	case v.Hash != hash:
		return UpdateResult{}, r.conflict(v.InstanceID)
	}
	return UpdateResult{Accepted: v.Accepted, Reason: v.Reason, InstanceID: v.InstanceID, SignalID: v.SignalID}, nil
}

func (r *UpdateRequest) conflict(instance uuid.UUID) error {
	return &ConflictError{ID: instance, Reason: fmt.Sprintf("the idempotency key %q was used before with another argument for update %q: that one stands", r.IdempotencyKey, r.Name)}
}

// UpdateTaken waits for the step that takes an accepted update, and returns the instance after it. Where the instance ends without, it
// returns it as it ended. The error is [ErrNotFound] where it is deleted meanwhile, [ErrTooManyWaits], or that of ctx.
//
// A step takes an update when it was handed it among Awaited and its outcome commits: next, done, stop, or an await, also one that consumes
// nothing. What the instance does after that step may be in the answer already.
func (c *Client) UpdateTaken(ctx context.Context, instance uuid.UUID, signal int64) (Instance, error) {
	w, err := c.waits.enter(ByID(instance), true)
	if err != nil {
		return Instance{}, fmt.Errorf("update taken: %w", err)
	}
	defer c.waits.leave(w)
	for {
		select {
		case s := <-w.seen:
			if s.err != nil {
				return s.result("update taken")
			}
		case <-ctx.Done():
			return Instance{}, fmt.Errorf("update taken: %w", ctx.Err())
		}
		taken, found, err := c.store.UpdateTaken(ctx, instance, signal)
		if err != nil || found && !taken {
			continue // a database that is away is waited for
		}
		return c.Get(ctx, ByID(instance)) // what was seen may be older than what was asked for just now
	}
}
