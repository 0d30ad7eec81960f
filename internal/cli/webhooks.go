package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func webhooksCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "webhooks", Short: "Look at webhooks, and have failed ones sent again",
		Long:    "webhooks are about what was told, or is to be told, to the notify_url of instances and triggers.",
		Example: "  pointsman webhooks list --status failed\n  pointsman webhooks retry --all",
		Args:    args(cobra.NoArgs), RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(webhooksListCommand(o), webhooksShowCommand(o), webhooksRetryCommand(o))
	return c
}

func webhooksListCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	var status string
	c := &cobra.Command{
		Use: "list", Short: "List webhooks, newest first",
		Long: "list shows the webhooks of the project, the newest first, with what came of the last attempt to send each.",
		Example: `  pointsman webhooks list
  pointsman webhooks list --status failed --limit 200
  pointsman webhooks list --status failed --json | jq -r '.items[].id'`,
		Args: args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.check(c); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				page, err := collect(p, func(limit int, cursor string) (page api.Page[api.WebhookDelivery], err error) {
					err = s.ask(ctx, natsapi.VerbWebhooks, api.WebhooksRequest{Status: status, Limit: limit, Cursor: cursor}, &page)
					return page, err
				})
				if err != nil {
					return err
				}
				return show(s, page, webhooksTable)
			})
		},
	}
	c.Flags().StringVar(&status, "status", "", "pending, delivered or failed (default: all)")
	p.add(c)
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"pending", "delivered", "failed"}, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	return n.add(c)
}

func webhooksTable(items []api.WebhookDelivery) *table {
	t := newTable("ID", "STATUS", "ATTEMPTS", "TYPE", "URL", "CREATED", "LAST ERROR")
	for _, d := range items {
		t.add(d.ID, d.Status, fmt.Sprint(d.Attempts), d.Type, short(d.URL, 60), clock(d.CreatedAt), short(text(d.LastError), 100))
	}
	return t
}

func webhooksShowCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "show ID", Short: "Show a webhook with its body",
		Long:    "show prints what is known of a webhook: what came of the last attempt, the beginning of the answer, and the body.",
		Example: "  pointsman webhooks show 019f8a3e-7c55-7f0e-8d3a-2f1b6a9c4e10",
		Args:    args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			return n.run(c, func(ctx context.Context, s *session) error {
				var d api.WebhookDelivery
				if err := s.ask(ctx, natsapi.VerbWebhook, api.WebhookRequest{ID: args[0]}, &d); err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, d)
				}
				t := newTable()
				t.pair("id", d.ID)
				t.pair("project", d.Project)
				t.pair("status", d.Status)
				t.pair("attempts", fmt.Sprint(d.Attempts))
				t.pair("of", d.Source+" "+d.SourceID)
				t.pair("url", d.URL)
				t.pair("type", d.Type)
				t.pair("last status", text(d.LastStatus))
				t.pair("last error", text(d.LastError))
				t.pair("last response", text(d.LastResponse))
				t.pair("created", clock(d.CreatedAt))
				t.pair("updated", clock(d.UpdatedAt))
				t.pair("next attempt", clockOf(d.NextAt))
				t.pair("body", document(d.Body))
				return s.print(s.out, t)
			})
		},
	}
	return n.add(c)
}

func webhooksRetryCommand(o *options) *cobra.Command {
	n := o.connection()
	var all bool
	var host string
	c := &cobra.Command{
		Use: "retry [ID...]", Short: "Have failed webhooks sent again",
		Long: `retry has webhooks sent again that have failed: at once, under the same ids, with all their attempts before them. With --all it is those
that have failed until now, with --host only those for one host. It can be interrupted and run again at any time.`,
		Example: `  pointsman webhooks retry 019f8a3e-7c55-7f0e-8d3a-2f1b6a9c4e10
  pointsman webhooks retry --all
  pointsman webhooks retry --all --host hooks.example.com`,
		Args: args(cobra.ArbitraryArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return usage(c, errors.New("want ids, or --all"))
			case host != "" && !all:
				return usage(c, errors.New("--host goes with --all"))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				out := webhooksRetried{Items: []api.WebhookResult{}}
				var err error
				if all {
					err = s.retryFailed(ctx, host, &out)
				} else {
					err = s.retryWebhooks(ctx, args, &out)
				}
				return errors.Join(out.report(s), err)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all that have failed")
	c.Flags().StringVar(&host, "host", "", "with --all: of these, those for this host, with its port where the URL has one")
	return n.add(c)
}

// webhooksRetried is what became of retries.
type webhooksRetried struct {
	Retried int                 `json:"retried"`
	Refused int                 `json:"refused"`
	Items   []api.WebhookResult `json:"items"` // those that were refused
}

// retryFailed walks from the newest to the oldest, so that it does not meet again what fails meanwhile.
func (s *session) retryFailed(ctx context.Context, host string, out *webhooksRetried) error {
	for request := (api.WebhooksRequest{Status: "failed", Limit: api.MaxLimit}); ; {
		var page api.Page[api.WebhookDelivery]
		if err := s.ask(ctx, natsapi.VerbWebhooks, request, &page); err != nil {
			return err
		}
		var ids []string
		for _, d := range page.Items {
			if u, err := url.Parse(d.URL); host == "" || err == nil && strings.EqualFold(u.Host, host) {
				ids = append(ids, d.ID)
			}
		}
		if err := s.retryWebhooks(ctx, ids, out); err != nil || page.NextCursor == nil {
			return err
		}
		request.Cursor = *page.NextCursor
	}
}

func (s *session) retryWebhooks(ctx context.Context, ids []string, out *webhooksRetried) error {
	if len(ids) == 0 {
		return nil
	}
	var answer api.WebhookResults
	if err := s.ask(ctx, natsapi.VerbWebhooksRetry, api.RetryWebhooksRequest{IDs: ids}, &answer); err != nil {
		return err
	}
	for _, r := range answer.Results {
		if r.Error == nil {
			out.Retried++
			continue
		}
		out.Refused++
		out.Items = append(out.Items, r)
	}
	return nil
}

func (r webhooksRetried) report(s *session) error {
	if s.json {
		if err := s.document(s.out, r); err != nil {
			return err
		}
	} else {
		for _, item := range r.Items {
			if _, err := fmt.Fprintf(s.errOut, "%s: %s\n", item.Error.Code, item.Error.Message); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(s.out, "%d webhooks are sent again\n", r.Retried); err != nil {
			return err
		}
	}
	if r.Refused > 0 {
		return fmt.Errorf("%d webhooks are not sent again", r.Refused)
	}
	return nil
}
