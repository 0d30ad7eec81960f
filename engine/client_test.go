package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/engine"
)

func TestStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.start(engine.NewInstance{Machine: "m", Start: "begin"})
	equal(t, "version 7", in.ID.Version(), uuid.Version(7))
	equal(t, "project", in.Project, "default")
	equal(t, "version", in.Version, 1)
	equal(t, "status", in.Status, engine.StatusRunnable)
	equal(t, "step", in.Step, "begin")
	equal(t, "queue", in.Queue, "default")
	equal(t, "state", string(in.State), "{}")
	equal(t, "key", in.CorrelationKey, "")

	later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	all := engine.NewInstance{ID: uuid.New(), Project: "p", Machine: "m", Version: 4, Start: "x", CorrelationKey: "k\u00e9", State: raw(`[1]`), Queue: "q", Priority: -3, RunAt: later}
	in = b.start(all)
	equal(t, "all", fmt.Sprint(in.ID, in.Project, in.Machine, in.Version, in.Step, in.CorrelationKey, string(in.State), in.Queue, in.Priority, in.RunAt.UTC()),
		fmt.Sprint(all.ID, "p", "m", 4, "x", "k\u00e9", "[1]", "q", -3, later))
}

// A key is for one live instance of a project, and free again at its end; a dedup key is for ever.
func TestStartKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	try := func(n engine.NewInstance) (engine.Instance, error) { return b.Start(t.Context(), n) }
	first := b.begin("m", "k")
	_, err := try(engine.NewInstance{Machine: "m", CorrelationKey: "k"})
	var conflict *engine.ConflictError
	if !errors.As(err, &conflict) || conflict.ID != first.ID {
		t.Fatalf("a second holder: %v", err)
	}
	contains(t, "error", err.Error(), `the correlation key "k" is held by instance `+first.ID.String())
	equal(t, "another project", b.start(engine.NewInstance{Project: "p", Machine: "m", CorrelationKey: "k"}).ID != first.ID, true)
	_, err = try(engine.NewInstance{ID: first.ID, Machine: "m"})
	if !errors.As(err, &conflict) || conflict.ID != first.ID {
		t.Errorf("the same id: %v", err)
	}
	contains(t, "error", err.Error(), "there is an instance with the id")
	must(b.Cancel(t.Context(), engine.ByID(first.ID), ""))(t)
	second := b.begin("m", "k")
	equal(t, "another", second.ID != first.ID, true)
	equal(t, "by key", must(b.Get(t.Context(), engine.ByKey("", "k")))(t).ID, second.ID)

	for _, k := range []string{"", "other"} {
		n := engine.NewInstance{Machine: "m", CorrelationKey: k, DedupKey: "d", State: raw(`1`)}
		one := b.start(n)
		must(b.Cancel(t.Context(), engine.ByID(one.ID), ""))(t)
		equal(t, "duplicate", b.start(n).ID, one.ID)
		n.State = raw(`2`)
		_, err = try(n)
		if !errors.As(err, &conflict) || conflict.ID != one.ID {
			t.Errorf("the dedup key with another state: %v", err)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for field, n := range map[string]engine.NewInstance{
		"machine":         {},
		"version":         {Machine: "m", Version: 1 << 40},
		"project":         {Machine: "m", Project: "a.b"},
		"step":            {Machine: "m", Start: "a b"},
		"queue":           {Machine: "m", Queue: "a.b"},
		"correlation_key": {Machine: "m", CorrelationKey: "a\x00"},
		"dedup_key":       {Machine: "m", DedupKey: "\xff"},
		"reply_to":        {Machine: "m", ReplyTo: "\x00"},
		"traceparent":     {Machine: "m", Traceparent: "\x00"},
		"state":           {Machine: "m", State: raw(`{`)},
	} {
		_, err := b.Start(t.Context(), n)
		equal(t, field, engine.Code(err), "invalid")
		if err != nil {
			contains(t, "error", err.Error(), field+": ")
		}
	}
	equal(t, "instances", b.count(`select count(*) from pointsman.instances`), 0)
}

func TestGet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, ref := range []engine.Ref{engine.ByID(uuid.New()), engine.ByKey("", "nobody"), {}} {
		if _, err := b.Get(t.Context(), ref); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("%+v: %v", ref, err)
		}
	}
	if _, err := b.Get(t.Context(), engine.ByKey("", "\n")); engine.Code(err) != "invalid" {
		t.Errorf("bad key: %v", err)
	}
	one := b.begin("m", "k")
	must(b.Cancel(t.Context(), engine.ByID(one.ID), ""))(t)
	equal(t, "the last holder", must(b.Get(t.Context(), engine.ByKey("", "k")))(t).ID, one.ID)
}

func TestSignalErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.begin("m", "k").ID
	sig := func(to engine.Ref, payload string) error {
		_, err := b.Signal(t.Context(), to, engine.Signal{Name: "s", DedupKey: "d", Payload: raw(payload)})
		return err
	}
	for i := range 2 { // a duplicate is no error
		if err := sig(engine.ByID(id), "1"); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	var conflict *engine.ConflictError
	if err := sig(engine.ByKey("", "k"), "2"); !errors.As(err, &conflict) || conflict.ID != id {
		t.Errorf("conflict: %v", err)
	}
	if err := sig(engine.ByKey("", "nobody"), "1"); !errors.Is(err, engine.ErrNoTarget) {
		t.Errorf("nobody: %v", err)
	}
	if err := sig(engine.ByKey("", "k"), "{"); engine.Code(err) != "invalid" {
		t.Errorf("invalid: %v", err)
	}
	must(b.Cancel(t.Context(), engine.ByID(id), ""))(t)
	var ended *engine.NoTargetError
	_, err := b.Signal(t.Context(), engine.ByKey("", "k"), engine.Signal{Name: "s"})
	if !errors.As(err, &ended) || ended.Ended.ID != id || ended.Ended.Status != engine.StatusCanceled || engine.Code(err) != "no_target" {
		t.Errorf("ended: %v", err)
	}
}

// Cancel ends whatever has not ended, whoever waits, sleeps or has not run yet, and tells nothing twice.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("", "s").Within(time.Hour)), "sleep": to(engine.Replay(time.Hour)), "end": to(engine.Done(1))}))
	for name, in := range map[string]engine.Instance{
		"parked":    b.reaches(b.begin("m", "k").ID, engine.StatusAwaiting),
		"delayed":   b.until(b.start(engine.NewInstance{Machine: "m", Start: "sleep"}).ID, "delayed", func(in engine.Instance) bool { return in.Attempt == 1 }),
		"scheduled": b.start(engine.NewInstance{Machine: "m", RunAt: time.Now().Add(time.Hour)}),
		"unserved":  b.begin("unknown", ""),
	} {
		for _, reason := range []string{"first", "second"} {
			out := must(b.Cancel(t.Context(), engine.ByID(in.ID), reason))(t)
			equal(t, name, out.Status, engine.StatusCanceled)
			equal(t, name, out.LastError, "first")
			equal(t, name, out.FinishedAt != nil, true)
		}
	}
	equal(t, "outcomes", len(b.published(engine.PublishOutcome)), 4)
	done := b.ends(b.start(engine.NewInstance{Machine: "m", Start: "end"}).ID, engine.StatusDone)
	equal(t, "after the end", must(b.Cancel(t.Context(), engine.ByID(done.ID), "late"))(t).Status, engine.StatusDone)
	if _, err := b.Cancel(t.Context(), engine.ByKey("", "nobody"), ""); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
}

// A step that runs when its instance is canceled hears of it by the next heartbeat, and what it comes to changes nothing.
func TestCancelWhileExecuting(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(ctx context.Context) (engine.Outcome, error){
		"outcome": func(context.Context) (engine.Outcome, error) {
			return engine.Done("too late").SetEvent("e", 1).Publish("s", 1, nil).Start(engine.NewInstance{Machine: "other"}).
				Signal(engine.ByKey("", "nobody"), engine.Signal{Name: "s"}), nil
		},
		"error": func(ctx context.Context) (engine.Outcome, error) { return engine.Outcome{}, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			entered, cause := make(chan struct{}), make(chan error, 1)
			w := b.work(engine.WorkerConfig{Lease: time.Hour, Heartbeat: beat, Machines: []*engine.Machine{steps(t, map[string]step{
				"begin": func(ctx context.Context, _ *engine.Visit[raw]) (engine.Outcome, error) {
					close(entered)
					<-ctx.Done()
					cause <- context.Cause(ctx)
					return after(ctx)
				},
			})}})
			id := b.begin("m", "").ID
			receive(t, entered)
			must(b.Cancel(t.Context(), engine.ByID(id), "enough"))(t)
			if err := receive(t, cause); !errors.Is(err, engine.ErrLeaseLost) {
				t.Errorf("cause: %v", err)
			}
			w.stop()
			in := b.get(id)
			equal(t, "status", in.Status, engine.StatusCanceled)
			equal(t, "result", string(in.Result), "")
			equal(t, "effects", b.count(`select (select count(*) from pointsman.events) + (select count(*) from pointsman.held) + (select count(*) from pointsman.instances) - 1`), 0)
			equal(t, "publications", len(b.outbox()), 1) // its end
			equal(t, "leases", b.count(`select count(*) from pointsman.leases`), 0)
		})
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := engine.NewClient(b.pool, engine.Config{Outcomes: []engine.Status{engine.StatusRunnable}}); err == nil {
		t.Error("published a status that is no end")
	}
	if _, err := engine.NewClient(b.pool, engine.Config{Schema: "No Schema"}); err == nil {
		t.Error("accepted a schema that needs quotes")
	}
	reg := prometheus.NewRegistry()
	must(engine.NewClient(b.pool, engine.Config{Metrics: reg}))(t)
	if _, err := engine.NewClient(b.pool, engine.Config{Metrics: reg}); err == nil {
		t.Error("registered its metrics twice")
	}
	m := steps(t, map[string]step{"begin": to(engine.Done(nil))})
	for want, cfg := range map[string]engine.WorkerConfig{
		"a machine is nil":  {Machines: []*engine.Machine{nil}},
		"is there twice":    {Machines: []*engine.Machine{m, m}},
		"queue: ":           {Machines: []*engine.Machine{m}, Queues: map[string]int{"a.b": 1}},
		"want 1 or more":    {Machines: []*engine.Machine{m}, Queues: map[string]int{"q": 0}},
		"below 0":           {Machines: []*engine.Machine{m}, PollInterval: -1},
		"half of the lease": {Machines: []*engine.Machine{m}, Lease: time.Second, Heartbeat: time.Second},
		"want at least 1ms": {Machines: []*engine.Machine{m}, Lease: time.Microsecond},
	} {
		_, err := engine.NewWorker(b.Client, cfg)
		if err == nil {
			t.Errorf("accepted: %s", want)
			continue
		}
		contains(t, "error", err.Error(), want)
	}
}

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(0, engine.CheckSchema(t.Context(), b.pool, b.db.Schema))(t)
	b.exec(`update pointsman.schema_version set version = 1`)
	var old *engine.SchemaError
	if err := engine.CheckSchema(t.Context(), b.pool, b.db.Schema); !errors.As(err, &old) || old.Have != 1 {
		t.Errorf("an old schema: %v", err)
	}
	if err := engine.CheckSchema(t.Context(), b.pool, "absent"); !errors.As(err, &old) || old.Have != 0 {
		t.Errorf("no schema: %v", err)
	}
}
