package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// WorkerConfig of a [Worker]. Without Machines a worker picks nothing, and does only what any worker does for all instances: deadlines,
// delayed starts, triggers, leases and holds that ran out, the retention of what has ended.
type WorkerConfig struct {
	Machines []*Machine     // several versions of one machine side by side are fine
	Queues   map[string]int // how many instances of each queue may execute here at once; zero: 64 of "default"
	Name     string         // as shown in leases; zero: host, process id and a random part

	Lease           time.Duration // how long an instance is this worker's without a heartbeat; zero: 60s
	Heartbeat       time.Duration // zero: a third of Lease
	PollInterval    time.Duration // how long to wait for work that nobody poked for; zero: 1s
	ReapInterval    time.Duration // how late a deadline or an expired lease may be noticed; zero: 1s
	ShutdownTimeout time.Duration // how long running steps may go on after Run was told to stop; zero: 30s

	Retention Retention // of what has ended

	Logger *slog.Logger // zero: the client's
}

// keepDedup is how long what was taken in is known as a duplicate, where nothing else is said.
const keepDedup = 7 * 24 * time.Hour

func (cfg WorkerConfig) withDefaults() WorkerConfig {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&cfg.Lease, time.Minute)
	or(&cfg.Heartbeat, cfg.Lease/3)
	or(&cfg.PollInterval, time.Second)
	or(&cfg.ReapInterval, time.Second)
	or(&cfg.ShutdownTimeout, 30*time.Second)
	or(&cfg.Retention.Instances, 7*24*time.Hour)
	or(&cfg.Retention.Dedup, keepDedup)
	or(&cfg.Retention.Triggers, 30*24*time.Hour)
	or(&cfg.Retention.Webhooks, 30*24*time.Hour)
	or(&cfg.Retention.Jobs, 30*24*time.Hour)
	if len(cfg.Queues) == 0 {
		cfg.Queues = map[string]int{DefaultQueue: 64}
	}
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8])
	}
	return cfg
}

func (cfg WorkerConfig) check() (err error) {
	known := map[string]bool{}
	for _, m := range cfg.Machines {
		if m == nil {
			return errors.New("a machine is nil: was the error of Define looked at?")
		}
		if known[m.known()] {
			err = errors.Join(err, fmt.Errorf("machine %s version %d is there twice", m.name, m.version))
		}
		known[m.known()] = true
	}
	for queue, slots := range cfg.Queues {
		err = errors.Join(err, ident.Queue("queue", queue))
		if slots < 1 {
			err = errors.Join(err, fmt.Errorf("queue %s: %d slots: want 1 or more", queue, slots))
		}
	}
	if cfg.Lease < 0 || cfg.Heartbeat < 0 || cfg.PollInterval < 0 || cfg.ReapInterval < 0 || cfg.ShutdownTimeout < 0 ||
		cfg.Retention.Instances < 0 || cfg.Retention.Dedup < 0 || cfg.Retention.Triggers < 0 || cfg.Retention.Webhooks < 0 || cfg.Retention.Jobs < 0 {
		err = errors.Join(err, errors.New("a duration is below 0"))
	}
	if cfg.Heartbeat < time.Millisecond {
		err = errors.Join(err, fmt.Errorf("heartbeat %s: want at least 1ms", cfg.Heartbeat))
	}
	if 2*cfg.Heartbeat > cfg.Lease {
		err = errors.Join(err, fmt.Errorf("heartbeat %s: want at most half of the lease, %s", cfg.Heartbeat, cfg.Lease))
	}
	return err
}

// Worker picks ready instances, runs their steps and commits what these come to.
type Worker struct {
	client   *Client
	store    *store.Store
	cfg      WorkerConfig
	grace    time.Duration // how long what was told to stop may take to do so
	log      *slog.Logger
	metrics  *metrics
	machines map[string]*Machine // by machine@version
	known    []string
	queues   []*queue
	outcomes chan finished
	alone    atomic.Bool // something runs that is picked one at a time
	leases   *leases
	health   health
	life     lifetime
	reap     *alarm
	unserved unserved
	paths    paths
}

// lifetime of the parts of a running worker: work in hand outlives picking.
type lifetime struct{ picking, working context.Context }

// NewWorker checks the configuration, and registers the validators of its machines with the client; it starts nothing.
func NewWorker(c *Client, cfg WorkerConfig) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w := &Worker{client: c, store: c.store, cfg: cfg, grace: min(5*time.Second, cfg.ShutdownTimeout), log: cfg.Logger, metrics: c.metrics, machines: map[string]*Machine{}, leases: newLeases(cfg.Lease), reap: newAlarm()}
	if w.log == nil {
		w.log = c.log
	}
	for _, m := range cfg.Machines {
		w.machines[m.known()] = m
		w.known = append(w.known, m.known())
	}
	c.adopt(cfg.Machines)
	slots := 0
	for _, name := range slices.Sorted(maps.Keys(cfg.Queues)) {
		if len(cfg.Machines) == 0 {
			break
		}
		w.queues = append(w.queues, newQueue(name, cfg.Queues[name]))
		slots += cfg.Queues[name]
	}
	w.outcomes = make(chan finished, slots)
	return w, nil
}

// Run works until ctx is canceled, and returns when all it holds is committed or given back: nil, or what kept it from that. A
// database that is away is waited for.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.register(ctx); err != nil {
		return nil // told to stop before the database was there
	}
	detach := w.client.attach(w)
	defer detach()
	stopListening := w.listen()
	defer stopListening()

	// Work in hand outlives ctx, by at most ShutdownTimeout; commits and heartbeats outlive the work.
	after := context.WithoutCancel(ctx)
	working, stopWorking := context.WithCancelCause(after)
	defer stopWorking(nil)
	settling, stopSettling := context.WithCancel(after)
	defer stopSettling()
	w.life = lifetime{picking: ctx, working: working}

	var picking, running, settlers sync.WaitGroup
	for _, q := range w.queues {
		picking.Go(func() { w.pickLoop(ctx, q, &running) })
	}
	picking.Go(func() { w.reapLoop(ctx) })
	picking.Go(func() { w.retainLoop(ctx) })
	settlers.Go(func() { w.heartbeatLoop(settling) })
	drain, committed := make(chan struct{}), make(chan struct{})
	go func() { defer close(committed); w.commitLoop(settling, drain) }()

	<-ctx.Done()
	deadline := time.Now().Add(w.cfg.ShutdownTimeout)
	picking.Wait()
	abandoned := w.finish(&running, deadline, stopWorking)
	close(drain)
	select {
	case <-committed:
	case <-time.After(max(time.Until(deadline), w.grace)):
	}
	stopSettling()
	<-committed
	settlers.Wait()
	w.gone(after)
	return w.leftover(abandoned)
}

// leftover is what Run could not see to the end.
func (w *Worker) leftover(abandoned bool) error {
	left := w.leases.count()
	switch {
	case left == 0:
		return nil
	case abandoned:
		return fmt.Errorf("worker: steps of %d instances did not stop within %s; their leases run out by themselves", left, w.cfg.ShutdownTimeout+w.grace)
	default:
		return fmt.Errorf("worker: %d instances could not be given back; their leases run out by themselves", left)
	}
}

// register waits for the database.
func (w *Worker) register(ctx context.Context) error {
	machines := make([]store.Machine, len(w.cfg.Machines))
	for i, m := range w.cfg.Machines {
		machines[i] = store.Machine{Name: m.name, Version: m.version, Start: m.start, Queue: m.queue, Validators: w.validatorsOf(m)}
	}
	return w.retry(ctx, "register", func(ctx context.Context) error {
		if err := w.store.Register(ctx, machines); err != nil {
			return err
		}
		return w.seen(ctx)
	})
}

// listen gets pokes from other processes where it can.
func (w *Worker) listen() (stop func()) {
	if w.client.waker == nil {
		return func() {}
	}
	stop, err := w.client.waker.Listen(slices.Sorted(maps.Keys(w.cfg.Queues)), func(queue string) { w.poke(queue) })
	if err != nil {
		w.log.Warn("no pokes from other processes: polling only", "error", err)
		return func() {}
	}
	return stop
}

// finish waits for the running steps, then cancels them, then gives up on those that do not heed it.
func (w *Worker) finish(running *sync.WaitGroup, deadline time.Time, stopWorking context.CancelCauseFunc) (abandoned bool) {
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
		return false
	case <-time.After(time.Until(deadline)):
	}
	stopWorking(ErrShutdown)
	select {
	case <-done:
		return false
	case <-time.After(w.grace):
		return true
	}
}

// callTimeout bounds every call of the database: a connection may be dead without saying so.
const callTimeout = 30 * time.Second

// retry calls fn until it succeeds or ctx is canceled, which is its error. It says when trouble begins and when it ends.
func (w *Worker) retry(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 5*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := fn(call)
		if store.Blame(err) == store.BlameLock {
			w.log.Debug("something is locked: trying again", "part", what, "error", err)
		} else if ctx.Err() == nil {
			w.health.set(w.log, what, err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0))
	return err
}

// Ready is nil while the worker reaches its database, else what is wrong.
func (w *Worker) Ready() error { return w.health.err() }
