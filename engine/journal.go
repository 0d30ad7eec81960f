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
	c.toldTriggers(a.ended)
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
	Rewinds  int64     // how often it was set back
	Rewound  bool      // it was, and the consumer is still to be made again from there
}

// ErrRewound: the route was set back since the checkpoint was read that this one goes on from.
var ErrRewound = store.ErrRewound

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

// SaveCheckpoint of a route. The furthest one that was ever saved stands, until a Rewind, and the First of the first. It says that the
// consumer is made, so that nothing is Rewound any more. The error is [ErrRewound] where the route has had other rewinds than cp says.
func (c *Client) SaveCheckpoint(ctx context.Context, in Incarnation, cp Checkpoint) error {
	return c.store.SaveCheckpoint(ctx, store.Incarnation(in), store.Checkpoint(cp))
}

// Rewind sets the checkpoint of a route back to after a sequence, and forgets the failures of the messages that come again; false: it
// has none, or one that is further back already.
func (c *Client) Rewind(ctx context.Context, in Incarnation, after uint64) (bool, error) {
	return c.store.Rewind(ctx, store.Incarnation(in), after)
}

// RouteState is what is remembered of a route.
type RouteState struct {
	Name   string
	Paused bool   // by an operator
	Owner  string // the bridge that holds an ordered route now; "": none
}

// RouteStates are those of the routes of which anything is remembered: ordered ones, and those that an operator has paused.
func (c *Client) RouteStates(ctx context.Context) ([]RouteState, error) {
	rows, err := c.store.RouteStates(ctx)
	states := make([]RouteState, len(rows))
	for i, row := range rows {
		states[i] = RouteState(row)
	}
	return states, err
}

// PauseRoute keeps all bridges from reading a route, within seconds and until it is resumed.
func (c *Client) PauseRoute(ctx context.Context, route string) error {
	return c.store.PauseRoute(ctx, route, true)
}

// ResumeRoute ends what PauseRoute began; a route that the configuration pauses stays paused.
func (c *Client) ResumeRoute(ctx context.Context, route string) error {
	return c.store.PauseRoute(ctx, route, false)
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
