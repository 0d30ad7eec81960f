package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// PageRequest asks for a part of what belongs to an instance.
type PageRequest struct {
	Ref    string `json:"ref"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// Signal is one that waits in an inbox.
type Signal struct {
	ID         int64           `json:"id"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Payload    json.RawMessage `json:"payload"`
	DedupKey   *string         `json:"dedup_key"`
	SentBy     *string         `json:"sent_by"` // the API key, or admin; null where nobody had to say
	InsertedAt time.Time       `json:"inserted_at"`
}

// Inbox returns the signals that wait, in the order of arrival.
func (a *API) Inbox(ctx context.Context, project string, r PageRequest) (Page[Signal], error) {
	var after int64
	id, limit, err := a.open(ctx, project, r, &after)
	if err != nil {
		return Page[Signal]{}, err
	}
	rows, err := a.Client.Inbox(ctx, id, after, limit+1)
	if err != nil {
		return Page[Signal]{}, err
	}
	items := make([]Signal, len(rows))
	for i, s := range rows {
		items[i] = Signal{ID: s.ID, Kind: s.Kind, Name: s.Name, Payload: s.Payload, DedupKey: optional(s.DedupKey), SentBy: optional(s.SentBy), InsertedAt: s.InsertedAt.UTC()}
	}
	return pageOf(items, limit, func(s Signal) string { return pack(s.ID) })
}

// History returns the transitions of an instance, the latest first.
func (a *API) History(ctx context.Context, project string, r PageRequest) (Page[engine.Transition], error) {
	var before [2]int
	id, limit, err := a.open(ctx, project, r, &before)
	if err != nil {
		return Page[engine.Transition]{}, err
	}
	rows, err := a.Client.History(ctx, id, engine.Transition{Rev: before[0], Nth: before[1]}, limit+1)
	if err != nil {
		return Page[engine.Transition]{}, err
	}
	for i := range rows {
		rows[i].At = rows[i].At.UTC()
	}
	return pageOf(rows, limit, func(t engine.Transition) string { return pack([2]int{t.Rev, t.Nth}) })
}

// EventsRequest asks for published values.
type EventsRequest struct {
	Ref string `json:"ref"`
	Key string `json:"key,omitempty"` // of one value
}

// Events returns the bare value of a key, or an object with all; also after the end of the instance.
func (a *API) Events(ctx context.Context, project string, r EventsRequest) (any, error) {
	id, err := a.find(ctx, project, r.Ref)
	if err != nil {
		return nil, err
	}
	if r.Key == "" {
		return a.Client.Events(ctx, id)
	}
	value, err := a.Client.Event(ctx, id, r.Key)
	if engine.Code(err) == CodeNotFound {
		return nil, notFound("the instance has published no %q", r.Key)
	}
	return value, err
}

// open finds the instance of a page, and where the page begins.
func (a *API) open(ctx context.Context, project string, r PageRequest, place any) (id uuid.UUID, limit int, err error) {
	if limit, err = limited(r.Limit); err != nil {
		return id, 0, err
	}
	if err := unpack(r.Cursor, place); err != nil {
		return id, 0, err
	}
	id, err = a.find(ctx, project, r.Ref)
	return id, limit, err
}

func (a *API) find(ctx context.Context, project, ref string) (uuid.UUID, error) {
	to, err := refOf(project, ref)
	if err != nil {
		return uuid.Nil, err
	}
	in, err := a.Client.Get(ctx, to)
	return in.ID, err
}

// pageOf makes a page of items that were asked for with one more than the limit.
func pageOf[T any](items []T, limit int, cursor func(T) string) (Page[T], error) {
	next := ""
	if len(items) > limit {
		items = items[:limit]
		next = cursor(items[limit-1])
	}
	return newPage(items, next, cursor)
}
