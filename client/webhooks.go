package client

import (
	"context"
	"net/http"

	"github.com/pointsman/pointsman/internal/api"
)

// Webhooks returns a page of the webhooks, the newest first, without their bodies.
func (c *Client) Webhooks(ctx context.Context, f WebhookFilter) (page WebhookPage, err error) {
	err = c.get(ctx, parameters(f.Limit, "status", f.Status, "cursor", f.Cursor), &page, "webhook-deliveries")
	return page, err
}

// Webhook returns a webhook with its body.
func (c *Client) Webhook(ctx context.Context, id string) (delivery WebhookDelivery, err error) {
	err = c.get(ctx, nil, &delivery, "webhook-deliveries", id)
	return delivery, err
}

// RetryWebhook has a failed webhook sent again: at once, with all its attempts before it. It is sent once: a second one would find that it
// is pending.
func (c *Client) RetryWebhook(ctx context.Context, id string) (delivery WebhookDelivery, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "webhook-deliveries", id, "retry"}}, &delivery)
	return delivery, err
}

// RetryWebhooks is RetryWebhook for up to 1000, and says what became of each.
func (c *Client) RetryWebhooks(ctx context.Context, ids []string) ([]WebhookResult, error) {
	var out api.WebhookResults
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "webhook-deliveries", "retry"}, body: api.RetryWebhooksRequest{IDs: ids}}, &out)
	return out.Results, err
}
