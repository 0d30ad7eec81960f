package engine

import "sync"

// maxStepLabels is how many steps of one machine that takes any have a label of their own.
const maxStepLabels = 100

// stepLabels are the steps that machines which take any have been seen to execute. What says which steps there are is a service's answer
// or a request to start, so the number of labels is bounded here.
type stepLabels struct {
	mu   sync.Mutex
	seen map[string]map[string]bool // by machine
}

// label is the step, or "" of one that a machine does not have, and of those beyond the bound.
func (l *stepLabels) label(m *Machine, step string) string {
	if m.steps != nil {
		if !m.hasStep(step) {
			return ""
		}
		return step
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	steps := l.seen[m.name]
	switch {
	case steps[step]:
	case len(steps) >= maxStepLabels:
		return ""
	case steps == nil:
		if l.seen == nil {
			l.seen = map[string]map[string]bool{}
		}
		l.seen[m.name] = map[string]bool{step: true}
	default:
		steps[step] = true
	}
	return step
}
