package contracttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
)

// jobDriver asks about jobs over one surface.
type jobDriver interface {
	startJob(ctx context.Context, n api.NewJob) (api.Job, error)
	job(ctx context.Context, id uuid.UUID) (api.Job, error)
	jobs(ctx context.Context, r api.JobsRequest) (api.Page[api.Job], error)
	cancelJob(ctx context.Context, id uuid.UUID) (api.Job, error)
}

func (d overHTTP) startJob(ctx context.Context, n api.NewJob) (api.Job, error) {
	return d.StartJob(ctx, n)
}

func (d overHTTP) job(ctx context.Context, id uuid.UUID) (api.Job, error) { return d.Job(ctx, id) }

func (d overHTTP) jobs(ctx context.Context, r api.JobsRequest) (api.Page[api.Job], error) {
	return d.Jobs(ctx, r.Limit, r.Cursor)
}

func (d overHTTP) cancelJob(ctx context.Context, id uuid.UUID) (api.Job, error) {
	return d.CancelJob(ctx, id)
}

func (d overNATS) startJob(ctx context.Context, n api.NewJob) (api.Job, error) {
	key := n.IdempotencyKey
	n.IdempotencyKey = ""
	return ask[api.Job](ctx, d, natsapi.VerbJobsStart, n, subjects.HeaderIdempotencyKey, key)
}

func (d overNATS) job(ctx context.Context, id uuid.UUID) (api.Job, error) {
	return ask[api.Job](ctx, d, natsapi.VerbJob, api.JobRequest{ID: id.String()})
}

func (d overNATS) jobs(ctx context.Context, r api.JobsRequest) (api.Page[api.Job], error) {
	return ask[api.Page[api.Job]](ctx, d, natsapi.VerbJobs, r)
}

func (d overNATS) cancelJob(ctx context.Context, id uuid.UUID) (api.Job, error) {
	return ask[api.Job](ctx, d, natsapi.VerbJobsCancel, api.JobRequest{ID: id.String()})
}

func (d inGo) startJob(ctx context.Context, n api.NewJob) (api.Job, error) {
	j, err := d.StartJob(ctx, engine.NewJob{
		Kind: n.Kind, Filter: n.Filter, All: n.All, Name: n.Args.Name, Payload: n.Args.Payload, Reason: n.Args.Reason, Children: n.Args.Children, Rate: n.Rate, DryRun: n.DryRun,
		DedupKey: n.IdempotencyKey,
	})
	return api.Job(j), err
}

func (d inGo) job(ctx context.Context, id uuid.UUID) (api.Job, error) {
	j, err := d.Job(ctx, "", id)
	return api.Job(j), err
}

func (d inGo) jobs(ctx context.Context, r api.JobsRequest) (page api.Page[api.Job], err error) {
	limit := cmp.Or(r.Limit, api.DefaultLimit)
	rows, err := d.Jobs(ctx, "", placeOf(r.Cursor), limit)
	for _, j := range rows {
		page.Items = append(page.Items, api.Job(j))
	}
	if len(rows) == limit {
		page.NextCursor = cursorOf(rows[limit-1].ID)
	}
	return page, err
}

func (d inGo) cancelJob(ctx context.Context, id uuid.UUID) (api.Job, error) {
	j, err := d.CancelJob(ctx, "", id)
	return api.Job(j), err
}

func (d onCommandLine) startJob(ctx context.Context, n api.NewJob) (api.Job, error) {
	args := []string{"--all", "--yes", "--prefix", n.Filter.CorrelationPrefix, "--machine", n.Filter.Machine, "--status", string(n.Filter.Status), "--dry-run=" + strconv.FormatBool(n.DryRun)}
	if n.Rate != 0 {
		args = append(args, "--rate", strconv.Itoa(n.Rate))
	}
	if n.IdempotencyKey != "" {
		args = append(args, "--idempotency-key", n.IdempotencyKey)
	}
	switch n.Kind {
	case engine.JobCancel:
		args = append(args, "--reason", n.Args.Reason, "--children="+strconv.FormatBool(n.Args.Children))
	case engine.JobSignal:
		args = append(args, "--", n.Args.Name, string(n.Args.Payload))
	}
	return run[api.Job](ctx, d, string(n.Kind), args...)
}

func (d onCommandLine) job(ctx context.Context, id uuid.UUID) (api.Job, error) {
	return run[api.Job](ctx, d, "jobs get", id.String())
}

func (d onCommandLine) jobs(ctx context.Context, r api.JobsRequest) (api.Page[api.Job], error) {
	return run[api.Page[api.Job]](ctx, d, "jobs list", "--limit", limitOf(r.Limit), "--cursor", r.Cursor)
}

func (d onCommandLine) cancelJob(ctx context.Context, id uuid.UUID) (api.Job, error) {
	return run[api.Job](ctx, d, "jobs cancel", id.String())
}

// done asks for a job, and waits for its end.
func (b *bundle) done(n api.NewJob) (j api.Job) {
	b.Helper()
	j, err := b.startJob(b.Context(), n)
	if err != nil {
		b.Fatal(err)
	}
	apptest.Eventually(b, "the job ends", func() (bool, error) {
		j, err = b.job(b.Context(), j.ID)
		return err == nil && j.EndedAt != nil, errors.Join(err, fmt.Errorf("it is %+v", j))
	})
	return j
}

func jobCounts(j api.Job) string { return words(j.Status, j.Total, j.Done, j.Failed, j.Skipped) }

// Work on all that a filter finds: counted, done once for each, asked for once, ended before its end.
func testJobs(b *bundle) {
	for _, key := range []string{"j1", "j2", "j3"} {
		b.begin(key, `1`)
	}
	filter := engine.Filter{Machine: "visitor", CorrelationPrefix: b.prefix + "j"}
	equal(b, "dry run", jobCounts(b.done(api.NewJob{Kind: engine.JobPause, Filter: filter, DryRun: true})), "done 3 0 0 0")
	equal(b, "pause", jobCounts(b.done(api.NewJob{Kind: engine.JobPause, Filter: filter})), "done 3 3 0 0")
	slow, err := b.startJob(b.Context(), api.NewJob{Kind: engine.JobResume, Filter: filter, Rate: 1})
	b.is("none", err)
	for range 2 {
		slow, err = b.cancelJob(b.Context(), slow.ID)
		b.is("none", err)
		equal(b, "canceled", slow.Status, engine.JobCanceled)
	}
	b.done(api.NewJob{Kind: engine.JobResume, Filter: filter})

	signal := api.NewJob{Kind: engine.JobSignal, Filter: filter, Args: engine.JobArgs{Name: "go", Payload: json.RawMessage(`{"n": 1.50}`)}, IdempotencyKey: b.prefix + "once"}
	first := b.done(signal)
	equal(b, "signal", jobCounts(first), "done 3 3 0 0")
	again, err := b.startJob(b.Context(), signal)
	b.is("none", err)
	equal(b, "again", again.ID, first.ID)
	signal.Args.Name = "other"
	_, err = b.startJob(b.Context(), signal)
	b.is(api.CodeConflict, err)
	in, err := b.wait(b.Context(), b.ref("j2"))
	b.is("none", err)
	equal(b, "ended with", compact(b, in.Result), `{"n":1.50}`)

	seen := pages(b, 2, func(cursor string) (api.Page[api.Job], error) {
		return b.jobs(b.Context(), api.JobsRequest{Limit: 2, Cursor: cursor})
	})
	own := 0
	for _, j := range seen {
		if j.Filter.CorrelationPrefix == filter.CorrelationPrefix {
			own++
		}
	}
	if own < 5 {
		b.Errorf("%d of this test among %d jobs", own, len(seen))
	}
	_, err = b.cancelJob(b.Context(), first.ID)
	b.is(api.CodeConflict, err)
	for _, ask := range []func(context.Context, uuid.UUID) (api.Job, error){b.job, b.cancelJob} {
		_, err = ask(b.Context(), uuid.Must(uuid.NewV7()))
		b.is(api.CodeNotFound, err)
	}
	_, err = b.startJob(b.Context(), api.NewJob{Kind: engine.JobRetry, Filter: engine.Filter{Machine: "visitor", Status: engine.StatusAwaiting}})
	b.is(api.CodeInvalid, err)
	_, err = b.startJob(b.Context(), api.NewJob{Kind: engine.JobSignal, Filter: filter, Args: engine.JobArgs{Name: ".no name", Payload: json.RawMessage(`1`)}})
	b.is(api.CodeInvalid, err)
}

// A cancel of many with their children is over when what is below them has ended too.
func testFamilies(b *bundle) {
	for _, key := range []string{"f", "g"} {
		b.beginOf("parent", key, `1`)
		for _, child := range []string{"1", "2"} {
			b.becomes(key+child, engine.StatusAwaiting)
		}
	}
	j := b.done(api.NewJob{Kind: engine.JobCancel, Filter: engine.Filter{Machine: "parent", CorrelationPrefix: b.prefix}, Args: engine.JobArgs{Reason: "enough", Children: true}})
	equal(b, "cancel", jobCounts(j), "done 2 2 0 0")
	for _, key := range []string{"f", "f1", "f2", "g", "g1", "g2"} {
		in, err := b.get(b.Context(), b.ref(key))
		b.is("none", err)
		equal(b, key, words(in.Status, *in.LastError), "canceled enough")
	}
}
