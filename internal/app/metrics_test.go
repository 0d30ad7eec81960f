package app_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/httpapi"
)

const metricsPage = "../../docs/metrics.md"

// contractMetrics are those that the contract names.
const contractMetrics = `pointsman_bridge_messages_total pointsman_bridge_batch_seconds pointsman_bridge_pending_messages pointsman_bridge_ack_pending pointsman_signal_age_seconds
	pointsman_steps_total pointsman_step_seconds pointsman_pick_seconds pointsman_commit_seconds pointsman_queue_depth pointsman_queue_oldest_seconds pointsman_wake_to_run_seconds
	pointsman_leases_expired_total pointsman_commits_refused_total pointsman_outbox_pending pointsman_outbox_published_total pointsman_webhook_deliveries_total
	pointsman_event_triggers_created_total pointsman_event_triggers_received_total pointsman_event_triggers_timed_out_total pointsman_build_info`

// TestMetrics compares docs/metrics.md with what the programs say when each metric has something to say. POINTSMAN_UPDATE_DOCS=1 writes
// the page anew.
func TestMetrics(t *testing.T) {
	t.Parallel()
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.Start(t, `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: order, state: "{{payload}}"}}
`, map[string][]string{"ORDERS": {"orders.>"}}, machine)
	client, err := httpapi.NewClient(s.HTTPURL, "", "")
	if err != nil {
		t.Fatal(err)
	}
	create := func(key string, secs int) {
		if err := client.Do(t.Context(), httpapi.Call{Method: "POST", Path: "/v1/triggers", Whole: true}, map[string]any{"event_key": key, "timeout_secs": secs}, nil); err != nil {
			t.Fatal(err)
		}
	}
	create("late", 1)
	create("sent", 60)
	if err := client.Do(t.Context(), httpapi.Call{Method: "POST", Path: "/v1/events/sent/send", Whole: true}, map[string]any{"payload": 1}, nil); err != nil {
		t.Fatal(err)
	}
	s.Publish(t, "orders.metrics-1.placed", `{"amount": 1, "items": 1}`)

	var found map[string]documented
	apptest.Eventually(t, "each metric has something to say", func() (bool, error) {
		found = scrape(t, s.HTTPURL, "bridge")
		for name, m := range scrape(t, s.WorkerURL, "worker") {
			if had, ok := found[name]; ok {
				m.programs = append(had.programs, m.programs...)
			}
			found[name] = m
		}
		for name := range strings.FieldsSeq(contractMetrics) {
			if _, ok := found[name]; !ok {
				return false, fmt.Errorf("there is no %s", name)
			}
		}
		return true, nil
	})
	for name, m := range found {
		if strings.HasPrefix(name, "pointsman_event_triggers_") { // an instance's are counted by its worker, the others by the bridge
			m.programs = []string{"bridge", "worker"}
			found[name] = m
		}
	}
	page := metricsTable(found)
	if os.Getenv("POINTSMAN_UPDATE_DOCS") != "" {
		if err := os.WriteFile(metricsPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page {
		t.Errorf("docs/metrics.md is not what the programs say: run this test with POINTSMAN_UPDATE_DOCS=1. They say:\n%s", page)
	}
}

// documented is a metric as the page has it.
type documented struct {
	kind, labels, help string
	programs           []string
	buckets            string
}

func scrape(t *testing.T, url, program string) map[string]documented {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]documented{}
	for name, f := range families {
		if !strings.HasPrefix(name, "pointsman_") {
			continue
		}
		d := documented{kind: strings.ToLower(f.GetType().String()), help: f.GetHelp(), programs: []string{program}}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		d.labels = strings.Join(labels, ", ")
		if f.GetType() == dto.MetricType_HISTOGRAM {
			b := f.GetMetric()[0].GetHistogram().GetBucket()
			d.buckets = fmt.Sprintf(" Buckets from %s s to %s s.", trim(b[0].GetUpperBound()), trim(b[len(b)-2].GetUpperBound()))
		}
		found[name] = d
	}
	return found
}

var zeros = regexp.MustCompile(`\.?0+$`)

func trim(f float64) string { return zeros.ReplaceAllString(fmt.Sprintf("%.4f", f), "") }

func metricsTable(found map[string]documented) string {
	var b strings.Builder
	b.WriteString(`# Metrics

Bridges and workers tell Prometheus at ` + "`/metrics`" + `, without a token: of ` + "`http.addr`" + ` and of ` + "`worker.http_addr`" + `. This page is written by a test from
what they say. Beside these they have those of the Go runtime and of the process (` + "`go_*`, `process_*`" + `). [Alert rules](../deploy/prometheus/alerts.yaml) and a
[Grafana dashboard](../deploy/grafana/pointsman.json) are in ` + "`deploy/`" + `; [runbooks.md](runbooks.md) says what to do about each alert.

Gauges of the database or of a stream (depths, what is pending or unserved) are the same on every program that tells them: take the ` + "`max`" + `, not the sum.
Labels are bounded: routes are those of the configuration, machines, steps and queues those that a program serves (the steps of a remote
machine are the first 100 that it was asked for), and of projects the first 1,000 of a process have a label of their own, the others ` + "`(other)`" + `.

| metric | kind | labels | of | is |
| --- | --- | --- | --- | --- |
`)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s%s |\n", name, m.kind, m.labels, strings.Join(m.programs, ", "), m.help, m.buckets)
	}
	return b.String()
}
