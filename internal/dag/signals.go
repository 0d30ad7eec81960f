package dag

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/internal/ident"
)

// Wanted are the names of the signals that a step still waits for, and of how many of them.
func (r *Run) Wanted(s *Step) (names []string, need int) {
	if s.Name != "" {
		return []string{s.Name}, 1
	}
	got := r.State.of(s.Ref).Signals
	for _, name := range s.Names {
		if !slices.ContainsFunc(got, func(g Received) bool { return g.Name == name }) {
			names = append(names, name)
		}
	}
	return names, s.Need - len(got)
}

// Receive gives a step a signal that it waits for. It is done when that is the last that it needs.
func (r *Run) Receive(s *Step, name string, payload json.RawMessage) {
	if s.Name != "" {
		r.Succeed(s.Ref, payload)
		return
	}
	st := r.at(s.Ref)
	st.Signals, r.Changed = append(st.Signals, Received{name, payload}), true
	if size := r.size(s.Ref) + st.size(); size > MaxState {
		r.Fail(s.Ref, fmt.Sprintf("the signal %s of %d bytes makes payload and outputs of the flow %d: at most %d", name, len(payload), size, MaxState))
		return
	}
	if len(st.Signals) < s.Need {
		return
	}
	output, err := ident.Encode(st.Signals)
	if err != nil {
		r.Fail(s.Ref, err.Error())
		return
	}
	r.Succeed(s.Ref, output)
}

// Where is the condition that an await has for a name that several steps may wait for: that of any of them lets a signal through. "": each does.
func Where(name string, waiting []*Step) string {
	var paths []string
	for _, s := range waiting {
		if !slices.Contains(s.signals(), name) {
			continue
		}
		path := s.Where[name]
		if path == "" {
			return ""
		}
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	if len(paths) < 2 {
		return strings.Join(paths, "")
	}
	return "(" + strings.Join(paths, between) + ")"
}

const between = ") || ("

// checkWhere: the conditions on one name have to fit into one await, whoever waits.
func (f *Flow) checkWhere(fail func(field, format string, args ...any)) {
	var names []string
	for i := range f.Steps {
		for name := range f.Steps[i].Where {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		var with []*Step
		last := 0
		for i := range f.Steps {
			if f.Steps[i].Where[name] != "" {
				with, last = append(with, &f.Steps[i]), i
			}
		}
		if n := len(Where(name, with)); n > MaxWhereBytes {
			fail(fmt.Sprintf("steps[%d].where.%s", last, name), "the conditions on %s are %d bytes together: at most %d", name, n, MaxWhereBytes)
		}
	}
}

// Late is why a step has failed whose time is over.
func (s *Step) Late() string {
	what := map[Type]string{WaitForEvent: "no event", WaitForSignal: "no signal " + s.Name, OnUpdate: "no update " + s.Name}[s.Type]
	if len(s.Names) > 0 {
		what = fmt.Sprintf("not %d of the signals %s", s.Need, strings.Join(s.Names, ", "))
	}
	return fmt.Sprintf("%s within %s", what, s.Timeout)
}
