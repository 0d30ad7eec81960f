package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func jobsCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "jobs", Short: "See how far work on many instances has come, and end it",
		Long: `A job is work on all instances that a filter finds: cancel, retry, pause, resume and signal make one with --all. Bridges do it, in batches, each
in one transaction with its counts.`,
		Example: "  pointsman jobs list\n  pointsman jobs get 019f8a3e-7c55-7f0e-8d3a-2f1b6a9c4e10 --wait",
		Args:    args(cobra.NoArgs), RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(jobsListCommand(o), jobsGetCommand(o), jobsCancelCommand(o))
	return c
}

func jobsListCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	c := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long:    "list shows the jobs of the project, the newest first, dry runs too.",
		Example: "  pointsman jobs list\n  pointsman jobs list --limit 1 --json",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.check(c); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				page, err := collect(p, func(limit int, cursor string) (page api.Page[api.Job], err error) {
					err = s.ask(ctx, natsapi.VerbJobs, api.JobsRequest{Limit: limit, Cursor: cursor}, &page)
					return page, err
				})
				if err != nil {
					return err
				}
				return show(s, page, jobsTable)
			})
		},
	}
	p.add(c)
	return n.add(c)
}

func jobsTable(items []api.Job) *table {
	t := newTable("ID", "KIND", "STATUS", "TOTAL", "DONE", "FAILED", "SKIPPED", "CREATED")
	for _, j := range items {
		t.add(j.ID.String(), kindOf(j), string(j.Status), fmt.Sprint(j.Total), fmt.Sprint(j.Done), fmt.Sprint(j.Failed), fmt.Sprint(j.Skipped), clock(j.CreatedAt))
	}
	return t
}

func kindOf(j api.Job) string {
	if j.DryRun {
		return string(j.Kind) + ", dry run"
	}
	return string(j.Kind)
}

func jobsGetCommand(o *options) *cobra.Command {
	n := o.connection()
	var wait bool
	c := &cobra.Command{
		Use: "get ID", Short: "Show how far a job has come",
		Long: `get shows a job with its counts: of the instances that it found when it began, those for which it is done, has failed, or was skipped, as they
had changed by then so that they did not match any more. With --wait it ends when the job has, with exit status 1 where it has failed for any.`,
		Example: "  pointsman jobs get 019f8a3e-7c55-7f0e-8d3a-2f1b6a9c4e10\n  pointsman jobs get 019f8a3e-7c55-7f0e-8d3a-2f1b6a9c4e10 --wait",
		Args:    args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			return n.run(c, func(ctx context.Context, s *session) error {
				var j api.Job
				if err := s.ask(ctx, natsapi.VerbJob, api.JobRequest{ID: args[0]}, &j); err != nil {
					return err
				}
				if wait {
					return s.awaitJob(ctx, j)
				}
				return s.showJob(j)
			})
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait for its end")
	return n.add(c)
}

func jobsCancelCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "cancel ID", Short: "End a job",
		Long:    "cancel ends a job after the batch that is in work. What it has done stays so.",
		Example: "  pointsman jobs cancel 019f8a3e-7c55-7f0e-8d3a-2f1b6a9c4e10",
		Args:    args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			return n.run(c, func(ctx context.Context, s *session) error {
				var j api.Job
				if err := s.ask(ctx, natsapi.VerbJobsCancel, api.JobRequest{ID: args[0]}, &j); err != nil {
					return err
				}
				return s.showJob(j)
			})
		},
	}
	return n.add(c)
}

func (s *session) showJob(j api.Job) error {
	if s.json {
		return writeJSON(s.out, j)
	}
	t := newTable()
	t.pair("id", j.ID.String())
	t.pair("kind", kindOf(j))
	t.pair("status", string(j.Status))
	t.pair("error", j.Error)
	t.pair("total", fmt.Sprint(j.Total))
	t.pair("done", fmt.Sprint(j.Done))
	t.pair("failed", fmt.Sprint(j.Failed))
	t.pair("skipped", fmt.Sprint(j.Skipped))
	if j.Rate > 0 {
		t.pair("rate", fmt.Sprintf("%d a second", j.Rate))
	}
	t.pair("asked by", j.CreatedBy)
	t.pair("created", clock(j.CreatedAt))
	t.pair("ended", clockOf(j.EndedAt))
	for _, e := range j.Errors {
		t.add("failed for", e.InstanceID.String()+": "+short(e.Message, 200))
	}
	return t.write(s.out)
}
