package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/dag"
)

// Config of the [Machines] of one flow. Flow is required, and Conn where it calls over NATS.
type Config struct {
	Flow   *dag.Flow // linked
	Conn   *nats.Conn
	Client *http.Client // of http steps; zero: one that follows no redirects
	Logger *slog.Logger // zero: slog.Default
}

// Names that no ref has.
const (
	beginStep = "flow:begin"
	joinStep  = "flow:join"
	endStep   = "flow:end"
	callStep  = "call"

	callSuffix = ":call"
	undoSuffix = ":compensate"
)

// Machines are the two of a flow: its own, and the one of its calls.
func Machines(cfg Config) ([]*engine.Machine, error) {
	if cfg.Flow == nil {
		return nil, errors.New("flow: no Flow")
	}
	f := cfg.Flow
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	c := &caller{conn: cfg.Conn, client: cfg.Client}
	m := &machine{flow: f, caller: c, log: cfg.Logger}
	steps := map[string]engine.Step[json.RawMessage]{beginStep: m.step, joinStep: m.step, endStep: m.step}
	for i := range f.Steps {
		steps[f.Steps[i].Ref] = m.step
		if f.Steps[i].Compensate != nil {
			steps[f.Steps[i].Ref+undoSuffix] = m.step
		}
	}
	own, err := engine.Define(engine.Definition[json.RawMessage]{
		Name: f.Name, Version: f.Version, Start: beginStep, Steps: steps, Queue: f.Queue, OnError: m.onError, Content: f.Hash,
	})
	if err != nil {
		return nil, fmt.Errorf("flow %q: %w", f.Name, err)
	}
	calls, err := engine.Define(engine.Definition[callState]{
		Name: f.Name + callSuffix, Version: f.Version, Start: callStep, Steps: map[string]engine.Step[callState]{callStep: c.step}, Queue: f.Queue, OnError: callFailed,
	})
	if err != nil {
		return nil, fmt.Errorf("flow %q: %w", f.Name, err)
	}
	return []*engine.Machine{own, calls}, nil
}
