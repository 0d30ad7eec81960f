package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
	"github.com/pointsman/pointsman/wake"
)

// twoWaits is a machine that waits for the signal s twice, and is done.
func twoWaits(t *testing.T) *engine.Machine {
	t.Helper()
	return steps(t, map[string]step{
		"begin":  to(engine.Await("second", "s")),
		"second": to(engine.Await("end", "s").Consuming()),
		"end":    to(engine.Done("over")),
	})
}

// patiently is a context that outlasts what should come at once.
func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Without anybody between them a client learns at once what its worker commits, and what it ends itself. It never polls here.
func TestWaitInOneProcess(t *testing.T) {
	t.Parallel()
	b := setupWith(t, engine.Config{WaitPoll: slow})
	b.serve(twoWaits(t))
	watched(t, b, b.Client)

	canceled := b.start(engine.NewInstance{Machine: "other", CorrelationKey: "c"})
	next, stop := iter.Pull2(b.Watch(patiently(t), engine.ByKey("", "c")))
	defer stop()
	in, err, _ := next()
	equal(t, "runs for nobody", fmt.Sprint(in.ID, in.Status, err), fmt.Sprint(canceled.ID, engine.StatusRunnable, nil))
	must(b.Cancel(t.Context(), engine.ByID(canceled.ID), ""))(t)
	in, err, _ = next()
	equal(t, "canceled", fmt.Sprint(in.Status, err), fmt.Sprint(engine.StatusCanceled, nil))
	_, _, more := next()
	equal(t, "more", more, false)
	// It is a matter of the last who had the key, until somebody has it again.
	equal(t, "by key", must(b.Wait(t.Context(), engine.ByKey("", "c")))(t).ID, canceled.ID)
}

// watched follows an instance that b's workers run through the eyes of c, from its start to its end.
func watched(t *testing.T, b *bundle, c *engine.Client) {
	t.Helper()
	id := b.begin("m", "k").ID
	next, stop := iter.Pull2(c.Watch(patiently(t), engine.ByKey("", "k")))
	defer stop()
	until := func(what string, ok func(engine.Instance) bool) (in engine.Instance) {
		t.Helper()
		for {
			now, err, more := next()
			if err != nil || !more {
				t.Fatalf("%s: %v, after %+v", what, err, in)
			}
			if in = now; ok(in) {
				return in
			}
		}
	}
	waited := make(chan engine.Instance)
	for _, ref := range []engine.Ref{engine.ByKey("", "k"), engine.ByID(id).In("default")} {
		go func() {
			in, err := c.Wait(patiently(t), ref)
			if err != nil {
				t.Error(err)
			}
			waited <- in
		}()
	}
	for i, step := range []string{"second", "end"} {
		until("awaits at "+step, func(in engine.Instance) bool { return in.Step == step && in.Status == engine.StatusAwaiting })
		b.send("k", "s", fmt.Sprint(i))
	}
	done := until("ends", func(in engine.Instance) bool { return !in.Status.Live() })
	equal(t, "result", string(done.Result), `"over"`)
	if _, _, more := next(); more {
		t.Error("there is more after the end")
	}
	for range 2 {
		in := receive(t, waited)
		equal(t, "waited for", fmt.Sprint(in.ID, in.Status, string(in.Result)), fmt.Sprint(id, engine.StatusDone, `"over"`))
	}
}

// overNATS is a client of b's schema as another process has it, with its connection.
func (b *bundle) overNATS(s *natstest.Server, poll time.Duration, metrics prometheus.Registerer) (*engine.Client, *nats.Conn) {
	b.t.Helper()
	nc := s.Conn(b.t)
	w := wake.New(nc, must(subjects.New(""))(b.t))
	b.t.Cleanup(w.Close)
	return must(engine.NewClient(b.connect(b.db.URL), engine.Config{Schema: b.db.Schema, Logger: quiet, Waker: w, WaitPoll: poll, Metrics: metrics}))(b.t), nc
}

// What one process commits another one hears of, on its own connection, and keeps no subscription when nobody waits.
func TestWaitAcrossProcesses(t *testing.T) {
	t.Parallel()
	b, s := setup(t), natstest.Start(t)
	worker, _ := b.overNATS(s, slow, nil)
	b.workAs(worker, engine.WorkerConfig{Machines: []*engine.Machine{twoWaits(t)}, PollInterval: 10 * time.Millisecond})
	client, nc := b.overNATS(s, slow, nil)
	watched(t, b, client)
	eventually(t, "no subscription is left", func() bool { return nc.NumSubscriptions() == 0 })
}

// While NATS is away the end is found by looking.
func TestWaitWithoutNATS(t *testing.T) {
	t.Parallel()
	b, s := setup(t), natstest.Start(t)
	reg := prometheus.NewRegistry()
	client, _ := b.overNATS(s, 10*time.Millisecond, reg)
	id := b.begin("m", "k").ID
	s.Down(t)
	waited := make(chan engine.Instance)
	go func() {
		in, err := client.Wait(patiently(t), engine.ByID(id))
		if err != nil {
			t.Error(err)
		}
		waited <- in
	}()
	eventually(t, "it waits", func() bool { return gauge(t, reg, "pointsman_waits") == 1 })
	must(b.Cancel(t.Context(), engine.ByID(id), ""))(t)
	equal(t, "status", receive(t, waited).Status, engine.StatusCanceled)
	equal(t, "waits", gauge(t, reg, "pointsman_waits"), 0)
	s.Up(t)
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	for _, family := range must(reg.Gather())(t) {
		if family.GetName() == name {
			return family.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Whoever gives up waiting gets his context's error, and nothing goes on for him.
func TestWaitGivenUp(t *testing.T) {
	t.Parallel()
	b, s := setup(t), natstest.Start(t)
	reg := prometheus.NewRegistry()
	client, nc := b.overNATS(s, slow, reg)
	id := b.begin("m", "k").ID
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	const n = 20
	for i := range n {
		go func() {
			if i%2 == 0 {
				_, err := client.Wait(ctx, engine.ByKey("", "k"))
				errs <- err
				return
			}
			var last error
			for _, err := range client.Watch(ctx, engine.ByID(id)) {
				last = err
			}
			errs <- last
		}()
	}
	eventually(t, "all wait", func() bool { return gauge(t, reg, "pointsman_waits") == n })
	cancel()
	for range n {
		if err := receive(t, errs); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	equal(t, "waits", gauge(t, reg, "pointsman_waits"), 0)
	eventually(t, "no subscription is left", func() bool { return nc.NumSubscriptions() == 0 })
	next, stop := iter.Pull2(client.Watch(patiently(t), engine.ByID(id)))
	if _, err, _ := next(); err != nil {
		t.Error(err)
	}
	stop()
	equal(t, "waits after a break", gauge(t, reg, "pointsman_waits"), 0)
}

func TestWaitRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for what, ref := range map[string]engine.Ref{"id": engine.ByID(uuid.New()), "key": engine.ByKey("", "nobody"), "project": engine.ByID(b.begin("m", "").ID).In("other")} {
		if _, err := b.Wait(patiently(t), ref); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
		for in, err := range b.Watch(patiently(t), ref) {
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%s: %v, %v", what, in, err)
			}
		}
	}
	if _, err := b.Wait(patiently(t), engine.ByKey("a b", "k")); engine.Code(err) != "invalid" {
		t.Errorf("project: %v", err)
	}
	if _, err := engine.NewClient(b.pool, engine.Config{WaitPoll: -1}); err == nil {
		t.Error("a poll interval below 0 is taken")
	}
}
