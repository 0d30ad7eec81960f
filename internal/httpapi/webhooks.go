package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/auth"
)

// webhooks are the calls about what is sent to others.
func (s *Server) webhooks() {
	a, tag := s.cfg.API, "webhooks"
	const path = "/v1/webhook-deliveries"
	add(s, operation{id: "listWebhookDeliveries", method: http.MethodGet, path: path, tag: tag, scope: auth.Read, summary: "List webhooks, the newest first"}, a.Webhooks)
	add(s, operation{id: "getWebhookDelivery", method: http.MethodGet, path: path + "/{id}", tag: tag, scope: auth.Read, summary: "Get a webhook with its body"}, a.Webhook)
	add(s, operation{id: "retryWebhookDelivery", method: http.MethodPost, path: path + "/{id}/retry", tag: tag, scope: auth.Admin, summary: "Send a webhook again that was given up"}, a.RetryWebhook)
	add(s, operation{id: "retryWebhookDeliveries", method: http.MethodPost, path: path + "/retry", tag: tag, scope: auth.Admin, summary: "Send several webhooks again"}, a.RetryWebhooks)
}
