package flow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

const (
	benchFlows = 1000
	benchSteps = 10
)

// BenchmarkFlows runs 1,000 flows of 10 calls in a row beside 1,000 instances of a machine in Go that makes the same calls in 10 steps, one after
// the other on the same database and NATS server, and reports the steps a second of each and their ratio.
//
//	go test ./flow -run '^$' -bench Flows -benchtime 3x
func BenchmarkFlows(b *testing.B) {
	s := newServices(b)
	s.quiet = true
	s.answer("work", func(data json.RawMessage) (any, error) { return data, nil })
	env := enginetest.New(b)
	ms := append(machines(b, s.conn, benchFlow()), benchMachine(b, s))
	stop := env.Serve(engine.WorkerConfig{Machines: ms, Queues: map[string]int{engine.DefaultQueue: 128}})
	b.Cleanup(stop)
	var took [2]time.Duration
	for b.Loop() {
		for i, machine := range []string{"flow", "go"} {
			took[i] += benchRun(b, env, machine)
		}
	}
	rate := func(d time.Duration) float64 { return float64(b.N) * benchFlows * benchSteps / d.Seconds() }
	b.ReportMetric(rate(took[0]), "flow-steps/s")
	b.ReportMetric(rate(took[1]), "go-steps/s")
	b.ReportMetric(rate(took[0])/rate(took[1]), "ratio")
	b.ReportMetric(0, "ns/op")
}

func benchRun(b *testing.B, env *enginetest.Env, machine string) time.Duration {
	b.Helper()
	batch := make([]engine.NewInstance, benchFlows)
	for i := range batch {
		batch[i] = engine.NewInstance{Machine: machine, State: json.RawMessage(`{"n": 1}`)}
	}
	begin := time.Now()
	started, err := env.Client.StartAll(b.Context(), batch, false)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range started {
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
		in, err := env.Client.Wait(ctx, engine.ByID(r.InstanceID))
		cancel()
		if err != nil || in.Status != engine.StatusDone {
			b.Fatal(in.Status, in.LastError, err)
		}
	}
	return time.Since(begin)
}

// benchFlow is a row of calls, each with the output of the one before.
func benchFlow() string {
	var text strings.Builder
	text.WriteString("flows:\n  - name: flow\n    steps:\n")
	for i := range benchSteps {
		data, on := "{{payload}}", ""
		if i > 0 {
			data, on = fmt.Sprintf("{{steps.s%d.output}}", i-1), fmt.Sprintf("s%d", i-1)
		}
		fmt.Fprintf(&text, "      - {ref: s%d, type: call, subject: work, data: %q, depends_on: [%s]}\n", i, data, on)
	}
	return text.String()
}

// benchMachine is the same in Go.
func benchMachine(b *testing.B, s *services) *engine.Machine {
	b.Helper()
	steps := map[string]engine.Step[map[string]json.RawMessage]{}
	for i := range benchSteps {
		steps[fmt.Sprintf("s%d", i)] = func(ctx context.Context, v *engine.Visit[map[string]json.RawMessage]) (engine.Outcome, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			m, err := s.conn.RequestWithContext(ctx, "work", []byte(`{"n": 1}`))
			if err != nil {
				return engine.Outcome{}, err
			}
			v.State[v.Instance.Step] = m.Data
			if i == benchSteps-1 {
				return engine.Done(json.RawMessage(m.Data)), nil
			}
			return engine.Next(fmt.Sprintf("s%d", i+1)), nil
		}
	}
	m, err := engine.Define(engine.Definition[map[string]json.RawMessage]{Name: "go", Start: "s0", Steps: steps})
	if err != nil {
		b.Fatal(err)
	}
	return m
}
