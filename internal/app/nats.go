package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsio"
)

// ConnectNATS connects as the configuration says, for good: see [natsio.Connect].
func ConnectNATS(ctx context.Context, cfg *config.Config, program string, log *slog.Logger) (*nats.Conn, error) {
	return natsio.Connect(ctx, natsConfig(cfg, program, log))
}

// JetStream is that of the domain that the configuration names, or the one of the server.
func JetStream(nc *nats.Conn, cfg *config.Config) (jetstream.JetStream, error) {
	if cfg.NATS.Domain != "" {
		return jetstream.NewWithDomain(nc, cfg.NATS.Domain)
	}
	return jetstream.New(nc)
}

func natsConfig(cfg *config.Config, program string, log *slog.Logger) natsio.Config {
	n := cfg.NATS
	host, _ := os.Hostname()
	return natsio.Config{
		URL: n.URL, Creds: n.Creds, NKey: n.NKey, User: n.User, Password: n.Password, Token: n.Token,
		TLS: natsio.TLS{CA: n.TLS.CA, Cert: n.TLS.Cert, Key: n.TLS.Key}, Name: fmt.Sprintf("pointsman %s on %s", program, host), Logger: log,
	}
}

// checkNATS finds out that a file for the connection can never be used.
func checkNATS(cfg *config.Config) error {
	var file *natsio.FileError
	if err := natsio.CheckFiles(natsConfig(cfg, "", nil)); errors.As(err, &file) {
		return cfg.Errorf("nats."+file.Field, "%v", file.Err)
	}
	return nil
}
