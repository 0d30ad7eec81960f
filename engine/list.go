package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// Filter of a list of instances. A zero field does not filter.
type Filter struct {
	Project           string     `json:"-"` // zero: DefaultProject
	Machine           string     `json:"machine,omitempty"`
	Version           int        `json:"version,omitempty"` // of the machine
	Queue             string     `json:"queue,omitempty"`
	Status            Status     `json:"status,omitempty"`
	CorrelationKey    string     `json:"correlation_key,omitempty"`
	CorrelationPrefix string     `json:"correlation_prefix,omitempty"` // of the correlation key
	InsertedFrom      *time.Time `json:"inserted_from,omitempty"`
	InsertedBefore    *time.Time `json:"inserted_before,omitempty"`
}

func (f Filter) check() error {
	var status error
	switch f.Status {
	case "", StatusRunnable, StatusExecuting, StatusAwaiting, StatusDone, StatusFailed, StatusCanceled:
	default:
		status = &InvalidError{Field: "status", Reason: fmt.Sprintf("%q is none of runnable, executing, awaiting_signal, done, failed, canceled", f.Status)}
	}
	var version, inserted error
	if f.Version < 0 || f.Version > math.MaxInt32 {
		version = &InvalidError{Field: "version", Reason: fmt.Sprintf("is %d: want 1 or more", f.Version)}
	}
	if f.InsertedFrom != nil && f.InsertedBefore != nil && !f.InsertedFrom.Before(*f.InsertedBefore) {
		inserted = &InvalidError{Field: "inserted_before", Reason: fmt.Sprintf("is %s, which is not after inserted_from", f.InsertedBefore.Format(time.RFC3339))}
	}
	return errors.Join(status, version, inserted, optionally(ident.Token, "project", f.Project), optionally(ident.Token, "machine", f.Machine), optionally(ident.Token, "queue", f.Queue),
		optionally(ident.Key, "correlation_key", f.CorrelationKey), optionally(ident.Key, "correlation_prefix", f.CorrelationPrefix))
}

func (f Filter) row() store.Filter {
	return store.Filter{
		Project: f.Project, Machine: f.Machine, Version: f.Version, Queue: f.Queue, Status: string(f.Status), CorrelationKey: f.CorrelationKey, CorrelationPrefix: f.CorrelationPrefix,
		InsertedFrom: f.InsertedFrom, InsertedBefore: f.InsertedBefore,
	}
}

func optionally(check func(field, s string) error, field, s string) error {
	if s == "" {
		return nil
	}
	return check(field, s)
}

// List returns up to limit instances that were started before the instance before, the newest first; uuid.Nil is from the newest on.
// The next page begins before next; uuid.Nil says that there is none. A page may have fewer than limit, even none, and a next: one
// call reads a bounded number of rows. What starts meanwhile moves no page.
func (c *Client) List(ctx context.Context, f Filter, before uuid.UUID, limit int) (page []Instance, next uuid.UUID, err error) {
	if err := f.check(); err != nil {
		return nil, uuid.Nil, err
	}
	if f.Project == "" {
		f.Project = DefaultProject
	}
	if before == uuid.Nil {
		before = uuid.Max
	}
	rows, next, err := c.store.List(ctx, f.row(), before, limit)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("list: %w", err)
	}
	page = make([]Instance, len(rows))
	for i, row := range rows {
		page[i] = snapshot(row)
	}
	return page, next, nil
}
