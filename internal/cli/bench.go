package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/bench"
)

// benches say what each benchmark measures. The flags are the same; which of them a benchmark heeds its help says.
var benches = []struct{ name, short, long, example string }{
	{
		"ingest", "Messages from their stream into inboxes, and duplicates",
		`ingest has --n messages wait in a stream, each for another of --parked instances, which it wakes. It takes the time until the bridge has acked
all, and that of our own statement bare, at the same number of connections, and of the least code from JetStream into rows. The same
with duplicates, beside the ledger alone. No worker runs.`,
		"  pointsman bench ingest\n  pointsman bench ingest --conns 1 --batch 100 --json\n  pointsman bench ingest --parked 10000000",
	},
	{
		"cycle", "Message, wake, step, commit, waiting again; and whole lives",
		`cycle has --n messages wait in a stream, each for another of --parked instances, which runs a step that does nothing and waits again. It takes the
time until all wait, with a worker whose picks and commits are in groups of each of --groups, and that of our own statements bare, and of
the least code. Then the same of whole lives: a message starts, another ends, and the outcome is published.`,
		"  pointsman bench cycle\n  pointsman bench cycle --counts --rounds 1\n  pointsman bench cycle --groups 64 --n 20000\n  pointsman bench cycle --profile ./profiles",
	},
	{
		"latency", "One message at a time: from publish to its outcome",
		`latency publishes --n messages one after the other, each of which ends an instance, and takes the times until it is taken in, the end is committed, and
the outcome message is received; beside them those of the same hops by the least code.`,
		"  pointsman bench latency\n  pointsman bench latency --n 500 --json",
	},
	{
		"outcomes", "From the outbox into the stream",
		`outcomes has --n outcomes wait in the outbox, and takes the time until all are published and gone from it; beside it that of the least code, and of JetStream
alone.`,
		"  pointsman bench outcomes",
	},
	{
		"backlog", "What it costs that many instances and messages wait",
		`backlog takes the times of our own statements (deliver, pick, the sweep of timers) beside each of --sizes parked instances and as many ready ones, and what an
instance takes on disk. Then those of one cycle of an instance whose inbox holds each of --depths other signals. Then
it has --n messages wait, and says what bridge and worker have in memory until they are worked off. --svg draws the times against the sizes.`,
		"  pointsman bench backlog\n  pointsman bench backlog --sizes 10000,100000,1000000 --svg backlog.svg",
	},
	{
		"scale", "Throughput and p99 against the load that is offered",
		`scale offers cycles, with who publishes on the same machine: more than the machine can do, and then, by halving, the most of which all but a fiftieth comes
through, for --duration each. Then it offers --loads, shares of that rate, and says what comes through and how long it takes from publish to the answer that
follows the commit. --soak offers 80 % of it for that long, compares times and sizes of tables of its last five minutes with those of its first, and says
of each minute what the times were and what Postgres waited for.
--svg draws throughput and p99 against the load.`,
		"  pointsman bench scale --svg scale.svg\n  pointsman bench scale --loads 0.5,0.8 --duration 30s\n  pointsman bench scale --loads 0.8 --soak 30m --json",
	},
	{
		"contention", "Many routes, many copies of the programs, an old snapshot",
		`contention is cycle with the messages spread over each of --routes routes of one bridge; with each of --copies bridges and as many workers, which share two
routes and one queue; and while a transaction holds a snapshot open from before the first message, so that nothing that is deleted
meanwhile can be vacuumed. A Postgres of yours has to have room for their connections: each program opens up to 16.`,
		"  pointsman bench contention\n  pointsman bench contention --routes 1,100 --copies 1,8 --rounds 3",
	},
	{
		"remote", "Steps over NATS beside steps in Go",
		`remote is cycle with a machine whose steps a service answers over NATS, 64 at once, beside one in Go, and beside requests to the same service alone.`,
		"  pointsman bench remote",
	},
}

func benchCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure the real path beside what this machine can do",
		Long: `bench measures the real path (JetStream, bridge, Postgres, worker, each a process of its own) and, in alternation with it, the limit of this machine for the
same rows and messages with the least possible code. It prints both, and their ratio with its spread: the figures of two machines, or of
two days, say little; the ratios do. What is counted is looked for in the tables and streams afterwards.

It starts a private Postgres and a NATS server, unless --database-url and --nats-url name some. There it makes the schemas pointsman_bench,
pointsman_bench_own, pointsman_bench_limit and pointsman_bench_large_*, and the streams POINTSMAN_BENCH_*, and removes them. docs/performance.md says what each figure means.`,
		Example: "  pointsman bench ingest\n  pointsman bench cycle --json | jq '.cases[0].ratios'",
		Args:    args(cobra.NoArgs), RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, b := range benches {
		c.AddCommand(oneBench(o, b.name, b.short, b.long, b.example))
	}
	return c
}

func oneBench(o *options, name, short, long, example string) *cobra.Command {
	b := bench.Options{Benchmark: name}
	var asJSON bool
	var svg string
	c := &cobra.Command{
		Use: name, Short: short, Long: long, Example: example, Args: args(cobra.NoArgs), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := b.Check(); err != nil {
				return usage(c, err)
			}
			if svg != "" && name != "scale" && name != "backlog" {
				return usage(c, bench.ErrNoPlot)
			}
			if !c.Flags().Changed("log-level") {
				o.logLevel = "warn" // what is measured is to be read
			}
			log, err := o.logger(c)
			if err != nil {
				return err
			}
			b.Err, b.Log, b.PartArgs = c.ErrOrStderr(), log, []string{"--log-level", o.logLevel, "--log-format", o.logFormat}
			if b.Profile != "" {
				if b.Profile, err = filepath.Abs(b.Profile); err == nil {
					err = os.MkdirAll(b.Profile, 0o755)
				}
				if err != nil {
					return err
				}
			}
			report, err := bench.Run(c.Context(), b)
			if err != nil {
				return err
			}
			if svg != "" {
				if err := writePlot(svg, report); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), report)
			}
			return report.Print(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&b.N, "n", 0, "messages of one probe, or what else is counted (default: of each benchmark)")
	f.IntVar(&b.Payload, "payload", 0, "bytes of a message (default 200)")
	f.IntVar(&b.Batch, "batch", 0, "messages that the bridge takes in together at most (default 500)")
	f.IntVar(&b.Rounds, "rounds", 0, "alternations (default 5)")
	f.IntVar(&b.Conns, "conns", 0, "connections that take messages in: routes of the bridge, and sessions of the limits (default 2)")
	f.IntVar(&b.Parked, "parked", 0, "instances that wait (default 100000, or --n)")
	f.BoolVar(&b.Counts, "counts", false, "count round trips, transactions and fsyncs too: 20 seconds more a probe, and its rates and times say nothing")
	f.BoolVar(&b.Checkpoint, "checkpoint", false, "checkpoint before each probe, so that WAL has the first change of each page whole")
	f.StringVar(&b.Profile, "profile", "", "leave CPU and allocation profiles of the parts in this directory")
	f.StringVar(&b.DatabaseURL, "database-url", "", "use this Postgres instead of a private one")
	f.StringVar(&b.NATSURL, "nats-url", "", "use this NATS server instead of one of its own")
	f.BoolVar(&asJSON, "json", false, "print the whole report as JSON")
	switch name {
	case "cycle":
		f.IntSliceVar(&b.Groups, "groups", nil, "outcomes that are committed together, at most 256 (default 64,256)")
	case "backlog":
		f.IntSliceVar(&b.Sizes, "sizes", nil, "instances that wait (default 10000,1000000)")
		f.IntSliceVar(&b.Depths, "depths", nil, "signals in one inbox (default 1,100,10000,100000)")
		f.StringVar(&svg, "svg", "", "draw the times against the sizes into this file")
	case "contention":
		f.IntSliceVar(&b.Routes, "routes", nil, "routes of one bridge (default 1,10,100,1000)")
		f.IntSliceVar(&b.Copies, "copies", nil, "bridges, and workers (default 1,4,16)")
	case "scale":
		f.Float64SliceVar(&b.Loads, "loads", nil, "shares of the rate that comes through at most (default 0.1,0.25,0.5,0.8,0.9)")
		f.DurationVar(&b.Duration, "duration", 0, "how long each load is offered (default 10s)")
		f.DurationVar(&b.Soak, "soak", 0, "how long 80 % of that rate is offered at the end (default: not at all)")
		f.StringVar(&svg, "svg", "", "draw throughput and p99 against the load into this file")
	}
	return c
}

func writePlot(file string, report *bench.Report) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := report.Plot(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("plot: %w", err)
	}
	return f.Close()
}

// benchPartCommand is what bench runs its parts with.
func benchPartCommand(o *options) *cobra.Command {
	var p bench.PartOptions
	c := &cobra.Command{
		Use: bench.PartCommand + " PART", Hidden: true, Short: "Run one part of bench, until standard input ends", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			log, err := o.logger(c)
			if err != nil {
				return err
			}
			p.Part, p.Config, p.Log, p.In, p.Out = args[0], o.config, log, c.InOrStdin(), c.OutOrStdout()
			return bench.RunPart(c.Context(), p)
		},
	}
	c.Flags().StringVar(&p.Dir, "dir", "", "of the streams")
	c.Flags().StringVar(&p.Profile, "profile", "", "directory")
	return c
}
