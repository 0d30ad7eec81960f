package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	benchInstances = 30_000
	benchBatch     = 200
	benchConns     = 2
)

// many instances are parked, with a state of about 300 bytes.
const many = `
insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, parked, awaits)
select gen_random_uuid(), 'p', 'm', 1, 'q', 'order-' || lpad(g::text, 9, '0'), md5('scope' || g)::uuid, 'ship', jsonb_build_object('n', 0, 'pad', repeat('s', 280)), true, '{signal/payment}'
from generate_series(1, 30000) g`

var (
	benchState   = []byte(`{"n": 1, "pad": "` + strings.Repeat("s", 280) + `"}`)
	benchPayload = []byte(`{"amount": 100, "pad": "` + strings.Repeat("p", 170) + `"}`)
)

// BenchmarkCycle delivers a batch of signals that each wake an instance, picks these, and commits an await that consumes. An
// operation is a batch; the metrics are per instance. "pooler" is as behind one, but without one.
func BenchmarkCycle(b *testing.B) {
	for _, group := range []int{64, 256} {
		b.Run(fmt.Sprint("group=", group), func(b *testing.B) { benchmarkCycle(b, group, 0, false) })
		b.Run(fmt.Sprint("group=", group, "/pooler"), func(b *testing.B) { benchmarkCycle(b, group, 0, true) })
		b.Run(fmt.Sprint("group=", group, "/partitions=1000"), func(b *testing.B) { benchmarkCycle(b, group, 1000, false) })
	}
}

func benchmarkCycle(b *testing.B, group, partitions int, pooler bool) {
	f := setup(b)
	f.exec(many)
	if partitions > 0 {
		f.exec(`update pointsman.instances set partition_key = 'key-' || abs(hashtext(correlation_key)) % $1`, partitions)
	}
	for _, table := range []string{"instances", "signals", "ready", "ledger", "leases", "history"} {
		f.exec("vacuum analyze pointsman." + table)
	}
	f.exec("checkpoint")
	c := &cycle{b: b, group: group, order: rand.Perm(benchInstances)}
	wal := walBytes(f)
	var workers sync.WaitGroup
	b.ResetTimer()
	for range benchConns {
		cfg := must(pgxpool.ParseConfig(f.db.URL))(b)
		cfg.MaxConns = 1
		Tune(cfg, pooler)
		pool := must(pgxpool.NewWithConfig(b.Context(), cfg))(b)
		defer pool.Close()
		s := must(New(pool, f.schema))(b)
		workers.Go(func() {
			for c.batches.Add(1) <= int64(b.N) {
				if err := c.run(b.Context(), s); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	cycles := float64(c.done.Load())
	b.ReportMetric(cycles/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(walBytes(f)-wal)/cycles, "WAL-B/cycle")
	for name, times := range map[string][]time.Duration{"deliver": c.delivers, "pick": c.picks, "commit": c.commits} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), name+"-p50-us")
	}
}

func walBytes(f *fixture) (n int64) {
	f.t.Helper()
	if err := f.db.Pool.QueryRow(f.t.Context(), `select (pg_current_wal_lsn() - '0/0')::bigint`).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// cycle is what the workers of a benchmark share.
type cycle struct {
	b             *testing.B
	group         int
	order         []int
	next          atomic.Int64
	batches, done atomic.Int64

	mu                       sync.Mutex
	delivers, picks, commits []time.Duration
}

func (c *cycle) run(ctx context.Context, s *Store) error {
	at := int(c.next.Add(benchBatch)) - benchBatch
	sigs := make([]Signal, benchBatch)
	for i := range sigs {
		dedup := uuid.New()
		sigs[i] = Signal{
			Key: fmt.Sprintf("order-%09d", c.order[(at+i)%benchInstances]+1), Kind: "signal", Name: "payment", Payload: benchPayload,
			DedupKey: dedup.String(), Dedup: dedup, Hash: SignalHash("signal", "payment", benchPayload),
		}
	}
	var picks, commits []time.Duration
	begin := time.Now()
	if _, err := s.Deliver(ctx, project, false, sigs); err != nil {
		return err
	}
	deliver := time.Since(begin)
	for done, empty := 0, 0; done < benchBatch && empty < 3; {
		begin := time.Now()
		works, err := s.Pick(ctx, queue, "", "w", known, c.group, time.Minute)
		if err != nil {
			return err
		}
		picks = append(picks, time.Since(begin))
		if len(works) == 0 {
			empty++
			continue
		}
		os := make([]Outcome, len(works))
		for i, w := range works {
			os[i] = consuming(await(w, "signal/payment"), w)
			os[i].State = benchState
		}
		begin = time.Now()
		settled, err := s.tryCommit(ctx, os...)
		if err != nil || len(settled.Passed) != len(works) {
			return fmt.Errorf("%d of %d passed: %w", len(settled.Passed), len(works), err)
		}
		commits = append(commits, time.Since(begin))
		done += len(works)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivers, c.picks, c.commits = append(c.delivers, deliver), append(c.picks, picks...), append(c.commits, commits...)
	c.done.Add(benchBatch)
	return nil
}
