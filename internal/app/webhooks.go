package app

import (
	"log/slog"

	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/webhook"
)

// checkWebhooks finds a secret that cannot sign, before anything is started.
func checkWebhooks(cfg *config.Config) error {
	for _, secret := range cfg.Webhooks.Secrets {
		if err := webhook.CheckSecret(secret); err != nil {
			return cfg.Errorf("webhooks.secret", "%v", err)
		}
	}
	return nil
}

// sender is what sends the webhooks.
func (p *parts) sender(cfg *config.Config, log *slog.Logger) (*webhook.Sender, error) {
	return webhook.New(webhook.Config{
		Deliveries: p.client, Secrets: cfg.Webhooks.Secrets, AllowPrivate: cfg.Webhooks.AllowPrivate, Timeout: cfg.Webhooks.Timeout,
		ShutdownTimeout: cfg.HTTP.ShutdownTimeout, UserAgent: "pointsman/" + Version, Logger: log, Metrics: p.metrics,
	})
}
