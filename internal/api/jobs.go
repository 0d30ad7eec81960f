package api

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/auth"
)

// Job is a job as it is written.
type Job engine.Job

// NewJob asks for work on all instances that a filter finds.
type NewJob struct {
	Kind   engine.JobKind `json:"kind"`
	Filter engine.Filter  `json:"filter"`
	All    bool           `json:"all,omitempty"`     // the filter may be empty
	Args   engine.JobArgs `json:"args,omitzero"`     // of the kind
	Rate   int            `json:"rate,omitempty"`    // instances a second
	DryRun bool           `json:"dry_run,omitempty"` // only count
	// IdempotencyKey makes a second request the job of the first, for as long as that is kept.
	IdempotencyKey string `json:"idempotency_key,omitempty" http:"header,Idempotency-Key"`
}

// StartJob writes a job down, and returns it.
func (a *API) StartJob(ctx context.Context, project string, r NewJob) (Job, error) {
	r.Filter.Project = project
	if len(r.Args.Payload) > 0 {
		if err := payload(r.Args.Payload); err != nil {
			return Job{}, err
		}
	}
	j, err := a.Client.StartJob(ctx, engine.NewJob{
		Kind: r.Kind, Filter: r.Filter, All: r.All, Name: r.Args.Name, Payload: r.Args.Payload, Reason: r.Args.Reason, Rate: r.Rate, DryRun: r.DryRun, CreatedBy: auth.Caller(ctx),
		Children: r.Args.Children, DedupKey: r.IdempotencyKey,
	})
	return Job(j), err
}

// JobsRequest asks for jobs.
type JobsRequest struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// Jobs returns the newest first, without the errors of each.
func (a *API) Jobs(ctx context.Context, project string, r JobsRequest) (Page[Job], error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return Page[Job]{}, err
	}
	var before uuid.UUID
	if err := unpack(r.Cursor, &before); err != nil {
		return Page[Job]{}, err
	}
	rows, err := a.Client.Jobs(ctx, project, before, limit+1)
	if err != nil {
		return Page[Job]{}, err
	}
	items := make([]Job, len(rows))
	for i, row := range rows {
		row.Errors = []engine.JobError{}
		items[i] = Job(row)
	}
	return pageOf(items, limit, func(j Job) string { return pack(j.ID) })
}

// JobRequest names a job.
type JobRequest struct {
	ID string `json:"id"`
}

// Job returns one.
func (a *API) Job(ctx context.Context, project string, r JobRequest) (Job, error) {
	return ofJob(ctx, project, r, a.Client.Job)
}

// CancelJob ends one after the batch that is in work, and returns it.
func (a *API) CancelJob(ctx context.Context, project string, r JobRequest) (Job, error) {
	return ofJob(ctx, project, r, a.Client.CancelJob)
}

func ofJob(ctx context.Context, project string, r JobRequest, do func(context.Context, string, uuid.UUID) (engine.Job, error)) (Job, error) {
	id, err := uuid.Parse(r.ID)
	if err != nil || len(r.ID) != 36 || id == uuid.Nil {
		return Job{}, invalid("id", "%.60q is no id of a job: want a UUID, as a list gives it", r.ID)
	}
	j, err := do(ctx, project, id)
	if errors.Is(err, engine.ErrNotFound) {
		err = notFound("there is no job %s", id)
	}
	return Job(j), err
}
