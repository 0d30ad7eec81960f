package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// WebhookDelivery is a webhook, and what became of it so far.
type WebhookDelivery struct {
	ID         uuid.UUID
	Project    string
	Status     string
	Attempts   int
	Source     string
	SourceID   uuid.UUID
	URL        string
	Type       string
	LastStatus int
	LastError  string
	Response   string
	CreatedAt  time.Time
	UpdatedAt  time.Time
	NextAt     time.Time
	Body       []byte // of one that was asked for by its id
}

// Deliveries returns at most n of a project that are older than before (uuid.Nil: all), newest first; with a status ("": any).
func (s *Store) Deliveries(ctx context.Context, project, status string, before uuid.UUID, n int) (out []WebhookDelivery, err error) {
	statuses := []string{status}
	if status == "" {
		statuses = []string{"pending", "delivered", "failed"}
	}
	if before == uuid.Nil {
		before = uuid.Max
	}
	err = s.each(ctx, "list deliveries", s.text.listDeliveries, func(r pgx.Rows) error {
		d, err := scanWebhook(r)
		out = append(out, d)
		return err
	}, project, statuses, before, n)
	return out, err
}

// DeliveryByID returns one with its body; found is false where there is none.
func (s *Store) DeliveryByID(ctx context.Context, project string, id uuid.UUID) (d WebhookDelivery, found bool, err error) {
	err = s.each(ctx, "delivery", s.text.deliveryByID, func(r pgx.Rows) (err error) {
		found = true
		d, err = scanWebhook(r)
		return err
	}, project, id)
	return d, found, err
}

func scanWebhook(r pgx.Rows) (d WebhookDelivery, err error) {
	var code *int
	var lastError, response, body *string
	err = r.Scan(&d.ID, &d.Project, &d.Status, &d.Attempts, &d.Source, &d.SourceID, &d.URL, &d.Type, &code, &lastError, &response,
		&d.CreatedAt, &d.UpdatedAt, &d.NextAt, &body)
	if code != nil {
		d.LastStatus = *code
	}
	d.LastError, d.Response, d.Body = value(lastError), value(response), []byte(value(body))
	return d, err
}

const deliveryColumns = `d.id, d.project, d.status, d.attempts, d.source, d.source_id, d.url, d.type, d.last_status, d.last_error, d.response,
  d.created_at, d.updated_at, d.next_at`

// listDeliveriesText ($1 project, $2 statuses, $3 before, $4 how many) reads so many of each status.
const listDeliveriesText = `
select /* list deliveries */ ` + deliveryColumns + `, null::text from unnest($2::text[]) s(status) cross join lateral (
  select * from pointsman.webhook_deliveries d where d.project = $1 and d.status = s.status and d.id < $3 order by d.id desc limit $4) d
order by d.id desc limit $4`

const deliveryByIDText = `
select /* delivery */ ` + deliveryColumns + `, d.body::text from pointsman.webhook_deliveries d where d.id = $2 and d.project = $1`

// RetryDeliveries makes failed ones pending again, due at once and with no attempt. It returns what it found: the status that each had
// which there is.
func (s *Store) RetryDeliveries(ctx context.Context, project string, ids []uuid.UUID) (had map[uuid.UUID]string, err error) {
	had = map[uuid.UUID]string{}
	err = s.together(ctx, statement{"retry deliveries", s.text.retryDeliveries, []any{project, ids}, func(r pgx.Rows) error {
		var id uuid.UUID
		var status string
		err := r.Scan(&id, &status)
		had[id] = status
		return err
	}})
	return had, err
}

// retryDeliveriesText ($1 project, $2 ids). What is known of the last attempt stays until the next one.
const retryDeliveriesText = `
with /* retry deliveries */ lk as materialized (
  select d.id, d.status from pointsman.webhook_deliveries d where d.id = any($2) and (d.project = $1) is true order by d.id for update
), u as (
  update pointsman.webhook_deliveries d set status = 'pending', attempts = 0, next_at = now(), updated_at = now()
  where d.id = any(array(select id from lk where status = 'failed')) returning d.source, d.source_id, d.status
), told as materialized (
  select t.id from (select source_id from u where source = 'trigger') u
  cross join lateral (select t.id from pointsman.triggers t where t.id = u.source_id) t order by t.id
), tr as (
  update pointsman.triggers t set notify_status = 'pending' where t.id = any(array(select id from told))
)
select id, status from lk`

// DeliveryBatch is how many [Store.RetireDeliveries] takes on.
const DeliveryBatch = 500

// RetireDeliveries deletes at most [DeliveryBatch] that were delivered or failed so long ago, the oldest first, and returns how many.
func (s *Store) RetireDeliveries(ctx context.Context, keep time.Duration) (n int, err error) {
	err = s.together(ctx, statement{"retire deliveries", s.text.retireDeliveries, []any{keep}, func(r pgx.Rows) error { return r.Scan(&n) }})
	return n, err
}

// retireDeliveriesText ($1 how long they are kept).
const retireDeliveriesText = `
with /* retire deliveries */ gone as (
  delete from pointsman.webhook_deliveries where ctid = any(array(
    select ctid from pointsman.webhook_deliveries where status <> 'pending' and updated_at <= now() - $1::interval
    order by updated_at limit 500 for update skip locked)) returning 1
)
select count(*) from gone`
