package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	enginetest.Conformance(t, inGo)
}

func TestConformanceBehindPooler(t *testing.T) {
	t.Parallel()
	enginetest.ConformanceBehindPooler(t, inGo)
}

// inGo hosts a script in this process.
func inGo(t testing.TB, s enginetest.Script) *engine.Machine {
	d := engine.Definition[raw]{Name: s.Name, Version: s.Version, Start: s.Start, Queue: s.Queue, Retry: s.Retry, Steps: map[string]step{}}
	for name, script := range s.Steps {
		d.Steps[name] = scripted(script)
	}
	return must(engine.Define(d))(t)
}

// scripted is a step in Go that does what a script says, or leaves when it is told to.
func scripted(script enginetest.Step) step {
	return func(ctx context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
		answer := make(chan enginetest.Reply, 1)
		go func() { answer <- script(requestOf(v)) }()
		select {
		case <-ctx.Done():
			return engine.Outcome{}, ctx.Err()
		case r := <-answer:
			if r.Error != "" {
				return engine.Outcome{}, errors.New(r.Error)
			}
			if r.State != nil {
				v.State = r.State
			}
			return effectsOf(r, outcomeOf(r, v.Instance.Step)), nil
		}
	}
}

func requestOf(v *engine.Visit[raw]) enginetest.Request {
	in := v.Instance
	return enginetest.Request{
		InstanceID: in.ID, Project: in.Project, Machine: in.Machine, Version: in.Version, Step: in.Step, Attempt: in.Attempt, CorrelationKey: in.CorrelationKey,
		State: v.State, Awaited: signalsOf(v.Awaited), All: signalsOf(v.Inbox), TimedOut: v.TimedOut, Canceled: v.Canceled, InboxMore: v.InboxMore,
		IdempotencyKey: v.IdempotencyKey(),
	}
}

func signalsOf(in []engine.Signal) []enginetest.Signal {
	out := make([]enginetest.Signal, len(in))
	for i, s := range in {
		out[i] = enginetest.Signal{ID: s.ID, Kind: s.Kind, Name: s.Name, Payload: s.Payload, DedupKey: s.DedupKey, InsertedAt: s.InsertedAt}
	}
	return out
}

func outcomeOf(r enginetest.Reply, step string) engine.Outcome {
	if r.Step == "" {
		r.Step = step
	}
	switch r.Outcome {
	case "next":
		return engine.Next(r.Step)
	case "replay":
		return engine.Replay(time.Duration(r.DelayMS) * time.Millisecond)
	case "await":
		o := engine.Await(r.Step, r.Signals...).OrUpdate(r.Updates...)
		if r.TimeoutMS > 0 {
			o = o.Within(time.Duration(r.TimeoutMS) * time.Millisecond)
		}
		if r.Consume {
			o = o.Consuming()
		}
		switch n := r.Need.(type) {
		case string:
			o = o.AllOf()
		case int:
			o = o.NOf(n)
		}
		for name, path := range r.Where {
			o = o.Where(name, path)
		}
		switch n := r.Children.(type) {
		case string:
			o = o.OrChildren(map[string]engine.Children{"all": engine.AllChildren, "any": engine.AnyChild}[n])
		case int:
			o = o.OrChildren(engine.NChildren(n))
		}
		return o
	case "done":
		return engine.Done(r.Result)
	case "stop":
		return engine.Stop(r.Reason)
	}
	panic("the script has an outcome " + r.Outcome)
}

func effectsOf(r enginetest.Reply, o engine.Outcome) engine.Outcome {
	for key, value := range r.SetEvents {
		o = o.SetEvent(key, value)
	}
	for _, s := range r.Signal {
		to := engine.ByKey("", s.CorrelationKey)
		if s.InstanceID != "" {
			to = engine.ByID(uuid.MustParse(s.InstanceID))
		}
		o = o.Signal(to, engine.Signal{Name: s.Name, Payload: s.Payload, DedupKey: s.DedupKey})
	}
	for _, n := range r.Start {
		in := engine.NewInstance{Machine: n.Machine, CorrelationKey: n.CorrelationKey, State: n.State, Start: n.Step}
		if n.Child {
			o = o.StartChild(in)
		} else {
			o = o.Start(in)
		}
	}
	for _, p := range r.Publish {
		headers := map[string][]string{}
		for name, value := range p.Headers {
			headers[name] = []string{value}
		}
		o = o.Publish(p.Subject, []byte(p.Data), headers)
	}
	return o
}
