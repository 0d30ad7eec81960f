package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
)

// InvalidError says which field of a request is wrong, and why.
type InvalidError = ident.Error

var (
	// ErrNoTarget: a signal for a key or id that no live instance has. A [*NoTargetError] says who had it last.
	ErrNoTarget = errors.New("no live instance has this key or id")
	// ErrNotFound: there is no such instance.
	ErrNotFound = errors.New("not found")
	// ErrNoTrigger: there is no trigger with this key.
	ErrNoTrigger = errors.New("there is no trigger with this key")
	// ErrTooManyWaits: as many calls wait for instances in this process as it has room for.
	ErrTooManyWaits = fmt.Errorf("%d calls wait for instances in this process, which is the most it has room for: ask again later, or another bridge", maxWaits)
	// ErrLeaseLost is the cause with which a step's context is canceled when its worker may no longer execute it: the instance was
	// canceled, or the lease ran out. What the step comes to is refused.
	ErrLeaseLost = errors.New("the lease of this instance is lost")
	// ErrShutdown is the cause with which a step's context is canceled when its worker stops and the time to finish is over. A step
	// that returns an error then is run again elsewhere, uncounted.
	ErrShutdown = errors.New("the worker is shutting down")
)

// NoTargetError is an [ErrNoTarget] with the last instance that had the key.
type NoTargetError struct{ Ended Ended }

func (e *NoTargetError) Error() string {
	return fmt.Sprintf("instance %s is %s since %s", e.Ended.ID, e.Ended.Status, e.Ended.At.UTC().Format("2006-01-02T15:04:05Z"))
}

// Is makes errors.Is(err, ErrNoTarget) true.
func (e *NoTargetError) Is(target error) bool { return target == ErrNoTarget }

// ConflictError: the key is held by another instance, or the dedup key was used with other content.
type ConflictError struct {
	ID     uuid.UUID // of the holder, where it is known
	Reason string
}

func (e *ConflictError) Error() string { return e.Reason }

// QuotaError: as many triggers of the project wait as may.
type QuotaError struct{ Max int }

func (e *QuotaError) Error() string {
	return fmt.Sprintf("project has reached maximum active event triggers (%d)", e.Max)
}

// Code is the contract's code of an error: invalid, too_large, no_target, not_found, conflict, quota, or unavailable for whatever is none of these.
func Code(err error) string {
	var invalid *InvalidError
	var conflict *ConflictError
	var quota *QuotaError
	switch {
	case errors.As(err, &quota):
		return "quota"
	case errors.As(err, &invalid) && invalid.TooLong():
		return "too_large"
	case errors.As(err, &invalid):
		return "invalid"
	case errors.As(err, &conflict):
		return "conflict"
	case errors.Is(err, ErrNoTarget):
		return "no_target"
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNoTrigger):
		return "not_found"
	default:
		return "unavailable"
	}
}

// Terminal marks the error of a step as one that no retry can cure: the instance fails at once.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ error }

func (e *terminalError) Unwrap() error { return e.error }

func isTerminal(err error) bool {
	var t *terminalError
	return errors.As(err, &t)
}

// canceledBy reports whether ctx was canceled with this cause.
func canceledBy(ctx context.Context, cause error) bool { return errors.Is(context.Cause(ctx), cause) }
