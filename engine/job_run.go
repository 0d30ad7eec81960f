package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

const (
	jobBatch    = 200 // instances that one transaction is for
	jobBusy     = 250 * time.Millisecond
	jobPostpone = 5 * time.Second
)

// JobRunnerConfig of a [JobRunner]. The zero value is usable.
type JobRunnerConfig struct {
	Poll time.Duration // how long it goes without a look for jobs; zero: 2s
}

// JobRunner does what jobs ask for. Any number of them may run, in any number of processes: a batch of a job is one transaction, which
// has the job's row to itself.
type JobRunner struct {
	client *Client
	poll   time.Duration
	pokes  chan struct{}
	batch  int
	limits map[uuid.UUID]int // of the next batch, while a job is looked through for who keeps its batches from being stored
	alone  bool              // the next batch is to wait for a lock as long as others do
	health health
}

// NewJobRunner returns one that does nothing until [JobRunner.Run].
func (c *Client) NewJobRunner(cfg JobRunnerConfig) (*JobRunner, error) {
	if cfg.Poll < 0 {
		return nil, fmt.Errorf("poll %s: is below 0", cfg.Poll)
	}
	return &JobRunner{client: c, poll: cmp.Or(cfg.Poll, 2*time.Second), batch: jobBatch, pokes: make(chan struct{}, 1), limits: map[uuid.UUID]int{}}, nil
}

// Poke tells that there may be a new job. It does not block.
func (r *JobRunner) Poke() { signal(r.pokes) }

// Run does jobs until ctx is canceled; the batch that is in work then is undone, and another runner does it. Trouble with the database is
// waited for.
func (r *JobRunner) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		worked, err := r.step(ctx)
		wait := r.poll
		if err == nil && worked {
			continue
		}
		if err == nil {
			if wait, err = r.client.store.NextJob(ctx, r.poll); wait <= 0 {
				wait = jobBusy // another has it
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		r.health.set(r.client.log, "jobs", err)
		if err != nil {
			wait = r.poll
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-r.pokes:
		}
	}
	return nil
}

// step does one batch of the job that has been due for longest, if one is. Where something keeps the batch from being stored, the next one
// is half of it, until what does so is alone: that one has failed then.
func (r *JobRunner) step(ctx context.Context) (worked bool, err error) {
	b := &jobBatchRun{ctx: ctx, client: r.client}
	st := r.client.store
	if !r.alone {
		st = st.Hasty() // a batch has many locked while it waits for one
	}
	r.alone = false
	worked, err = st.WorkJob(ctx, uuid.Nil, func(tx *store.Store, row store.Job) (store.JobStep, error) {
		b.row, b.limit = row, cmp.Or(r.limits[row.ID], r.batch)
		if len(row.Below) > 0 {
			return store.JobStep{}, errBelow
		}
		return b.run(tx)
	})
	if errors.Is(err, errBelow) {
		worked, err = r.endBelow(ctx, b)
	}
	id := b.row.ID
	if err == nil {
		if worked {
			r.widen(b)
			b.tell()
		}
		return worked, nil
	}
	blame := store.Blame(err)
	if blame == store.BlameLock {
		locked, unknown := r.client.store.TablesLocked(ctx)
		if unknown != nil {
			return false, unknown
		}
		if locked {
			blame = store.BlameNobody
		}
	}
	switch {
	case id == uuid.Nil || ctx.Err() != nil:
		return false, err
	case blame == store.BlameNobody || len(b.ids) == 0:
		// Of the job, or of the whole database: the other jobs go on meanwhile.
		_ = r.client.store.PostponeJob(ctx, id, jobPostpone, err.Error())
		return false, err
	case len(b.ids) > 1:
		r.limits[id] = max(1, len(b.ids)/2)
		r.alone = r.limits[id] == 1
		return true, nil
	default:
		return r.giveUp(ctx, b, err)
	}
}

// errBelow leaves a job as it is: what its last batch was for is not done yet.
var errBelow = errors.New("children of the batch before are still to be canceled")

// endBelow cancels what is live below the instances of the batch before, in transactions of its own, and then lets the job go on. Who is cut
// off in between leaves it to the next; where two do it at once, each finds the other's work done.
func (r *JobRunner) endBelow(ctx context.Context, b *jobBatchRun) (worked bool, err error) {
	job, err := jobOf(b.row)
	if err != nil {
		return false, err
	}
	if err := r.client.cancelChildren(ctx, b.row.Below, job.Args.Reason); err != nil {
		return false, err
	}
	return r.client.store.WorkJob(ctx, b.row.ID, func(_ *store.Store, now store.Job) (store.JobStep, error) {
		if !slices.Equal(now.Below, b.row.Below) {
			return store.JobStep{Cursor: now.Cursor, Counted: now.Counted, Below: now.Below}, nil
		}
		return store.JobStep{Cursor: now.Cursor, Counted: now.Counted, Ended: endedAt(now.Cursor)}, nil
	})
}

// widen the batches again after one that went well.
func (r *JobRunner) widen(b *jobBatchRun) {
	limit, narrow := r.limits[b.row.ID]
	if limit *= 2; narrow && (limit >= r.batch || b.step.Ended != "") {
		delete(r.limits, b.row.ID)
	} else if narrow {
		r.limits[b.row.ID] = limit
	}
}

// giveUp the one instance of a batch: it has failed for it, and the job goes on behind it.
func (r *JobRunner) giveUp(ctx context.Context, b *jobBatchRun, cause error) (worked bool, err error) {
	return r.client.store.WorkJob(ctx, b.row.ID, func(_ *store.Store, now store.Job) (store.JobStep, error) {
		step := store.JobStep{Cursor: now.Cursor, Counted: now.Counted, Below: now.Below}
		if now.Cursor != b.row.Cursor || !now.Counted {
			return step, nil // another runner has got on
		}
		job, err := jobOf(now)
		if err != nil {
			return step, err
		}
		step.Cursor, step.Ended, step.Failed, step.Wait = b.next, endedAt(b.next), 1, paced(now.Rate, 1)
		step.Errors, err = withErrors(job.Errors, JobError{b.ids[0], cause.Error()})
		return step, err
	})
}

// jobBatchRun is one batch on its way.
type jobBatchRun struct {
	ctx    context.Context
	client *Client
	row    store.Job
	limit  int

	job  Job
	ids  []uuid.UUID // who is in the batch, the newest first
	next uuid.UUID   // where the next batch begins; Nil: there is none
	step store.JobStep
	errs []JobError

	queues   []string
	ended    []uuid.UUID
	triggers []store.EndedTrigger
}

func (b *jobBatchRun) run(tx *store.Store) (store.JobStep, error) {
	var err error
	b.step = store.JobStep{Cursor: b.row.Cursor, Counted: b.row.Counted}
	b.job, err = jobOf(b.row)
	if err == nil {
		err = b.job.Kind.fits(b.job.Filter.Status)
	}
	if err != nil { // a later version of pointsman has written it
		b.step.Ended, b.step.Error = string(JobFailed), err.Error()
		return b.step, nil
	}
	if !b.row.Counted {
		err = b.count(tx)
	} else {
		err = b.work(tx)
	}
	return b.step, err
}

// filter of the instances that the job is for: what has started since is not.
func (b *jobBatchRun) filter() store.Filter {
	f := b.job.Filter.row()
	f.Only = b.job.Kind.only()
	if f.InsertedBefore == nil || f.InsertedBefore.After(b.row.CreatedAt) {
		f.InsertedBefore = &b.row.CreatedAt
	}
	return f
}

// count looks through one window.
func (b *jobBatchRun) count(tx *store.Store) error {
	ids, next, err := tx.Matching(b.ctx, b.filter(), b.row.Cursor, store.ListWindow)
	if err != nil {
		return err
	}
	b.step.Total, b.step.Cursor = int64(len(ids)), next
	if next == uuid.Nil {
		b.step.Counted, b.step.Cursor = true, uuid.Max
		if b.job.DryRun || b.row.Total+b.step.Total == 0 {
			b.step.Ended = string(JobDone)
		}
	}
	return nil
}

// work does the next batch.
func (b *jobBatchRun) work(tx *store.Store) (err error) {
	if b.ids, b.next, err = tx.Matching(b.ctx, b.filter(), b.row.Cursor, batchOf(b.row.Rate, b.limit)); err != nil {
		return err
	}
	var keys map[uuid.UUID][]string
	if b.job.Kind == JobRetry {
		if keys, err = b.lockKeys(tx); err != nil {
			return err
		}
	}
	still, err := tx.StillMatching(b.ctx, b.filter(), b.ids, b.job.Kind == JobCancel)
	if err != nil {
		return err
	}
	if len(still) > 0 {
		err = b.act(tx, still, keys)
	}
	if err != nil {
		return err
	}
	b.step.Failed = int64(len(b.errs))
	b.step.Skipped = int64(len(b.ids)) - b.step.Done - b.step.Failed
	b.step.Cursor, b.step.Ended, b.step.Wait = b.next, endedAt(b.next), paced(b.row.Rate, len(b.ids))
	if b.job.Args.Children && len(b.ended) > 0 {
		b.step.Below, b.step.Ended = b.ended, ""
	}
	if len(b.errs) > 0 {
		b.step.Errors, err = withErrors(b.job.Errors, b.errs...)
	}
	return err
}

// batchOf is how many instances a batch is for: of a slow job those of a quarter of a second.
func batchOf(rate, limit int) int {
	if rate == 0 {
		return limit
	}
	return min(limit, max(1, rate/4))
}

// paced is how long n instances take at a rate.
func paced(rate, n int) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(rate)
}

func endedAt(next uuid.UUID) string {
	if next == uuid.Nil {
		return string(JobDone)
	}
	return ""
}

func withErrors(had []JobError, more ...JobError) ([]byte, error) {
	all := slices.Concat(had, more)
	for i := range all {
		all[i].Message = strings.ToValidUTF8(strings.ReplaceAll(all[i].Message, "\x00", ""), "\uFFFD")
	}
	return ident.Encode(all[:min(len(all), maxJobErrors)])
}

// act does what the job is for to instances that are locked, and match.
func (b *jobBatchRun) act(tx *store.Store, ids []uuid.UUID, keys map[uuid.UUID][]string) error {
	switch b.job.Kind {
	case JobCancel:
		canceled, err := tx.Cancel(b.ctx, ids, b.job.Args.Reason, b.client.publish)
		b.step.Done, b.ended, b.triggers = int64(len(canceled.IDs)), canceled.IDs, canceled.Triggers
		b.queues = append(canceled.Woken, OutboxQueue, WebhooksQueue)
		return err
	case JobPause:
		paused, err := tx.Pause(b.ctx, ids)
		b.step.Done = int64(len(paused))
		return err
	case JobResume:
		resumed, err := tx.Resume(b.ctx, ids)
		b.step.Done, b.queues = int64(len(resumed.IDs)), resumed.Woken
		return err
	case JobRetry:
		return b.retry(tx, ids, keys)
	default:
		return b.signal(tx, ids)
	}
}

// lockKeys takes the locks that retries of the batch need, and cuts it where these are too many for one transaction. It returns the keys of
// the events that each waited for.
func (b *jobBatchRun) lockKeys(tx *store.Store) (map[uuid.UUID][]string, error) {
	rows, err := tx.Instances(b.ctx, b.ids)
	if err != nil {
		return nil, err
	}
	correlation := map[uuid.UUID]string{}
	for _, row := range rows {
		correlation[row.ID] = row.CorrelationKey
	}
	var scopes []uuid.UUID
	events := map[uuid.UUID][]string{}
	for i, id := range b.ids {
		if events[id], err = tx.EventKeys(b.ctx, id); err != nil {
			return nil, err
		}
		if i > 0 && len(scopes)+len(events[id]) >= maxScopes {
			b.ids, b.next = b.ids[:i], b.ids[i-1]
			break
		}
		if key := correlation[id]; key != "" {
			scopes = append(scopes, store.KeyScope(b.row.Project, key))
		}
		for _, key := range events[id] {
			scopes = append(scopes, store.EventScope(b.row.Project, key))
		}
	}
	return events, tx.LockScopes(b.ctx, scopes)
}

// retry the newest first, so that of those with one key it is the last that had it.
func (b *jobBatchRun) retry(tx *store.Store, ids []uuid.UUID, keys map[uuid.UUID][]string) error {
	for _, id := range slices.Backward(ids) {
		r, err := tx.Retry(b.ctx, id, keys[id], b.client.maxTriggers)
		if err != nil {
			return err
		}
		switch r.Verdict {
		case store.Started:
			b.step.Done++
			b.queues = append(b.queues, r.Queue)
		case store.Taken:
			b.errs = append(b.errs, JobError{id, fmt.Sprintf("its correlation key is held by instance %s", r.Holder)})
		}
	}
	return nil
}

// signal sends each the signal of the job, once however often a batch is tried.
func (b *jobBatchRun) signal(tx *store.Store, ids []uuid.UUID) error {
	batch := make([]Intake, len(ids))
	for i, id := range ids {
		batch[i] = Intake{
			To: ByID(id).In(b.row.Project), Name: b.job.Args.Name, Payload: b.job.Args.Payload, SentBy: b.row.CreatedBy,
			DedupKey: fmt.Sprintf("job:%s:%s", b.row.ID, id), // the ledger may be shared with an earlier holder of the key
		}
	}
	a := newAcceptance(b.ctx, tx, batch)
	a.locked = true // by id no keys are locked, and the instances are
	if err := a.run(a.slow); err != nil {
		return err
	}
	for i, r := range a.receipts {
		switch r.Result {
		case Delivered, Duplicate:
			b.step.Done++
		case NoTarget:
		default:
			b.errs = append(b.errs, JobError{ids[i], r.Reason})
		}
	}
	b.queues, b.triggers = a.queues, a.ended
	return nil
}

// tell the others of what is committed.
func (b *jobBatchRun) tell() {
	b.client.Wake(b.queues...)
	if len(b.ended) > 0 {
		b.client.tell(noticeEnded, b.ended)
	}
	switch b.job.Kind {
	case JobRetry, JobPause, JobResume:
		b.client.tell(noticeChanged, b.ids)
	}
	b.client.toldTriggers(b.triggers)
}
