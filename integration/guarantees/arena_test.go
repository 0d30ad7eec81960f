package guarantees

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/cluster"
	"github.com/pointsman/pointsman/integration/oracle"
	"github.com/pointsman/pointsman/integration/stories"
)

// patience is how long a test waits for what should come soon. Only one that fails waits so long.
const patience = 2 * time.Minute

// arena is a cluster with a workload on it, and the oracle that watches both.
type arena struct {
	*testing.T
	*cluster.Cluster
	ctx      context.Context
	stories  []stories.Story
	nc       *nats.Conn
	js       jetstream.JetStream
	db       *pgxpool.Pool
	account  *oracle.Account
	workload *stories.Workload
	rest     *stories.Rest
}

// newArena starts a cluster whose bridges and workers have these stories.
func newArena(t *testing.T, cfg cluster.Config, names ...string) *arena {
	t.Helper()
	a := &arena{T: t, stories: stories.Named(names...), account: oracle.NewAccount()}
	if cfg.Config == "" {
		cfg.Config = stories.Config(a.stories...)
	}
	cfg.Streams = stories.Streams()
	cfg.WorkerProgram = "./integration/storyworker"
	cfg.LogLevel = "debug"
	began := time.Now()
	a.Cluster = cluster.Start(t, cfg)
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var err error
	a.nc, err = nats.Connect(a.NATSURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	a.must(err)
	t.Cleanup(a.nc.Close)
	a.js, err = jetstream.New(a.nc)
	a.must(err)
	a.db, err = pgxpool.New(a.ctx, a.DatabaseURL())
	a.must(err)
	t.Cleanup(a.db.Close)

	watch := stories.NewWatch(a.js, a.account)
	copies, err := stories.NewCopies(a.ctx, a.db, a.account, watch)
	a.must(err)
	var watching sync.WaitGroup
	watching.Go(func() { watch.Run(a.ctx) })
	watching.Go(func() { copies.Run(a.ctx) })
	t.Cleanup(func() { cancel(); watching.Wait() })
	a.rest = &stories.Rest{DB: a.db, JS: a.js, Account: a.account, Watch: watch, Copies: copies}
	a.workload = &stories.Workload{Stories: a.stories, Players: 4, Seed: seed(t), Conn: a.nc, JS: a.js, Account: a.account}
	a.must(a.Ready(a.ctx))
	t.Logf("up after %s", time.Since(began).Round(time.Millisecond))
	return a
}

// seedVariable names the seed of a run that is to be repeated.
const seedVariable = "POINTSMAN_NEMESIS_SEED"

var seeds = sync.OnceValue(func() uint64 { return uint64(time.Now().UnixNano()) })

func seed(t *testing.T) uint64 {
	t.Helper()
	n := seeds()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, n)
	return n
}

func (a *arena) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// eventually tries until it succeeds.
func (a *arena) eventually(what string, try func(ctx context.Context) error) {
	a.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			a.Fatalf("never: %s: %v", what, err)
		}
		select {
		case <-a.ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// begin has the workload play until the returned function is called, which waits for the plays that have begun.
func (a *arena) begin() (end func()) {
	a.Helper()
	ctx, cancel := context.WithCancel(a.ctx)
	more, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.workload.Run(ctx, more) }()
	return sync.OnceFunc(func() {
		a.Helper()
		stop()
		select {
		case err := <-done:
			cancel()
			if err != nil {
				a.Errorf("the workload: %v", err)
			}
			return
		case <-time.After(patience):
		}
		cancel()
		a.Errorf("the workload is stuck: %v", <-done)
	})
}

// played waits until so many more plays are over, or fewer in the short form.
func (a *arena) played(n int) {
	a.Helper()
	n = orLess(n)
	from := a.workload.Played()
	a.eventually(fmt.Sprint(n, " plays"), func(context.Context) error {
		if now := a.workload.Played(); now < from+n {
			return fmt.Errorf("%d of %d plays are over", now-from, n)
		}
		return nil
	})
}

// fault is in force, and healed after the work between has been done.
func (a *arena) fault(f *cluster.Fault, err error) (heal func()) {
	a.Helper()
	a.must(err)
	a.Logf("%s", f)
	return func() {
		a.Helper()
		a.must(f.Heal(a.ctx))
	}
}

// during does work while a fault is in force.
func (a *arena) during(f *cluster.Fault, err error) func(work func()) {
	a.Helper()
	heal := a.fault(f, err)
	return func(work func()) {
		a.Helper()
		work()
		heal()
	}
}

// while lets a fault last. How long is a part of what it is: a pause that is longer than a lease, a cut that is shorter.
func (a *arena) while(d time.Duration) func() {
	return func() {
		select {
		case <-time.After(d):
		case <-a.ctx.Done():
		}
	}
}

// found waits for rest, and returns all that is wrong.
func (a *arena) found() []oracle.Violation {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(a.Ready(ctx))
	vs, err := a.rest.Settle(ctx)
	a.tellAcks()
	if len(vs) > 0 { // once more: with what bridges were told, and what a stream had late
		again, cancel := context.WithTimeout(a.ctx, patience)
		defer cancel()
		vs, err = a.rest.Settle(again)
	}
	if err != nil {
		a.Error(err)
	}
	return vs
}

// tellAcks notes which streams bridges were told to have what.
func (a *arena) tellAcks() {
	a.Helper()
	acks := 0
	for _, m := range a.Bridges() {
		acks += stories.TellAcks(a.account, m.Log())
	}
	if c := a.account.Count(); acks == 0 && c.Records > 0 {
		a.Errorf("there are %d records, and bridges have logged no ack", c.Records)
	}
}

// shownOfAKind is how many violations of a kind a failed test shows.
const shownOfAKind = 8

// wrong fails the test for what is wrong, with what the tables have of it.
func (a *arena) wrong(vs []oracle.Violation) {
	a.Helper()
	shown := map[oracle.Kind]int{}
	for _, v := range vs {
		if shown[v.Kind]++; shown[v.Kind] <= shownOfAKind {
			a.Error(v)
		}
	}
	if len(vs) == 0 {
		return
	}
	a.Errorf("in all %v", shown)
	evidence, err := a.rest.Evidence(a.ctx)
	a.Logf("%s\n%v", evidence, err)
}

// settled waits for rest, and wants nothing to be wrong.
func (a *arena) settled() {
	a.Helper()
	a.wrong(a.found())
	a.Logf("%+v", a.account.Count())
}

// kinds of violations, each once.
func kinds(vs []oracle.Violation) (all []oracle.Kind) {
	for _, v := range vs {
		all = append(all, v.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// atLeast says whether so many events have been published.
func (a *arena) atLeast(n int) error {
	if c := a.account.Count(); c.Events < n {
		return fmt.Errorf("%d of %d events", c.Events, n)
	}
	return nil
}
