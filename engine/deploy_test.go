package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pointsman/pointsman/engine"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// about are the lines that hold all of these.
func (l *lines) about(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.buf.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// process is a worker with a client, a log and metrics of its own.
type process struct {
	*running
	log     *lines
	metrics *prometheus.Registry
}

func (b *bundle) process(name string, ms ...*engine.Machine) process {
	b.t.Helper()
	p := process{log: &lines{}, metrics: prometheus.NewRegistry()}
	log := slog.New(slog.NewTextHandler(p.log, nil))
	c := must(engine.NewClient(b.connect(b.db.URL), engine.Config{Schema: b.db.Schema, Logger: log, Metrics: p.metrics}))(b.t)
	p.running = b.workAs(c, engine.WorkerConfig{Name: name, Machines: ms, PollInterval: 5 * time.Millisecond})
	return p
}

// gauge is the value of a metric without labels; of a histogram, its count.
func (p process) gauge(name string) float64 {
	p.t.Helper()
	for _, family := range must(p.metrics.Gather())(p.t) {
		if family.GetName() == name {
			m := family.Metric[0]
			return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	p.t.Fatalf("there is no metric %s", name)
	return 0
}

// A rolling deploy: a worker that knows version 1 alone, instances of both versions, then a worker that knows both. Nothing of
// version 2 runs on the old worker, costs an attempt or is turned over again and again; what nobody serves is in the log once and in the
// metrics until somebody does; and each instance ends on its version while both workers are there.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const each = 5
	version := func(v int) *engine.Machine {
		return define(t, engine.Definition[raw]{Version: v, Retry: fast(1), Steps: map[string]step{
			"begin": to(engine.Await("end", "s").Within(time.Hour)),
			"end": func(_ context.Context, visit *engine.Visit[raw]) (engine.Outcome, error) {
				return engine.Done(fmt.Sprint(v, " ", visit.Instance.Attempt)), nil
			},
		}})
	}
	begin := func(v int) (all []engine.Instance) {
		for i := range each {
			n := engine.NewInstance{Machine: "m", Version: v, CorrelationKey: fmt.Sprint(v, "-", i), Start: "begin"}
			if i == 0 {
				n.PartitionKey, n.UniqueKey = "P", fmt.Sprint("U", v)
			}
			all = append(all, b.start(n))
		}
		return all
	}
	old := b.process("old", version(1))
	instances := append(begin(1), begin(2)...)
	for _, in := range instances[:each] {
		b.reaches(in.ID, engine.StatusAwaiting)
	}
	const left = `select count(*) from pointsman.ready where lane = 'm@2'`
	eventually(t, "the new ones are left for a worker that knows them", func() bool { return b.count(left) == each })

	b.exec(`create table pointsman.before as select ctid as place, xmin as writer from pointsman.ready where lane = 'm@2'`)
	for i := range 20 {
		more := b.start(engine.NewInstance{Machine: "m", Version: 1, CorrelationKey: fmt.Sprint("more-", i), Start: "begin"})
		b.reaches(more.ID, engine.StatusAwaiting)
	}
	equal(t, "untouched by these", b.count(`select count(*) from pointsman.before join pointsman.ready r on r.ctid = place and r.xmin = writer`), each)
	b.exec(`drop table pointsman.before`)
	for _, in := range instances[each:] {
		in = b.get(in.ID)
		equal(t, "left alone", fmt.Sprint(in.Status, in.Attempt, in.Lease == nil), fmt.Sprint(engine.StatusRunnable, 0, true))
	}

	const begins, over = "instances wait that no worker serves", "a worker serves them"
	eventually(t, "it is measured", func() bool { return old.gauge("pointsman_unserved_instances") == each })
	equal(t, "lanes", old.gauge("pointsman_unserved_lanes"), 1)
	eventually(t, "it has an age", func() bool { return old.gauge("pointsman_unserved_oldest_seconds") > 0 }) // set after the count
	age := old.gauge("pointsman_unserved_oldest_seconds")
	eventually(t, "it is measured again", func() bool { return old.gauge("pointsman_unserved_oldest_seconds") > age })
	equal(t, "the log", len(old.log.about(begins, "level=WARN", "queue=default", "machine=m@2")), 1)

	newer := b.process("new", version(1), version(2))
	for _, in := range instances[each:] {
		b.reaches(in.ID, engine.StatusAwaiting)
	}
	eventually(t, "the measure is back at nothing", func() bool { return old.gauge("pointsman_unserved_instances") == 0 })
	equal(t, "lanes", old.gauge("pointsman_unserved_lanes"), 0)

	for _, in := range instances { // with both workers there: either may pick, and whoever it is the version is the instance's
		b.send(in.CorrelationKey, "s", "d")
	}
	for i, in := range instances {
		equal(t, "ran on its version, at once", string(b.ends(in.ID, engine.StatusDone).Result), fmt.Sprintf("%q", fmt.Sprint(1+i/each, " 0")))
	}
	equal(t, "executions", b.count(`select count(*) from pointsman.history`), len(instances)*2+20)
	equal(t, "said once when it began, once when it was over", fmt.Sprint(len(old.log.about(begins)), len(old.log.about(over, "machine=m@2"))), "1 1")
	equal(t, "said by the new one", len(newer.log.about(begins)), 0)
	for _, w := range []process{old, newer} {
		w.stop()
		equal(t, "age of what is unserved", w.gauge("pointsman_unserved_oldest_seconds"), 0)
	}
	equal(t, "workers that stopped", b.count(`select count(*) from pointsman.workers`), 0)
	if n, err := testutil.GatherAndCount(old.metrics, "pointsman_unserved_lanes", "pointsman_unserved_instances", "pointsman_unserved_oldest_seconds"); n != 3 || err != nil {
		t.Errorf("%d series, %v: the names of lanes are up to callers, and no labels", n, err)
	}
}
