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

// WithOperator operates the routes of a configuration over a connection and its database, with no bridge between: the configuration may be
// one that no bridge runs yet.
func WithOperator(ctx context.Context, cfg *config.Config, conn *nats.Conn, do func(o *bridge.Operator, space subjects.Space) error) error {
	if err := checkDatabase(cfg); err != nil {
		return err
	}
	space, err := subjects.New(cfg.NATS.SubjectPrefix)
	if err != nil {
		return err
	}
	mapper, err := Mapper(cfg)
	if err != nil {
		return err
	}
	js, err := JetStream(conn, cfg)
	if err != nil {
		return err
	}
	db, err := engine.Connect(ctx, cfg.Database.URL, 2, cfg.Database.Pooler == config.PoolerTransaction)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer db.Close()
	if err := engine.CheckSchema(ctx, db, cfg.Database.Schema); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	client, err := engine.NewClient(db, engine.Config{Schema: cfg.Database.Schema, Logger: log})
	if err != nil {
		return err
	}
	err = do(bridge.NewOperator(js, mapper, client, client, nil, log), space)
	if denied := conn.LastError(); err != nil && errors.Is(denied, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w", err, denied)
	}
	return err
}
