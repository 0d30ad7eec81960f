package bridge

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// Journal remembers of routes what has to outlive a process and a consumer; an [engine.Client] is one.
type Journal interface {
	// Checkpoint is how far the route has come in this incarnation of its stream; false: it has none.
	Checkpoint(ctx context.Context, in engine.Incarnation) (engine.Checkpoint, bool, error)
	// SaveCheckpoint never goes back: the furthest stands. [engine.ErrRewound]: the route was set back since the checkpoint that cp goes on from.
	SaveCheckpoint(ctx context.Context, in engine.Incarnation, cp engine.Checkpoint) error
	// Rewind sets the checkpoint back to after a sequence; false: it is further back already.
	Rewind(ctx context.Context, in engine.Incarnation, after uint64) (bool, error)
	// RouteStates say which routes an operator has paused.
	RouteStates(ctx context.Context) ([]engine.RouteState, error)
	// HoldRoute makes owner the one that takes in the messages of an ordered route until ttl is over; false: another is.
	HoldRoute(ctx context.Context, route, owner string, ttl time.Duration) (engine.Fence, bool, error)
	ReleaseRoute(ctx context.Context, route, owner string) error
	// CountFailures counts one more of each message and returns how many each has had.
	CountFailures(ctx context.Context, in engine.Incarnation, fs []engine.Failure) ([]int, error)
}

// journalTimeout bounds a call, so that a Postgres which is cut off without a word is an outage and not a silence. It is longer than a
// statement waits for a lock.
const journalTimeout = 15 * time.Second

// bounded is a journal whose calls end in time.
type bounded struct{ Journal }

func (b bounded) Checkpoint(ctx context.Context, in engine.Incarnation) (engine.Checkpoint, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return b.Journal.Checkpoint(ctx, in)
}

func (b bounded) SaveCheckpoint(ctx context.Context, in engine.Incarnation, cp engine.Checkpoint) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return b.Journal.SaveCheckpoint(ctx, in, cp)
}

func (b bounded) CountFailures(ctx context.Context, in engine.Incarnation, fs []engine.Failure) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	return b.Journal.CountFailures(ctx, in, fs)
}

// incarnation of the route's stream that a session reads.
func (c *consumer) incarnation(b binding) engine.Incarnation {
	return engine.Incarnation{Route: c.route.Name, Stream: c.route.Stream, Created: b.created}
}
