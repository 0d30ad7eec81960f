package api

import (
	"encoding/json"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// Instance is the JSON of an instance. What it has not is null.
type Instance struct {
	ID             string          `json:"id"`
	Project        string          `json:"project"`
	Machine        string          `json:"machine"`
	Version        int             `json:"version"`
	Status         engine.Status   `json:"status"`
	Step           string          `json:"step"`
	Attempt        int             `json:"attempt"`
	CorrelationKey *string         `json:"correlation_key"`
	Queue          string          `json:"queue"`
	Priority       int16           `json:"priority"`
	PartitionKey   *string         `json:"partition_key"`
	UniqueKey      *string         `json:"unique_key"`
	UniqueScope    []engine.Status `json:"unique_scope"`
	State          json.RawMessage `json:"state"`
	Awaits         []string        `json:"awaits"`
	Deadline       *time.Time      `json:"deadline"`
	RunAt          *time.Time      `json:"run_at"`
	Result         json.RawMessage `json:"result"`
	LastError      *string         `json:"last_error"`
	Paused         bool            `json:"paused"`
	InboxCount     int             `json:"inbox_count"`
	Lease          *engine.Lease   `json:"lease"`
	InsertedAt     time.Time       `json:"inserted_at"`
	UpdatedAt      time.Time       `json:"updated_at"`
	FinishedAt     *time.Time      `json:"finished_at"`
	ParentID       *string         `json:"parent_id"`
}

func instanceOf(in engine.Instance) Instance {
	out := Instance{
		ID: in.ID.String(), Project: in.Project, Machine: in.Machine, Version: in.Version, Status: in.Status, Step: in.Step, Attempt: in.Attempt,
		CorrelationKey: optional(in.CorrelationKey), Queue: in.Queue, Priority: in.Priority, PartitionKey: optional(in.PartitionKey), UniqueKey: optional(in.UniqueKey),
		UniqueScope: in.UniqueScope, State: in.State, Awaits: in.Awaits, Deadline: utc(in.Deadline), RunAt: utc(in.RunAt), Result: in.Result,
		LastError: optional(in.LastError), Paused: in.Paused, InboxCount: in.InboxCount,
		InsertedAt: in.InsertedAt.UTC(), UpdatedAt: in.UpdatedAt.UTC(), FinishedAt: utc(in.FinishedAt),
		ParentID: optionalID(in.ParentID),
	}
	if in.Lease != nil {
		out.Lease = &engine.Lease{Worker: in.Lease.Worker, ExpiresAt: in.Lease.ExpiresAt.UTC()}
	}
	if out.Awaits == nil {
		out.Awaits = []string{}
	}
	return out
}

// utc is a time as the contract writes it; nil is none.
func utc(t *time.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}
