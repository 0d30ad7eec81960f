package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// WorkerInfo is a worker as the others see it.
type WorkerInfo struct {
	Name      string
	Alive     bool           // was seen within a minute
	Queues    map[string]int // with their slots
	Machines  []string       // machine@version
	Leases    int            // batches in work
	Executing int            // instances in these; those that are done with count until their batch is
	StartedAt time.Time
	SeenAt    time.Time
}

// Workers returns up to limit workers that were seen within a day, by name, those behind after.
func (c *Client) Workers(ctx context.Context, after string, limit int) ([]WorkerInfo, error) {
	rows, err := c.store.Workers(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	workers := make([]WorkerInfo, len(rows))
	for i, w := range rows {
		workers[i] = WorkerInfo{
			Name: w.Name, Alive: w.Alive, Queues: w.Serving.Queues, Machines: w.Serving.Machines, Leases: w.Leases, Executing: w.Executing, StartedAt: w.StartedAt, SeenAt: w.SeenAt,
		}
	}
	return workers, nil
}

// QueueInfo is a queue in which something is ready, or that a worker serves.
type QueueInfo struct {
	Name    string
	Ready   int           // counted up to 10,000
	Oldest  time.Duration // how long the oldest of these has been ready
	Workers int           // that serve it
	Slots   int           // of these workers
}

// Queues returns up to limit queues, by name, those behind after.
func (c *Client) Queues(ctx context.Context, after string, limit int) ([]QueueInfo, error) {
	rows, err := c.store.Queues(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("queues: %w", err)
	}
	queues := make([]QueueInfo, len(rows))
	for i, q := range rows {
		queues[i] = QueueInfo{Name: q.Queue, Ready: q.Ready, Oldest: q.Oldest, Workers: q.Workers, Slots: q.Slots}
	}
	return queues, nil
}

// Counts are how many instances of a project there are. Each counts up to 10,000; the live ones by their status only among the first
// 10,000 of them.
type Counts struct {
	ByStatus        map[Status]int
	Paused          int // of the live
	EndedLastMinute map[Status]int
	AtLeast         bool // a count came to its bound
}

// Counts counts the instances of a project ("": the default one).
func (c *Client) Counts(ctx context.Context, project string) (Counts, error) {
	if project == "" {
		project = DefaultProject
	}
	if err := ident.Token("project", project); err != nil {
		return Counts{}, err
	}
	n, err := c.store.Counts(ctx, project)
	if err != nil {
		return Counts{}, fmt.Errorf("counts: %w", err)
	}
	out := Counts{
		ByStatus:        map[Status]int{StatusAwaiting: n.Awaiting, StatusExecuting: n.Executing, StatusRunnable: n.Live - n.Awaiting - n.Executing},
		EndedLastMinute: map[Status]int{}, Paused: n.Paused, AtLeast: n.Live == store.MaxDepth,
	}
	for status, count := range n.Ended {
		out.ByStatus[Status(status)], out.EndedLastMinute[Status(status)] = count, n.EndedOfLate[status]
		out.AtLeast = out.AtLeast || count == store.MaxDepth
	}
	return out, nil
}
