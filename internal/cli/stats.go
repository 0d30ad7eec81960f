package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// statuses of instances, in the order of a life.
var statuses = []engine.Status{engine.StatusRunnable, engine.StatusExecuting, engine.StatusAwaiting, engine.StatusDone, engine.StatusFailed, engine.StatusCanceled}

func statsCommand(o *options) *cobra.Command {
	n := o.connection()
	var w watching
	c := &cobra.Command{
		Use: "stats", Short: "Count the instances of the project by their status",
		Long: `stats counts the instances of the project by their status, and those that ended within the last minute. Each count goes up to 10,000, and
those of the live ones are of the first 10,000 of these: a + says that there are as many, or more.`,
		Example: "  pointsman stats\n  pointsman stats --watch\n  pointsman stats -o jsonpath=$.instances.failed",
		Args:    args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := w.check(c); err != nil {
				return err
			}
			return n.run(c, func(ctx context.Context, s *session) error {
				return s.present(ctx, w, func(ctx context.Context) (answer, error) {
					stats, err := s.stats(ctx)
					return answer{document: stats, table: statsTable(stats)}, err
				})
			})
		},
	}
	w.add(c)
	return n.add(c)
}

func (s *session) stats(ctx context.Context) (stats api.Stats, err error) {
	err = s.ask(ctx, natsapi.VerbStats, api.StatsRequest{}, &stats)
	return stats, err
}

func statsTable(stats api.Stats) *table {
	t := newTable("STATUS", "INSTANCES", "LAST MINUTE")
	more := ""
	if stats.AtLeast {
		more = "+"
	}
	for _, status := range statuses {
		ended := ""
		if n, ok := stats.EndedLastMinute[status]; ok {
			ended = fmt.Sprint(n)
		}
		t.add(string(status), fmt.Sprint(stats.Instances[status])+more, ended)
	}
	t.add("paused", fmt.Sprint(stats.Paused)+more, "")
	return t
}

func queuesCommand(o *options) *cobra.Command {
	return namedCommand(o, natsapi.VerbQueues, queuesTable, &cobra.Command{
		Use: "queues", Short: "List the queues, and what waits in them",
		Long: `queues shows the queues in which something is ready to run, or that a worker serves, of all projects: how many instances are ready, counted up to
10,000, how long the oldest of them has been, and who serves the queue. One that has a DEPTH and no WORKERS does not move.`,
		Example: "  pointsman queues\n  pointsman queues --watch --every 5s\n  pointsman queues -o 'jsonpath=$.items[?(@.depth > 100)].name'",
	})
}

func queuesTable(items []api.Queue) *table {
	t := newTable("QUEUE", "DEPTH", "OLDEST", "WORKERS", "SLOTS")
	for _, q := range items {
		oldest := ""
		if q.Depth > 0 {
			oldest = seconds(q.OldestSeconds)
		}
		t.add(q.Name, fmt.Sprint(q.Depth), oldest, fmt.Sprint(q.Workers), fmt.Sprint(q.Slots))
	}
	return t
}

// seconds is a duration that a person reads at a glance.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func workersCommand(o *options) *cobra.Command {
	return namedCommand(o, natsapi.VerbWorkers, workersTable, &cobra.Command{
		Use: "workers", Short: "List the workers, and what they serve",
		Long: `workers shows the workers that were seen within the last day, of all projects: the queues that they serve with how many instances of each may
execute there at once, the machines that they know, and what they have in work. One that was not seen for a minute is not ALIVE.`,
		Example: "  pointsman workers\n  pointsman workers --watch\n  pointsman workers -o 'jsonpath=$.items[?(@.alive == false)].name'",
	})
}

func workersTable(items []api.Worker) *table {
	t := newTable("WORKER", "ALIVE", "QUEUES", "MACHINES", "LEASES", "EXECUTING", "SEEN")
	for _, w := range items {
		alive := "no"
		if w.Alive {
			alive = "yes"
		}
		var queues []string
		for _, name := range slices.Sorted(maps.Keys(w.Queues)) {
			queues = append(queues, fmt.Sprintf("%s:%d", name, w.Queues[name]))
		}
		t.add(w.Name, alive, short(strings.Join(queues, " "), 40), short(strings.Join(w.Machines, " "), 60), fmt.Sprint(w.Leases), fmt.Sprint(w.Executing), clock(w.SeenAt))
	}
	return t
}

// namedCommand completes a command that lists what belongs to no project, by name.
func namedCommand[T any](o *options, verb string, rows func([]T) *table, c *cobra.Command) *cobra.Command {
	n := o.connection()
	var p paging
	var w watching
	c.Args, c.ValidArgsFunction = args(cobra.NoArgs), cobra.NoFileCompletions
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := errors.Join(p.check(c), w.check(c)); err != nil {
			return err
		}
		return n.run(c, func(ctx context.Context, s *session) error {
			return s.present(ctx, w, func(ctx context.Context) (answer, error) {
				page, err := named[T](ctx, s, verb, p)
				return answer{page, rows(page.Items), page.NextCursor != nil}, err
			})
		})
	}
	p.add(c)
	w.add(c)
	return n.addURL(c)
}

// named asks for what goes by its name.
func named[T any](ctx context.Context, s *session, verb string, p paging) (api.Page[T], error) {
	return collect(p, func(limit int, cursor string) (page api.Page[T], err error) {
		err = s.ask(ctx, verb, api.NamedRequest{Limit: limit, Cursor: cursor}, &page)
		return page, err
	})
}
