package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// Inbox returns up to limit of the signals that wait in an inbox, those with an id above after, in the order of arrival. An instance
// that has ended has none.
func (c *Client) Inbox(ctx context.Context, instance uuid.UUID, after int64, limit int) ([]Signal, error) {
	rows, err := c.store.Inbox(ctx, instance, after, limit)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	signals := make([]Signal, len(rows))
	for i, g := range rows {
		signals[i] = Signal{ID: g.ID, Kind: g.Kind, Name: g.Name, Payload: g.Payload, DedupKey: g.DedupKey, SentBy: g.SentBy, InsertedAt: g.InsertedAt}
	}
	return signals, nil
}

// Transition is the end of one execution of a step, or what an operator did: its outcome is cancel, retry, pause or resume then.
type Transition struct {
	Rev      int       `json:"rev"` // grows, but not with a pause, or a resume of what executes
	Nth      int       `json:"-"`   // of its rev
	Step     string    `json:"step"`
	Outcome  string    `json:"outcome"`
	Attempt  int       `json:"attempt"`
	Consumed []int64   `json:"consumed"` // ids of signals
	At       time.Time `json:"at"`
}

// History returns up to limit transitions of an instance, those before this one by its Rev and Nth (the zero one: all), the latest first.
// A machine may keep no history of its steps.
func (c *Client) History(ctx context.Context, instance uuid.UUID, before Transition, limit int) ([]Transition, error) {
	if before.Rev <= 0 && before.Nth <= 0 {
		before.Rev = math.MaxInt32
	}
	rows, err := c.store.History(ctx, instance, bounded(before.Rev), bounded(before.Nth), limit)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	transitions := make([]Transition, len(rows))
	for i, row := range rows {
		transitions[i] = transition(row)
	}
	return transitions, nil
}

func bounded(n int) int32 { return int32(max(0, min(n, math.MaxInt32))) }

// ConsumedBy returns the transition that consumed a signal; nil where it waits still, or nothing is known of it any more.
func (c *Client) ConsumedBy(ctx context.Context, instance uuid.UUID, signal int64) (*Transition, error) {
	row, found, err := c.store.ConsumedBy(ctx, instance, signal)
	if err != nil {
		return nil, fmt.Errorf("consumed by: %w", err)
	}
	if !found {
		return nil, nil
	}
	t := transition(row)
	return &t, nil
}

func transition(row store.Transition) Transition {
	t := Transition{Rev: int(row.Rev), Nth: int(row.Nth), Step: row.Step, Outcome: row.Outcome, Attempt: row.Attempt, Consumed: row.Consumed, At: row.At}
	if t.Consumed == nil {
		t.Consumed = []int64{}
	}
	return t
}

// maxEvents bounds the published values that are read at once.
const maxEvents = 10_000

// Events returns the values that an instance has published, also after its end; of several thousand the first, by key.
func (c *Client) Events(ctx context.Context, instance uuid.UUID) (map[string]json.RawMessage, error) {
	rows, err := c.store.Events(ctx, instance, "", maxEvents)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	values := make(map[string]json.RawMessage, len(rows))
	for _, e := range rows {
		values[e.Key] = e.Value
	}
	return values, nil
}

// Event returns one published value. The error is [ErrNotFound] where the key was never published.
func (c *Client) Event(ctx context.Context, instance uuid.UUID, key string) (json.RawMessage, error) {
	if err := ident.Key("key", key); err != nil {
		return nil, err
	}
	rows, err := c.store.Events(ctx, instance, key, 1)
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", key, err)
	}
	return rows[0].Value, nil
}
