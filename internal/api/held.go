package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// HeldRequest asks for held signals: of one key, of all keys with a prefix, or all.
type HeldRequest struct {
	CorrelationKey    string `json:"correlation_key,omitempty"`
	CorrelationPrefix string `json:"correlation_prefix,omitempty"`
	Limit             int    `json:"limit,omitempty"`
	Cursor            string `json:"cursor,omitempty"`
}

// HeldSignal waits for an instance to start with its key.
type HeldSignal struct {
	CorrelationKey string          `json:"correlation_key"`
	Kind           string          `json:"kind"`
	Name           string          `json:"name"`
	Payload        json.RawMessage `json:"payload"`
	DedupKey       *string         `json:"dedup_key"`
	Route          *string         `json:"route"`
	Stream         *string         `json:"stream"`
	Seq            uint64          `json:"seq"`
	Subject        *string         `json:"subject"`
	InsertedAt     time.Time       `json:"inserted_at"`
	ExpiresAt      time.Time       `json:"expires_at"` // then it is a dead letter

	place engine.HeldPlace
}

// Held returns held signals in the order of their keys.
func (a *API) Held(ctx context.Context, project string, r HeldRequest) (Page[HeldSignal], error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return Page[HeldSignal]{}, err
	}
	var after engine.HeldPlace
	if err := unpack(r.Cursor, &after); err != nil {
		return Page[HeldSignal]{}, err
	}
	rows, err := a.Client.Held(ctx, project, r.CorrelationKey, r.CorrelationPrefix, after, limit+1)
	if err != nil {
		return Page[HeldSignal]{}, err
	}
	items := make([]HeldSignal, len(rows))
	for i, h := range rows {
		items[i] = HeldSignal{
			CorrelationKey: h.CorrelationKey, Kind: h.Kind, Name: h.Name, Payload: h.Payload, DedupKey: optional(h.DedupKey), Route: optional(h.Route),
			Stream: optional(h.Origin.Stream), Seq: h.Origin.Sequence, Subject: optional(h.Subject), InsertedAt: h.InsertedAt.UTC(), ExpiresAt: h.ExpiresAt.UTC(), place: h.Place(),
		}
	}
	return pageOf(items, limit, func(h HeldSignal) string { return pack(h.place) })
}
