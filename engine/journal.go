package engine

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// Incarnation is a stream as a route reads it: one that was made again under its name is another.
type Incarnation struct {
	Route   string
	Stream  string
	Created time.Time // the stream
}

// Checkpoint is how far a route has come in an incarnation: every message up to Seq that it reads has its fate.
type Checkpoint struct {
	Seq      uint64
	Consumer time.Time // when the route's consumer was created that got so far
	First    time.Time // when its first one was
}

// Failure of one message, which is not an outage.
type Failure struct {
	Seq    uint64 // in its stream
	Reason string
}

// Checkpoint of a route; false: it has none there.
func (c *Client) Checkpoint(ctx context.Context, in Incarnation) (Checkpoint, bool, error) {
	cp, known, err := c.store.Checkpoint(ctx, store.Incarnation(in))
	return Checkpoint(cp), known, err
}

// SaveCheckpoint of a route. The furthest one that was ever saved stands, and the First of the first.
func (c *Client) SaveCheckpoint(ctx context.Context, in Incarnation, cp Checkpoint) error {
	return c.store.SaveCheckpoint(ctx, store.Incarnation(in), store.Checkpoint(cp))
}

// CountFailures counts one more failure of each message, none of which is there twice, and returns how many each has had. They are
// forgotten after a week.
func (c *Client) CountFailures(ctx context.Context, in Incarnation, fs []Failure) ([]int, error) {
	rows := make([]store.Failure, len(fs))
	for i, f := range fs {
		rows[i] = store.Failure{Seq: f.Seq, Reason: clean(f.Reason)}
	}
	return c.store.CountFailures(ctx, store.Incarnation(in), rows)
}
