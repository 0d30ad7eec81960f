package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pointsman/pointsman/engine"
)

// A worker deletes ended instances when their time is over, later what their ledgers knew, and nothing else.
func TestRetention(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	b := setupWith(t, engine.Config{Metrics: registry})
	m := define(t, engine.Definition[raw]{Steps: map[string]step{"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		if len(v.Awaited) == 0 {
			return engine.Await("", "go").SetEvent("e", 1), nil
		}
		return engine.Done(1), nil
	}}})
	serving := b.serve(m)
	n := engine.NewInstance{Machine: "m", CorrelationKey: "k", DedupKey: "start"}
	id := b.start(n).ID
	b.send("k", "go", "d")
	b.ends(id, engine.StatusDone)
	stays := b.begin("m", "stays").ID
	b.reaches(stays, engine.StatusAwaiting)

	keep := func(instances, dedup time.Duration) *running {
		return b.work(engine.WorkerConfig{Retention: engine.Retention{Instances: instances, Dedup: dedup}})
	}
	retiring := keep(time.Millisecond, time.Hour)
	eventually(t, "the ended is gone", func() bool { return b.count(`select count(*) from pointsman.instances where id = $1`, id) == 0 })
	eventually(t, "the instance is counted", func() bool { return deleted(t, registry, "instances") == 1 })
	equal(t, "history and events of the gone", b.count(`select (select count(*) from pointsman.history where instance_id = $1) + (select count(*) from pointsman.events where instance_id = $1)`, id), 0)
	again := b.start(n)
	equal(t, "the duplicate of its start", again.ID, id)
	equal(t, "a duplicate for it", b.accept(engine.Intake{To: engine.ByKey("", "k"), Name: "go", DedupKey: "d", Payload: engine.MustJSON("d"), Body: engine.MustJSON("d")})[0].Result, engine.Duplicate)
	b.exec(`update pointsman.departed set due = now()`)
	forgetting := keep(time.Hour, time.Millisecond)
	eventually(t, "its ledger is gone", func() bool {
		return b.count(`select count(*) from pointsman.ledger`)+b.count(`select count(*) from pointsman.departed`) == 0
	})
	eventually(t, "the ledger is counted", func() bool { return deleted(t, registry, "ledger") == 2 }) // after the commit
	for _, w := range []*running{serving, retiring, forgetting} {                                      // not before: what a stopped one has sent may still delete, and counts nowhere
		w.stop()
	}
	if in := b.start(n); in.ID == id || in.Status != engine.StatusRunnable {
		t.Errorf("started anew: %+v", in)
	}
	equal(t, "who lives", b.get(stays).Status, engine.StatusAwaiting)
	want := "# HELP pointsman_retention_deleted_total What the retention has deleted, by table.\n# TYPE pointsman_retention_deleted_total counter\n" +
		"pointsman_retention_deleted_total{table=\"instances\"} 1\npointsman_retention_deleted_total{table=\"jobs\"} 0\npointsman_retention_deleted_total{table=\"ledger\"} 2\npointsman_retention_deleted_total{table=\"triggers\"} 0\n" +
		"pointsman_retention_deleted_total{table=\"verdicts\"} 0\npointsman_retention_deleted_total{table=\"webhook_deliveries\"} 0\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "pointsman_retention_deleted_total"); err != nil {
		t.Error(err)
	}
}

// Where ledgers are kept for less long than instances, the instance stays to be read.
func TestRetentionOfLedgersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := define(t, engine.Definition[raw]{Steps: map[string]step{"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) { return engine.Done("x"), nil }}})
	b.work(engine.WorkerConfig{Machines: []*engine.Machine{m}, Retention: engine.Retention{Dedup: time.Millisecond}})
	id := b.start(engine.NewInstance{Machine: "m", DedupKey: "start"}).ID
	b.ends(id, engine.StatusDone)
	eventually(t, "its ledger is gone", func() bool { return b.count(`select count(*) from pointsman.ledger`) == 0 })
	equal(t, "result", string(b.get(id).Result), `"x"`)
}

// deleted is what the retention counts of a table.
func deleted(t *testing.T, registry *prometheus.Registry, table string) (n float64) {
	t.Helper()
	for _, family := range must(registry.Gather())(t) {
		for _, m := range family.GetMetric() {
			if family.GetName() == "pointsman_retention_deleted_total" && m.GetLabel()[0].GetValue() == table {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}
