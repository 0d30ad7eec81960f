package config

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestUpdates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"amend.json": `{"type": "object"}`, "drop.yaml": "type: string\nenum: [now, later]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Parse(filepath.Join(dir, "pointsman.yaml"), []byte(`
machines:
  - name: expense
    start: begin
    updates:
      - name: decision
        schema:
          type: object
          required: [approver]
          properties: {amount: {type: number, maximum: 1000}, approver: {pattern: "^${PREFIX}"}}
        when: payload.approved || has(payload.note)
        reason: a rejection must include a note
        remote: true
        timeout: 3s
      - {name: amend, schema_file: amend.json}
      - {name: drop, schema_file: drop.yaml}
      - {name: pause, when: " payload.now "}
`), environment(map[string]string{"PREFIX": "p-"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Update{
		{
			Name: "decision", Schema: `{"properties":{"amount":{"maximum":1000,"type":"number"},"approver":{"pattern":"^p-"}},"required":["approver"],"type":"object"}`,
			When: "payload.approved || has(payload.note)", Reason: "a rejection must include a note", Remote: true, Timeout: 3 * time.Second,
		},
		{Name: "amend", Schema: `{"type": "object"}`, Timeout: 10 * time.Second},
		{Name: "drop", Schema: c.Machines[0].Updates[2].Schema, Timeout: 10 * time.Second},
		{Name: "pause", When: "payload.now", Timeout: 10 * time.Second},
	}
	if !reflect.DeepEqual(c.Machines[0].Updates, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c.Machines[0].Updates, want)
	}
	if got := want[2].Schema; got == "" {
		t.Error("the schema of a YAML file is empty")
	}
}
