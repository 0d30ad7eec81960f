package engine

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Status of an instance.
type Status string

const (
	StatusRunnable  Status = "runnable"
	StatusExecuting Status = "executing"
	StatusAwaiting  Status = "awaiting_signal"
	StatusDone      Status = "done"
	StatusFailed    Status = "failed"
	StatusCanceled  Status = "canceled"
)

// Live reports whether an instance with this status has not ended.
func (s Status) Live() bool { return s != StatusDone && s != StatusFailed && s != StatusCanceled }

// NewInstance describes an instance to start. Only Machine is required.
type NewInstance struct {
	ID             uuid.UUID       // zero: a new UUIDv7
	Project        string          // zero: DefaultProject
	Machine        string          //
	Version        int             // zero: the newest that a worker has served, else 1
	Start          string          // first step; zero: where the machine begins
	CorrelationKey string          // unique among the live instances of the project
	State          json.RawMessage // zero: {}
	Queue          string          // zero: the machine's
	Priority       int16           // lower is earlier
	PartitionKey   string          // of the instances of a project with one key, one executes at a time, in the order of priority and of getting ready
	UniqueKey      string          // no other instance of the project starts with it while this one has a status of UniqueScope
	UniqueScope    []Status        // zero: runnable, executing and awaiting_signal
	RunAt          time.Time       // zero: now
	ReplyTo        string          // the outcome is published to this subject too
	NotifyURL      string          // the end is told to this URL by webhook, http or https
	DedupKey       string          // a second start with this key (and correlation key) is a duplicate
	Traceparent    string
	child          bool // of the instance whose step starts it
}

// Instance is a snapshot of one running copy of a machine.
type Instance struct {
	ID             uuid.UUID       `json:"id"`
	Project        string          `json:"project"`
	Machine        string          `json:"machine"`
	Version        int             `json:"version"`
	Status         Status          `json:"status"`
	Step           string          `json:"step"`
	Attempt        int             `json:"attempt"`
	CorrelationKey string          `json:"correlation_key,omitempty"`
	Queue          string          `json:"queue"`
	Priority       int16           `json:"priority"`
	PartitionKey   string          `json:"partition_key,omitempty"`
	UniqueKey      string          `json:"unique_key,omitempty"`
	UniqueScope    []Status        `json:"unique_scope,omitempty"` // in which UniqueKey is unique
	State          json.RawMessage `json:"state"`
	Awaits         []string        `json:"awaits"`
	Deadline       *time.Time      `json:"deadline"`
	RunAt          *time.Time      `json:"run_at"`
	Result         json.RawMessage `json:"result"`
	LastError      string          `json:"last_error,omitempty"`
	Paused         bool            `json:"paused"`
	InboxCount     int             `json:"inbox_count"`
	Lease          *Lease          `json:"lease"`
	InsertedAt     time.Time       `json:"inserted_at"`
	UpdatedAt      time.Time       `json:"updated_at"`
	FinishedAt     *time.Time      `json:"finished_at"`
	ParentID       uuid.UUID       `json:"parent_id,omitzero"` // whose child it is
}

// Lease says which worker executes an instance, and until when it may.
type Lease struct {
	Worker    string    `json:"worker"`
	ExpiresAt time.Time `json:"expires_at"`
}
