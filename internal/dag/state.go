package dag

import "encoding/json"

// Status of a step.
type Status string

// The statuses. A step whose turn has not come has none.
const (
	Pending Status = ""
	Running Status = "running" // a call, a request, or a child that is waited for
	Waiting Status = "waiting" // for an event, a signal, an update, or a time
	Done    Status = "done"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// State is what an instance of a flow keeps.
type State struct {
	Payload json.RawMessage       `json:"payload"`
	Steps   map[string]*StepState `json:"steps"`
	Failure *Failure              `json:"failure,omitempty"`
	// Stopped says that the flow has failed: who runs it again retries it.
	Stopped bool `json:"stopped,omitempty"`
	// Onward says that the visit before went on at once: nothing has woken this one.
	Onward bool `json:"onward,omitempty"`
	// Absorbed are the entries of the inbox that are in this state and were not consumed, since the flow has failed with them.
	Absorbed []int64 `json:"absorbed,omitempty"`
	// Refused are steps that cannot wait for their events, and why.
	Refused map[string]string `json:"refused,omitempty"`
}

// TaskState is what has become of a step, of one of its items, or of its compensation.
type TaskState struct {
	Status   Status          `json:"status,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	Error    string          `json:"error,omitempty"`
	Attempts int             `json:"attempts,omitempty"` // of a call that have failed
	Child    bool            `json:"child,omitempty"`    // it runs as an instance of its own
}

// StepState is what has become of a step.
type StepState struct {
	TaskState

	Key     string     `json:"key,omitempty"`     // of the event that it waits for
	Timed   bool       `json:"timed,omitempty"`   // its time limit has a trigger
	Signals []Received `json:"signals,omitempty"` // of several that it waits for, those that have come
	Run     int        `json:"run,omitempty"`     // how often the flow was retried for it
	Cut     bool       `json:"cut,omitempty"`     // skipped since what it depends on failed

	Items        []TaskState `json:"items,omitempty"`     // of a for_each, until it is done
	Completed    int         `json:"completed,omitempty"` // of a step that can be compensated: in which order
	Compensation *TaskState  `json:"compensation,omitempty"`
	Undone       int         `json:"undone,omitempty"` // how often it was compensated, and run again
}

// Received is a signal that a step has got.
type Received struct {
	Name    string          `json:"name"`
	Payload json.RawMessage `json:"payload"`
}

// itemRoom is what an item takes beside its output and error.
const itemRoom = 80

// size is how much of the state is its share.
func (s *StepState) size() int {
	size := len(s.Output)
	for _, g := range s.Signals {
		size += len(g.Name) + len(g.Payload)
	}
	for i := range s.Items {
		size += itemRoom + len(s.Items[i].Output) + len(s.Items[i].Error)
	}
	return size
}

// again is the state of a step that runs once more.
func (s *StepState) again() StepState { return StepState{Run: s.Run + 1, Undone: s.Undone} }

// Failure of the flow.
type Failure struct {
	Ref    string `json:"ref,omitempty"` // "": of the flow as a whole
	Reason string `json:"reason"`
}

// NewState of a flow that was started with this payload.
func NewState(payload json.RawMessage) *State {
	return &State{Payload: payload, Steps: map[string]*StepState{}}
}

// of a step; the zero one where its turn has not come.
func (st *State) of(ref string) StepState {
	if s := st.Steps[ref]; s != nil {
		return *s
	}
	return StepState{}
}
