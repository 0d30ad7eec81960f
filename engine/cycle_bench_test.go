package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/pointsman/pointsman/engine"
)

// BenchmarkCycle is signal, wake, pick, step, commit, park: ns/op is the time per cycle, with signals coming in batches of 200.
func BenchmarkCycle(b *testing.B) {
	f := setup(b)
	const parked, batchSize = 2000, 200
	var cycles atomic.Int64
	f.work(engine.WorkerConfig{Queues: map[string]int{"default": 256}, Machines: []*engine.Machine{steps(b, map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			cycles.Add(int64(len(v.Awaited)))
			return engine.Await("", "s").Consuming(), nil
		},
	})}})
	var starts []engine.Intake
	for i := range parked {
		starts = append(starts, engine.Intake{To: engine.ByKey("", fmt.Sprint(i)), Start: &engine.NewInstance{Machine: "m"}})
	}
	f.accept(starts...)
	eventually(b, "all parked", func() bool { return f.count(`select count(*) from pointsman.instances where parked`) == parked })
	b.ResetTimer()
	for i := 0; i < b.N; i += batchSize {
		batch := make([]engine.Intake, min(batchSize, b.N-i))
		for k := range batch {
			batch[k] = engine.Intake{To: engine.ByKey("", fmt.Sprint((i+k)%parked)), Name: "s", DedupKey: fmt.Sprint(i + k)}
		}
		f.accept(batch...)
	}
	eventually(b, "all handled", func() bool { return cycles.Load() == int64(b.N) })
}
