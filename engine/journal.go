package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// Fence lets only the bridge that holds a route take in its messages.
type Fence struct {
	Route string
	Epoch int64
}

// ErrFenced: another bridge holds the route. Nothing of the batch counts that was not taken in before.
var ErrFenced = errors.New("the route is another bridge's now")

// HoldRoute makes owner the one that may take in messages of an ordered route for so long, again or anew; false: another is.
func (c *Client) HoldRoute(ctx context.Context, route, owner string, ttl time.Duration) (Fence, bool, error) {
	epoch, held, err := c.store.HoldRoute(ctx, route, owner, ttl)
	return Fence{route, epoch}, held, err
}

// ReleaseRoute lets others hold the route at once.
func (c *Client) ReleaseRoute(ctx context.Context, route, owner string) error {
	return c.store.ReleaseRoute(ctx, route, owner)
}

// AcceptOrdered is Accept for a route whose messages are to be taken in in their order: only under the fence, whose loss is
// [ErrFenced], and with an error where Accept would go on without the intakes that are locked out for now.
func (c *Client) AcceptOrdered(ctx context.Context, f Fence, batch []Intake) ([]Receipt, error) {
	a := newAcceptance(ctx, c.store.Fenced(f.Route, f.Epoch), batch)
	a.ordered = true
	err := a.run(a.take)
	c.Wake(a.queues...)
	if store.IsFenced(err) {
		return nil, ErrFenced
	}
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	return a.receipts, nil
}

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
