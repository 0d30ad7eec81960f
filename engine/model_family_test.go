package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/engine"
)

// modelWait is what an await waits for beside being names.
type modelWait struct {
	need     int    // of the names; 0: one
	where    string // the name whose payload has to be 2
	children int    // ends: allModelChildren, or so many; 0: it does not wait for them
}

const allModelChildren = -1

// awaited reports whether a signal is what the await is for.
func (in *modelInstance) awaited(g *modelSignal) bool {
	if g.child {
		return in.children != 0
	}
	return slices.Contains(in.awaits, g.name) && (in.where != g.name || g.payload == "2")
}

// enough reports whether signals of as many names are there as an await needs, one of which the step that parked was not handed.
func (in *modelInstance) enough() bool {
	names, news := map[string]bool{}, false
	for _, g := range in.inbox {
		if !g.child && in.awaited(g) {
			names[g.name] = true
			news = news || !slices.Contains(in.handed, g)
		}
	}
	return news && len(names) >= max(1, in.need)
}

// joined reports the same of the ends of children. starts says that more will be started by the same transaction.
func (m *model) joined(in *modelInstance, starts bool) bool {
	if in.children == 0 {
		return false
	}
	ends, news := 0, false
	for _, g := range in.inbox {
		if g.child {
			ends++
			news = news || !slices.Contains(in.handed, g)
		}
	}
	if !starts && !m.hasLiveChildren(in) {
		return news || in.handedFor != in.children
	}
	return in.children != allModelChildren && ends >= in.children && news
}

func (m *model) hasLiveChildren(in *modelInstance) bool {
	return slices.ContainsFunc(m.instances, func(c *modelInstance) bool { return c.parent == in && c.status.Live() })
}

// tell puts the end of a child into the inbox of its parent, and wakes that.
func (m *model) tell(child *modelInstance) {
	m.put(child)
	if child.parent != nil {
		m.wakeParent(child.parent, false)
	}
}

// put is tell, without the wake.
func (m *model) put(child *modelInstance) {
	if child.untold && child.parent.status.Live() {
		child.untold = false
		in := child.parent
		in.inbox = append(in.inbox, &modelSignal{child: true, name: idOf(child.n).String(), payload: fmt.Sprint(child.status, " ", child.result, child.reason())})
	}
}

func (in *modelInstance) reason() string {
	if in.status == engine.StatusDone {
		return ""
	}
	return in.lastError
}

func (m *model) wakeParent(in *modelInstance, starts bool) {
	if in.status == engine.StatusAwaiting && !in.paused && m.joined(in, starts) {
		m.wake(in)
	}
}

// tellMissed is for a parent that is live again.
func (m *model) tellMissed(in *modelInstance) {
	var missed []*modelInstance
	for _, c := range m.instances {
		if c.parent == in && c.untold && !c.status.Live() {
			missed = append(missed, c)
		}
	}
	slices.SortStableFunc(missed, func(a, b *modelInstance) int {
		if a.since != b.since {
			return a.since - b.since
		}
		return a.n - b.n
	})
	for _, c := range missed {
		m.put(c)
	}
}

// bear makes what a step has started its child, or says that it was not started.
func (m *model) bear(v *modelVisit, s modelStart, r engine.Result, got *modelInstance) (refused bool) {
	if r == engine.Started {
		got.parent = v.in
		return false
	}
	if v.in.status.Live() && (got == nil || got.parent != v.in) {
		v.in.inbox = append(v.in.inbox, &modelSignal{child: true, name: idOf(s.n).String(), payload: "not_started ", tx: m.tx})
	}
	return true
}

func childrenLabel(n int) string {
	if n == allModelChildren {
		return "all children"
	}
	return engine.Children(n).String()
}

// shown is the payload of a signal as the model has it: an end says when it was, and a refusal why, which the model does not know.
func shown(s engine.Signal) (dedup, payload string) {
	if s.Kind != engine.KindChild {
		return s.DedupKey, string(s.Payload)
	}
	var e struct {
		Status engine.Status
		Result json.RawMessage
		Reason string
	}
	if err := s.Decode(&e); err != nil {
		return "", err.Error()
	}
	if e.Status == engine.ChildNotStarted {
		return "", "not_started "
	}
	result := string(e.Result)
	if result == "null" {
		result = ""
	}
	return "", fmt.Sprint(e.Status, " ", result, e.Reason)
}

// drawWait draws what an await is for beside its names.
func (g *game) drawWait(o *script) {
	if len(o.names) > 1 && g.chance(3, "several") {
		o.need = draw(g, "need", len(o.names), 2)
	}
	if len(o.names) > 0 && g.chance(4, "has condition") {
		o.where = draw(g, "on name", o.names...)
	}
	if g.chance(4, "for children") {
		o.children = draw(g, "children", allModelChildren, 1, 2)
	}
}

func (o *script) waits(out engine.Outcome) engine.Outcome {
	switch {
	case o.need == len(o.names) && o.need > 0:
		out = out.AllOf()
	case o.need > 0:
		out = out.NOf(o.need)
	}
	if o.where != "" {
		out = out.Where(o.where, "$ == 2")
	}
	if o.children != 0 {
		out = out.OrChildren(engine.Children(o.children))
	}
	return out
}
