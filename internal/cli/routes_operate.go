package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

func routesListCommand(o *options) *cobra.Command {
	n := o.connection()
	var w watching
	c := &cobra.Command{
		Use: "list", Short: "Show where the routes of a bridge stand",
		Long: `list shows the routes of the bridge that answers: who paused them, how many messages wait, how far they have come, and what is wrong. LAG
are the messages that are not acked; ACK PENDING are those of them that a bridge has in hand. THROTTLE is why this bridge reads nothing at
the moment, or slowly.`,
		Example: "  pointsman routes list\n  pointsman routes list --watch\n  pointsman routes list --json | jq '.items[] | select(.lag > 1000)'",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := w.check(c); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				return s.present(ctx, w, func(ctx context.Context) (answer, error) {
					routes, err := s.routes(ctx)
					return answer{document: routes, table: routesTable(routes.Items)}, err
				})
			})
		},
	}
	w.add(c)
	return n.add(c)
}

func (s *session) routes(ctx context.Context) (routes api.Routes, err error) {
	err = s.ask(ctx, natsapi.VerbRoutes, api.RoutesRequest{}, &routes)
	return routes, err
}

func routesTable(items []api.Route) *table {
	t := newTable("ROUTE", "STREAM", "SUBJECTS", "PAUSED BY", "LAG", "ACK PENDING", "REDELIVERED", "CHECKPOINT", "OWNER", "THROTTLE", "TROUBLE")
	for _, r := range items {
		t.add(r.Name, r.Stream, short(strings.Join(r.Subjects, " "), 40), strings.Join(r.PausedBy, ", "), text(r.Lag), text(r.AckPending), text(r.Redelivered), text(r.Checkpoint),
			short(text(r.Owner), 8), short(text(r.Throttle), 80), text(r.Trouble))
	}
	return t
}

func routesPauseCommand(o *options) *cobra.Command {
	return routePauseCommand(o, natsapi.VerbRoutesPause, &cobra.Command{
		Use: "pause ROUTE", Short: "Keep all bridges from reading a route",
		Long: `pause keeps all bridges from reading a route: within seconds they pull no more, and finish what they have in hand. The route stays paused,
also when bridges start anew, until it is resumed. Its consumer stays, and its messages wait in the stream, as long as that keeps them.`,
		Example: "  pointsman routes pause payments",
	})
}

func routesResumeCommand(o *options) *cobra.Command {
	return routePauseCommand(o, natsapi.VerbRoutesResume, &cobra.Command{
		Use: "resume ROUTE", Short: "Let bridges read a route again",
		Long:    `resume ends a pause. A route that the configuration pauses stays paused; the answer says so.`,
		Example: "  pointsman routes resume payments",
	})
}

func routePauseCommand(o *options, verb string, c *cobra.Command) *cobra.Command {
	n := o.connection()
	c.Args, c.ValidArgsFunction = args(cobra.ExactArgs(1)), n.first(routeNames)
	c.RunE = func(c *cobra.Command, args []string) error {
		return n.run(c, func(ctx context.Context, s *session) error {
			var p api.RoutePause
			if err := s.ask(ctx, verb, api.RouteRequest{Name: args[0]}, &p); err != nil {
				return err
			}
			if n.json {
				return s.document(s.out, p)
			}
			state := "resumed"
			if p.Paused {
				state = "paused by " + strings.Join(p.PausedBy, " and ")
			}
			_, err := fmt.Fprintf(s.out, "%s is %s\n", p.Name, state)
			return err
		})
	}
	return n.add(c)
}

func routesRewindCommand(o *options) *cobra.Command {
	n := o.connection()
	var to string
	var request api.RewindRequest
	limit := 0
	c := &cobra.Command{
		Use: "rewind ROUTE", Short: "Read a route again from a time or a sequence on",
		Long: `rewind makes a route read its stream again, from the first message of a time on, or from a sequence. What was taken in before is a duplicate
and changes nothing, so only what was not comes through: what was filtered or dropped, or could not be mapped, and now can be. A rewind never
skips messages, and is for streams that keep what was acked (retention: limits).

--dry-run reads the messages, maps them as the route is configured, looks up what is on record of each, and counts: new would be taken in,
duplicate were, filtered would be filtered or dropped, dead would be dead letters, those included that are. It changes nothing.`,
		Example: `  pointsman routes rewind payments --to-time 2026-03-01T12:00:00Z --dry-run
  pointsman routes rewind payments --to-time 90m
  pointsman routes rewind payments --to-seq 4711`,
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: n.first(routeNames),
		RunE: func(c *cobra.Command, args []string) error {
			request.Name = args[0]
			if err := placeOf(c, to, &request); err != nil {
				return err
			}
			if limit < 0 || limit > 0 && !request.DryRun {
				return usage(c, errors.New("--limit is of --dry-run: how many messages to read, from 1"))
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				if request.DryRun {
					return s.dryRun(ctx, request, limit)
				}
				var done api.Rewound
				if err := s.ask(ctx, natsapi.VerbRoutesRewind, request, &done); err != nil {
					return err
				}
				if n.json {
					return s.document(s.out, done)
				}
				_, err := fmt.Fprintf(s.out, "%s reads %s again from sequence %d on: %d messages\n", done.Name, done.Stream, done.FromSeq, done.Pending)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&to, "to-time", "", "a time as 2026-03-01T12:00:00Z, or how long ago, as 90m")
	f.Uint64Var(&request.ToSeq, "to-seq", 0, "the sequence of the first message to come again")
	f.BoolVar(&request.DryRun, "dry-run", false, "count what would become of the messages, and change nothing")
	f.IntVar(&limit, "limit", 0, "of --dry-run: read at most so many messages (default: all)")
	return n.add(c)
}

func placeOf(c *cobra.Command, to string, request *api.RewindRequest) error {
	if (to == "") == (request.ToSeq == 0) {
		return usage(c, errors.New("want --to-time or --to-seq"))
	}
	if to == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, to)
	if ago, e := time.ParseDuration(to); e == nil && ago >= 0 {
		at, err = time.Now().Add(-ago), nil
	}
	if err != nil {
		return usage(c, fmt.Errorf("--to-time %q: want a time as 2026-03-01T12:00:00Z, or how long ago, as 90m", to))
	}
	request.ToTime = &at
	return nil
}

// dryRun adds up what the bridge counts, piece by piece, up to what was the end at first.
func (s *session) dryRun(ctx context.Context, request api.RewindRequest, limit int) error {
	var sum api.RewindDryRun
	for {
		request.Limit = api.MaxDryRun
		if limit > 0 {
			request.Limit = min(api.MaxDryRun, limit-sum.Total)
		}
		var part api.RewindDryRun
		if err := s.ask(ctx, natsapi.VerbRoutesRewind, request, &part); err != nil {
			return err
		}
		sum.Total, sum.New, sum.Duplicate, sum.Filtered, sum.Dead = sum.Total+part.Total, sum.New+part.New, sum.Duplicate+part.Duplicate, sum.Filtered+part.Filtered, sum.Dead+part.Dead
		sum.NextSeq = part.NextSeq
		if request.UntilSeq == 0 {
			request.UntilSeq, sum.LastSeq = part.LastSeq, part.LastSeq
		}
		if part.NextSeq == nil || limit > 0 && sum.Total >= limit {
			break
		}
		request.ToTime, request.ToSeq = nil, *part.NextSeq
		_, _ = fmt.Fprintf(s.errOut, "%d messages, to sequence %d of %d\n", sum.Total, request.ToSeq-1, request.UntilSeq) // progress
	}
	if s.json {
		return s.document(s.out, sum)
	}
	t := newTable()
	for _, row := range []struct {
		name string
		n    int
	}{{"total", sum.Total}, {"new", sum.New}, {"duplicate", sum.Duplicate}, {"filtered", sum.Filtered}, {"dead", sum.Dead}} {
		t.add(row.name, strconv.Itoa(row.n))
	}
	if sum.NextSeq != nil {
		t.add("not read", fmt.Sprintf("from sequence %d on, the last is %d", *sum.NextSeq, sum.LastSeq))
	}
	return s.print(s.out, t)
}
