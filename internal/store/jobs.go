package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Job is work on all instances that a filter finds.
type Job struct {
	ID        uuid.UUID
	Project   string
	Kind      string
	Status    string // running, done, failed, canceled
	DryRun    bool
	Counted   bool // Total is known, and Cursor is of the work
	Rate      int  // instances a second; 0: any number
	Total     int64
	Done      int64
	Failed    int64
	Skipped   int64
	Cursor    uuid.UUID // what is older is still to be looked at; [uuid.Max]: all
	CreatedAt time.Time
	UpdatedAt time.Time
	EndedAt   *time.Time
	CreatedBy string
	DedupKey  string      // "": none
	Hash      uuid.UUID   // of what is asked for, with a DedupKey
	Below     []uuid.UUID // whose children are still to be canceled
	Filter    []byte      // JSON, as are
	Args      []byte
	Errors    []byte
	Error     string
}

const jobColumns = `j.id, j.project, j.kind, j.status, j.dry_run, j.counted, j.rate, j.total, j.done, j.failed, j.skipped, j.cursor, j.created_at, j.updated_at, j.ended_at,
  j.created_by, j.filter::text, j.args::text, j.errors::text, j.error, j.below`

func scanJob(r pgx.Rows) (j Job, err error) {
	var cursor *uuid.UUID
	var by, reason *string
	var filter, args, errs string
	err = r.Scan(&j.ID, &j.Project, &j.Kind, &j.Status, &j.DryRun, &j.Counted, &j.Rate, &j.Total, &j.Done, &j.Failed, &j.Skipped, &cursor, &j.CreatedAt, &j.UpdatedAt, &j.EndedAt,
		&by, &filter, &args, &errs, &reason, &j.Below)
	j.Cursor = uuid.Max
	if cursor != nil {
		j.Cursor = *cursor
	}
	j.CreatedBy, j.Error, j.Filter, j.Args, j.Errors = value(by), value(reason), []byte(filter), []byte(args), []byte(errs)
	return j, err
}

// one runs a statement that returns a job or none.
func (s *Store) oneJob(ctx context.Context, name, sql string, args ...any) (j Job, found bool, err error) {
	err = s.each(ctx, name, sql, func(r pgx.Rows) (err error) {
		found = true
		j, err = scanJob(r)
		return err
	}, args...)
	return j, found, err
}

// AddJob writes a job down, due at once. Where another has its dedup key that one is returned, and whether it asks for the same.
func (s *Store) AddJob(ctx context.Context, j Job) (added Job, same bool, err error) {
	var hash *uuid.UUID
	if j.DedupKey != "" {
		hash = &j.Hash
	}
	added, found, err := s.oneJob(ctx, "add job", s.text.addJob, j.ID, j.Project, j.Kind, j.DryRun, j.Rate, optional(j.CreatedBy), string(j.Filter), string(j.Args), optional(j.DedupKey), hash)
	if err != nil || found {
		return added, true, err
	}
	err = s.run(ctx, statement{"same job", s.text.sameJob, []any{j.Project, j.DedupKey, hash}, func(r pgx.Rows) error { return r.Scan(&j.ID, &same) }})
	if err == nil {
		added, _, err = s.Job(ctx, j.Project, j.ID)
	}
	return added, same, err
}

const addJobText = `
insert /* add job */ into pointsman.jobs as j (id, project, kind, dry_run, rate, created_by, filter, args, dedup_key, hash)
values ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8::text::jsonb, $9, $10)
on conflict (project, dedup_key) where dedup_key is not null do nothing
returning ` + jobColumns

// sameJobText ($1 project, $2 dedup key, $3 hash) is a statement after the insert: its snapshot has what was committed meanwhile.
const sameJobText = `select /* same job */ id, hash is not distinct from $3 from pointsman.jobs where project = $1 and dedup_key = $2`

// Job returns one of a project.
func (s *Store) Job(ctx context.Context, project string, id uuid.UUID) (j Job, found bool, err error) {
	return s.oneJob(ctx, "job", s.text.job, project, id)
}

const jobText = `select /* job */ ` + jobColumns + ` from pointsman.jobs j where j.id = $2 and j.project = $1`

// Jobs returns at most n of a project that were asked for before the job before, the newest first.
func (s *Store) Jobs(ctx context.Context, project string, before uuid.UUID, n int) (out []Job, err error) {
	err = s.each(ctx, "list jobs", s.text.listJobs, func(r pgx.Rows) error {
		j, err := scanJob(r)
		out = append(out, j)
		return err
	}, project, before, n)
	return out, err
}

const listJobsText = `select /* list jobs */ ` + jobColumns + ` from pointsman.jobs j where j.project = $1 and j.id < $2 order by j.id desc limit $3`

// CancelJob ends a job that runs, after the batch that is in work. One that has ended stays as it is, and canceled is false.
func (s *Store) CancelJob(ctx context.Context, project string, id uuid.UUID) (canceled bool, err error) {
	err = s.run(ctx, statement{"cancel job", s.text.cancelJob, []any{project, id}, func(pgx.Rows) error { canceled = true; return nil }})
	return canceled, err
}

const cancelJobText = `
update /* cancel job */ pointsman.jobs set status = 'canceled', updated_at = now(), ended_at = now() where id = $2 and project = $1 and status = 'running' returning id`

// NextJob says how long it is until a job has a batch to be done, at most limit; 0 or less: one is due, or in work.
func (s *Store) NextJob(ctx context.Context, limit time.Duration) (wait time.Duration, err error) {
	err = s.run(ctx, statement{"next job", s.text.nextJob, []any{limit}, func(r pgx.Rows) error { return r.Scan(&wait) }})
	return wait, err
}

const nextJobText = `
select /* next job */ least(now() + $1::interval, (select due_at from pointsman.jobs where status = 'running' order by due_at limit 1)) - now()`

// JobStep is how far one batch has brought a job.
type JobStep struct {
	Cursor  uuid.UUID
	Counted bool
	Total   int64 // more than before, as are
	Done    int64
	Failed  int64
	Skipped int64
	Wait    time.Duration // until the next batch, since when this one was due
	Ended   string        // done or failed; "": there is more
	Errors  []byte        // all of them, JSON; nil: as before
	Below   []uuid.UUID   // whose children are to be canceled before the next batch
	Error   string
}

// WorkJob does the next batch of a job, or of the one that has been due for longest where id is Nil: what work does, and the counts that it
// returns, commit together. Nobody else has the job until then: its row is locked, first of all locks. found is false where none is due,
// or all that are have somebody.
func (s *Store) WorkJob(ctx context.Context, id uuid.UUID, work func(tx *Store, j Job) (JobStep, error)) (found bool, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		j, ok, err := tx.oneJob(ctx, "take job", tx.text.takeJob, id)
		if found = ok; err != nil || !ok {
			return err
		}
		step, err := work(tx, j)
		if err != nil {
			return err
		}
		if step.Errors == nil {
			step.Errors = j.Errors
		}
		var cursor *uuid.UUID
		if step.Cursor != uuid.Max {
			cursor = &step.Cursor
		}
		return tx.each(ctx, "save job", tx.text.saveJob, nil, j.ID, cursor, step.Counted, step.Total, step.Done, step.Failed, step.Skipped, step.Wait, step.Ended, string(step.Errors), optional(step.Error), append([]uuid.UUID{}, step.Below...))
	})
	return found, err
}

// takeJobText ($1 id; Nil: that which has been due for longest).
const takeJobText = `
select /* take job */ ` + jobColumns + ` from pointsman.jobs j
where j.status = 'running' and j.due_at <= now() and ($1::uuid = '00000000-0000-0000-0000-000000000000' or j.id = $1)
order by j.due_at limit 1 for update skip locked`

// saveJobText ($1 id, $2 cursor, $3 counted, $4 total, $5 done, $6 failed, $7 skipped, $8 wait, $9 ended, $10 errors, $11 error, $12 below). A job with a
// rate makes up for a second at most, so that an outage is not followed by a burst.
const saveJobText = `
update /* save job */ pointsman.jobs set cursor = $2, counted = $3, total = total + $4, done = done + $5, failed = failed + $6, skipped = skipped + $7,
  due_at = case when $8::interval > interval '0' then greatest(due_at, now() - interval '1 s') + $8 else clock_timestamp() end,
  status = coalesce(nullif($9::text, ''), status), ended_at = case when $9 <> '' then clock_timestamp() end, updated_at = clock_timestamp(), errors = $10::text::jsonb, error = $11, below = $12
where id = $1`

// PostponeJob says why a job does not get on, and when it is tried again.
func (s *Store) PostponeJob(ctx context.Context, id uuid.UUID, wait time.Duration, reason string) error {
	return s.run(ctx, statement{"postpone job", s.text.postponeJob, []any{id, wait, reason}, nil})
}

const postponeJobText = `
update /* postpone job */ pointsman.jobs set due_at = now() + $2::interval, updated_at = now(), error = $3
where id = (select id from pointsman.jobs where id = $1 and status = 'running' for update skip locked)`

// JobBatch is how many jobs [Store.RetireJobs] deletes at most.
const JobBatch = 500

// RetireJobs deletes jobs that ended so long ago, and returns how many.
func (s *Store) RetireJobs(ctx context.Context, keep time.Duration) (n int, err error) {
	err = s.run(ctx, statement{"retire jobs", s.text.retireJobs, []any{keep, JobBatch}, func(pgx.Rows) error { n++; return nil }})
	return n, err
}

const retireJobsText = `
delete /* retire jobs */ from pointsman.jobs where id = any(array(
  select id from pointsman.jobs where ended_at < now() - $1::interval order by ended_at limit $2 for update skip locked))
returning id`
