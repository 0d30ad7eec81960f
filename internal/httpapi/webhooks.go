package httpapi

import (
	"net/http"

	"github.com/pointsman/pointsman/internal/auth"
)

// webhooks are the calls about webhooks that were, or are to be, sent.
func (s *Server) webhooks() {
	const tag, all = "webhooks", "/v1/webhook-deliveries"
	a := s.cfg.API
	add(s, operation{id: "listWebhookDeliveries", method: http.MethodGet, path: all, tag: tag, scope: auth.Read, summary: "List webhooks, the newest first"}, a.Webhooks)
	add(s, operation{id: "getWebhookDelivery", method: http.MethodGet, path: all + "/{id}", tag: tag, scope: auth.Read, summary: "Get a webhook with its body"}, a.Webhook)
	add(s, operation{id: "retryWebhookDelivery", method: http.MethodPost, path: all + "/{id}/retry", tag: tag, scope: auth.Admin, summary: "Have a failed webhook sent again"}, a.RetryWebhook)
	add(s, operation{id: "retryWebhookDeliveries", method: http.MethodPost, path: all + "/retry", tag: tag, scope: auth.Admin, summary: "Have failed webhooks sent again"}, a.RetryWebhooks)
}
