package dag

import (
	"fmt"
	"strings"
)

// Mermaid draws the graph, as text that Mermaid makes a picture of. A dashed arrow is one along which a failure does not stop the flow; what undoes a step
// hangs at it.
func (f *Flow) Mermaid() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flowchart TD\n")
	for i := range f.Steps {
		s := &f.Steps[i]
		opens, closes := s.shape()
		label := s.Ref + "<br/><i>" + string(s.Type) + "</i>"
		if s.When != nil {
			label += "<br/>when " + escape(s.When.Source())
		}
		if s.ForEach != nil {
			label += fmt.Sprintf("<br/>for each, %d at once", s.Concurrency)
		}
		if len(s.Names) > 0 {
			label += fmt.Sprintf("<br/>%d of %s", s.Need, strings.Join(s.Names, ", "))
		}
		fmt.Fprintf(&b, "  s%d%s\"%s\"%s\n", i, opens, label, closes)
		if c := s.Compensate; c != nil {
			opens, closes := c.shape()
			fmt.Fprintf(&b, "  c%d%s\"%s<br/><i>%s</i>\"%s\n  s%[1]d -. undone by .-> c%[1]d\n", i, opens, s.Ref+"/compensate", c.Type, closes)
		}
	}
	for i := range f.Steps {
		for _, on := range f.Steps[i].DependsOn {
			arrow := "-->"
			if f.step(on).OnFailure == Continue {
				arrow = "-.->"
			}
			fmt.Fprintf(&b, "  s%d %s s%d\n", f.index[on], arrow, i)
		}
	}
	return b.String()
}

// shape of a node.
func (s *Step) shape() (opens, closes string) {
	switch s.Type {
	case WaitForEvent, WaitForSignal, OnUpdate:
		return "([", "])"
	case Sleep:
		return "((", "))"
	case Start:
		return "[[", "]]"
	}
	return "[", "]"
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", " ").Replace
