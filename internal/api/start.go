package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

// NewInstance asks for an instance. Only the machine is required.
type NewInstance struct {
	Machine        string          `json:"machine"`
	Version        int             `json:"version,omitempty"`
	CorrelationKey string          `json:"correlation_key,omitempty"`
	State          json.RawMessage `json:"state,omitempty"`
	Step           string          `json:"step,omitempty"`
	Queue          string          `json:"queue,omitempty"`
	Priority       int16           `json:"priority,omitempty"`
	RunAt          *time.Time      `json:"run_at,omitempty"`
	ReplyTo        string          `json:"reply_to,omitempty"`
	NotifyURL      string          `json:"notify_url,omitempty"`
	PartitionKey   string          `json:"partition_key,omitempty"`
	UniqueKey      string          `json:"unique_key,omitempty"`
	UniqueScope    []engine.Status `json:"unique_scope,omitempty"`
	DedupKey       string          `json:"dedup_key,omitempty"` // a second start with it is a duplicate; the Idempotency-Key of a single one

	wrong error // that decoding alone can see
}

// UnmarshalJSON reads it strictly.
func (n *NewInstance) UnmarshalJSON(body []byte) error {
	type plain NewInstance
	if err := strict(body, (*plain)(n)); err != nil {
		return err
	}
	n.wrong = emptyKey(body, "correlation_key", "partition_key", "unique_key", "dedup_key")
	return nil
}

// StartRequest starts one instance, or each of an array.
type StartRequest struct {
	Items  Items[NewInstance] `http:"body"`
	Atomic bool               `http:"query,atomic"` // of an array: all or nothing
	// IdempotencyKey is the dedup key of a single start, where that has none of its own.
	IdempotencyKey string `http:"header,Idempotency-Key"`
}

// Start answers one start with its [Instance], and an array with [Results].
func (a *API) Start(ctx context.Context, project string, r StartRequest) (any, error) {
	if err := r.Items.check(); err != nil {
		return nil, err
	}
	out := Results{Results: make([]Item, len(r.Items.All))}
	var starts []engine.NewInstance
	var at []int // where they stand in the array
	for i, n := range r.Items.All {
		if r.Items.One && n.DedupKey == "" {
			n.DedupKey = r.IdempotencyKey
		}
		if n.ReplyTo != "" {
			if err := subjects.ValidSubject(n.ReplyTo); err != nil {
				return nil, invalid("reply_to", "%v", err)
			}
		}
		switch {
		case n.wrong == nil:
			starts, at = append(starts, n.instance(ctx, project)), append(at, i)
		case r.Items.One:
			return nil, n.wrong
		case r.Atomic:
			return nil, &engine.BatchError{Index: i, Err: n.wrong}
		default:
			out.Results[i].Error = ErrorOf(n.wrong)
		}
	}
	if r.Items.One {
		in, err := a.Client.Start(ctx, starts[0])
		if err != nil {
			return nil, err
		}
		return instanceOf(in), nil
	}
	receipts, err := a.Client.StartAll(ctx, starts, r.Atomic)
	if err != nil {
		return nil, err
	}
	for k, r := range receipts {
		item := &out.Results[at[k]]
		item.Error = ErrorOf(r.Err)
		if r.Err == nil {
			item.Result, item.InstanceID = string(r.Result), optionalID(r.InstanceID)
		}
	}
	return out, nil
}

func (n NewInstance) instance(ctx context.Context, project string) engine.NewInstance {
	in := engine.NewInstance{
		Project: project, Machine: n.Machine, Version: n.Version, Start: n.Step, CorrelationKey: n.CorrelationKey, State: n.State, Queue: n.Queue, Priority: n.Priority,
		ReplyTo: n.ReplyTo, NotifyURL: n.NotifyURL, DedupKey: n.DedupKey, PartitionKey: n.PartitionKey, UniqueKey: n.UniqueKey, UniqueScope: n.UniqueScope,
		Traceparent: tracing.Of(ctx),
	}
	if n.RunAt != nil {
		in.RunAt = *n.RunAt
	}
	return in
}
