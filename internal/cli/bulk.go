package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// bulk are the flags of a command that may be for many instances.
type bulk struct {
	kind         engine.JobKind
	filter       engine.Filter
	from, before string
	all          bool
	dryRun       bool
	rate         int
	wait         bool
	yes          bool
	idempotency  string
}

const bulkHelp = `

With --all it is for all instances that the other flags say, as a job of the bridges: it goes on when this command ends, and when a bridge
does. Without --yes it is shown how many these are first. "pointsman jobs" shows what became of it.`

// bulkFlags are those that only go with --all.
var bulkFlags = []string{"machine", "machine-version", "status", "queue", "prefix", "inserted-from", "inserted-before", "dry-run", "rate", "wait", "yes", "idempotency-key"}

func (b *bulk) add(c *cobra.Command) {
	c.Long += bulkHelp
	f := c.Flags()
	f.BoolVar(&b.all, "all", false, "all instances of the project that these flags say:")
	f.StringVar(&b.filter.Machine, "machine", "", "with --all: of this machine")
	f.IntVar(&b.filter.Version, "machine-version", 0, "with --all: of this version of the machine")
	f.StringVar((*string)(&b.filter.Status), "status", "", "with --all: that have this status")
	f.StringVar(&b.filter.Queue, "queue", "", "with --all: in this queue")
	f.StringVar(&b.filter.CorrelationPrefix, "prefix", "", "with --all: with a correlation key that begins so")
	f.StringVar(&b.from, "inserted-from", "", "with --all: started then or later; RFC 3339, or how long ago, as 24h")
	f.StringVar(&b.before, "inserted-before", "", "with --all: started before then")
	f.BoolVar(&b.dryRun, "dry-run", false, "with --all: only say how many")
	f.IntVar(&b.rate, "rate", 0, "with --all: instances a second at most (default: as many as go)")
	f.BoolVar(&b.wait, "wait", false, "with --all: wait for the end of the job, and show how far it has come")
	f.BoolVar(&b.yes, "yes", false, "with --all: do not show how many first")
	f.StringVar(&b.idempotency, "idempotency-key", "", "with --all: a second request with the same one is the same job")
	statuses := []string{"runnable", "executing", "awaiting_signal"}
	if b.kind == engine.JobRetry {
		statuses = []string{"failed", "canceled"}
	}
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
}

// args checks that there is a REF before these, or --all.
func (b *bulk) args(c *cobra.Command, given, least, most int) error {
	switch {
	case b.all && (given < least || given > most):
		return usage(c, fmt.Errorf("%d arguments: with --all there is no REF", given))
	case !b.all && (given < least+1 || given > most+1):
		return usage(c, errors.New("want a REF, or --all with what says which instances"))
	case !b.all:
		for _, name := range bulkFlags {
			if c.Flags().Changed(name) {
				return usage(c, fmt.Errorf("--%s goes with --all", name))
			}
		}
	}
	return nil
}

// request is the job that the flags ask for.
func (b *bulk) request(c *cobra.Command, args engine.JobArgs) (api.NewJob, error) {
	r := api.NewJob{Kind: b.kind, Filter: b.filter, Args: args, Rate: b.rate, DryRun: b.dryRun}
	for _, t := range []struct {
		name, text string
		into       **time.Time
	}{{"inserted-from", b.from, &r.Filter.InsertedFrom}, {"inserted-before", b.before, &r.Filter.InsertedBefore}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if ago, e := time.ParseDuration(t.text); e == nil && ago >= 0 {
			at, err = time.Now().Add(-ago), nil
		}
		if err != nil {
			return r, usage(c, fmt.Errorf("--%s %q: want a time, as 2030-01-02T15:04:05Z, or how long ago, as 24h", t.name, t.text))
		}
		*t.into = &at
	}
	r.All = !slices.ContainsFunc([]string{"machine", "machine-version", "status", "queue", "prefix", "inserted-from", "inserted-before"}, c.Flags().Changed)
	return r, nil
}

// run asks for the job, once it is known how many instances it is for.
func (b *bulk) run(c *cobra.Command, n *connection, args engine.JobArgs) error {
	request, err := b.request(c, args)
	if err != nil {
		return err
	}
	return n.run(c, func(ctx context.Context, s *session) error {
		if b.dryRun || !b.yes {
			total, err := s.countFirst(ctx, request)
			if err != nil || b.dryRun {
				return err
			}
			if total == 0 {
				return nil
			}
			if err := confirm(s.errOut, c.InOrStdin(), fmt.Sprintf("%s all of them?", b.kind), "nothing is done"); err != nil {
				return err
			}
		}
		var j api.Job
		request.IdempotencyKey = b.idempotency
		if err := s.ask(ctx, natsapi.VerbJobsStart, request, &j); err != nil {
			return err
		}
		if b.wait {
			return s.awaitJob(ctx, j)
		}
		if s.json {
			return s.document(s.out, j)
		}
		_, err := fmt.Fprintf(s.out, "job %s is running: pointsman jobs get %s --wait\n", j.ID, j.ID)
		return err
	})
}

// countFirst does the dry run of a job, and shows what it came to.
func (s *session) countFirst(ctx context.Context, request api.NewJob) (total int64, err error) {
	asked := request.DryRun
	request.DryRun = true
	var j api.Job
	if err := s.ask(ctx, natsapi.VerbJobsStart, request, &j); err != nil {
		return 0, err
	}
	if j, err = s.followJob(ctx, j, func(api.Job) {}); err != nil {
		return 0, err
	}
	if j.Status != engine.JobDone {
		return 0, fmt.Errorf("the dry run is %s: %s", j.Status, j.Error)
	}
	if asked && s.json {
		return j.Total, s.document(s.out, j)
	}
	w := s.errOut
	if asked {
		w = s.out
	}
	_, err = fmt.Fprintf(w, "%d instances match\n", j.Total)
	return j.Total, err
}

// jobPoll is how often it is looked how far a job has come.
const jobPoll = 300 * time.Millisecond

// followJob shows a job until it has ended.
func (s *session) followJob(ctx context.Context, j api.Job, see func(api.Job)) (api.Job, error) {
	tick := time.NewTicker(jobPoll)
	defer tick.Stop()
	for {
		see(j)
		if j.Status != engine.JobRunning {
			return j, nil
		}
		select {
		case <-ctx.Done():
			return j, fmt.Errorf("job %s goes on: pointsman jobs cancel %s ends it", j.ID, j.ID)
		case <-tick.C:
		}
		if err := s.ask(ctx, natsapi.VerbJob, api.JobRequest{ID: j.ID.String()}, &j); err != nil && ctx.Err() == nil {
			return j, err
		}
	}
}

// awaitJob shows how far a job comes, on a terminal, and what became of it. The error says that it has not been done for all.
func (s *session) awaitJob(ctx context.Context, j api.Job) error {
	see, end := func(api.Job) {}, func() {}
	if f, ok := s.errOut.(*os.File); ok && cwriter.IsTerminal(int(f.Fd())) && !s.json {
		see, end = progress(f)
	}
	j, err := s.followJob(ctx, j, see)
	end()
	if err != nil {
		return err
	}
	if err := s.showJob(j); err != nil {
		return err
	}
	if j.Status != engine.JobDone || j.Failed > 0 {
		return fmt.Errorf("the job is %s, and has failed for %d instances", j.Status, j.Failed)
	}
	return nil
}

// progress is a bar.
func progress(f *os.File) (see func(api.Job), end func()) {
	bars := mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))
	bar := bars.AddBar(0, mpb.AppendDecorators(decor.CountersNoUnit("%d / %d"), decor.Name(" "), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "")))
	see = func(j api.Job) {
		bar.SetTotal(max(j.Total, 1), false)
		bar.SetCurrent(j.Done + j.Failed + j.Skipped)
	}
	end = func() {
		bar.Abort(false)
		bars.Wait()
	}
	return see, end
}
