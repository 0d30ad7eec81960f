package api

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
)

// NamedRequest asks for a page of what goes by its name.
type NamedRequest struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// Worker is one that was seen within the last day.
type Worker struct {
	Name      string         `json:"name"`
	Alive     bool           `json:"alive"`    // was seen within a minute
	Queues    map[string]int `json:"queues"`   // with how many instances of each may execute there at once
	Machines  []string       `json:"machines"` // machine@version
	Leases    int            `json:"leases"`   // batches in work
	Executing int            `json:"executing"`
	StartedAt time.Time      `json:"started_at"`
	SeenAt    time.Time      `json:"seen_at"`
}

// Workers returns the workers, by name. They belong to no project.
func (a *API) Workers(ctx context.Context, r NamedRequest) (Page[Worker], error) {
	limit, after, err := r.open()
	if err != nil {
		return Page[Worker]{}, err
	}
	rows, err := a.Client.Workers(ctx, after, limit+1)
	if err != nil {
		return Page[Worker]{}, err
	}
	items := make([]Worker, len(rows))
	for i, w := range rows {
		items[i] = Worker{
			Name: w.Name, Alive: w.Alive, Queues: w.Queues, Machines: w.Machines, Leases: w.Leases, Executing: w.Executing,
			StartedAt: w.StartedAt.UTC(), SeenAt: w.SeenAt.UTC(),
		}
		if items[i].Machines == nil {
			items[i].Machines = []string{}
		}
		if items[i].Queues == nil {
			items[i].Queues = map[string]int{}
		}
	}
	return pageOf(items, limit, func(w Worker) string { return pack(w.Name) })
}

// Queue is one in which something is ready, or that a worker serves.
type Queue struct {
	Name          string  `json:"name"`
	Depth         int     `json:"depth"`          // instances that are ready; counted up to 10,000
	OldestSeconds float64 `json:"oldest_seconds"` // how long the oldest of these has been ready
	Workers       int     `json:"workers"`        // that serve it
	Slots         int     `json:"slots"`          // of these workers
}

// Queues returns the queues, by name. They belong to no project.
func (a *API) Queues(ctx context.Context, r NamedRequest) (Page[Queue], error) {
	limit, after, err := r.open()
	if err != nil {
		return Page[Queue]{}, err
	}
	rows, err := a.Client.Queues(ctx, after, limit+1)
	if err != nil {
		return Page[Queue]{}, err
	}
	items := make([]Queue, len(rows))
	for i, q := range rows {
		items[i] = Queue{Name: q.Name, Depth: q.Ready, OldestSeconds: q.Oldest.Seconds(), Workers: q.Workers, Slots: q.Slots}
	}
	return pageOf(items, limit, func(q Queue) string { return pack(q.Name) })
}

func (r NamedRequest) open() (limit int, after string, err error) {
	if limit, err = limited(r.Limit); err != nil {
		return 0, "", err
	}
	if err := unpack(r.Cursor, &after); err != nil {
		return 0, "", err
	}
	if after != "" && ident.Key("cursor", after) != nil {
		return 0, "", invalid("cursor", "is not one that a list gave")
	}
	return limit, after, nil
}

// StatsRequest asks for the counts of a project.
type StatsRequest struct{}

// Stats are counts of the instances of a project. Each counts up to 10,000, and those of the live ones only among the first 10,000.
type Stats struct {
	Project         string                `json:"project"`
	Instances       map[engine.Status]int `json:"instances"`
	Paused          int                   `json:"paused"`            // of the live
	EndedLastMinute map[engine.Status]int `json:"ended_last_minute"` // throughput
	AtLeast         bool                  `json:"at_least"`          // a count came to its bound: there are as many, or more
}

// Stats counts the instances of a project.
func (a *API) Stats(ctx context.Context, project string, _ StatsRequest) (Stats, error) {
	c, err := a.Client.Counts(ctx, project)
	if err != nil {
		return Stats{}, err
	}
	return Stats{Project: project, Instances: c.ByStatus, Paused: c.Paused, EndedLastMinute: c.EndedLastMinute, AtLeast: c.AtLeast}, nil
}
