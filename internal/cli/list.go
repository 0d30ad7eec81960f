package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// paging are the flags of a list.
type paging struct {
	limit  int
	cursor string
}

func (p *paging) add(c *cobra.Command) {
	c.Flags().IntVar(&p.limit, "limit", api.DefaultLimit, "how many at most")
	c.Flags().StringVar(&p.cursor, "cursor", "", "where to go on: next_cursor of --json")
}

func (p *paging) check(c *cobra.Command) error {
	if p.limit < 1 {
		return usage(c, fmt.Errorf("--limit %d: want 1 or more", p.limit))
	}
	return nil
}

// collect asks for pages until there are as many as asked for: one page may be short, even empty, and have a next one.
func collect[T any](p paging, fetch func(limit int, cursor string) (api.Page[T], error)) (api.Page[T], error) {
	all := api.Page[T]{Items: []T{}, NextCursor: &p.cursor}
	for all.NextCursor != nil && len(all.Items) < p.limit {
		page, err := fetch(min(p.limit-len(all.Items), api.MaxLimit), *all.NextCursor)
		if err != nil {
			return all, err
		}
		all.Items, all.NextCursor = append(all.Items, page.Items...), page.NextCursor
	}
	return all, nil
}

// show a page as a table, or JSON.
func show[T any](s *session, page api.Page[T], rows func(items []T) *table) error {
	return s.answer(answer{page, rows(page.Items), page.NextCursor != nil})
}

func listCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	var request api.ListRequest
	var w watching
	c := &cobra.Command{
		Use: "list", Short: "List instances, newest first",
		Long: "list shows the instances of the project, the newest first; flags say which.",
		Example: `  pointsman list
  pointsman list --status failed --machine order --limit 10
  pointsman list --prefix order-10 --json
  pointsman list --status awaiting_signal --watch`,
		Args: args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(p.check(c), w.check(c)); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				return s.present(ctx, w, func(ctx context.Context) (answer, error) {
					page, err := collect(p, func(limit int, cursor string) (page api.Page[api.Instance], err error) {
						request.Limit, request.Cursor = limit, cursor
						err = s.ask(ctx, natsapi.VerbList, request, &page)
						return page, err
					})
					return answer{page, instancesTable(page.Items), page.NextCursor != nil}, err
				})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&request.Machine, "machine", "", "of this machine")
	f.StringVar((*string)(&request.Status), "status", "", "runnable, executing, awaiting_signal, done, failed or canceled")
	f.StringVar(&request.Queue, "queue", "", "in this queue")
	f.StringVar(&request.CorrelationKey, "key", "", "with this correlation key, the ended ones too")
	f.StringVar(&request.CorrelationPrefix, "prefix", "", "with a correlation key that begins so")
	w.add(c)
	p.add(c)
	n.flag(c, "machine", machineNames)
	n.flag(c, "queue", queueNames)
	names := make([]string, len(statuses))
	for i, status := range statuses {
		names[i] = string(status)
	}
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	return n.add(c)
}

func instancesTable(items []api.Instance) *table {
	t := newTable("ID", "KEY", "MACHINE", "STATUS", "STEP", "INBOX", "UPDATED")
	for _, in := range items {
		t.add(in.ID, short(text(in.CorrelationKey), 40), fmt.Sprintf("%s@%d", in.Machine, in.Version), statusOf(in), in.Step, fmt.Sprint(in.InboxCount), clock(in.UpdatedAt))
	}
	return t
}

func inboxCommand(o *options) *cobra.Command {
	return pageCommand(o, natsapi.VerbInbox, func(items []api.Signal) *table {
		t := newTable("ID", "KIND", "NAME", "DEDUP KEY", "RECEIVED", "PAYLOAD")
		for _, s := range items {
			t.add(fmt.Sprint(s.ID), s.Kind, s.Name, short(text(s.DedupKey), 40), clock(s.InsertedAt), short(string(s.Payload), 80))
		}
		return t
	}, &cobra.Command{
		Use: "inbox REF", Short: "Show the signals that an instance has received and not consumed",
		Long:    "inbox shows the signals that wait, in the order of arrival. REF is an instance id, or key:<correlation key>.",
		Example: "  pointsman inbox key:order-1001\n  pointsman inbox key:order-1001 --json | jq '.items[].payload'",
	})
}

func historyCommand(o *options) *cobra.Command {
	return pageCommand(o, natsapi.VerbHistory, func(items []engine.Transition) *table {
		t := newTable("REV", "STEP", "OUTCOME", "ATTEMPT", "AT", "CONSUMED")
		for _, h := range items {
			consumed := ""
			if len(h.Consumed) > 0 {
				consumed = fmt.Sprint(h.Consumed)
			}
			t.add(fmt.Sprint(h.Rev), h.Step, h.Outcome, fmt.Sprint(h.Attempt), clock(h.At), consumed)
		}
		return t
	}, &cobra.Command{
		Use: "history REF", Short: "Show the steps that an instance has run, the latest first",
		Long:    "history shows each execution of a step with its outcome and the ids of the signals that it consumed, and each cancel, retry, pause and resume,\nthe latest first. REF is an instance id, or key:<correlation key>.",
		Example: "  pointsman history key:order-1001\n  pointsman history key:order-1001 --limit 1 --json",
	})
}

// pageCommand completes a command that shows a list of what belongs to an instance.
func pageCommand[T any](o *options, verb string, rows func([]T) *table, c *cobra.Command) *cobra.Command {
	n := o.connection()
	var p paging
	c.Args, c.ValidArgsFunction = args(cobra.ExactArgs(1)), cobra.NoFileCompletions
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := p.check(c); err != nil {
			return err
		}
		return n.run(c, func(ctx context.Context, s *session) error {
			page, err := collect(p, func(limit int, cursor string) (page api.Page[T], err error) {
				err = s.ask(ctx, verb, api.PageRequest{Ref: args[0], Limit: limit, Cursor: cursor}, &page)
				return page, err
			})
			if err != nil {
				return err
			}
			return show(s, page, rows)
		})
	}
	p.add(c)
	return n.add(c)
}
