// Package byhand is how package enginetest has a worker do one thing after another that its loops else do side by side. It keeps
// what only a test may do out of the API of package engine.
package byhand

import (
	"context"

	"github.com/pointsman/pointsman/internal/store"
)

// Worker is an *engine.Worker that does not run.
type Worker interface {
	// Register makes its machines known to the database.
	Register(ctx context.Context) error
	// Sweep deals with all that is due: deadlines, delays, leases and holds that ran out.
	Sweep(ctx context.Context) error
	// Pick leases the next instance of a lane; nil: there is none that this worker may run.
	Pick(ctx context.Context, queue, lane string) (Visit, error)
}

// Visit is an instance that was picked.
type Visit interface {
	// Work is the instance as it was picked.
	Work() *store.Work
	// Run executes its step with ctx, and returns when the step does. The error is ctx's, and the step then goes on.
	Run(ctx context.Context) error
	// Commit settles what the step came to.
	Commit(ctx context.Context) error
	// Forget leaves it all as it is, as a worker that is killed does: the lease stands until it runs out.
	Forget()
}

// Of has package engine's worker in it, an *engine.Worker, do things by hand. Package engine sets it.
var Of func(worker any) Worker
