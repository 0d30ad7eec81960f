package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pointsman/pointsman/engine"
)

// Three workers never execute two instances of one partition key at a time, and all instances run to their end.
func TestPartitionKeysAcrossWorkers(t *testing.T) {
	t.Parallel()
	const instances, partitions, visits = 200, 10, 2
	b := setup(t)
	var inside [partitions]atomic.Int32
	var executions atomic.Int32
	visit := func(next engine.Outcome) step {
		return func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			var key int
			if _, err := fmt.Sscanf(v.Instance.PartitionKey, "key-%d", &key); err != nil {
				t.Error(err)
			}
			if n := inside[key].Add(1); n != 1 {
				t.Errorf("%d of the partition key %d execute at once", n, key)
			}
			defer inside[key].Add(-1)
			executions.Add(1)
			_, err := b.pool.Exec(ctx, "select 1") // takes its time, as work does
			return next, err
		}
	}
	m := steps(t, map[string]step{"begin": visit(engine.Next("end")), "end": visit(engine.Done(nil))})
	batch := make([]engine.NewInstance, instances)
	for i := range batch {
		batch[i] = engine.NewInstance{Machine: "m", Start: "begin", PartitionKey: fmt.Sprintf("key-%d", i%partitions)}
	}
	for range 3 {
		b.workAs(b.another(b.db.URL), engine.WorkerConfig{Machines: []*engine.Machine{m}, Queues: map[string]int{"default": 8}})
	}
	must(b.StartAll(t.Context(), batch, true))(t)
	b.Wake("default")
	eventually(t, "all are done", func() bool {
		return b.count(`select count(*) from pointsman.instances where status = 'done'`) == instances
	})
	equal(t, "executions", executions.Load(), int32(instances*visits))
	equal(t, "keys and waiters left", b.count(`select (select count(*) from pointsman.running_keys) + (select count(*) from pointsman.waiters)`), 0)
}

// Within a partition key, the lower priority runs first, then who has been ready for longer.
func TestPartitionKeyOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	var order []string
	entered, leave := make(chan struct{}), make(chan struct{})
	m := steps(t, map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			mu.Lock()
			order = append(order, v.Instance.CorrelationKey)
			mu.Unlock()
			if v.Instance.CorrelationKey == "first" {
				close(entered)
				<-leave
			}
			return engine.Done(nil), nil
		},
	})
	b.serve(m)
	begin := func(key string, priority int16) engine.Instance {
		return b.start(engine.NewInstance{Machine: "m", CorrelationKey: key, PartitionKey: "K", Priority: priority})
	}
	begin("first", 0)
	receive(t, entered)
	rest := []engine.Instance{begin("a", 0), begin("b", 0), begin("urgent", -1)}
	eventually(t, "they wait", func() bool { return b.count(`select count(*) from pointsman.waiters`) == len(rest) })
	equal(t, "one that waits", string(b.get(rest[0].ID).Status), string(engine.StatusRunnable))
	close(leave)
	for _, in := range rest {
		b.ends(in.ID, engine.StatusDone)
	}
	equal(t, "order", strings.Join(order, " "), "first urgent a b")
}

func TestUniqueKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("end", "go")), "end": to(engine.Done(nil))}))
	first := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "a", UniqueKey: "U"})
	equal(t, "scope", fmt.Sprint(first.UniqueScope), "[runnable executing awaiting_signal]")
	b.reaches(first.ID, engine.StatusAwaiting)

	another := engine.NewInstance{Machine: "m", CorrelationKey: "b", UniqueKey: "U"}
	_, err := b.Start(t.Context(), another)
	var conflict *engine.ConflictError
	if !errors.As(err, &conflict) || conflict.ID != first.ID {
		t.Fatalf("start: %v", err)
	}
	contains(t, "reason", err.Error(), `the unique key "U" is held by instance `+first.ID.String())

	receipts := must(b.StartAll(t.Context(), []engine.NewInstance{another, {Machine: "m", UniqueKey: "V"}, {Machine: "m", UniqueKey: "V"}}, false))(t)
	if !errors.As(receipts[0].Err, &conflict) || receipts[1].Err != nil || !errors.As(receipts[2].Err, &conflict) || conflict.ID != receipts[1].InstanceID {
		t.Errorf("batch: %+v", receipts)
	}
	b.send("a", "go", "d")
	b.ends(first.ID, engine.StatusDone)
	b.start(another)
}

// In these scopes the key outlives its instance, or is free while it waits.
func TestUniqueScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("end", "go")), "end": to(engine.Done(nil))}))
	once := engine.NewInstance{Machine: "m", CorrelationKey: "a", UniqueKey: "once", UniqueScope: []engine.Status{engine.StatusDone, engine.StatusRunnable, engine.StatusExecuting, engine.StatusAwaiting}}
	in := b.start(once)
	equal(t, "scope", fmt.Sprint(in.UniqueScope), "[runnable executing awaiting_signal done]")
	b.reaches(in.ID, engine.StatusAwaiting)
	b.send("a", "go", "d")
	b.ends(in.ID, engine.StatusDone)
	if _, err := b.Start(t.Context(), once); engine.Code(err) != "conflict" {
		t.Errorf("after it is done: %v", err)
	}
	idle := engine.NewInstance{Machine: "m", CorrelationKey: "b", UniqueKey: "V", UniqueScope: []engine.Status{engine.StatusRunnable, engine.StatusExecuting}}
	b.reaches(b.start(idle).ID, engine.StatusAwaiting)
	idle.CorrelationKey = "c"
	b.reaches(b.start(idle).ID, engine.StatusAwaiting)
}

// Both wait, and are woken at once: the second comes back while the first holds the key.
func TestUniqueUnguardedIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	b := setupWith(t, engine.Config{Metrics: registry})
	runnable := []engine.Status{engine.StatusRunnable}
	w := b.serve(steps(t, map[string]step{"begin": to(engine.Await("end", "go")), "end": to(engine.Done(nil))}))
	for _, key := range []string{"a", "b"} {
		in := b.start(engine.NewInstance{Machine: "m", CorrelationKey: key, UniqueKey: "U", UniqueScope: runnable})
		b.reaches(in.ID, engine.StatusAwaiting)
	}
	w.stop()
	b.send("a", "go", "d")
	b.send("b", "go", "d")
	const want = `
		# HELP pointsman_unique_unguarded_total Instances that came back into the scope of their unique key while another held it, and went on without.
		# TYPE pointsman_unique_unguarded_total counter
		pointsman_unique_unguarded_total 1
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "pointsman_unique_unguarded_total"); err != nil {
		t.Error(err)
	}
}

// A start by a message whose unique key is held is a duplicate of the holder's; a signal that was to start one has no target.
func TestAcceptUnique(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "a", UniqueKey: "U"})
	start := &engine.NewInstance{Machine: "m", UniqueKey: "U"}
	receipts := b.accept(
		engine.Intake{To: engine.ByKey("", "b"), Start: start, DedupKey: "1"},
		engine.Intake{To: engine.ByKey("", "c"), Start: start, Name: "go", DedupKey: "2", OnMissing: engine.MissingStart},
		engine.Intake{To: engine.ByKey("", "d"), Start: &engine.NewInstance{Machine: "m", UniqueKey: "V", PartitionKey: "K"}, Name: "go", DedupKey: "3", OnMissing: engine.MissingStart},
	)
	var results []engine.Result
	for _, r := range receipts {
		results = append(results, r.Result)
	}
	if want := []engine.Result{engine.Duplicate, engine.NoTarget, engine.Started}; !slices.Equal(results, want) {
		t.Fatalf("%+v, want %v", receipts, want)
	}
	equal(t, "duplicate of", receipts[0].InstanceID, holder.ID)
	contains(t, "reason", receipts[1].Reason, `the unique key "U" is held by instance `+holder.ID.String())
	in := b.get(receipts[2].InstanceID)
	equal(t, "keys", in.UniqueKey+in.PartitionKey, "VK")
}

// An instance that ends starts its successor with its own keys.
func TestKeysOfEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := engine.NewInstance{Machine: "m", Start: "last", CorrelationKey: "b", UniqueKey: "U", PartitionKey: "K"}
	b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil).Start(next)), "last": to(engine.Await("", "go"))}))
	first := b.start(engine.NewInstance{Machine: "m", CorrelationKey: "a", UniqueKey: "U", PartitionKey: "K"})
	b.ends(first.ID, engine.StatusDone)
	in := must(b.Get(t.Context(), engine.ByKey("", "b")))(t)
	equal(t, "keys", in.UniqueKey+in.PartitionKey, "UK")
	b.reaches(in.ID, engine.StatusAwaiting)
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for field, n := range map[string]engine.NewInstance{
		"partition_key": {Machine: "m", PartitionKey: "\x01"},
		"unique_key":    {Machine: "m", UniqueKey: strings.Repeat("k", 513)},
		"queue":         {Machine: "m", Queue: engine.OutboxQueue},
		"unique_scope":  {Machine: "m", UniqueKey: "U", UniqueScope: []engine.Status{"sleeping"}},
	} {
		_, err := b.Start(t.Context(), n)
		var invalid *engine.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := b.Start(t.Context(), engine.NewInstance{Machine: "m", UniqueScope: []engine.Status{engine.StatusDone}}); engine.Code(err) != "invalid" {
		t.Errorf("a scope of no key: %v", err)
	}
}
