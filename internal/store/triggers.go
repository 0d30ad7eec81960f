package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Statuses of a trigger.
const (
	TriggerWaiting  = "waiting"
	TriggerReceived = "received"
	TriggerTimedOut = "timed_out"
	TriggerCanceled = "canceled"
)

// TriggerSleep is the type of a trigger that no event is sent to: its time is what it waits for.
const TriggerSleep = "sleep"

// Trigger is a row of triggers.
type Trigger struct {
	ID              uuid.UUID
	Project         string
	Key             string
	Status          string
	Source          string
	Type            string
	InstanceID      *uuid.UUID
	Step            string
	TimeoutSecs     int64
	RequestedAt     time.Time
	ExpiresAt       time.Time
	ReceivedAt      *time.Time
	EndedAt         *time.Time
	NotifyURL       string
	NotifyStatus    string
	EmitKey         string
	SentBy          string
	Error           string
	RequestPayload  []byte
	ResponsePayload []byte
}

// EventScope is the ledger scope of an event key, and what its lock is of.
func EventScope(project, key string) uuid.UUID {
	return hash("event", project, key)
}

// Trigger returns the trigger that waits with the key, else the last one that did.
func (s *Store) Trigger(ctx context.Context, project, key string) (t Trigger, found bool, err error) {
	err = s.each(ctx, "trigger", s.text.trigger, func(r pgx.Rows) (err error) {
		t, err = scanTrigger(r)
		found = true
		return err
	}, project, key)
	return t, found, err
}

// TriggersByID returns those of the triggers that there are, in any order.
func (s *Store) TriggersByID(ctx context.Context, ids []uuid.UUID) ([]Trigger, error) {
	ts := make([]Trigger, 0, len(ids))
	err := s.each(ctx, "triggers by id", s.text.triggersByID, func(r pgx.Rows) error {
		t, err := scanTrigger(r)
		ts = append(ts, t)
		return err
	}, ids)
	return ts, err
}

// TriggerStandings is [Store.Standings] for triggers.
func (s *Store) TriggerStandings(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]Standing, error) {
	return s.standings(ctx, "trigger standings", s.text.triggerStandings, ids)
}

func scanTrigger(r pgx.Rows, first ...any) (t Trigger, err error) {
	var step, url, notified, emit, sentBy, text *string
	err = r.Scan(append(first, &t.ID, &t.Project, &t.Key, &t.Status, &t.Source, &t.Type, &t.InstanceID, &step, &t.TimeoutSecs, &t.RequestedAt, &t.ExpiresAt,
		&t.ReceivedAt, &t.EndedAt, &url, &notified, &emit, &sentBy, &text, &t.RequestPayload, &t.ResponsePayload)...)
	t.Step, t.NotifyURL, t.NotifyStatus, t.EmitKey, t.SentBy, t.Error = value(step), value(url), value(notified), value(emit), value(sentBy), value(text)
	return t, err
}

const triggerColumns = `t.id, t.project, t.event_key, t.status, t.source_type, t.trigger_type, t.instance_id, t.step, t.timeout_secs, t.requested_at, t.expires_at,
  t.received_at, t.ended_at, t.notify_url, t.notify_status, t.event_emit_key, t.sent_by, t.error, t.request_payload, t.response_payload`

const triggerText = `
select /* trigger */ ` + triggerColumns + ` from (
  (select * from pointsman.triggers where project = $1 and event_key = $2 and status = 'waiting' limit 1)
  union all
  (select * from pointsman.triggers where project = $1 and event_key = $2 order by requested_at desc limit 1)
  limit 1) t`

const triggersByIDText = `select /* triggers by id */ ` + triggerColumns + ` from pointsman.triggers t where t.id = any($1)`

const triggerStandingsText = `select /* trigger standings */ id, project, status <> 'waiting' from pointsman.triggers where id = any($1)`
