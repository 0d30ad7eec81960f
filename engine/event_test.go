package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

type progress struct {
	Phase string `json:"phase"`
	Pct   int    `json:"pct"`
}

func (b *bundle) progress(ref engine.Ref) string {
	b.t.Helper()
	p, found, err := engine.Event[progress](b.t.Context(), b.Client, ref, "progress")
	if err != nil {
		b.t.Fatal(err)
	}
	if !found {
		return "pending"
	}
	return fmt.Sprint(p.Phase, " ", p.Pct)
}

// The latest value of a key is what is read: while the instance lives, and when it has ended.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("encode", "go").SetEvent("progress", progress{"probing", 0}).SetEvent("title", "a film")),
		"encode": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(nil).SetEvent("progress", progress{"encoding", 50}).SetEvent("progress", progress{"done", 100}), nil
		},
	}))
	never := b.start(engine.NewInstance{Machine: "unserved"})
	equal(t, "never published", b.progress(engine.ByID(never.ID)), "pending")
	in := b.start(engine.NewInstance{Machine: "m", Project: "acme", CorrelationKey: "k"})
	b.reaches(in.ID, engine.StatusAwaiting)
	own := engine.ByKey("acme", "k")
	equal(t, "live", b.progress(own), "probing 0")
	b.accept(engine.Intake{To: own, Name: "go"})
	b.ends(in.ID, engine.StatusDone)
	for _, ref := range []engine.Ref{own, engine.ByID(in.ID), engine.ByID(in.ID).In("acme")} {
		equal(t, "ended", b.progress(ref), "done 100")
	}
	equal(t, "all", fmt.Sprintf("%s", must(b.Events(t.Context(), in.ID))(t)), `map[progress:{"pct": 100, "phase": "done"} title:"a film"]`)

	for _, ref := range []engine.Ref{engine.ByKey("", "k"), engine.ByID(in.ID).In("default"), engine.ByID(uuid.New())} {
		if _, _, err := engine.Event[progress](t.Context(), b.Client, ref, "progress"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("%v: %v", ref, err)
		}
	}
	if _, _, err := engine.Event[int](t.Context(), b.Client, own, "progress"); err == nil {
		t.Error("a value that does not fit is no error")
	}
	if _, _, err := engine.Event[int](t.Context(), b.Client, own, ""); engine.Code(err) != "invalid" {
		t.Errorf("no key: %v", err)
	}
}

// A read changes no row, neither of the instance nor of what it published.
func TestEventReadsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{
		"begin":   to(engine.Await("decided", "go").OrUpdate("decide").SetEvent("progress", progress{"waiting", 1})),
		"decided": to(engine.Done(nil).SetEvent("progress", progress{"done", 2})),
	}))
	parked, ended := b.begin("m", "k"), b.begin("m", "l")
	b.reaches(parked.ID, engine.StatusAwaiting)
	b.send("k", "other", "1")
	b.send("l", "go", "1")
	b.ends(ended.ID, engine.StatusDone)
	before := b.footprint()
	const reads, readers = 10_000, 4
	var group sync.WaitGroup
	for k := range readers {
		group.Go(func() {
			for range reads / readers {
				id := []uuid.UUID{parked.ID, ended.ID}[k%2]
				if _, err := b.Event(t.Context(), id, "progress"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, ref := range []engine.Ref{engine.ByKey("", "k"), engine.ByKey("", "l")} {
		in := must(b.Get(t.Context(), ref))(t)
		must(b.Events(t.Context(), in.ID))(t)
		must(b.Inbox(t.Context(), in.ID, 0, 10))(t)
		must(b.History(t.Context(), in.ID, engine.Transition{}, 10))(t)
		b.progress(ref)
	}
	equal(t, "every row", b.footprint(), before)
}

// A long step shows how far it is before its outcome commits; what the outcome says comes later, and stands.
func TestSetEventWithinAStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	half, on := make(chan error), make(chan struct{})
	b.serve(steps(t, map[string]step{"begin": func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		_ = v.SetEvent(ctx, "progress", progress{"encoding", 10})
		half <- v.SetEvent(ctx, "progress", progress{"encoding", 50})
		<-on
		return engine.Done(nil).SetEvent("progress", progress{"done", 100}), nil
	}}))
	in := b.begin("m", "k")
	if err := receive(t, half); err != nil {
		t.Fatal(err)
	}
	equal(t, "while it runs", b.progress(engine.ByID(in.ID)), "encoding 50")
	equal(t, "its status", b.get(in.ID).Status, engine.StatusExecuting)
	close(on)
	b.ends(in.ID, engine.StatusDone)
	equal(t, "at the end", b.progress(engine.ByID(in.ID)), "done 100")
}

// What a step publishes stays although it fails, and the next execution publishes in its place.
func TestSetEventOfAStepThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(define(t, engine.Definition[raw]{Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]step{"begin": d.around(func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		if err := v.SetEvent(ctx, "progress", progress{"encoding", 50 + v.Instance.Attempt}); err != nil {
			return engine.Outcome{}, err
		}
		return engine.Done(nil).SetEvent("progress", progress{"done", 100}), errors.New("the disk is full")
	})}}))
	in := b.ends(b.begin("m", "k").ID, engine.StatusFailed)
	contains(t, "error", in.LastError, "the disk is full")
	equal(t, "progress", b.progress(engine.ByID(in.ID)), "encoding 50")
	v := d.all()[0]
	if err := v.SetEvent(t.Context(), "progress", progress{"late", 0}); !errors.Is(err, engine.ErrLeaseLost) {
		t.Errorf("after its commit: %v", err)
	}
	equal(t, "progress", b.progress(engine.ByID(in.ID)), "encoding 50")
	for key, value := range map[string]any{"": 1, "k": make(chan int), "long": strings.Repeat("x", 1<<20)} {
		if err := v.SetEvent(t.Context(), key, value); err == nil || errors.Is(err, engine.ErrLeaseLost) {
			t.Errorf("%s: %v", key, err)
		}
	}
	var none engine.Visit[raw]
	if err := none.SetEvent(t.Context(), "k", 1); err == nil {
		t.Error("a visit of no worker published")
	}
}

// A worker that has lost its lease, and does not know it, publishes nothing.
func TestSetEventOfAStaleWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type try struct {
		v    *engine.Visit[raw]
		over chan struct{}
	}
	tries := make(chan try)
	m := steps(t, map[string]step{"begin": func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		t := try{v, make(chan struct{})}
		tries <- t
		<-t.over
		return engine.Done(nil), nil
	}})
	b.serve(m)
	in := b.begin("m", "k")
	stale := receive(t, tries)
	defer close(stale.over)
	b.exec(`update pointsman.leases set expires_at = now()`)
	next := receive(t, tries)
	defer close(next.over)
	if err := next.v.SetEvent(t.Context(), "progress", progress{"next", 1}); err != nil {
		t.Fatal(err)
	}
	if err := stale.v.SetEvent(t.Context(), "progress", progress{"stale", 1}); !errors.Is(err, engine.ErrLeaseLost) {
		t.Errorf("stale: %v", err)
	}
	equal(t, "progress", b.progress(engine.ByID(in.ID)), "next 1")
}
