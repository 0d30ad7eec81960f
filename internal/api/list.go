package api

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// ListRequest asks for instances. What is left out does not filter.
type ListRequest struct {
	Machine           string        `json:"machine,omitempty"`
	Version           int           `json:"version,omitempty"` // of the machine
	Status            engine.Status `json:"status,omitempty"`
	Queue             string        `json:"queue,omitempty"`
	CorrelationKey    string        `json:"correlation_key,omitempty"`
	CorrelationPrefix string        `json:"correlation_prefix,omitempty"`
	InsertedFrom      *time.Time    `json:"inserted_from,omitempty"`
	InsertedBefore    *time.Time    `json:"inserted_before,omitempty"`
	Limit             int           `json:"limit,omitempty"`
	Cursor            string        `json:"cursor,omitempty"`
}

// List returns the newest first. What starts meanwhile moves no page; a page may be short, even empty, and have a next one.
func (a *API) List(ctx context.Context, project string, r ListRequest) (Page[Instance], error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return Page[Instance]{}, err
	}
	var before uuid.UUID
	if err := unpack(r.Cursor, &before); err != nil {
		return Page[Instance]{}, err
	}
	rows, next, err := a.Client.List(ctx, engine.Filter{
		Project: project, Machine: r.Machine, Version: r.Version, InsertedFrom: r.InsertedFrom, InsertedBefore: r.InsertedBefore, Queue: r.Queue, Status: r.Status, CorrelationKey: r.CorrelationKey, CorrelationPrefix: r.CorrelationPrefix,
	}, before, limit)
	if err != nil {
		return Page[Instance]{}, err
	}
	items := make([]Instance, len(rows))
	for i, row := range rows {
		items[i] = instanceOf(row)
	}
	cursor := ""
	if next != uuid.Nil {
		cursor = pack(next)
	}
	return newPage(items, cursor, func(in Instance) string { return pack(in.ID) })
}
