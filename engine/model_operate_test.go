package engine_test

import (
	"context"
	"errors"

	"pgregory.net/rapid"

	"github.com/pointsman/pointsman/engine"
)

// note is a transition that no outcome made.
func (in *modelInstance) note(what string) {
	in.history = append(in.history, modelTransition{step: in.step, outcome: what, attempt: in.attempt})
}

// retry makes a failed or canceled instance live again, or returns who is in its way.
func (m *model) retry(in *modelInstance) (holder *modelInstance) {
	if in.status.Live() || in.status == engine.StatusDone {
		return in
	}
	if holder := m.live(in.key); holder != nil {
		return holder
	}
	in.note("retry")
	in.attempt, in.counted, in.paused, in.solo, in.alone, in.lease, in.looks = 0, 0, false, false, false, nil, true
	m.wake(in)
	if in.rests.status == engine.StatusAwaiting {
		in.status = engine.StatusAwaiting
	}
	in.due = in.rests.due
	in.inbox, in.kept = in.kept, nil
	m.adopt(in)
	m.tellMissed(in)
	m.recheck(in)
	return nil
}

func (m *model) pause(in *modelInstance) {
	if !in.paused {
		in.paused = true
		in.note("pause")
	}
}

// resume makes what may run ready from now on. What a lost lease returned meanwhile is leased alone; its attempt tells.
func (m *model) resume(in *modelInstance) {
	if !in.paused {
		return
	}
	in.paused = false
	in.note("resume")
	if in.ready() {
		in.since, in.solo, in.alone = m.moment(), in.attempt > 0, false
	}
	m.recheck(in)
}

// oneOf is the number of one that matches, where there are such, or rarely of any.
func (g *game) oneOf(matches func(*modelInstance) bool) int {
	var of []int
	for _, in := range g.m.instances {
		if matches(in) {
			of = append(of, in.n)
		}
	}
	if len(of) == 0 || g.chance(6, "any") {
		return g.number()
	}
	return draw(g, "instance", of...)
}

func (g *game) retry(*rapid.T) {
	n := g.oneOf(func(in *modelInstance) bool {
		return in.status == engine.StatusFailed || in.status == engine.StatusCanceled
	})
	g.operate("retry", n, g.Client.Retry, g.m.retry)
}

func (g *game) pause(*rapid.T) {
	n := g.oneOf(func(in *modelInstance) bool { return in.status.Live() })
	g.operate("pause", n, g.Client.Pause, whileLive(g.m.pause))
}

func (g *game) resume(*rapid.T) {
	n := g.oneOf(func(in *modelInstance) bool { return in.paused && in.status.Live() })
	g.operate("resume", n, g.Client.Resume, whileLive(g.m.resume))
}

func whileLive(do func(*modelInstance)) func(*modelInstance) *modelInstance {
	return func(in *modelInstance) *modelInstance {
		if !in.status.Live() {
			return in
		}
		do(in)
		return nil
	}
}

// operate wants a conflict to name who is in the way.
func (g *game) operate(verb string, n int, real func(context.Context, engine.Ref) (engine.Instance, error), modeled func(*modelInstance) *modelInstance) {
	got, err := real(g.ctx, engine.ByID(idOf(n)))
	g.Logf("%s %d: %v", verb, n, err)
	g.m.begin()
	in := g.m.numbered(n)
	if in == nil {
		if !errors.Is(err, engine.ErrNotFound) {
			g.Fatalf("%s of nobody: %v", verb, err)
		}
		return
	}
	holder := modeled(in)
	var conflict *engine.ConflictError
	switch isConflict := errors.As(err, &conflict); {
	case holder == nil && (err != nil || got.ID != idOf(n) || got.Status != in.status || got.Paused != in.paused):
		g.Fatalf("%s: %+v, %v; want it to be %s, paused: %t", verb, got, err, in.status, in.paused)
	case holder != nil && (!isConflict || conflict.ID != idOf(holder.n)):
		g.Fatalf("%s: %v; want a conflict with instance %d", verb, err, holder.n)
	}
}
