package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func triggersCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "triggers", Short: "Wait for events by their keys, and send them", Args: args(cobra.NoArgs),
		Long: `A trigger is a durable wait for an event with a key. One trigger of a project waits with a key at a time; it receives its event, times out,
or is canceled, whichever comes first.`,
		Example: "  pointsman triggers list --status waiting\n  pointsman triggers send approval:order-789 '{\"approved\": true}'",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(triggersListCommand(o), triggersGetCommand(o), triggersCreateCommand(o), triggersSendCommand(o), triggersCancelCommand(o), triggersPurgeCommand(o), triggersStatsCommand(o))
	return c
}

func triggersListCommand(o *options) *cobra.Command {
	n := o.connection()
	var p paging
	var request api.TriggersRequest
	c := &cobra.Command{
		Use: "list", Short: "List triggers, the latest first",
		Long:    "list shows the triggers of the project, the latest first; flags say which.",
		Example: "  pointsman triggers list --status waiting\n  pointsman triggers list --source job_run --limit 10 --json",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.check(c); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				page, err := collect(p, func(limit int, cursor string) (page api.Page[api.Trigger], err error) {
					request.Limit, request.Cursor = limit, cursor
					err = s.ask(ctx, natsapi.VerbTriggers, request, &page)
					return page, err
				})
				if err != nil {
					return err
				}
				return show(s, page, triggersTable)
			})
		},
	}
	c.Flags().StringVar(&request.Status, "status", "", "waiting, received, timed_out or canceled")
	c.Flags().StringVar(&request.SourceType, "source", "", "api, job_run or workflow_step")
	c.Flags().StringVar(&request.WorkflowRunID, "instance", "", "that this instance waits for; its id")
	p.add(c)
	statuses := []string{"waiting", "received", "timed_out", "canceled"}
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	return n.add(c)
}

func triggersTable(items []api.Trigger) *table {
	t := newTable("KEY", "STATUS", "SOURCE", "INSTANCE", "REQUESTED", "EXPIRES", "PAYLOAD")
	for _, g := range items {
		t.add(short(g.EventKey, 60), string(g.Status), g.Source, text(g.InstanceID), clock(g.RequestedAt), clock(g.ExpiresAt), short(document(g.ResponsePayload), 60))
	}
	return t
}

// showTrigger shows one.
func (s *session) showTrigger(g api.Trigger) error {
	if s.json {
		return s.document(s.out, g)
	}
	t := newTable()
	t.pair("key", g.EventKey)
	t.pair("status", string(g.Status))
	t.pair("error", text(g.Error))
	t.pair("source", g.Source)
	t.pair("type", g.Type)
	t.pair("instance", text(g.InstanceID))
	t.pair("step", text(g.Step))
	t.pair("requested", clock(g.RequestedAt))
	t.pair("expires", clock(g.ExpiresAt))
	t.pair("received", clockOf(g.ReceivedAt))
	t.pair("sent by", text(g.SentBy))
	t.pair("request", document(g.RequestPayload))
	t.pair("payload", document(g.ResponsePayload))
	t.pair("webhook", text(g.NotifyURL))
	t.pair("delivery", text(g.NotifyStatus))
	return s.print(s.out, t)
}

// triggerCommand completes a command whose request is a key and that shows the trigger.
func triggerCommand(o *options, verb string, c *cobra.Command) *cobra.Command {
	return triggerCommandOr(o, verb, c, func(context.Context, *session, string) (bool, error) { return false, nil })
}

// triggerCommandOr is triggerCommand, unless instead does it.
func triggerCommandOr(o *options, verb string, c *cobra.Command, instead func(ctx context.Context, s *session, key string) (done bool, err error)) *cobra.Command {
	n := o.connection()
	c.Args, c.ValidArgsFunction = args(cobra.ExactArgs(1)), cobra.NoFileCompletions
	c.RunE = func(c *cobra.Command, args []string) error {
		return n.run(c, func(ctx context.Context, s *session) error {
			if done, err := instead(ctx, s, args[0]); done || err != nil {
				return err
			}
			var g api.Trigger
			if err := s.ask(ctx, verb, api.TriggerRequest{EventKey: args[0]}, &g); err != nil {
				return err
			}
			return s.showTrigger(g)
		})
	}
	return n.add(c)
}

func triggersGetCommand(o *options) *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "get KEY", Short: "Show the trigger that waits with a key, or else the last one that did",
		Long: `get shows the trigger that waits with the key, or else the last one that did. With --watch it shows it in a line, again when it has ended, and
ends then.`,
		Example: "  pointsman triggers get approval:order-789\n  pointsman triggers get approval:order-789 --watch\n  pointsman triggers get approval:order-789 --json | jq .response_payload",
	}
	c.Flags().BoolVar(&watch, "watch", false, "show it until it has ended")
	return triggerCommandOr(o, natsapi.VerbTrigger, c, func(ctx context.Context, s *session, key string) (bool, error) {
		if !watch {
			return false, nil
		}
		return true, s.watchTrigger(ctx, key)
	})
}

// watchTrigger shows a trigger each time it has changed.
func (s *session) watchTrigger(ctx context.Context, key string) error {
	var last api.Trigger
	for g, err := range s.triggerStates(ctx, key) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if g.ID == last.ID && g.Status == last.Status {
			continue
		}
		last = g
		if err := s.changeOfTrigger(g); err != nil {
			return err
		}
	}
	return nil
}

// triggerStates are those of a trigger, to its end: as a bridge tells them over HTTP, or as it says when it is asked again and again over NATS.
func (s *session) triggerStates(ctx context.Context, key string) iter.Seq2[api.Trigger, error] {
	if s.http != nil {
		c, err := client.New(client.Config{URL: s.http.URL, Token: s.http.Token, Project: s.http.Project})
		if err != nil {
			return func(yield func(api.Trigger, error) bool) { yield(api.Trigger{}, err) }
		}
		return c.WatchTrigger(ctx, key)
	}
	return func(yield func(api.Trigger, error) bool) {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			var g api.Trigger
			err := s.ask(ctx, natsapi.VerbTrigger, api.TriggerRequest{EventKey: key}, &g)
			if !yield(g, err) || err != nil || g.Ended() {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// changeOfTrigger shows one state of a watched trigger in a line.
func (s *session) changeOfTrigger(g api.Trigger) error {
	if s.json {
		return s.another(s.out, g)
	}
	line := fmt.Sprintf("%s  %-9s %s", clock(g.RequestedAt), g.Status, g.EventKey)
	if g.Ended() {
		line += " " + document(g.ResponsePayload) + text(g.Error)
	} else {
		line += ", expires " + clock(g.ExpiresAt)
	}
	_, err := fmt.Fprintln(s.out, oneLine(line))
	return err
}

func triggersCancelCommand(o *options) *cobra.Command {
	return triggerCommand(o, natsapi.VerbTriggersCancel, &cobra.Command{
		Use: "cancel KEY", Short: "Cancel the trigger that waits with a key",
		Long:    "cancel ends the wait for an event; an instance that awaits it is woken and told so. One that has received its event, or timed out, is a\nconflict.",
		Example: "  pointsman triggers cancel approval:order-789",
	})
}

func triggersCreateCommand(o *options) *cobra.Command {
	n := o.connection()
	var request api.WaitRequest
	var timeout time.Duration
	var payload string
	c := &cobra.Command{
		Use: "create KEY", Short: "Wait for an event",
		Long: `create makes a trigger: a durable wait for the event with this key. With --instance the event goes into the inbox of that instance. A key that
another trigger waits with is a conflict; it can be used again when that has ended.`,
		Example: "  pointsman triggers create approval:order-789 --timeout 2h\n  pointsman triggers create approval:order-789 --instance key:order-789 --request '{\"amount\": 5}'",
		Args:    args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			request.EventKey = args[0]
			if c.Flags().Changed("timeout") {
				if timeout < time.Second || timeout%time.Second != 0 {
					return usage(c, fmt.Errorf("--timeout %s: want whole seconds, 1s or more", timeout))
				}
				secs := int64(timeout / time.Second)
				request.TimeoutSecs = &secs
			}
			if payload != "" {
				var err error
				if request.RequestPayload, err = documentArg(c, []string{payload}, 0, "--request"); err != nil {
					return err
				}
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				var g api.Trigger
				var err error
				if request.Ref != "" {
					err = s.ask(ctx, natsapi.VerbTriggersWait, request, &g)
				} else {
					err = s.ask(ctx, natsapi.VerbTriggersCreate, request.NewTrigger, &g)
				}
				if err != nil {
					return err
				}
				return s.showTrigger(g)
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "how long it waits")
	c.Flags().StringVar(&request.Ref, "instance", "", "who waits: an instance id, or key:<correlation key>")
	c.Flags().StringVar(&request.NotifyURL, "notify-url", "", "gets a webhook when the event arrives")
	c.Flags().StringVar(&payload, "request", "", "JSON that is shown with the trigger, @FILE or -")
	return n.add(c)
}

func triggersSendCommand(o *options) *cobra.Command {
	n := o.connection()
	var hold string
	var prefix bool
	c := &cobra.Command{
		Use: "send KEY [PAYLOAD]", Short: "Send an event to the trigger that waits with a key",
		Long: `send gives an event to the trigger that waits with the key. PAYLOAD is JSON, @FILE or -; without it the payload is null. To send the same again
is no harm; another payload is a conflict. With --hold an event that nobody waits for yet is kept. With --prefix every trigger that waits with
a key that begins with KEY gets the event; it can be interrupted and run again: each gets it once.`,
		Example: "  pointsman triggers send approval:order-789 '{\"approved\": true}'\n  pointsman triggers send approval:order-789 true --hold 1h\n  pointsman triggers send batch-job:run-42: '{\"status\": \"done\"}' --prefix",
		Args:    args(cobra.RangeArgs(1, 2)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			payload, err := documentArg(c, args, 1, "PAYLOAD")
			if err != nil {
				return err
			}
			if err := oneOf(c, "hold", "prefix"); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				if prefix {
					return s.sendPrefix(ctx, api.SendPrefixRequest{Prefix: args[0], Payload: payload})
				}
				return s.sendEvent(ctx, api.SendRequest{EventKey: args[0], Payload: payload, Hold: hold})
			})
		},
	}
	c.Flags().StringVar(&hold, "hold", "", "keep it so long where nobody waits for it yet, as 1h")
	c.Flags().BoolVar(&prefix, "prefix", false, "to all keys that begin with KEY")
	return n.add(c)
}

func (s *session) sendEvent(ctx context.Context, request api.SendRequest) error {
	var answer json.RawMessage
	if err := s.ask(ctx, natsapi.VerbSend, request, &answer); err != nil {
		return err
	}
	var held api.HeldEvent
	if err := json.Unmarshal(answer, &held); err != nil {
		return err
	}
	if held.Result != "" {
		if s.json {
			return s.document(s.out, held)
		}
		_, err := fmt.Fprintf(s.out, "held until %s\n", clock(held.HeldUntil))
		return err
	}
	var g api.Trigger
	if err := json.Unmarshal(answer, &g); err != nil {
		return err
	}
	return s.showTrigger(g)
}

func (s *session) sendPrefix(ctx context.Context, request api.SendPrefixRequest) error {
	var sent api.SentToPrefix
	if err := s.askFor(ctx, requestTimeout+api.MaxWait, natsapi.VerbTriggersPrefix, request, &sent); err != nil {
		return err
	}
	if s.json {
		return s.document(s.out, sent)
	}
	_, err := fmt.Fprintf(s.out, "%d triggers have received it\n", sent.Count)
	return err
}

// purgeCommand is triggers purge, by its short name.
func purgeCommand(o *options) *cobra.Command {
	c := triggersPurgeCommand(o)
	c.Example = "  pointsman purge --older-than 30 --dry-run\n  pointsman purge --older-than 30"
	return c
}

func triggersPurgeCommand(o *options) *cobra.Command {
	n := o.connection()
	var request api.PurgeRequest
	days := 0
	c := &cobra.Command{
		Use: "purge", Short: "Delete triggers that have ended",
		Long:    "purge deletes the triggers that ended so many days ago. What waits stays. Workers do so by themselves after retention.triggers.",
		Example: "  pointsman triggers purge --older-than 30 --dry-run\n  pointsman triggers purge --older-than 30",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("older-than") {
				return usage(c, fmt.Errorf("--older-than is missing: want the age in days; 0 means all that have ended"))
			}
			request.OlderThanDays = &days
			return n.run(c, func(ctx context.Context, s *session) error {
				var purged api.Purged
				if err := s.askFor(ctx, requestTimeout+api.MaxWait, natsapi.VerbTriggersPurge, request, &purged); err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, purged)
				}
				what := "deleted"
				if purged.DryRun {
					what = "would be deleted"
				}
				_, err := fmt.Fprintf(s.out, "%d triggers %s\n", purged.Count, what)
				return err
			})
		},
	}
	c.Flags().IntVar(&days, "older-than", 0, "days since their end; 0: all that have ended")
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "delete nothing, and say how many it would")
	return n.add(c)
}

func triggersStatsCommand(o *options) *cobra.Command {
	n := o.connection()
	c := &cobra.Command{
		Use: "stats", Short: "Count triggers by their status",
		Long:    "stats counts the triggers of the project by their status, each up to 100,000.",
		Example: "  pointsman triggers stats\n  pointsman triggers stats --json",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			return n.run(c, func(ctx context.Context, s *session) error {
				var stats engine.TriggerStats
				if err := s.ask(ctx, natsapi.VerbTriggersStats, api.TriggerStatsRequest{}, &stats); err != nil {
					return err
				}
				if s.json {
					return s.document(s.out, stats)
				}
				t := newTable()
				t.add("waiting", fmt.Sprint(stats.Waiting))
				t.add("received", fmt.Sprint(stats.Received))
				t.add("timed out", fmt.Sprint(stats.TimedOut))
				t.add("canceled", fmt.Sprint(stats.Canceled))
				return s.print(s.out, t)
			})
		},
	}
	return n.add(c)
}
