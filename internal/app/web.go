package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/httpapi"
)

// web carries the operations over HTTP.
func (p *parts) web(cfg *config.Config, operations *api.API, log *slog.Logger) (*httpapi.Server, error) {
	keys, err := auth.NewKeys(p.db, cfg.Database.Schema)
	if err != nil {
		return nil, err
	}
	open := cfg.CheckBind(false) == nil && cfg.HTTP.AdminToken == ""
	return httpapi.New(httpapi.Config{
		API: operations, Guard: auth.NewGuard(auth.GuardConfig{AdminToken: cfg.HTTP.AdminToken, Keys: keys, Open: open}),
		MaxBody: cfg.HTTP.MaxBody, Version: Version, ShutdownTimeout: cfg.HTTP.ShutdownTimeout, Logger: log, Metrics: p.metrics, Tracing: p.tracing,
	})
}

// admitAPI refuses an address that others than this machine reach, where nobody would have to say who they are. Whether there are API keys
// the database knows, so while it is away the address answers health and no more.
func admitAPI(ctx context.Context, cfg *config.Config, p *parts, log *slog.Logger) error {
	refused := cfg.CheckBind(false)
	if refused == nil {
		return nil
	}
	keys, err := auth.NewKeys(p.db, cfg.Database.Schema)
	if err != nil {
		return err
	}
	return untilAnswered(ctx, log, p.srv, func() error {
		any, err := keys.Any(ctx)
		var answer *pgconn.PgError
		switch {
		case errors.As(err, &answer) && (answer.Code == undefinedTable || answer.Code == undefinedSchema):
			return backoff.Permanent(refused)
		case err == nil && !any:
			return backoff.Permanent(refused)
		}
		return err
	})
}

// SQLSTATEs of a database that has not been migrated yet, and so has no keys.
const (
	undefinedTable  = "42P01"
	undefinedSchema = "3F000"
)

func admitAll(context.Context, *config.Config, *parts, *slog.Logger) error { return nil }

// WithKeys gives the API keys of a configuration's database, with no bridge between.
func WithKeys(ctx context.Context, cfg *config.Config, do func(*auth.Keys) error) error {
	if err := checkDatabase(cfg); err != nil {
		return err
	}
	db, err := engine.Connect(ctx, cfg.Database.URL, 1, cfg.Database.Pooler == config.PoolerTransaction)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer db.Close()
	if err := engine.CheckSchema(ctx, db, cfg.Database.Schema); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	keys, err := auth.NewKeys(db, cfg.Database.Schema)
	if err != nil {
		return err
	}
	return do(keys)
}
