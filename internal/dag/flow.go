package dag

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/expr"
)

// MaxSteps of a flow: all of them may begin at once, and one commit has room for so many keys.
const MaxSteps = 100

// Flow is a checked definition, or one that is to be checked.
type Flow struct {
	Name    string
	Version int
	Queue   string        // of instances whose start names none
	Timeout time.Duration // of the whole; 0: none
	Steps   []Step
	Hash    string // of its text

	index  map[string]int
	before []map[string]bool // of each step, all that it depends on
}

// Type of a step.
type Type string

// The types of steps.
const (
	Call          Type = "call"
	HTTP          Type = "http"
	Publish       Type = "publish"
	WaitForEvent  Type = "wait_for_event"
	WaitForSignal Type = "wait_for_signal"
	OnUpdate      Type = "on_update"
	Sleep         Type = "sleep"
	Start         Type = "start"
	Signal        Type = "signal"
	SetEvent      Type = "set_event"
)

// Types are all of them.
var Types = []Type{Call, HTTP, Publish, WaitForEvent, WaitForSignal, OnUpdate, Sleep, Start, Signal, SetEvent}

// What the failure of a step does.
const (
	FailWorkflow   = "fail_workflow"
	SkipDependents = "skip_dependents"
	Continue       = "continue"
)

// What the failure of an item does, beside [Continue].
const FailStep = "fail_step"

// MaxItems of a for_each.
const MaxItems = 1000

// MaxWhereBytes is how long the conditions of a flow on one signal are together: where several steps wait for it, they are one await.
const MaxWhereBytes = 1024

// Policies are all that on_failure can be.
var Policies = []string{FailWorkflow, SkipDependents, Continue}

// Step is a node of the graph. Which fields it has depends on its type.
type Step struct {
	Ref          string
	Type         Type
	DependsOn    []string
	When         *expr.Condition // nil: always
	OnFailure    string
	EventEmitKey *expr.Template // nil: none
	Compensate   *Step          // what undoes it when the flow fails: type and fields alone; nil: nothing

	ForEach       *Value // call, http, start: a list, for each item of which it is done; nil: once
	Concurrency   int    // how many of the items run at once
	OnItemFailure string // what the failure of one does

	Subject *expr.Template            // call, publish
	Data    *Value                    // call, publish, the body of http, the payload of signal, the state of start, the value of set_event; the request payload of wait_for_event
	Headers map[string]*expr.Template // call, publish, http
	URL     *expr.Template            // http
	Method  string                    // http
	Timeout time.Duration             // call, http: of one answer; wait_for_signal, on_update: 0 is for ever; wait_for_event
	Retry   Retry                     // call, http

	Key       *expr.Template    // the event key of wait_for_event, the key of set_event
	NotifyURL *expr.Template    // wait_for_event; nil: none
	Name      string            // of the signal or update that is waited for
	Names     []string          // wait_for_signal: several signals instead, of which Need have to come
	Need      int               // wait_for_signal
	Where     map[string]string // wait_for_signal: by name, an SQL/JSON path predicate that the payload has to pass
	Duration  *expr.Template    // sleep

	SignalName *expr.Template // signal
	Target     *expr.Template // signal: a correlation key
	TargetID   *expr.Template // signal: an instance, instead
	DedupKey   *expr.Template // signal; nil: of the step

	Machine        string         // start
	MachineVersion int            // start; 0: the newest
	FirstStep      string         // start; "": the machine's
	CorrelationKey *expr.Template // start
	PartitionKey   *expr.Template // start
	UniqueKey      *expr.Template // start
	ToQueue        string         // start; "": the machine's
	Priority       int            // start
	Wait           bool           // start: until it has ended
}

// Retry of a step that failed: Initial * Factor^attempt, at most Max.
type Retry struct {
	MaxAttempts int           `json:"max_attempts"`
	Initial     time.Duration `json:"initial"`
	Max         time.Duration `json:"max"`
	Factor      float64       `json:"factor"`
}

// Calls says whether the step waits for what somebody answers outside of the engine.
func (s *Step) Calls() bool { return s.Type == Call || s.Type == HTTP }

// runs says whether it is asked of others and takes its time.
func (s *Step) runs() bool { return s.Calls() || s.Type == Start && s.Wait }

// signals are the names that it waits for.
func (s *Step) signals() []string {
	if s.Name != "" {
		return []string{s.Name}
	}
	return s.Names
}

// step of a ref, which the flow has.
func (f *Flow) step(ref string) *Step { return &f.Steps[f.index[ref]] }

// Step is the one with the ref; nil: there is none.
func (f *Flow) Step(ref string) *Step {
	if i, ok := f.index[ref]; ok {
		return &f.Steps[i]
	}
	return nil
}

// Subjects are those that steps of a type publish to, with * for a token that a template makes. One that is a template as a whole could be
// any, and is not among them.
func (f *Flow) Subjects(of Type) (all []string) {
	bodies := make([]*Step, 0, len(f.Steps))
	for i := range f.Steps {
		bodies = append(bodies, &f.Steps[i])
		if c := f.Steps[i].Compensate; c != nil {
			bodies = append(bodies, c)
		}
	}
	for _, s := range bodies {
		if s.Type != of || s.Subject == nil {
			continue
		}
		tokens := strings.Split(templated.ReplaceAllString(s.Subject.Source(), "\x00"), ".")
		for k, token := range tokens {
			if strings.Contains(token, "\x00") {
				tokens[k] = "*"
			}
		}
		subject := strings.Join(tokens, ".")
		if subject != "*" && !slices.Contains(all, subject) {
			all = append(all, subject)
		}
	}
	return all
}

var templated = regexp.MustCompile(`(?s)\{\{.*?\}\}`)

// Leaves are the steps that no other depends on.
func (f *Flow) Leaves() (refs []string) {
	for i := range f.Steps {
		if !slices.ContainsFunc(f.Steps, func(s Step) bool { return slices.Contains(s.DependsOn, f.Steps[i].Ref) }) {
			refs = append(refs, f.Steps[i].Ref)
		}
	}
	return refs
}
