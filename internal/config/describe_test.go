package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/pointsman/pointsman/internal/schema"
)

// docs/pointsman.schema.json is what the readers ask for. -update writes it.
func TestSchemaIsOfTheReaders(t *testing.T) {
	t.Parallel()
	doc, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "docs", "pointsman.schema.json")
	if *update {
		if err := os.WriteFile(file, doc, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(doc) {
		t.Error("docs/pointsman.schema.json is not what the configuration is read by: go test ./internal/config -run TestSchema -update writes it")
	}
}

// What is read is allowed by the schema; what is of another shape is not.
func TestSchema(t *testing.T) {
	t.Parallel()
	doc, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) string {
		t.Helper()
		body, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		reason, err := s.Check(body)
		if err != nil {
			t.Fatal(err)
		}
		return reason
	}
	files, err := filepath.Glob("../../examples/*/pointsman.yaml")
	more, err2 := filepath.Glob("../../examples/flows/*/pointsman.yaml")
	if err != nil || err2 != nil || len(files)+len(more) < 5 {
		t.Fatal(files, more, err, err2)
	}
	for _, file := range append(append(files, more...), "testdata/contract.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if reason := check(text); reason != "" {
			t.Errorf("%s: %s", file, reason)
		}
	}
	if reason := check([]byte(everything)); reason != "" {
		t.Errorf("everything: %s", reason)
	}
	for _, wrong := range []string{
		"surplus: 1", "project: [a]", "routes: {}", "routes: [{name: a, steam: s}]", "worker: {lease: soon}", "worker: {queues: {a: [1]}}", "database: {pooler: session}",
		"flows: [{name: f}]", "flows: [{name: f, steps: [{ref: a, type: nap}]}]", "flows: [{name: f, steps: [{ref: a, type: call}]}]",
		"flows: [{name: f, steps: [{ref: a, type: call, subject: s, event_key: k}]}]", "flows: [{name: f, steps: [{ref: a, type: sleep, sleep_duration: 1s, on_failure: no}]}]",
		"flows: [{name: f, steps: [{ref: a, type: set_event, key: k}]}]", "machines: [{name: m}]", "machines: [{name: m, start: s, retry: {factor: 0}}]",
	} {
		if check([]byte(wrong)) == "" {
			t.Errorf("%s: is allowed", wrong)
		}
	}
}
