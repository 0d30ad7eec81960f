package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// TestMain is also the parts: they are this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == PartCommand {
		if err := testPart(os.Args[2], os.Args[3:]); err != nil {
			slog.Error("part", "part", os.Args[2], "error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.RunUnchecked(m)) // of HTTP there are idle connections left
}

func testPart(part string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := PartOptions{Part: part, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), In: os.Stdin, Out: os.Stdout}
	for pair := range slices.Chunk(args, 2) {
		switch pair[0] {
		case "--config":
			o.Config = pair[1]
		case "--dir":
			o.Dir = pair[1]
		case "--profile":
			o.Profile = pair[1]
		}
	}
	return RunPart(ctx, o)
}

type logWriter struct{ t *testing.T }

func (l logWriter) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// measure runs a benchmark on servers of the test, and returns its report as it is printed and read again.
func measure(t *testing.T, o Options) *Report {
	t.Helper()
	o.DatabaseURL, o.NATSURL, o.Err, o.Log = pgtest.Database(t), natstest.Start(t).URL, logWriter{t}, slog.New(slog.DiscardHandler)
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if err := again.Print(io.Discard); err != nil {
		t.Error(err)
	}
	if again.Schema != SchemaVersion || again.Benchmark != o.Benchmark || again.Machine.CPUs == 0 || again.Machine.Postgres == "" || again.Parameters.Rounds == 0 {
		t.Errorf("the report does not say what it is of: %+v %+v", again, again.Machine)
	}
	return &again
}

// expectCase: the sides, each with its rounds of n, and these metrics above 0.
func expectCase(t *testing.T, r *Report, name string, n, rounds int, sides []string, metrics ...string) *Case {
	t.Helper()
	i := slices.IndexFunc(r.Cases, func(c *Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	c := r.Cases[i]
	var have []string
	for _, s := range c.Sides {
		have = append(have, s.Name)
		if len(s.Rounds) != rounds {
			t.Errorf("%s, %s: %d rounds, want %d", name, s.Name, len(s.Rounds), rounds)
		}
		for _, round := range s.Rounds {
			if round.N != n {
				t.Errorf("%s, %s: counted %d, want %d", name, s.Name, round.N, n)
			}
			for _, metric := range metrics {
				if v, ok := round.Metrics[metric]; !ok || math.IsNaN(v) || v < 0 {
					t.Errorf("%s, %s: %s is %v, %v", name, s.Name, metric, v, ok)
				}
			}
		}
	}
	if !slices.Equal(have, sides) {
		t.Errorf("%s: sides %v, want %v", name, have, sides)
	}
	return c
}

func TestIngest(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "ingest", N: 60, Parked: 150, Batch: 20, Rounds: 2})
	for name, sides := range map[string][]string{"ingest": {"path", "statement", "pipe"}, "duplicates": {"path", "statement", "ledger"}} {
		c := expectCase(t, r, name, 60, 2, sides, rate, walBytes)
		if len(c.Ratios) == 0 {
			t.Errorf("%s: no ratios", name)
		}
	}
}

func TestCycle(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "cycle", N: 90, Parked: 90, Groups: []int{16}, Rounds: 1})
	expectCase(t, r, "cycle, groups of 16", 90, 1, []string{"path", "statements", "least"}, rate, walBytes)
	expectCase(t, r, "life", 90, 1, []string{"path", "least"}, rate, walBytes)
}

func TestLatency(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "latency", N: 5, Rounds: 1})
	c := expectCase(t, r, "latency", 5, 1, []string{"path", "floor"}, p50, p99, "ingested_p50_us", "committed_p50_us", "committed_p99_us")
	for _, s := range c.Sides {
		if m := s.Rounds[0].Metrics; m["ingested_p50_us"] > m["committed_p50_us"] || m["committed_p50_us"] > m[p50] {
			t.Errorf("%s: an end before its beginning: %v", s.Name, m)
		}
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "outcomes", N: 80, Rounds: 1})
	expectCase(t, r, "outcomes", 80, 1, []string{"path", "relay", "publish"}, rate, walBytes)
}

func TestRemote(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "remote", N: 40, Parked: 40, Rounds: 1})
	expectCase(t, r, "remote", 40, 1, []string{"remote", "go", "requests"}, rate)
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "backlog", N: 60, Parked: 30, Rounds: 1, Sizes: []int{1000, 2000}, Depths: []int{2000, 3}})
	for _, name := range []string{"deliver", "pick", "sweep"} {
		expectCase(t, r, name, 60, 1, []string{"2000", "1000"}, p50, p99, walBytes)
	}
	expectCase(t, r, "inbox", 60, 1, []string{"2000", "3"}, p50, p99, walBytes)
	expectCase(t, r, "waiting", 60, 1, []string{"worked off", "waiting", "idle"})
	expectPlot(t, r, "deliver", "pick", "sweep", "inbox")
}

func TestContention(t *testing.T) {
	t.Parallel()
	r := measure(t, Options{Benchmark: "contention", N: 60, Parked: 60, Rounds: 1, Routes: []int{1, 7}, Copies: []int{2}})
	for name, sides := range map[string][]string{"routes": {"7", "1"}, "copies": {"2"}, "snapshot": {"held", "none"}} {
		c := expectCase(t, r, name, 60, 1, sides, rate, walBytes)
		if len(sides) > 1 && len(c.Ratios) == 0 {
			t.Errorf("%s: no ratios", name)
		}
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	const part = 2 * time.Second // of the soak: also on a slow machine long enough for each instance to have its turn, and so for some that answer
	r := measure(t, Options{Benchmark: "scale", N: 200, Parked: 200, Rounds: 1, Loads: []float64{0.5}, Duration: time.Second, Soak: 4 * part})
	expectCase(t, r, "highest", 200, 1, []string{"path"}, rate)
	for _, name := range []string{"overload", "search 4", "load 50 %", "soak"} {
		i := slices.IndexFunc(r.Cases, func(c *Case) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("there is no case %q", name)
		}
		round := r.Cases[i].Sides[0].Rounds[0]
		if round.N == 0 || round.Metrics["offered_per_second"] <= 0 {
			t.Errorf("%s: %+v", name, round)
		}
	}
	soak := r.Cases[len(r.Cases)-1]
	if len(soak.Minutes) < 4 {
		t.Fatalf("a soak of %d parts, want 4", len(soak.Minutes))
	}
	for i, m := range soak.Minutes[:4] {
		if m.From != float64(i)*part.Seconds() || m.Metrics[p50] <= 0 || m.Metrics[walRate] <= 0 || m.Waits == nil {
			t.Errorf("part %d of the soak: %+v", i, m)
		}
	}
	expectPlot(t, r, "through")
}

// expectPlot: well formed, with these lines.
func expectPlot(t *testing.T, r *Report, lines ...string) {
	t.Helper()
	var b bytes.Buffer
	if err := r.Plot(&b); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if !strings.Contains(b.String(), ">"+l+"</text>") {
			t.Errorf("the plot has no line %s", l)
		}
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrivateStack measures on servers of its own, where statements and CPU are counted too, and leaves profiles.
func TestPrivateStack(t *testing.T) {
	t.Parallel()
	_ = pgtest.URL(t) // skips where there is no Postgres
	profiles := t.TempDir()
	r, err := Run(t.Context(), Options{Benchmark: "ingest", N: 50, Parked: 50, Rounds: 1, Profile: profiles, Err: logWriter{t}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Machine.Private {
		t.Error("the servers are somebody else's")
	}
	c := expectCase(t, r, "ingest", 50, 1, []string{"path", "statement", "pipe"}, rate, walBytes)
	if strings.Contains(r.Machine.Settings["shared_preload_libraries"], "pg_stat_statements") {
		for _, s := range c.Sides {
			i := slices.IndexFunc(s.Statements, func(st Statement) bool { return st.Name == "deliver" || st.Name == "limit rows" })
			if i < 0 || s.Statements[i].Calls <= 0 || s.Rounds[0].Metrics[statements] < s.Statements[i].Calls {
				t.Errorf("%s: statements are %+v", s.Name, s.Statements)
			}
		}
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		for _, part := range []string{partBridge, partNATS, partPostgres, partBench} {
			if _, ok := c.Sides[0].Metrics[cpuPrefix+part]; !ok {
				t.Errorf("no CPU of %s", part)
			}
		}
	}
	if files, _ := os.ReadDir(profiles); len(files) < 2 {
		t.Errorf("%d profiles", len(files))
	}
}

// TestCleanLeavesNothing: what a benchmark makes on a server of others goes with it.
func TestCleanLeavesNothing(t *testing.T) {
	t.Parallel()
	o := Options{Benchmark: "outcomes", DatabaseURL: pgtest.Database(t), NATSURL: natstest.Start(t).URL, Err: logWriter{t}, Log: slog.New(slog.DiscardHandler)}.withDefaults()
	st, err := startStack(t.Context(), &o, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.js.Stream(t.Context(), streamIn); err != nil {
		t.Error(err)
	}
	if err := st.stop(); err != nil {
		t.Fatal(err)
	}
	again, err := startStack(t.Context(), &o, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := again.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := again.count(t.Context(), schema, `select count(*) from pg_namespace where nspname like 'pointsman%'`); err != nil || n != 0 {
		t.Errorf("%d schemas are left: %v", n, err)
	}
	for name := range again.js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s is left", name)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"there is no benchmark": {Benchmark: "speed"},
		"--n -1":                {Benchmark: "ingest", N: -1},
		"--payload 10":          {Benchmark: "ingest", Payload: 10},
		"--parked 10":           {Benchmark: "cycle", N: 20, Parked: 10},
		"--groups":              {Benchmark: "cycle", Groups: []int{1000}},
		"--sizes":               {Benchmark: "backlog", Sizes: []int{1}},
		"--depths":              {Benchmark: "backlog", Depths: []int{0}},
		"--routes":              {Benchmark: "contention", Routes: []int{0}},
		"--copies":              {Benchmark: "contention", Copies: []int{65}},
		"--loads":               {Benchmark: "scale", Loads: []float64{0}},
		"--duration":            {Benchmark: "scale", Duration: time.Millisecond},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %q", o, err, want)
		}
	}
	for _, name := range Names() {
		if err := (Options{Benchmark: name}).Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestSpreadAndQuantile(t *testing.T) {
	t.Parallel()
	if s := spread([]float64{9, 1, 5, 3}); s != (Spread{4, 1, 9}) {
		t.Errorf("%+v", s)
	}
	times := make([]time.Duration, 1000)
	for i := range times {
		times[i] = time.Duration(1000-i) * time.Microsecond
	}
	if a, b := quantile(times, 0.5), quantile(times, 0.99); a != 501 || b != 991 {
		t.Errorf("%v %v", a, b)
	}
	c := &Case{Sides: []*Side{
		{Name: "a", Rounds: []Round{{Metrics: map[string]float64{rate: 8}}, {Metrics: map[string]float64{rate: 9, p50: 1}}}},
		{Name: "b", Rounds: []Round{{Metrics: map[string]float64{rate: 10}}, {Metrics: map[string]float64{rate: 10}}}},
	}}
	c.compare()
	if len(c.Ratios) != 1 || c.Ratios[0] != (Ratio{rate, "a", "b", Spread{0.8500000000000001, 0.8, 0.9}}) {
		t.Errorf("%+v", c.Ratios)
	}
}
