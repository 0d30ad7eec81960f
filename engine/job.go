package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// JobKind is what a job does to each instance that it finds.
type JobKind string

const (
	JobSignal JobKind = "signal" // to live ones
	JobCancel JobKind = "cancel" // live ones
	JobRetry  JobKind = "retry"  // failed and canceled ones
	JobPause  JobKind = "pause"  // live ones that are not paused
	JobResume JobKind = "resume" // paused ones
)

// JobStatus is the state of a job.
type JobStatus string

const (
	JobRunning  JobStatus = "running"
	JobDone     JobStatus = "done"
	JobFailed   JobStatus = "failed" // this build cannot read what it asks for
	JobCanceled JobStatus = "canceled"
)

// NewJob asks for work on all instances that a filter finds, of those that had started when it was asked for. An instance that the kind is
// not for is not found.
type NewJob struct {
	Kind   JobKind
	Filter Filter
	All    bool // the filter may be empty: all of the project

	Name    string          // of JobSignal: of the signal
	Payload json.RawMessage // of JobSignal; nil: null
	Reason  string          // of JobCancel: is kept as the last error of each
	// Children, of JobCancel: what is live below each is canceled too, in transactions of its own after that of the instance, and is not
	// counted. The job has ended when it is.
	Children bool

	Rate      int  // instances a second at most, 1 to 1,000,000; zero: as many as go
	DryRun    bool // only count
	CreatedBy string
	DedupKey  string // a second request with it is the job of the first, for as long as that is kept; "": none
}

// Job is work on many instances, which a [JobRunner] does in batches. The counts are those of committed batches: whatever becomes of a
// runner, nothing is done or counted twice.
type Job struct {
	ID        uuid.UUID  `json:"id"`
	Project   string     `json:"project"`
	Kind      JobKind    `json:"kind"`
	Status    JobStatus  `json:"status"`
	DryRun    bool       `json:"dry_run"`
	Filter    Filter     `json:"filter"`
	Args      JobArgs    `json:"args"`
	Rate      int        `json:"rate"`    // instances a second; 0: as many as go
	Counted   bool       `json:"counted"` // total is known; until then it grows
	Total     int64      `json:"total"`   // instances that the filter found, before the work began
	Done      int64      `json:"done"`
	Failed    int64      `json:"failed"`
	Skipped   int64      `json:"skipped"` // they had changed so that the filter did not find them any more when it was their turn
	Errors    []JobError `json:"errors"`  // of the first hundred that failed
	Error     string     `json:"error,omitempty"`
	CreatedBy string     `json:"created_by,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// JobArgs are what the kind of a job needs beside the instance.
type JobArgs struct {
	Name    string          `json:"name,omitempty"`    // of a signal
	Payload json.RawMessage `json:"payload,omitempty"` // of a signal
	Reason  string          `json:"reason,omitempty"`  // of a cancel
	// Children of a cancel: what is live below each is canceled too.
	Children bool `json:"children,omitempty"`
}

// JobError says why it failed for one instance.
type JobError struct {
	InstanceID uuid.UUID `json:"instance_id"`
	Message    string    `json:"message"`
}

const (
	maxJobRate   = 1_000_000
	maxJobErrors = 100
	maxJobReason = 1024
)

// JobsQueue is what a [Waker] is poked with when there is a new job.
const JobsQueue = ident.JobsQueue

// fits says which statuses the kind is for, and is an error where the filter asks for another one.
func (k JobKind) fits(status Status) error {
	switch k {
	case JobSignal, JobCancel, JobPause, JobResume:
		if status != "" && !status.Live() {
			return &InvalidError{Field: "status", Reason: fmt.Sprintf("is %s: a %s is for instances that have not ended", status, k)}
		}
	case JobRetry:
		if status != "" && status != StatusFailed && status != StatusCanceled {
			return &InvalidError{Field: "status", Reason: fmt.Sprintf("is %s: a retry is for failed and canceled instances", status)}
		}
	default:
		return &InvalidError{Field: "kind", Reason: fmt.Sprintf("%.40q is none of signal, cancel, retry, pause, resume", k)}
	}
	return nil
}

func (k JobKind) only() string {
	switch k {
	case JobRetry:
		return store.OnlyRetriable
	case JobPause:
		return store.OnlyUnpaused
	case JobResume:
		return store.OnlyPaused
	default:
		return store.OnlyLive
	}
}

func (n *NewJob) check() error {
	if err := errors.Join(n.Kind.fits(n.Filter.Status), n.Filter.check()); err != nil {
		return err
	}
	bare := n.Filter
	bare.Project = ""
	if bare == (Filter{}) && !n.All {
		return &InvalidError{Field: "filter", Reason: "is empty: say which instances, or that you mean all of the project"}
	}
	if n.Rate < 0 || n.Rate > maxJobRate {
		return &InvalidError{Field: "rate", Reason: fmt.Sprintf("is %d: want 1 to %d instances a second, or 0 for as many as go", n.Rate, maxJobRate)}
	}
	if n.Kind != JobSignal && (n.Name != "" || n.Payload != nil) {
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("and payload are of a signal, and this is a %s", n.Kind)}
	}
	if n.Kind != JobCancel && n.Reason != "" {
		return &InvalidError{Field: "reason", Reason: fmt.Sprintf("is of a cancel, and this is a %s", n.Kind)}
	}
	if n.Kind != JobCancel && n.Children {
		return &InvalidError{Field: "children", Reason: fmt.Sprintf("is of a cancel, and this is a %s", n.Kind)}
	}
	if n.DedupKey != "" {
		if err := ident.Key("dedup_key", n.DedupKey); err != nil {
			return err
		}
	}
	if len(n.Reason) > maxJobReason {
		return &InvalidError{Field: "reason", Reason: fmt.Sprintf("has %d bytes: at most %d are allowed", len(n.Reason), maxJobReason)}
	}
	if n.Kind == JobSignal {
		return checkSignal(n.Name, n.Payload, "")
	}
	return nil
}

// StartJob writes a job down, for the runners of bridges. It returns at once; [Client.Job] says how far it has come. A second request with
// the DedupKey of a job that is kept returns that one; the error is a [*ConflictError] where it asks for something else.
func (c *Client) StartJob(ctx context.Context, n NewJob) (Job, error) {
	if n.Filter.Project == "" {
		n.Filter.Project = DefaultProject
	}
	if err := n.check(); err != nil {
		return Job{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Job{}, err
	}
	filter, err := ident.Encode(n.Filter)
	if err != nil {
		return Job{}, err
	}
	args, err := ident.Encode(JobArgs{Name: n.Name, Payload: n.Payload, Reason: n.Reason, Children: n.Children})
	if err != nil {
		return Job{}, err
	}
	row, same, err := c.store.AddJob(ctx, store.Job{
		ID: id, Project: n.Filter.Project, Kind: string(n.Kind), DryRun: n.DryRun, Rate: n.Rate, CreatedBy: n.CreatedBy, Filter: filter, Args: args,
		DedupKey: n.DedupKey, Hash: store.SignalHash("job", string(n.Kind), fmt.Appendf(nil, "%s\n%s\n%d %t", filter, args, n.Rate, n.DryRun)),
	})
	if err != nil {
		return Job{}, fmt.Errorf("start job: %w", blamed(err))
	}
	if !same {
		return Job{}, &ConflictError{Reason: fmt.Sprintf("the dedup key %q was used for job %s, which asks for something else", n.DedupKey, row.ID)}
	}
	c.Wake(JobsQueue)
	return jobOf(row)
}

// Job returns a job of a project (zero: DefaultProject). The error is [ErrNotFound] where there is none.
func (c *Client) Job(ctx context.Context, project string, id uuid.UUID) (Job, error) {
	if project == "" {
		project = DefaultProject
	}
	row, found, err := c.store.Job(ctx, project, id)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Job{}, fmt.Errorf("job: %w", err)
	}
	return jobOf(row)
}

// Jobs returns up to limit jobs of a project (zero: DefaultProject) that were asked for before the job before, the newest first; uuid.Nil is
// from the newest on.
func (c *Client) Jobs(ctx context.Context, project string, before uuid.UUID, limit int) ([]Job, error) {
	if project == "" {
		project = DefaultProject
	}
	if before == uuid.Nil {
		before = uuid.Max
	}
	rows, err := c.store.Jobs(ctx, project, before, limit)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	jobs := make([]Job, len(rows))
	for i, row := range rows {
		if jobs[i], err = jobOf(row); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// CancelJob ends a job. The batch that is in work is done to its end before; what has been done stays so. It is idempotent, and the error
// is [ErrNotFound] where there is no such job, or a [*ConflictError] where it has ended otherwise.
func (c *Client) CancelJob(ctx context.Context, project string, id uuid.UUID) (Job, error) {
	if project == "" {
		project = DefaultProject
	}
	if _, err := c.store.CancelJob(ctx, project, id); err != nil {
		return Job{}, fmt.Errorf("cancel job: %w", err)
	}
	j, err := c.Job(ctx, project, id)
	if err == nil && j.Status != JobCanceled {
		err = &ConflictError{Reason: fmt.Sprintf("job %s is %s: only one that is running can be canceled", id, j.Status)}
	}
	return j, err
}

func jobOf(row store.Job) (j Job, err error) {
	j = Job{
		ID: row.ID, Project: row.Project, Kind: JobKind(row.Kind), Status: JobStatus(row.Status), DryRun: row.DryRun, Rate: row.Rate, Counted: row.Counted,
		Total: row.Total, Done: row.Done, Failed: row.Failed, Skipped: row.Skipped, Error: row.Error, CreatedBy: row.CreatedBy,
		CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}
	if row.EndedAt != nil {
		at := row.EndedAt.UTC()
		j.EndedAt = &at
	}
	err = errors.Join(json.Unmarshal(row.Filter, &j.Filter), json.Unmarshal(row.Args, &j.Args), json.Unmarshal(row.Errors, &j.Errors))
	if err != nil {
		return j, fmt.Errorf("job %s: %w", row.ID, err)
	}
	j.Filter.Project = row.Project
	return j, nil
}
