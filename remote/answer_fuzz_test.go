package remote

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Whatever comes as an answer, nothing panics, and one that is refused leaves the state alone.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"outcome":"next","step":"ship","state":{}}`, `{"outcome":"replay","state":{},"delay_ms":1000}`, `{"error":"declined"}`,
		`{"outcome":"await","signals":["payment"],"step":"decide","state":{},"timeout_ms":60000,"consume":true}`, `{"outcome":"done","result":{}}`,
		`{"outcome":"stop","reason":"r","set_events":{"k":1},"signal":[{"correlation_key":"k","name":"n","payload":1,"dedup_key":"d"}]}`,
		`{"outcome":"done","start":[{"machine":"m","run_at":"2026-01-02T03:04:05Z","priority":-1}],"publish":[{"subject":"a","data":1,"headers":{"X":["1"],"Y":"2"}}]}`,
		`{"stream":"S","seq":1}`, `[]`, `{"a":`, `{"headers":{"":null}}`,
	} {
		f.Add([]byte(seed))
	}
	space, err := subjects.New("")
	if err != nil {
		f.Fatal(err)
	}
	s := &service{space: space, machine: "m"}
	f.Fuzz(func(t *testing.T, data []byte) {
		v := &engine.Visit[json.RawMessage]{Instance: engine.Instance{ID: uuid.New(), Machine: "m", Step: "s"}, State: json.RawMessage(`"before"`)}
		_, err := s.outcome(&nats.Msg{Data: data}, v)
		if err != nil && string(v.State) != `"before"` {
			t.Errorf("the state is %s after %v", v.State, err)
		}
		if err == nil && !json.Valid(v.State) {
			t.Errorf("the state is %q", v.State)
		}
	})
}
