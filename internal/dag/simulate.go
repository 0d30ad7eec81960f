package dag

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
)

// Answer is what a step comes to in a simulation, and how long that takes. A wait that is answered with an error has timed out.
type Answer struct {
	Output json.RawMessage `json:"output"`
	Error  string          `json:"error"`
	After  time.Duration   `json:"-"`
}

// Event of a simulation.
type Event struct {
	At     time.Duration `json:"-"` // since the start
	Time   string        `json:"at"`
	What   string        `json:"what"` // begins, done, failed, skipped
	Ref    string        `json:"ref"`
	Type   Type          `json:"type"`
	Detail string        `json:"detail"`
}

// Simulation is how a flow went with answers that it was told.
type Simulation struct {
	Events []Event                    `json:"events"`
	Status string                     `json:"status"` // done or failed
	Result map[string]json.RawMessage `json:"result"`
	Reason string                     `json:"reason,omitempty"`
}

// Simulate runs a flow to its end without asking anybody. A step that is not among the answers gets null at once; a sleep takes as long as it
// says. The answer of a step with for_each is that of each item; one item has its own by the ref and its index, as ship/2, and a compensation
// as ship/compensate. The error is about a payload or answers that are none.
func Simulate(f *Flow, payload json.RawMessage, answers map[string]Answer) (*Simulation, error) {
	if err := ident.JSON("payload", payload, ident.MaxJSON); err != nil {
		return nil, err
	}
	for name := range answers {
		if !f.answered(name) {
			return nil, fmt.Errorf("answers: flow %s has no step %q", f.Name, name)
		}
	}
	m := &simulator{sim: &Simulation{Events: []Event{}}, answers: answers, scheduled: map[Task]bool{}}
	m.run = &Run{
		Flow: f, State: NewState(payload), Instance: Instance{ID: "00000000-0000-7000-8000-000000000000", Project: "default", Machine: f.Name, Version: f.Version},
		Began: m.began, Settled: m.settled,
	}
	m.play()
	m.sim.Status, m.sim.Result = "done", m.run.Result()
	if m.run.State.Failure != nil {
		m.sim.Status, m.sim.Result, m.sim.Reason = "failed", nil, m.run.Reason()
	}
	return m.sim, nil
}

// answered says whether a name is of what an answer can be given for.
func (f *Flow) answered(name string) bool {
	ref, part, parts := strings.Cut(name, "/")
	s := f.Step(ref)
	switch {
	case s == nil || !parts:
		return s != nil
	case part == "compensate":
		return s.Compensate != nil
	}
	n, err := strconv.Atoi(part)
	return err == nil && n >= 0 && n < MaxItems && s.ForEach != nil
}

// simulator plays one.
type simulator struct {
	sim       *Simulation
	run       *Run
	answers   map[string]Answer
	now       time.Duration
	agenda    []due
	scheduled map[Task]bool
}

// due is when a task comes to its answer.
type due struct {
	at   time.Duration
	task Task
}

func (m *simulator) note(what string, t Task, detail string) {
	m.sim.Events = append(m.sim.Events, Event{At: m.now, Time: m.now.String(), What: what, Ref: t.String(), Type: m.run.Body(t).Type, Detail: detail})
}

func (m *simulator) began(t Task) { m.note("begins", t, m.run.describe(t)) }

func (m *simulator) settled(t Task) {
	switch s := m.run.At(t); s.Status {
	case Done:
		m.note(string(Done), t, string(s.Output))
	case Failed:
		m.note(string(Failed), t, s.Error)
	case Skipped:
		why := "its condition is false"
		if m.run.State.of(t.Ref).Cut {
			why = "what it depends on failed"
		}
		m.note(string(Skipped), t, why)
	}
}

func (m *simulator) play() {
	r := m.run
	for {
		r.Advance()
		tasks := r.Running()
		if r.State.Failure == nil {
			for _, s := range r.In(Waiting) {
				tasks = append(tasks, Whole(s.Ref))
			}
		}
		if len(tasks) == 0 && r.State.Failure != nil {
			if t, ok := r.Compensate(); ok {
				tasks = append(tasks, t)
			}
		}
		if len(tasks) == 0 {
			return
		}
		m.schedule(tasks)
		next := m.agenda[0]
		m.agenda = m.agenda[1:]
		if limit := r.Flow.Timeout; limit > 0 && next.at > limit && r.State.Failure == nil {
			m.now = limit
			r.FailFlow(&Failure{Reason: fmt.Sprintf("the time limit of the flow, %s, is over", limit)})
			m.agenda = slices.Insert(m.agenda, 0, next) // what runs is waited for
			continue
		}
		if r.State.Failure != nil && !next.task.Undo && r.State.of(next.task.Ref).Status == Waiting {
			continue // it is given up
		}
		m.now = next.at
		a := m.answer(next.task)
		r.End(next.task, a.Output, a.Error)
	}
}

func (m *simulator) schedule(tasks []Task) {
	for _, t := range tasks {
		if m.scheduled[t] {
			continue
		}
		m.scheduled[t] = true
		body := m.run.Body(t)
		m.run.At(t).Child = body.runs()
		after := m.answer(t).After
		if w, err := m.run.Wait(t.Ref); body.Type == Sleep && err == nil {
			after = w.Timeout
		}
		m.agenda = append(m.agenda, due{m.now + after, t})
	}
	slices.SortStableFunc(m.agenda, func(a, b due) int { return cmp.Compare(a.at, b.at) })
}

func (m *simulator) answer(t Task) Answer {
	a, there := m.answers[t.String()]
	if !there && t.Item >= 0 {
		a = m.answers[t.Ref]
	}
	return a
}

// describe what a task is about to do.
func (r *Run) describe(t Task) string {
	s := r.Body(t)
	if s.ForEach != nil && t.Item < 0 && !t.Undo {
		if list, err := r.list(t.Ref); err == nil {
			return fmt.Sprintf("%d items, %d at once", len(list), s.Concurrency)
		}
		return ""
	}
	switch s.Type {
	case Call, HTTP:
		if q, err := r.Request(t); err == nil && s.Type == HTTP {
			return fmt.Sprintf("%s %s %s", q.Method, q.URL, q.Data)
		} else if err == nil {
			return fmt.Sprintf("%s %s", q.Subject, q.Data)
		}
	case WaitForEvent:
		if w, err := r.Wait(t.Ref); err == nil {
			return fmt.Sprintf("%s, at most %s", w.Key, w.Timeout)
		}
	case Sleep:
		if w, err := r.Wait(t.Ref); err == nil {
			return w.Timeout.String()
		}
	case WaitForSignal, OnUpdate:
		return s.awaited()
	case Start:
		if n, err := r.StartOf(t); err == nil {
			return fmt.Sprintf("%s %s", n.Machine, n.State)
		}
	}
	return ""
}

// awaited are the signals or the update that a step waits for.
func (s *Step) awaited() string {
	var names []string
	for _, name := range s.signals() {
		if path := s.Where[name]; path != "" {
			name += " where " + path
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if len(s.Names) > 0 {
		text = fmt.Sprintf("%d of %s", s.Need, text)
	}
	if s.Timeout > 0 {
		text += fmt.Sprintf(", at most %s", s.Timeout)
	}
	return text
}
