package bridge

import (
	"context"

	"github.com/pointsman/pointsman/engine"
)

// Journal remembers of routes what has to outlive a process and a consumer; an [engine.Client] is one.
type Journal interface {
	// Checkpoint is how far the route has come in this incarnation of its stream; false: it has none.
	Checkpoint(ctx context.Context, in engine.Incarnation) (engine.Checkpoint, bool, error)
	// SaveCheckpoint never goes back: the furthest stands.
	SaveCheckpoint(ctx context.Context, in engine.Incarnation, cp engine.Checkpoint) error
	// CountFailures counts one more of each message and returns how many each has had.
	CountFailures(ctx context.Context, in engine.Incarnation, fs []engine.Failure) ([]int, error)
}

// incarnation of the route's stream that a session reads.
func (c *consumer) incarnation(b binding) engine.Incarnation {
	return engine.Incarnation{Route: c.route.Name, Stream: c.route.Stream, Created: b.created}
}
