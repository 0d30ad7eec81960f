package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// watchInterval is how often a watched answer is asked for again.
const watchInterval = 250 * time.Millisecond

// target splits a reference into a key and an id, one of which is "".
func target(ref string) (key, id string) {
	if key, ok := strings.CutPrefix(ref, "key:"); ok {
		return key, ""
	}
	return "", ref
}

func getCommand(o *options) *cobra.Command {
	n := o.connection()
	var wait time.Duration
	var status string
	var watch bool
	c := &cobra.Command{
		Use: "get REF", Short: "Show an instance",
		Long: `get shows an instance: its status, step, state, what it awaits and until when. REF is its id, or key:<correlation key>, which is the
instance that has the key now, or else had it last.`,
		Example: `  pointsman get key:order-1001
  pointsman get key:order-1001 --wait 30s        until it has ended, 30 seconds at most
  pointsman get key:order-1001 --wait 30s --status awaiting_signal    until it waits, or has ended
  pointsman get key:order-1001 --watch           a line for each change, until it has ended
  pointsman get key:order-1001 --json | jq .state`,
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf(c, "wait", "watch"); err != nil {
				return err
			}
			if wait < 0 {
				return usage(c, fmt.Errorf("--wait %s: is negative", wait))
			}
			if status != "" && wait == 0 {
				return usage(c, errors.New("--status goes with --wait"))
			}
			if status != "" && !slices.Contains(statuses, engine.Status(status)) {
				return usage(c, fmt.Errorf("--status %s: want one of %q", status, statuses))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				if watch {
					return s.watch(ctx, args[0])
				}
				get := s.get
				if status != "" {
					get = s.await(engine.Status(status))
				}
				in, err := get(ctx, args[0], wait)
				if err != nil {
					return err
				}
				return s.show(in)
			})
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait for its end, at most this long")
	c.Flags().StringVar(&status, "status", "", "with --wait: until it has this status, or has ended")
	c.Flags().BoolVar(&watch, "watch", false, "show each change, until it has ended")
	return n.add(c)
}

// show an instance.
func (s *session) show(in api.Instance) error {
	if s.json {
		return s.document(s.out, in)
	}
	return s.print(s.out, instanceTable(in))
}

// get an instance, when it has ended or the time is up. A long wait takes several requests, and so does one that a bridge ends early
// because it stops.
func (s *session) get(ctx context.Context, ref string, wait time.Duration) (in api.Instance, err error) {
	for until := time.Now().Add(wait); ; wait = time.Until(until) {
		turn := min(wait, api.MaxWait)
		request := api.GetRequest{Ref: ref}
		if turn > 0 {
			request.Wait = turn.String()
		}
		in = api.Instance{}
		err = s.askFor(ctx, requestTimeout+turn, natsapi.VerbGet, request, &in)
		if err != nil || time.Until(until) <= 0 || in.FinishedAt != nil {
			return in, err
		}
		ref = in.ID // a key could be another's next
	}
}

// await is get for an instance that is to have a status: the answer is as soon as it has, or has ended, or the time is up.
func (s *session) await(status engine.Status) func(context.Context, string, time.Duration) (api.Instance, error) {
	return func(ctx context.Context, ref string, wait time.Duration) (in api.Instance, err error) {
		for until := time.Now().Add(wait); ; {
			in, err = s.get(ctx, ref, 0)
			if err != nil || in.Status == status || in.FinishedAt != nil || time.Now().After(until) {
				return in, err
			}
			ref = in.ID // a key could be another's next
			if err := idle(ctx, watchInterval); err != nil {
				return in, err
			}
		}
	}
}

// idle is for what is asked again and again.
func idle(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// watch shows an instance each time it has changed.
func (s *session) watch(ctx context.Context, ref string) error {
	last := ""
	for in, err := range s.states(ctx, ref) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if now := fmt.Sprintln(in.UpdatedAt, statusOf(in), in.InboxCount); now != last {
			last = now
			if err := s.change(in); err != nil {
				return err
			}
		}
	}
	return nil
}

// states are those of an instance, to its end: as a bridge tells them over HTTP, or as it says when it is asked again and again over NATS.
func (s *session) states(ctx context.Context, ref string) iter.Seq2[api.Instance, error] {
	if s.http == nil {
		return s.poll(ctx, ref)
	}
	c, err := client.New(client.Config{URL: s.http.URL, Token: s.http.Token, Project: s.http.Project})
	if err != nil {
		return func(yield func(api.Instance, error) bool) { yield(api.Instance{}, err) }
	}
	return c.Watch(ctx, client.ParseRef(ref))
}

func (s *session) poll(ctx context.Context, ref string) iter.Seq2[api.Instance, error] {
	return func(yield func(api.Instance, error) bool) {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			in, err := s.get(ctx, ref, 0)
			if !yield(in, err) || err != nil || in.FinishedAt != nil {
				return
			}
			ref = in.ID // a key could be another's next
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// change shows one state of a watched instance in a line.
func (s *session) change(in api.Instance) error {
	if s.json {
		return s.another(s.out, in)
	}
	line := fmt.Sprintf("%s  %-15s step %s", clock(in.UpdatedAt), statusOf(in), in.Step)
	if len(in.Awaits) > 0 {
		line += ", awaits " + strings.Join(in.Awaits, " ")
	}
	if in.InboxCount > 0 {
		line += fmt.Sprintf(", %d in the inbox", in.InboxCount)
	}
	if in.FinishedAt != nil {
		line += " " + document(in.Result) + text(in.LastError)
	}
	_, err := fmt.Fprintln(s.out, oneLine(line))
	return err
}

func instanceTable(in api.Instance) *table {
	t := newTable()
	t.add("id", in.ID)
	t.pair("key", text(in.CorrelationKey))
	t.pair("parent", text(in.ParentID))
	t.add("machine", fmt.Sprintf("%s, version %d", in.Machine, in.Version))
	t.add("status", statusOf(in))
	t.add("step", in.Step)
	if in.Attempt > 0 {
		t.add("attempt", fmt.Sprint(in.Attempt))
	}
	t.add("queue", in.Queue)
	t.pair("awaits", strings.Join(in.Awaits, " "))
	t.pair("deadline", clockOf(in.Deadline))
	t.pair("runs at", clockOf(in.RunAt))
	if in.Lease != nil {
		t.add("worker", fmt.Sprintf("%s, until %s", in.Lease.Worker, clock(in.Lease.ExpiresAt)))
	}
	if in.FinishedAt == nil {
		t.add("inbox", fmt.Sprint(in.InboxCount))
	}
	t.add("state", document(in.State))
	t.pair("result", document(in.Result))
	t.pair("last error", text(in.LastError))
	t.add("started", clock(in.InsertedAt))
	t.add("updated", clock(in.UpdatedAt))
	t.pair("finished", clockOf(in.FinishedAt))
	return t
}
