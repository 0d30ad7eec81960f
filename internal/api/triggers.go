package api

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/auth"
)

// Trigger is a trigger as it is written.
type Trigger engine.Trigger

// Ended says that a trigger stays as it is.
func (t Trigger) Ended() bool { return t.Status != engine.TriggerWaiting }

// NewTrigger asks for a trigger that no instance waits for.
type NewTrigger struct {
	EventKey       string          `json:"event_key"`
	TimeoutSecs    *int64          `json:"timeout_secs,omitempty"` // default: 3600
	NotifyURL      string          `json:"notify_url,omitempty"`
	RequestPayload json.RawMessage `json:"request_payload,omitempty"`
}

func (r NewTrigger) wait() (engine.EventWait, error) {
	w := engine.EventWait{Key: r.EventKey, NotifyURL: r.NotifyURL, RequestPayload: r.RequestPayload}
	if r.TimeoutSecs != nil {
		most := int64(engine.MaxEventTimeout / time.Second)
		if *r.TimeoutSecs < 1 || *r.TimeoutSecs > most {
			return w, invalid("timeout_secs", "is %d: want 1 to %d, which is ten years", *r.TimeoutSecs, most)
		}
		w.Timeout = time.Duration(*r.TimeoutSecs) * time.Second
	}
	return w, nil
}

// CreateTrigger makes a trigger.
func (a *API) CreateTrigger(ctx context.Context, project string, r NewTrigger) (Trigger, error) {
	w, err := r.wait()
	if err != nil {
		return Trigger{}, err
	}
	t, err := a.Client.CreateTrigger(ctx, project, w)
	return Trigger(t), err
}

// WaitRequest asks for a trigger that an instance waits for.
type WaitRequest struct {
	Ref string `json:"ref"`
	NewTrigger
}

// WaitForEvent makes a trigger for a live instance: the event goes into its inbox.
func (a *API) WaitForEvent(ctx context.Context, project string, r WaitRequest) (Trigger, error) {
	ref, err := refOf(project, r.Ref)
	if err != nil {
		return Trigger{}, err
	}
	w, err := r.wait()
	if err != nil {
		return Trigger{}, err
	}
	t, err := a.Client.WaitForEvent(ctx, ref, w)
	return Trigger(t), err
}

// TriggersRequest asks for triggers. What is left out does not filter.
type TriggersRequest struct {
	Status        string `json:"status,omitempty"`
	SourceType    string `json:"source_type,omitempty"`
	WorkflowRunID string `json:"workflow_run_id,omitempty"` // the instance that waits, of a flow or not
	Limit         int    `json:"limit,omitempty"`
	Cursor        string `json:"cursor,omitempty"`
}

// Triggers returns the latest first. A page may be short, even empty, and have a next one.
func (a *API) Triggers(ctx context.Context, project string, r TriggersRequest) (Page[Trigger], error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return Page[Trigger]{}, err
	}
	f := engine.TriggerFilter{Project: project, Status: engine.TriggerStatus(r.Status), Source: r.SourceType}
	if r.WorkflowRunID != "" {
		if f.InstanceID, err = uuid.Parse(r.WorkflowRunID); err != nil || f.InstanceID == uuid.Nil {
			return Page[Trigger]{Items: []Trigger{}}, nil // no instance has such an id
		}
	}
	var before uuid.UUID
	if err := unpack(r.Cursor, &before); err != nil {
		return Page[Trigger]{}, err
	}
	rows, next, err := a.Client.Triggers(ctx, f, before, limit)
	if err != nil {
		return Page[Trigger]{}, err
	}
	items := make([]Trigger, len(rows))
	for i, t := range rows {
		items[i] = Trigger(t)
	}
	cursor := ""
	if next != uuid.Nil {
		cursor = pack(next)
	}
	return newPage(items, cursor, func(t Trigger) string { return pack(t.ID) })
}

// TriggerRequest names a trigger.
type TriggerRequest struct {
	EventKey string `json:"event_key"`
}

// Trigger returns the trigger that waits with a key, or else the last one that did.
func (a *API) Trigger(ctx context.Context, project string, r TriggerRequest) (Trigger, error) {
	t, err := a.Client.Trigger(ctx, project, r.EventKey)
	return Trigger(t), err
}

// CancelTrigger cancels the trigger that waits with a key, and wakes who awaits it.
func (a *API) CancelTrigger(ctx context.Context, project string, r TriggerRequest) (Trigger, error) {
	t, err := a.Client.CancelTrigger(ctx, project, r.EventKey)
	return Trigger(t), err
}

// WatchTrigger yields the latest trigger of a key as it is, and as it has ended.
func (a *API) WatchTrigger(ctx context.Context, project string, r TriggerRequest) iter.Seq2[Trigger, error] {
	return func(yield func(Trigger, error) bool) {
		for t, err := range a.Client.WatchTrigger(ctx, project, r.EventKey) {
			if !yield(Trigger(t), err) {
				return
			}
		}
	}
}

// SendRequest sends an event.
type SendRequest struct {
	EventKey string          `json:"event_key"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	Hold     string          `json:"hold,omitempty" http:"query,hold"` // where nobody has used the key, for this long; a duration as 1h
}

// HeldEvent answers the event that nobody waits for yet.
type HeldEvent struct {
	Result    string    `json:"result"` // held
	EventKey  string    `json:"event_key"`
	HeldUntil time.Time `json:"held_until"`
}

// SendEvent answers with the [Trigger] that has the event, now or before, or with a [HeldEvent].
func (a *API) SendEvent(ctx context.Context, project string, r SendRequest) (any, error) {
	e := engine.NewEvent{Project: project, Key: r.EventKey, Payload: r.Payload, SentBy: auth.Caller(ctx)}
	if r.Hold != "" {
		var err error
		if e.Hold, err = time.ParseDuration(r.Hold); err != nil || e.Hold <= 0 {
			return nil, invalid("hold", "%.40q: want a duration of at most %s, as 1h", r.Hold, engine.MaxHold)
		}
	}
	receipt, err := a.Client.SendEvent(ctx, e)
	if err != nil {
		return nil, err
	}
	if receipt.Trigger == nil {
		return HeldEvent{Result: string(receipt.Result), EventKey: r.EventKey, HeldUntil: receipt.HeldUntil.UTC()}, nil
	}
	return Trigger(*receipt.Trigger), nil
}

// SendPrefixRequest sends an event to all that wait with a key that begins so.
type SendPrefixRequest struct {
	Prefix  string          `json:"prefix"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// SentToPrefix says how many have received the event by this request.
type SentToPrefix struct {
	Prefix string `json:"prefix"`
	Count  int    `json:"count"`
}

// SendEventPrefix goes on where one that was cut off before it has stopped: each trigger receives the event once.
func (a *API) SendEventPrefix(ctx context.Context, project string, r SendPrefixRequest) (SentToPrefix, error) {
	n, err := a.Client.SendEventPrefix(ctx, project, r.Prefix, r.Payload, auth.Caller(ctx))
	if err != nil && n > 0 {
		e := *ErrorOf(err)
		e.Message, e.Details = "cut off: what has the event keeps it, and the same request again goes on with the rest", map[string]any{"count": n}
		return SentToPrefix{}, &e
	}
	return SentToPrefix{Prefix: r.Prefix, Count: n}, err
}

// TriggerStatsRequest has nothing in it.
type TriggerStatsRequest struct{}

// TriggerStats counts the triggers of a project by their status.
func (a *API) TriggerStats(ctx context.Context, project string, _ TriggerStatsRequest) (engine.TriggerStats, error) {
	return a.Client.TriggerStats(ctx, project)
}

// PurgeRequest deletes triggers that have ended.
type PurgeRequest struct {
	OlderThanDays *int `json:"older_than_days"` // 0: all that have ended
	DryRun        bool `json:"dry_run,omitempty"`
}

// Purged says how many triggers are deleted, or would be.
type Purged struct {
	Count  int  `json:"count"`
	DryRun bool `json:"dry_run"`
}

// PurgeTriggers deletes triggers that have ended so long ago.
func (a *API) PurgeTriggers(ctx context.Context, project string, r PurgeRequest) (Purged, error) {
	const most = math.MaxInt64 / int64(24*time.Hour)
	if r.OlderThanDays == nil {
		return Purged{}, invalid("older_than_days", "is missing: want the age in days; 0 means all that have ended")
	}
	if *r.OlderThanDays < 0 || int64(*r.OlderThanDays) > most {
		return Purged{}, invalid("older_than_days", "is %d: want 0 to %d", *r.OlderThanDays, most)
	}
	n, err := a.Client.PurgeTriggers(ctx, project, time.Duration(*r.OlderThanDays)*24*time.Hour, r.DryRun)
	return Purged{Count: n, DryRun: r.DryRun}, err
}
