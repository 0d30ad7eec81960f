package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Print writes what a person wants to see of a report. The JSON has all of it.
func (r *Report) Print(out io.Writer) error {
	m := r.Machine
	_, err := fmt.Fprintf(out, "pointsman bench %s, %s, %s, %d CPUs %s, Postgres %s, NATS %s, load before %.2f\n", r.Benchmark, r.StartedAt.Format("2006-01-02 15:04"), m.OS, m.CPUs, m.Processor, m.Postgres, m.NATS, m.LoadBefore)
	for _, c := range r.Cases {
		if err == nil {
			err = c.print(out)
		}
	}
	return err
}

// units of the metrics that are printed, by name or prefix; with what a value is multiplied.
var printed = []struct {
	name, title string
	factor      float64
	format      string
}{
	{rate, "%s/s", 1, "%.0f"},
	{"offered_per_second", "offered/s", 1, "%.0f"},
	{p50, "p50 µs", 1, "%.0f"},
	{p99, "p99 µs", 1, "%.0f"},
	{longest, "longest µs", 1, "%.0f"},
	{"ingested_p50_us", "ingested p50 µs", 1, "%.0f"},
	{"committed_p50_us", "committed p50 µs", 1, "%.0f"},
	{"committed_p99_us", "committed p99 µs", 1, "%.0f"},
	{walBytes, "WAL B/%s", 1, "%.0f"},
	{diskBytes, "B on disk/instance", 1, "%.0f"},
	{statements, "statements/%s", 1, "%.4f"},
	{transactions, "transactions/%s", 1, "%.4f"},
	{roundTrips, "round trips/%s", 1, "%.4f"},
	{fsyncs, "fsyncs/%s", 1, "%.4f"},
	{cpuTotal, "CPU µs/%s", 1, "%.1f"},
	{cpuPrefix, "CPU µs/%s, ", 1, "%.1f"},
	{allocsPrefix, "allocations/%s, ", 1, "%.1f"},
	{bytesPrefix, "allocated B/%s, ", 1, "%.0f"},
	{rssPrefix, "MiB in memory, ", 1.0 / (1 << 20), "%.0f"},
	{sizePrefix, "MiB of table ", 1.0 / (1 << 20), "%.1f"},
}

func (c *Case) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n", c.Name, c.About)
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	header := []string{""}
	for _, s := range c.Sides {
		header = append(header, s.Name)
	}
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, p := range printed {
		for _, name := range c.metrics(p.name) {
			title := strings.ReplaceAll(p.title, "%s", c.Unit) + strings.TrimPrefix(name, p.name)
			cells := []string{"  " + title}
			for _, s := range c.Sides {
				cells = append(cells, cell(s, name, p.factor, p.format))
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
	}
	_ = w.Flush() // a builder takes all
	for _, r := range c.Ratios {
		fmt.Fprintf(&b, "  %s of %s to %s: %.2f (%.2f to %.2f)\n", r.Metric, r.Of, r.To, r.Median, r.Min, r.Max)
	}
	c.printMinutes(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// mostWaits of a minute are printed.
const mostWaits = 5

func (c *Case) printMinutes(b *strings.Builder) {
	if len(c.Minutes) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "  from\tp50 ms\tp99 ms\tlongest ms\tWAL MB/s\tCPUs busy\tstolen\tspin µs\tsessions of Postgres that run, or wait for")
	for _, m := range c.Minutes {
		names := m.busiest()
		names = names[:min(len(names), mostWaits)]
		for i, name := range names {
			names[i] = fmt.Sprintf("%s %.2f", name, m.Waits[name])
		}
		_, _ = fmt.Fprintf(w, "  %.0f s\t%.0f\t%.0f\t%.0f\t%.1f\t%.2f\t%.2f\t%.0f\t%s\n", m.From, m.Metrics[p50]/1e3, m.Metrics[p99]/1e3, m.Metrics[longest]/1e3, m.Metrics[walRate]/1e6, m.Metrics[busyCPUs], m.Metrics[stolenCPUs], m.Metrics[spinTime], strings.Join(names, ", "))
	}
	_ = w.Flush()
}

// metrics of the sides with a name, or, where it ends in a dot, with that prefix.
func (c *Case) metrics(name string) []string {
	found := map[string]bool{}
	for _, s := range c.Sides {
		for m := range s.Metrics {
			if m == name || strings.HasSuffix(name, ".") && strings.HasPrefix(m, name) {
				found[m] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func cell(s *Side, metric string, factor float64, format string) string {
	v, ok := s.Metrics[metric]
	if !ok {
		return "-"
	}
	text := fmt.Sprintf(format, v.Median*factor)
	if len(s.Rounds) > 1 {
		text += " (" + fmt.Sprintf(format, v.Min*factor) + " to " + fmt.Sprintf(format, v.Max*factor) + ")"
	}
	return text
}
