package guarantees

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/pointsman/pointsman/integration/cluster"
	"github.com/pointsman/pointsman/integration/oracle"
)

// report of a nemesis.
type report struct {
	seed    uint64
	backend cluster.Backend
	began   time.Time

	mu         sync.Mutex
	faults     map[string]int
	recoveries map[string][]time.Duration
	took       time.Duration
	counts     oracle.Counts
	played     int
	violations map[oracle.Kind]int
}

func newReport(seed uint64, backend cluster.Backend) *report {
	return &report{seed: seed, backend: backend, began: time.Now(), faults: map[string]int{}, recoveries: map[string][]time.Duration{}, violations: map[oracle.Kind]int{}}
}

func (r *report) struck(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[kind]++
}

func (r *report) recovered(kind string, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recoveries[kind] = append(r.recoveries[kind], after)
}

func (r *report) end(counts oracle.Counts, played int, vs []oracle.Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took, r.counts, r.played = time.Since(r.began), counts, played
	for _, v := range vs {
		r.violations[v.Kind]++
	}
}

// total of the faults.
func (r *report) total() (n int) {
	for _, of := range r.faults {
		n += of
	}
	return n
}

func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...any) {
		for _, c := range cells {
			_, _ = fmt.Fprintf(w, "%v\t", c)
		}
		_, _ = fmt.Fprintln(w)
	}
	_, _ = fmt.Fprintf(&b, "%s under a nemesis, as %s; %s=%d plays it again\n\n", r.took.Round(time.Second), r.backend, seedVariable, r.seed)
	row("faults", r.total())
	row("plays of stories", r.played)
	row("events", r.counts.Events)
	row("messages", r.counts.Messages)
	row("instances", r.counts.Instances)
	row("commits seen", r.counts.Records)
	row("outcomes", r.counts.Outcomes)
	row("dead letters", r.counts.Letters)
	row("published again", r.counts.Again)
	row()
	for _, kind := range oracle.Kinds() {
		row(kind, r.violations[kind])
	}
	row()
	row("fault", "number", "measured", "recovered p50", "max")
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		rs := slices.Sorted(slices.Values(r.recoveries[kind]))
		if len(rs) == 0 {
			row(kind, r.faults[kind], 0, "", "")
			continue
		}
		row(kind, r.faults[kind], len(rs), rs[(len(rs)-1)/2].Round(10*time.Millisecond), rs[len(rs)-1].Round(10*time.Millisecond))
	}
	_ = w.Flush()
	return b.String()
}

// reportVariable names the file for the report.
const reportVariable = "POINTSMAN_SOAK_REPORT"

// write the report where it is asked for, or beside the test's other artifacts.
func (r *report) write(t *testing.T) {
	t.Helper()
	file := os.Getenv(reportVariable)
	if file == "" {
		file = filepath.Join(t.ArtifactDir(), "report.txt")
	}
	text := r.String()
	t.Logf("%s\n%s", file, text)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}
