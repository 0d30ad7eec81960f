// Package deploy has no code: its tests read what people who run pointsman copy.
package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// metrics are those of docs/metrics.md, which a test compares with the programs, and their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(pointsman_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(read(t, "../docs/metrics.md"), -1) {
		labels := regexp.MustCompile(`\w+`).FindAllString(row[3], -1)
		found[row[1]] = labels
		if row[2] == "histogram" {
			found[row[1]+"_bucket"] = append(slices.Clone(labels), "le")
			found[row[1]+"_sum"], found[row[1]+"_count"] = labels, labels
		}
	}
	if len(found) < 20 {
		t.Fatalf("docs/metrics.md has %d metrics", len(found))
	}
	return found
}

// process are the metrics of the client library that are used here.
var process = []string{"process_resident_memory_bytes", "process_cpu_seconds_total", "go_goroutines"}

// checkQuery wants PromQL, of metrics and labels that there are.
func checkQuery(t *testing.T, where, query string, known map[string][]string) {
	t.Helper()
	query = strings.NewReplacer("$__rate_interval", "1m", "$route", ".*").Replace(query)
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v: %s", where, err, query)
		return
	}
	var labels []string // that a selector of the query may have
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		selector, ok := n.(*parser.VectorSelector)
		if !ok || slices.Contains(process, selector.Name) {
			return nil
		}
		of, ok := known[selector.Name]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, selector.Name)
		}
		for _, m := range selector.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(of, m.Name) {
				t.Errorf("%s: %s has no label %s", where, selector.Name, m.Name)
			}
		}
		labels = append(labels, of...)
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !slices.Contains(labels, label) {
					t.Errorf("%s: nothing has the label %s: %s", where, label, query)
				}
			}
		}
		return nil
	})
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	strict(t, "prometheus/alerts.yaml", &file)
	known, runbooks := metrics(t), read(t, "../docs/runbooks.md")
	var names []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			checkQuery(t, r.Alert, r.Expr, known)
			if _, err := model.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
			if s := r.Labels["severity"]; s != "page" && s != "ticket" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			if r.Annotations["runbook"] != "docs/runbooks.md#"+strings.ToLower(r.Alert) || !strings.Contains(runbooks, "\n## "+r.Alert+"\n") {
				t.Errorf("%s: no section of its own in docs/runbooks.md", r.Alert)
			}
			functions := template.FuncMap{"humanize": func(any) string { return "" }, "humanizeDuration": func(any) string { return "" }, "humanizePercentage": func(any) string { return "" }}
			text := "{{ $labels := .Labels }}{{ $value := .Value }}" + r.Annotations["summary"]
			if _, err := template.New(r.Alert).Funcs(functions).Parse(text); err != nil || r.Annotations["summary"] == "" {
				t.Errorf("%s: summary: %v", r.Alert, err)
			}
			for _, use := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + use[1] + `\b`).MatchString(r.Expr) {
					t.Errorf("%s: the summary has the label %s, and the query does not", r.Alert, use[1])
				}
			}
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^## (Pointsman\w+)$`).FindAllStringSubmatch(runbooks, -1) {
		if !slices.Contains(names, section[1]) {
			t.Errorf("docs/runbooks.md has %s, which is no alert", section[1])
		}
	}
	for _, name := range regexp.MustCompile(`pointsman_\w+`).FindAllString(runbooks, -1) {
		if _, ok := known[name]; !ok {
			t.Errorf("docs/runbooks.md: there is no metric %s", name)
		}
	}
}

func TestGrafana(t *testing.T) {
	t.Parallel()
	var board struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/pointsman.json")), &board); err != nil {
		t.Fatal(err)
	}
	known, used, ids := metrics(t), map[string]bool{}, map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: no query", p.Title)
		}
		for _, target := range p.Targets {
			checkQuery(t, p.Title, target.Expr, known)
			for _, name := range regexp.MustCompile(`pointsman_\w+`).FindAllString(target.Expr, -1) {
				used[name] = true
			}
		}
	}
	if len(used) < 20 {
		t.Errorf("the dashboard shows %d metrics", len(used))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// strict reads YAML in which every field is known.
func strict(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalWithOptions([]byte(read(t, name)), into, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
