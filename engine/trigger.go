package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// TriggerStatus is the state of a trigger.
type TriggerStatus string

// A trigger waits until it receives its event, its time is over, or it is canceled. Whichever comes first stands.
const (
	TriggerWaiting  TriggerStatus = store.TriggerWaiting
	TriggerReceived TriggerStatus = store.TriggerReceived
	TriggerTimedOut TriggerStatus = store.TriggerTimedOut
	TriggerCanceled TriggerStatus = store.TriggerCanceled
)

// Sources of triggers: who waits.
const (
	SourceAPI  = "api"           // who asked for it; nobody is woken
	SourceRun  = "job_run"       // an instance
	SourceStep = "workflow_step" // a step of a flow
)

// Types of triggers.
const (
	TypeEvent = "event"
	TypeSleep = "sleep" // takes no event: it is received when its time has come
)

// Trigger is a durable wait for an event with a key.
type Trigger struct {
	ID                uuid.UUID       `json:"id"`
	EventKey          string          `json:"event_key"` // one trigger of a project waits with a key at a time
	Project           string          `json:"project_id"`
	Source            string          `json:"source_type"`
	Type              string          `json:"trigger_type"`
	InstanceID        *uuid.UUID      `json:"instance_id"` // who waits; nil: an API trigger
	Step              *string         `json:"step"`        // that the instance was in
	WorkflowRunID     *uuid.UUID      `json:"workflow_run_id"`
	WorkflowStepRunID *string         `json:"workflow_step_run_id"`
	JobRunID          *uuid.UUID      `json:"job_run_id"`
	Status            TriggerStatus   `json:"status"`
	TimeoutSecs       int64           `json:"timeout_secs"`
	RequestPayload    json.RawMessage `json:"request_payload"`
	ResponsePayload   json.RawMessage `json:"response_payload"` // of the event
	RequestedAt       time.Time       `json:"requested_at"`
	ReceivedAt        *time.Time      `json:"received_at"`
	ExpiresAt         time.Time       `json:"expires_at"`
	Error             *string         `json:"error"` // why it timed out or was canceled
	NotifyURL         *string         `json:"notify_url"`
	NotifyStatus      *string         `json:"notify_status"` // of the webhook: pending, delivered, failed; nil: none is due
	EventEmitKey      *string         `json:"event_emit_key"`
	SentBy            *string         `json:"sent_by"` // who sent the event
}

func triggerOf(row store.Trigger) Trigger {
	optional := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	utc := func(t *time.Time) *time.Time {
		if t == nil {
			return nil
		}
		at := t.UTC()
		return &at
	}
	t := Trigger{
		ID: row.ID, EventKey: row.Key, Project: row.Project, Source: row.Source, Type: row.Type, InstanceID: row.InstanceID, Step: optional(row.Step),
		Status: TriggerStatus(row.Status), TimeoutSecs: row.TimeoutSecs, RequestPayload: row.RequestPayload, ResponsePayload: row.ResponsePayload,
		RequestedAt: row.RequestedAt.UTC(), ReceivedAt: utc(row.ReceivedAt), ExpiresAt: row.ExpiresAt.UTC(), Error: optional(row.Error),
		NotifyURL: optional(row.NotifyURL), NotifyStatus: optional(row.NotifyStatus), EventEmitKey: optional(row.EmitKey), SentBy: optional(row.SentBy),
	}
	switch row.Source {
	case SourceRun:
		t.JobRunID = row.InstanceID
	case SourceStep:
		t.WorkflowRunID, t.WorkflowStepRunID = row.InstanceID, optional(row.Step)
	}
	return t
}

// EventWait says what is waited for, and how long.
type EventWait struct {
	Key            string
	Timeout        time.Duration   // zero: an hour; rounded up to whole seconds; at most ten years
	NotifyURL      string          // gets a webhook when the event arrives; "": none
	RequestPayload json.RawMessage // shown with the trigger; nil: none

	Sleep    bool   // it is a [TypeSleep], of which the key is only a name
	FlowStep string // the step of a flow that waits; "": the instance itself does
	EmitKey  string // shown with the trigger: of the event that the step of the flow sends when it is done; "": none
}

// Bounds of a wait.
const (
	DefaultEventTimeout = time.Hour
	MaxEventTimeout     = 10 * 365 * 24 * time.Hour
	maxNotifyURL        = 2048
)

func (w EventWait) check() error {
	if err := ident.EventKey("event_key", w.Key); err != nil {
		return err
	}
	if w.Timeout < 0 || w.Timeout > MaxEventTimeout {
		return &InvalidError{Field: "timeout_secs", Reason: fmt.Sprintf("is %d: want 1 to %d, which is ten years", int64(w.Timeout/time.Second), int64(MaxEventTimeout/time.Second))}
	}
	if w.NotifyURL != "" {
		if err := checkNotifyURL(w.NotifyURL); err != nil {
			return err
		}
	}
	if w.FlowStep != "" {
		if err := ident.Name("step", w.FlowStep); err != nil {
			return err
		}
	}
	if w.EmitKey != "" {
		if err := ident.EventKey("event_emit_key", w.EmitKey); err != nil {
			return err
		}
	}
	return checkJSON("request_payload", w.RequestPayload)
}

func checkNotifyURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case len(s) > maxNotifyURL:
		return &InvalidError{Field: "notify_url", Reason: fmt.Sprintf("has %d characters: at most %d", len(s), maxNotifyURL)}
	case err != nil || !utf8.ValidString(s) || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return &InvalidError{Field: "notify_url", Reason: fmt.Sprintf("%.80q is no http or https URL", s)}
	case u.User != nil:
		return &InvalidError{Field: "notify_url", Reason: "has a user or a password, which everybody who sees the trigger would see: leave it out"}
	}
	return nil
}

// row of a new trigger, for an instance or nobody.
func (w EventWait) row(project string, instance uuid.UUID, step string) (store.NewTrigger, error) {
	id, err := uuid.NewV7()
	timeout := w.Timeout
	if timeout == 0 {
		timeout = DefaultEventTimeout
	}
	n := store.NewTrigger{
		ID: id, Project: project, Key: w.Key, Source: SourceAPI, Type: TypeEvent, InstanceID: instance, Step: step,
		TimeoutSecs: int64((timeout + time.Second - 1) / time.Second), NotifyURL: w.NotifyURL, RequestPayload: w.RequestPayload, EmitKey: w.EmitKey,
	}
	switch {
	case w.FlowStep != "":
		n.Source, n.Step = SourceStep, w.FlowStep
	case instance != uuid.Nil:
		n.Source = SourceRun
	}
	if w.Sleep {
		n.Type = TypeSleep
	}
	return n, err
}

// refusal is why a trigger was not made; nil where it was, or its instance waits already.
func (c *Client) refusal(m store.MadeTrigger, key string) error {
	switch m.Creation {
	case store.KeyWaits:
		if m.Holder != nil {
			return &ConflictError{ID: *m.Holder, Reason: fmt.Sprintf("instance %s waits for the event %q: a key can be used again when its trigger has ended", *m.Holder, key)}
		}
		return &ConflictError{Reason: fmt.Sprintf("a trigger waits with the key %q: a key can be used again when its trigger has ended", key)}
	case store.OverQuota:
		return &QuotaError{Max: c.maxTriggers}
	case store.NoInstance:
		return ErrNoTarget
	}
	return nil
}

// CreateTrigger makes a trigger that no instance waits for: [Client.WatchTrigger] and webhooks do. An event that is held for the key is
// received at once. The error is a [*ConflictError] where a trigger waits with the key, and a [*QuotaError] where too many wait in the project.
func (c *Client) CreateTrigger(ctx context.Context, project string, w EventWait) (Trigger, error) {
	t, ended, err := c.createTrigger(ctx, c.store, project, w)
	return t, c.createdTrigger(t, ended, err)
}

// CreateTriggerTx is CreateTrigger inside a transaction of the caller's, which must be READ COMMITTED.
func (c *Client) CreateTriggerTx(ctx context.Context, tx pgx.Tx, project string, w EventWait) (Trigger, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Trigger{}, err
	}
	t, _, err := c.createTrigger(ctx, st, project, w)
	return t, err
}

func (c *Client) createTrigger(ctx context.Context, st *store.Store, project string, w EventWait) (t Trigger, ended []store.EndedTrigger, err error) {
	if project, err = projectOf(project); err != nil {
		return t, nil, err
	}
	return c.newTrigger(ctx, st, project, uuid.Nil, w)
}

func (c *Client) newTrigger(ctx context.Context, st *store.Store, project string, instance uuid.UUID, w EventWait) (t Trigger, ended []store.EndedTrigger, err error) {
	if err := w.check(); err != nil {
		return t, nil, err
	}
	row, err := w.row(project, instance, "")
	if err != nil {
		return t, nil, err
	}
	err = st.InScopes(ctx, []uuid.UUID{store.EventScope(project, w.Key)}, func(tx *store.Store) error {
		if instance != uuid.Nil {
			if err := tx.LockInstances(ctx, []uuid.UUID{instance}); err != nil {
				return err
			}
		}
		made, some, err := tx.CreateTriggers(ctx, []store.NewTrigger{row}, c.maxTriggers)
		if err != nil {
			return err
		}
		if err := c.refusal(made[0], w.Key); err != nil {
			return err
		}
		ended = some
		t, err = triggerByID(ctx, tx, row.ID)
		return err
	})
	if err != nil {
		return Trigger{}, nil, fmt.Errorf("create trigger: %w", err)
	}
	return t, ended, nil
}

// createdTrigger counts a trigger that has been created, and wakes who is to be.
func (c *Client) createdTrigger(t Trigger, ended []store.EndedTrigger, err error) error {
	if err == nil {
		c.metrics.triggersCreated.WithLabelValues(t.Source, c.metrics.projects.label(t.Project)).Inc()
		c.endedTriggers(ended)
	}
	return err
}

// endedTriggers is for triggers that have ended: their instances are woken, and who watches is told.
func (c *Client) endedTriggers(ended []store.EndedTrigger) {
	var queues []string
	for _, e := range ended {
		queues = append(queues, e.Queues...)
	}
	c.Wake(queues...)
	c.toldTriggers(ended)
}

// WaitForEvent makes a trigger for a live instance, whatever it does at the moment: the event goes into its inbox, and wakes it if it awaits
// that ([Outcome.OrEvent]). The errors are those of [Client.CreateTrigger], [ErrNotFound], and a [*NoTargetError] where it has ended.
func (c *Client) WaitForEvent(ctx context.Context, ref Ref, w EventWait) (Trigger, error) {
	t, ended, err := c.waitForEvent(ctx, c.store, ref, w)
	return t, c.createdTrigger(t, ended, err)
}

// WaitForEventTx is WaitForEvent inside a transaction of the caller's, which must be READ COMMITTED.
func (c *Client) WaitForEventTx(ctx context.Context, tx pgx.Tx, ref Ref, w EventWait) (Trigger, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Trigger{}, err
	}
	t, _, err := c.waitForEvent(ctx, st, ref, w)
	return t, err
}

func (c *Client) waitForEvent(ctx context.Context, st *store.Store, ref Ref, w EventWait) (Trigger, []store.EndedTrigger, error) {
	in, err := get(ctx, st, ref)
	if err != nil {
		return Trigger{}, nil, err
	}
	t, ended, err := c.newTrigger(ctx, st, in.Project, in.ID, w)
	if errors.Is(err, ErrNoTarget) {
		if in, err := get(ctx, st, Ref{project: in.Project, id: in.ID}); err == nil && in.FinishedAt != nil {
			return t, nil, &NoTargetError{Ended: Ended{ID: in.ID, Status: in.Status, At: *in.FinishedAt}}
		}
	}
	return t, ended, err
}

func projectOf(project string) (string, error) {
	if project == "" {
		return DefaultProject, nil
	}
	return project, ident.Token("project", project)
}

// Trigger returns the trigger that waits with the key, or else the last one that did. The error is [ErrNoTrigger] where there is none.
func (c *Client) Trigger(ctx context.Context, project, key string) (Trigger, error) {
	return triggerByKey(ctx, c.store, project, key)
}

func triggerByKey(ctx context.Context, st *store.Store, project, key string) (Trigger, error) {
	project, err := projectOf(project)
	if err = errors.Join(err, ident.EventKey("event_key", key)); err != nil {
		return Trigger{}, err
	}
	row, found, err := st.Trigger(ctx, project, key)
	if err == nil && !found {
		err = ErrNoTrigger
	}
	if err != nil {
		return Trigger{}, fmt.Errorf("trigger: %w", err)
	}
	return triggerOf(row), nil
}

func triggerByID(ctx context.Context, st *store.Store, id uuid.UUID) (Trigger, error) {
	rows, err := st.TriggersByID(ctx, []uuid.UUID{id})
	if err == nil && len(rows) == 0 {
		err = ErrNoTrigger
	}
	if err != nil {
		return Trigger{}, fmt.Errorf("trigger: %w", err)
	}
	return triggerOf(rows[0]), nil
}

// TriggerFilter says which triggers a list has. What is zero does not filter.
type TriggerFilter struct {
	Project    string // zero: DefaultProject
	Status     TriggerStatus
	Source     string
	InstanceID uuid.UUID // who waits
}

func (f TriggerFilter) check() error {
	switch f.Status {
	case "", TriggerWaiting, TriggerReceived, TriggerTimedOut, TriggerCanceled:
	default:
		return &InvalidError{Field: "status", Reason: fmt.Sprintf("%.40q: want waiting, received, timed_out or canceled", string(f.Status))}
	}
	switch f.Source {
	case "", SourceAPI, SourceRun, SourceStep:
		return nil
	}
	return &InvalidError{Field: "source_type", Reason: fmt.Sprintf("%.40q: want api, job_run or workflow_step", f.Source)}
}

// Triggers returns up to limit triggers that were made before this one (the zero id: all), the latest first, and where the next page begins;
// [uuid.Nil]: there is none. A page may be short, even empty, and have a next one.
func (c *Client) Triggers(ctx context.Context, f TriggerFilter, before uuid.UUID, limit int) (page []Trigger, next uuid.UUID, err error) {
	project, err := projectOf(f.Project)
	if err = errors.Join(err, f.check()); err != nil {
		return nil, uuid.Nil, err
	}
	rows, next, err := c.store.Triggers(ctx, store.TriggerFilter{Project: project, Status: string(f.Status), Source: f.Source, InstanceID: f.InstanceID}, before, limit)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("triggers: %w", err)
	}
	for _, row := range rows {
		page = append(page, triggerOf(row))
	}
	return page, next, nil
}

// TriggerStats counts the triggers of a project by their status, each up to 100,000.
type TriggerStats struct {
	Waiting  int `json:"waiting"`
	Received int `json:"received"`
	TimedOut int `json:"timed_out"`
	Canceled int `json:"canceled"`
}

// TriggerStats counts triggers.
func (c *Client) TriggerStats(ctx context.Context, project string) (TriggerStats, error) {
	project, err := projectOf(project)
	if err != nil {
		return TriggerStats{}, err
	}
	counts, err := c.store.TriggerCounts(ctx, project)
	if err != nil {
		return TriggerStats{}, fmt.Errorf("trigger stats: %w", err)
	}
	return TriggerStats{counts[store.TriggerWaiting], counts[store.TriggerReceived], counts[store.TriggerTimedOut], counts[store.TriggerCanceled]}, nil
}

// PurgeTriggers deletes the triggers of a project that ended so long ago (zero: all that have ended), a few hundred in a transaction, and
// returns how many; dryRun: how many it would. With an error the count is of those that are gone.
func (c *Client) PurgeTriggers(ctx context.Context, project string, older time.Duration, dryRun bool) (n int, err error) {
	if project, err = projectOf(project); err != nil {
		return 0, err
	}
	if older < 0 {
		return 0, &InvalidError{Field: "older_than_days", Reason: "is below 0"}
	}
	if dryRun {
		n, err = c.store.CountPurge(ctx, project, older)
		return n, wrap("purge triggers", err)
	}
	for {
		some, err := c.store.PurgeTriggers(ctx, project, older, c.keepDedup)
		n += some
		if err != nil || some < store.PurgeBatch {
			return n, wrap("purge triggers", err)
		}
	}
}

func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// CancelTrigger cancels the trigger that waits with the key, and returns it; an instance that is parked on it is woken with Canceled. It is
// idempotent. The error is [ErrNoTrigger] where there is none, and a [*ConflictError] where the last one received its event or timed out.
func (c *Client) CancelTrigger(ctx context.Context, project, key string) (Trigger, error) {
	t, ended, err := c.cancelTrigger(ctx, c.store, project, key)
	if err == nil {
		c.endedTriggers(ended)
	}
	return t, err
}

// CancelTriggerTx is CancelTrigger inside a transaction of the caller's, which must be READ COMMITTED.
func (c *Client) CancelTriggerTx(ctx context.Context, tx pgx.Tx, project, key string) (Trigger, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Trigger{}, err
	}
	t, _, err := c.cancelTrigger(ctx, st, project, key)
	return t, err
}

func (c *Client) cancelTrigger(ctx context.Context, st *store.Store, project, key string) (t Trigger, ended []store.EndedTrigger, err error) {
	if t, err = triggerByKey(ctx, st, project, key); err != nil || t.Status != TriggerWaiting {
		return t, nil, t.notCanceled(err)
	}
	end := store.TriggerEnd{ID: t.ID, Status: store.TriggerCanceled, Error: "canceled by a request"}
	if t.InstanceID != nil {
		end.InstanceID = *t.InstanceID
	}
	err = st.InScopes(ctx, nil, func(tx *store.Store) error {
		if ended, err = tx.EndTriggers(ctx, []store.TriggerEnd{end}); err == nil {
			t, err = triggerByID(ctx, tx, t.ID)
		}
		return err
	})
	if err != nil {
		return Trigger{}, nil, fmt.Errorf("cancel trigger: %w", err)
	}
	return t, ended, t.notCanceled(nil)
}

// notCanceled is why a cancel is none.
func (t *Trigger) notCanceled(err error) error {
	if err != nil || t.Status == TriggerCanceled || t.Status == TriggerWaiting {
		return err
	}
	return &ConflictError{Reason: fmt.Sprintf("the trigger of the key %q is %s: only one that waits can be canceled", t.EventKey, t.Status)}
}
