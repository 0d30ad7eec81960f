package enginetest

import (
	"context"
	"sync"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// patience is how long a test waits for what should come at once.
const patience = time.Minute

// Serve runs a worker as in production, beside the test, until the returned function is called or the test ends; it has to drain by
// then. Wait with [Instance.Until]; the other methods of Env that run steps are for tests without it.
// A ReapInterval of zero is 10ms here.
func (e *Env) Serve(cfg engine.WorkerConfig) (stop func()) {
	e.t.Helper()
	if cfg.ReapInterval == 0 {
		cfg.ReapInterval = 10 * time.Millisecond
	}
	w, err := engine.NewWorker(e.Client, cfg)
	e.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				e.t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			e.t.Error("the worker does not stop")
		}
	})
	e.t.Cleanup(stop)
	return stop
}

// Until waits for an instance to be as it should, which a worker of [Env.Serve] brings about. The test fails when it is not
// within a minute.
func (in *Instance) Until(what string, ok func(engine.Instance) bool) engine.Instance {
	in.env.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		got := in.Get()
		if ok(got) {
			return got
		}
		if time.Now().After(deadline) {
			in.fatalf("never %s", what)
		}
	}
}
