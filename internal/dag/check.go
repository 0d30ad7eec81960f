package dag

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/internal/expr"
)

// Problem is one thing that is wrong with the graph.
type Problem struct {
	Field  string // "steps[2].depends_on[0]", as it stands in the file
	Reason string
}

// Link checks the graph and makes the flow ready to run. It returns all that is wrong, but for refs that are missing: who has read them says that.
func (f *Flow) Link() (wrong []Problem) {
	fail := func(field, format string, args ...any) {
		wrong = append(wrong, Problem{field, fmt.Sprintf(format, args...)})
	}
	f.index = map[string]int{}
	for i := range f.Steps {
		ref := f.Steps[i].Ref
		if ref == "" {
			continue
		}
		if first, twice := f.index[ref]; twice {
			fail(fmt.Sprintf("steps[%d].ref", i), "%q is the ref of steps[%d] too: give each step its own", ref, first)
			continue
		}
		f.index[ref] = i
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		for k, on := range s.DependsOn {
			field := fmt.Sprintf("steps[%d].depends_on[%d]", i, k)
			switch _, there := f.index[on]; {
			case on == s.Ref:
				fail(field, "%q depends on itself", on)
			case !there && on != "":
				fail(field, "there is no step %q%s", on, f.near(on))
			case slices.Index(s.DependsOn, on) < k:
				fail(field, "%q is there twice: remove one", on)
			}
		}
	}
	f.close()
	if cycle, at := f.cycle(); cycle != "" {
		fail(fmt.Sprintf("steps[%d].depends_on", at), "is a cycle, %s: none of these steps can ever begin", cycle)
	}
	f.dead(fail)
	f.checkWhere(fail)
	return wrong
}

// dead finds steps that can never run: what they depend on is skipped whatever happens.
func (f *Flow) dead(fail func(field, format string, args ...any)) {
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.When == nil {
			continue
		}
		if strings.TrimSpace(s.When.Source()) == "false" {
			fail(fmt.Sprintf("steps[%d].when", i), "is always false: the step is unreachable, remove it")
		}
	}
}

// near is a hint at the ref that was meant.
func (f *Flow) near(ref string) string {
	refs := make([]string, 0, len(f.Steps))
	for i := range f.Steps {
		if ref := f.Steps[i].Ref; ref != "" && !slices.Contains(refs, ref) {
			refs = append(refs, f.Steps[i].Ref)
		}
	}
	if len(refs) == 0 || len(refs) > 20 {
		return ""
	}
	return ": there are " + strings.Join(refs, ", ")
}

// close computes what each step depends on, by whatever way.
func (f *Flow) close() {
	f.before = make([]map[string]bool, len(f.Steps))
	for i := range f.Steps {
		seen := map[string]bool{}
		todo := slices.Clone(f.Steps[i].DependsOn)
		for len(todo) > 0 {
			ref := todo[0]
			todo = todo[1:]
			if s := f.Step(ref); s != nil && !seen[ref] && ref != f.Steps[i].Ref {
				seen[ref] = true
				todo = append(todo, s.DependsOn...)
			} else if ref == f.Steps[i].Ref && !slices.Contains(f.Steps[i].DependsOn, ref) {
				seen[ref] = true // a cycle
			}
		}
		f.before[i] = seen
	}
}

// cycle describes the first one; "": there is none.
func (f *Flow) cycle() (text string, at int) {
	for i := range f.Steps {
		if !f.before[i][f.Steps[i].Ref] || f.index[f.Steps[i].Ref] != i {
			continue
		}
		way := []string{f.Steps[i].Ref}
		for {
			here := f.step(way[len(way)-1])
			next := slices.IndexFunc(here.DependsOn, func(on string) bool {
				return on == way[0] && len(way) > 1 || f.Step(on) != nil && f.before[f.index[on]][way[0]] && !slices.Contains(way, on)
			})
			if next < 0 {
				return strings.Join(way, " -> "), i
			}
			way = append(way, here.DependsOn[next])
			if way[len(way)-1] == way[0] {
				return strings.Join(way, " -> "), i
			}
		}
	}
	return "", 0
}

// Scope is what the expressions of flows can name.
var Scope = expr.NewScope("payload", "steps", "instance", "item", "index")

// What an expression finds of a step, and of the instance.
var (
	stepFields     = []string{"output", "status", "error"}
	instanceFields = []string{"id", "project", "machine", "version", "correlation_key"}
)

// Sight is what an expression sees beside what its step depends on.
type Sight struct {
	Own  bool // the step itself, as when it is done
	Item bool // an item of its list
}

// CheckUse says what is wrong with what an expression of a step names; "": nothing.
func (f *Flow) CheckUse(step int, u expr.Use, sees Sight) string {
	switch u.Variable {
	case "instance":
		if len(u.Path) > 0 && !slices.Contains(instanceFields, u.Path[0]) {
			return fmt.Sprintf("instance has no %q: there are %s", u.Path[0], strings.Join(instanceFields, ", "))
		}
	case "steps":
		return f.checkStepUse(step, u, sees.Own)
	case "item", "index":
		if !sees.Item {
			return u.Variable + " is not known here: it is of what a step with for_each does for each item"
		}
	}
	return ""
}

func (f *Flow) checkStepUse(step int, u expr.Use, own bool) string {
	if len(u.Path) == 0 {
		return "steps is not read as a whole: name the step, as in steps.charge.output or steps['aml-check'].output"
	}
	ref := u.Path[0]
	_, there := f.index[ref]
	switch {
	case !there:
		return fmt.Sprintf("there is no step %q%s", ref, f.near(ref))
	case ref == f.Steps[step].Ref && !own:
		return fmt.Sprintf("step %q has no output before it has run", ref)
	case ref != f.Steps[step].Ref && !f.before[step][ref]:
		return fmt.Sprintf("%q does not depend on %q, which may not have ended yet: add it to depends_on", f.Steps[step].Ref, ref)
	case len(u.Path) == 1:
		return fmt.Sprintf("step %q is not read as a whole: name its %s", ref, strings.Join(stepFields, ", "))
	case !slices.Contains(stepFields, u.Path[1]):
		return fmt.Sprintf("a step has no %q: there are %s", u.Path[1], strings.Join(stepFields, ", "))
	}
	return ""
}
