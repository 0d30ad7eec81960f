package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/subjects"
)

// Audit runs an audit of a route of the configuration, over a connection and the database, and asks no bridge.
func Audit(ctx context.Context, cfg *config.Config, nc *nats.Conn, request bridge.AuditRequest) (result bridge.Audit, err error) {
	if err := cfg.CheckDatabase(); err != nil {
		return result, err
	}
	mapper, err := Mapper(cfg)
	if err != nil {
		return result, err
	}
	space, err := subjects.New(cfg.NATS.SubjectPrefix)
	if err != nil {
		return result, err
	}
	js, err := JetStream(nc, cfg)
	if err != nil {
		return result, err
	}
	db, err := engine.Connect(ctx, cfg.Database.URL, 2, cfg.Database.Pooler == config.PoolerTransaction)
	if err != nil {
		return result, fmt.Errorf("database: %w", err)
	}
	defer db.Close()
	client, err := engine.NewClient(db, engine.Config{Schema: cfg.Database.Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return result, err
	}
	result, err = bridge.NewAuditor(js, space, mapper, client, cfg.Retention.Dedup).Run(ctx, request)
	if denied := nc.LastError(); err != nil && errors.Is(denied, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w: %w", err, denied)
	}
	return result, err
}
