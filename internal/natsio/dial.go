package natsio

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// Dial is Connect for a command that runs once: a server that does not answer is the error, and a connection that is lost stays lost.
func Dial(cfg Config) (*nats.Conn, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	opts, err := options(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	opts = append(opts, nats.RetryOnFailedConnect(false), nats.NoReconnect())
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	return nc, nil
}
