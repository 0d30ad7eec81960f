package enginetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// Host makes a machine that does what the script says. Its steps may be called from many goroutines.
type Host func(t testing.TB, s Script) *engine.Machine

// Script is a machine as data.
type Script struct {
	Name    string
	Version int
	Start   string
	Queue   string
	Retry   engine.RetryPolicy
	Steps   map[string]Step
}

// Step answers one execution.
type Step func(Request) Reply

// Request is what a step is told, as in docs/remote-steps.md.
type Request struct {
	InstanceID     uuid.UUID       `json:"instance_id"`
	Project        string          `json:"project"`
	Machine        string          `json:"machine"`
	Version        int             `json:"version"`
	Step           string          `json:"step"`
	Attempt        int             `json:"attempt"`
	CorrelationKey string          `json:"correlation_key"`
	State          json.RawMessage `json:"state"`
	Awaited        []Signal        `json:"awaited"`
	All            []Signal        `json:"all"`
	TimedOut       bool            `json:"timed_out"`
	Canceled       bool            `json:"canceled"`
	InboxMore      bool            `json:"inbox_more"`
	IdempotencyKey string          `json:"idempotency_key"`
}

// Signal is an entry of the inbox.
type Signal struct {
	ID         int64           `json:"id"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Payload    json.RawMessage `json:"payload"`
	DedupKey   string          `json:"dedup_key"`
	InsertedAt time.Time       `json:"inserted_at"`
}

// Reply is what a step answers, as in docs/remote-steps.md. An Error stands alone.
type Reply struct {
	Outcome   string          `json:"outcome,omitempty"`
	Error     string          `json:"error,omitempty"`
	Step      string          `json:"step,omitempty"`
	State     json.RawMessage `json:"state,omitempty"`
	DelayMS   int             `json:"delay_ms,omitempty"`
	Signals   []string        `json:"signals,omitempty"`
	Updates   []string        `json:"updates,omitempty"`
	TimeoutMS int             `json:"timeout_ms,omitempty"`
	Consume   bool            `json:"consume,omitempty"`

	Need     any               `json:"need,omitempty"` // "all", or a number
	Where    map[string]string `json:"where,omitempty"`
	Children any               `json:"children,omitempty"` // "all", "any", or a number

	Result json.RawMessage `json:"result,omitempty"`
	Reason string          `json:"reason,omitempty"`

	SetEvents map[string]json.RawMessage `json:"set_events,omitempty"`
	Signal    []Send                     `json:"signal,omitempty"`
	Start     []Start                    `json:"start,omitempty"`
	Publish   []Publication              `json:"publish,omitempty"`
}

// Send is the effect that signals another instance, by its key or its id.
type Send struct {
	CorrelationKey string          `json:"correlation_key,omitempty"`
	InstanceID     string          `json:"instance_id,omitempty"`
	Name           string          `json:"name"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	DedupKey       string          `json:"dedup_key,omitempty"`
}

// Start is the effect that starts another instance.
type Start struct {
	Machine        string          `json:"machine"`
	CorrelationKey string          `json:"correlation_key,omitempty"`
	State          json.RawMessage `json:"state,omitempty"`
	Step           string          `json:"step,omitempty"`
	Child          bool            `json:"child,omitempty"`
}

// Publication is the effect that publishes a message.
type Publication struct {
	Subject string            `json:"subject"`
	Data    json.RawMessage   `json:"data,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}
