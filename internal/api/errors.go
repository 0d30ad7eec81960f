package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
)

// Codes of errors.
const (
	CodeInvalid      = "invalid"
	CodeUnauthorized = "unauthorized"
	CodeForbidden    = "forbidden"
	CodeNotFound     = "not_found"
	CodeNoTarget     = "no_target"
	CodeConflict     = "conflict"
	CodeTooLarge     = "too_large"
	CodeQuota        = "quota"
	CodeUnavailable  = "unavailable"
)

// Status is the HTTP status of an error's code, which NATS services use for theirs too.
func Status(code string) int {
	switch code {
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeUnauthorized:
		return http.StatusUnauthorized
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound, CodeNoTarget:
		return http.StatusNotFound
	case CodeConflict:
		return http.StatusConflict
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeQuota:
		return http.StatusTooManyRequests
	default:
		return http.StatusServiceUnavailable
	}
}

// Error is an error as it is written.
type Error struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`

	cause error
}

// ErrorBody is what answers a request that failed.
type ErrorBody struct {
	Error *Error `json:"error" nullable:"false"`
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns what an unavailable hides from who asked; it is for the log.
func (e *Error) Unwrap() error { return e.cause }

// ErrorOf puts an error into the contract's form; nil is nil. What is nobody's fault but ours is unavailable, without its text.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var quota *engine.QuotaError
	var validator *engine.ValidatorError
	e = &Error{Code: engine.Code(err), Message: err.Error(), Details: detailsOf(err), cause: err}
	switch {
	case errors.Is(err, bridge.ErrNoLetter), errors.Is(err, bridge.ErrNoMessage), errors.Is(err, bridge.ErrNoRoute):
		e.Code = CodeNotFound
	case errors.Is(err, engine.ErrNoTrigger):
		e.Message = engine.ErrNoTrigger.Error()
	case errors.As(err, &quota):
		e.Message = quota.Error()
	case e.Code == CodeNotFound:
		e.Message = "there is no such instance"
	case errors.As(err, &validator):
		e.Message = validator.Error()
	case errors.Is(err, engine.ErrTooManyWaits):
		e.Message = engine.ErrTooManyWaits.Error()
	case errors.Is(err, context.DeadlineExceeded):
		e.Message = "the request took too long: try again"
	case e.Code == CodeUnavailable:
		e.Message = "the request cannot be answered at the moment: try again"
	}
	return e
}

func detailsOf(err error) map[string]any {
	details := map[string]any{}
	var batch *engine.BatchError
	if errors.As(err, &batch) {
		details["index"] = batch.Index
	}
	var invalid *engine.InvalidError
	if errors.As(err, &invalid) {
		details["field"] = invalid.Field
	}
	var conflict *engine.ConflictError
	if errors.As(err, &conflict) && conflict.ID != uuid.Nil {
		details["instance_id"] = conflict.ID
	}
	var gone *engine.NoTargetError
	if errors.As(err, &gone) {
		details["instance_id"], details["status"] = gone.Ended.ID, gone.Ended.Status
		details["finished_at"] = gone.Ended.At.UTC().Format(time.RFC3339Nano)
	}
	if len(details) == 0 {
		return nil
	}
	return details
}

func invalid(field, format string, args ...any) error {
	return &engine.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf(format, args...)}
}
