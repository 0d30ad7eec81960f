package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// WebhookDelivery is the JSON of a webhook, and of what became of it so far. What it has not is null.
type WebhookDelivery struct {
	ID           string          `json:"id"` // the webhook-id
	Project      string          `json:"project"`
	Status       string          `json:"status"` // pending, delivered, failed
	Attempts     int             `json:"attempts"`
	Source       string          `json:"source"` // instance, trigger
	SourceID     string          `json:"source_id"`
	URL          string          `json:"url"`
	Type         string          `json:"type"`
	LastStatus   *int            `json:"last_status"` // of HTTP
	LastError    *string         `json:"last_error"`
	LastResponse *string         `json:"last_response"` // its beginning
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	NextAt       *time.Time      `json:"next_at"`        // of a pending one
	Body         json.RawMessage `json:"body,omitempty"` // of a single one
}

func webhookOf(d engine.Delivery) WebhookDelivery {
	out := WebhookDelivery{
		ID: d.ID.String(), Project: d.Project, Status: string(d.Status), Attempts: d.Attempts, Source: d.Source, SourceID: d.SourceID.String(), URL: d.URL, Type: d.Type,
		LastError: optional(d.LastError), LastResponse: optional(d.Response), CreatedAt: d.CreatedAt.UTC(), UpdatedAt: d.UpdatedAt.UTC(), Body: d.Body,
	}
	if d.LastStatus != 0 {
		out.LastStatus = &d.LastStatus
	}
	if d.Status == engine.DeliveryPending {
		out.NextAt = utc(&d.NextAt)
	}
	return out
}

// WebhooksRequest asks for webhooks, of a status or of any.
type WebhooksRequest struct {
	Status string `json:"status,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// Webhooks returns webhooks, the newest first, without their bodies.
func (a *API) Webhooks(ctx context.Context, project string, r WebhooksRequest) (Page[WebhookDelivery], error) {
	limit, err := limited(r.Limit)
	if err != nil {
		return Page[WebhookDelivery]{}, err
	}
	var before uuid.UUID
	if err := unpack(r.Cursor, &before); err != nil {
		return Page[WebhookDelivery]{}, err
	}
	rows, err := a.Client.Deliveries(ctx, project, engine.DeliveryStatus(r.Status), before, limit+1)
	if err != nil {
		return Page[WebhookDelivery]{}, err
	}
	items := make([]WebhookDelivery, len(rows))
	for i, d := range rows {
		items[i] = webhookOf(d)
	}
	return pageOf(items, limit, func(d WebhookDelivery) string { return pack(d.ID) })
}

// WebhookRequest names a webhook.
type WebhookRequest struct {
	ID string `json:"id"`
}

func (r WebhookRequest) read() (uuid.UUID, error) { return webhookID("id", r.ID) }

func webhookID(field, s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 || id == uuid.Nil {
		return uuid.Nil, invalid(field, "%.60q is no id of a webhook delivery: want a UUID, as a list gives it", s)
	}
	return id, nil
}

// Webhook returns one with its body.
func (a *API) Webhook(ctx context.Context, project string, r WebhookRequest) (WebhookDelivery, error) {
	id, err := r.read()
	if err != nil {
		return WebhookDelivery{}, err
	}
	d, err := a.Client.Delivery(ctx, project, id)
	return webhookOf(d), noWebhook(id, err)
}

// RetryWebhook has a failed webhook sent again: at once, with all its attempts before it.
func (a *API) RetryWebhook(ctx context.Context, project string, r WebhookRequest) (WebhookDelivery, error) {
	id, err := r.read()
	if err != nil {
		return WebhookDelivery{}, err
	}
	d, err := a.Client.RetryDelivery(ctx, project, id)
	return webhookOf(d), noWebhook(id, err)
}

func noWebhook(id uuid.UUID, err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return notFound("there is no webhook delivery %s", id)
	}
	return err
}

// RetryWebhooksRequest names webhooks.
type RetryWebhooksRequest struct {
	IDs []string `json:"ids"`
}

// WebhookResult is what became of one of several retries: Result is "retried", or there is an Error.
type WebhookResult struct {
	ID     string `json:"id"`
	Result string `json:"result"`
	Error  *Error `json:"error"`
}

// WebhookResults are in the order of the request.
type WebhookResults struct {
	Results []WebhookResult `json:"results"`
}

// RetryWebhooks is RetryWebhook for several.
func (a *API) RetryWebhooks(ctx context.Context, project string, r RetryWebhooksRequest) (WebhookResults, error) {
	if len(r.IDs) == 0 || len(r.IDs) > MaxItems {
		return WebhookResults{}, invalid("ids", "are %d: want 1 to %d", len(r.IDs), MaxItems)
	}
	ids := make([]uuid.UUID, len(r.IDs))
	for i, s := range r.IDs {
		var err error
		if ids[i], err = webhookID(fmt.Sprintf("ids[%d]", i), s); err != nil {
			return WebhookResults{}, err
		}
	}
	verdicts, err := a.Client.RetryDeliveries(ctx, project, ids)
	if err != nil {
		return WebhookResults{}, err
	}
	out := WebhookResults{Results: make([]WebhookResult, len(ids))}
	for i, err := range verdicts {
		out.Results[i] = WebhookResult{ID: r.IDs[i], Error: ErrorOf(noWebhook(ids[i], err))}
		if err == nil {
			out.Results[i].Result = "retried"
		}
	}
	return out, nil
}
