// Package bench is "pointsman bench": it measures the real path (JetStream in, a bridge, a worker, JetStream out, each a process of its
// own) beside what this machine can do with the same rows and messages and the least possible code, in alternation.
//
// docs/performance.md says what each figure means. The SQL of the limits, of filling tables and of counting them is here and not in
// internal/store: it is no statement of the system, but what the system is compared with.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/internal/app"
)

// Options of Run. Of the numbers 0 is the default of the benchmark.
type Options struct {
	Benchmark string // one of Names

	N       int   // messages, cycles, lives or calls of one probe
	Payload int   // bytes of a message's body
	Batch   int   // messages that the bridge takes in together at most
	Rounds  int   // alternations
	Conns   int   // connections that take messages in: routes of the path, and sessions of the limits
	Parked  int   // instances that wait
	Groups  []int // of cycle: outcomes that are committed together
	Sizes   []int // of backlog: instances that wait
	Depths  []int // of backlog: signals in one inbox
	Routes  []int // of contention: routes of one bridge
	Copies  []int // of contention: bridges and workers

	Loads    []float64     // of scale: shares of the rate that comes through at most
	Duration time.Duration // of scale: how long each load is offered
	Soak     time.Duration // of scale: how long 80 % of that rate is offered at the end; 0: not at all

	Counts     bool   // count round trips, transactions and fsyncs too: rates and times are none then, and a probe takes twenty seconds more
	Checkpoint bool   // one before each probe, so that the first change of each page is written whole
	Profile    string // a directory for CPU and heap profiles of the bridge and the worker; "": none

	DatabaseURL string // "": a private Postgres
	NATSURL     string // "": a NATS server of its own

	Err      io.Writer    // required: progress, and what the parts log
	Log      *slog.Logger // required
	PartArgs []string     // flags of the parts, for their logs
}

// Names of the benchmarks, in the order of the help.
func Names() []string {
	return []string{"ingest", "cycle", "latency", "outcomes", "backlog", "scale", "contention", "remote"}
}

var benchmarks = map[string]func(context.Context, *run) error{
	"ingest": ingest, "cycle": cycle, "latency": latency, "outcomes": outcomes, "backlog": backlog, "scale": scale, "contention": contention, "remote": remoteSteps,
}

// defaults of the options, where they are not the same for all.
var defaultN = map[string]int{"ingest": 100_000, "cycle": 100_000, "latency": 2000, "outcomes": 100_000, "backlog": 1_000_000, "scale": 100_000, "contention": 100_000, "remote": 50_000}

const (
	defaultPayload  = 200
	defaultBatch    = 500
	defaultRounds   = 5
	defaultConns    = 2
	defaultParked   = 100_000
	defaultDuration = 10 * time.Second
	minPayload      = 64
)

func (o Options) withDefaults() Options {
	or := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	or(&o.N, defaultN[o.Benchmark])
	or(&o.Payload, defaultPayload)
	or(&o.Batch, defaultBatch)
	or(&o.Rounds, defaultRounds)
	or(&o.Conns, defaultConns)
	or(&o.Parked, max(o.N, defaultParked))
	if o.Duration == 0 {
		o.Duration = defaultDuration
	}
	if len(o.Groups) == 0 {
		o.Groups = []int{64, 256}
	}
	if len(o.Sizes) == 0 {
		o.Sizes = []int{10_000, 1_000_000}
	}
	if len(o.Depths) == 0 {
		o.Depths = []int{1, 100, 10_000, 100_000}
	}
	if len(o.Routes) == 0 {
		o.Routes = []int{1, 10, 100, 1000}
	}
	if len(o.Copies) == 0 {
		o.Copies = []int{1, 4, 16}
	}
	if len(o.Loads) == 0 {
		o.Loads = []float64{0.1, 0.25, 0.5, 0.8, 0.9}
	}
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	if benchmarks[o.Benchmark] == nil {
		return fmt.Errorf("there is no benchmark %q: want one of %v", o.Benchmark, slices.Sorted(maps.Keys(benchmarks)))
	}
	o = o.withDefaults()
	for name, v := range map[string]int{"n": o.N, "batch": o.Batch, "rounds": o.Rounds, "conns": o.Conns, "parked": o.Parked} {
		if v < 1 {
			return fmt.Errorf("--%s %d: want 1 or more", name, v)
		}
	}
	switch {
	case o.Payload < minPayload || o.Payload > 1<<20:
		return fmt.Errorf("--payload %d: want %d to %d bytes", o.Payload, minPayload, 1<<20)
	case o.Batch > 10_000:
		return fmt.Errorf("--batch %d: want at most 10000", o.Batch)
	case o.Parked < o.N && o.Benchmark != "backlog" && o.Benchmark != "outcomes":
		return fmt.Errorf("--parked %d: want at least --n, %d: each message of a probe is for another instance", o.Parked, o.N)
	case slices.Min(o.Groups) < 1 || slices.Max(o.Groups) > maxGroup:
		return errors.New("--groups: want 1 to 256")
	case slices.Min(o.Sizes) < 1000:
		return errors.New("--sizes: want 1000 or more")
	case slices.Min(o.Depths) < 1:
		return errors.New("--depths: want 1 or more")
	case slices.Min(o.Routes) < 1 || slices.Max(o.Routes) > 10_000:
		return errors.New("--routes: want 1 to 10000")
	case slices.Min(o.Copies) < 1 || slices.Max(o.Copies) > 64:
		return errors.New("--copies: want 1 to 64")
	case slices.Min(o.Loads) <= 0:
		return errors.New("--loads: want shares above 0 of the rate that comes through at most, as 0.5")
	case o.Duration < time.Second || o.Soak < 0:
		return errors.New("--duration and --soak: want a second or more")
	}
	return nil
}

// Run starts what is needed, measures, and stops it again. The error is also that something was lost on the way: what is counted is
// looked for in the tables and streams afterwards.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	b := &run{Options: o, report: newReport(o, app.Version)}
	if b.stack, err = startStack(ctx, &b.Options, b.say); err == nil {
		defer func() { err = errors.Join(err, b.stack.stop()) }()
		b.report.Machine = b.describe(ctx)
		err = benchmarks[o.Benchmark](ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("bench %s: %w", o.Benchmark, err)
	}
	b.report.finish()
	return b.report, nil
}

// run is one benchmark on its way.
type run struct {
	Options
	*stack
	report *Report
}

func (b *run) say(format string, args ...any) { _, _ = fmt.Fprintf(b.Err, format+"\n", args...) }

// probe measures something once.
type probe = func(ctx context.Context, m *measurement) error

// side is one of what is compared.
type side struct {
	name, about string
	probe       probe
}

// alternate measures the sides in turn, so that what else goes on on the machine meets all alike: forth in one round, back in the next.
func (b *run) alternate(ctx context.Context, c *Case, sides ...side) error {
	for _, s := range sides {
		c.Sides = append(c.Sides, &Side{Name: s.name, About: s.about})
	}
	b.report.Cases = append(b.report.Cases, c)
	for round := range b.Rounds {
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			m := &measurement{run: b, metrics: map[string]float64{}}
			if err := sides[i].probe(ctx, m); err != nil {
				return fmt.Errorf("%s: %s: %w", c.Name, sides[i].name, err)
			}
			c.Sides[i].add(m)
			b.say("%s, round %d of %d: %-12s %s", c.Name, round+1, b.Rounds, sides[i].name, m.summary())
		}
	}
	c.compare()
	return nil
}
