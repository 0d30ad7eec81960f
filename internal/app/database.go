package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/migrations"
)

// checkDatabase finds out that the database's URL can never lead anywhere.
func checkDatabase(cfg *config.Config) error {
	if err := cfg.CheckDatabase(); err != nil {
		return err
	}
	if _, err := pgxpool.ParseConfig(cfg.Database.URL); err != nil {
		return cfg.Errorf("database.url", "%v", err) // without the password: pgx leaves it out
	}
	return nil
}

// prepareDatabase waits for the database, and has its schema migrated where that is asked for. An older schema is the error.
func prepareDatabase(ctx context.Context, cfg *config.Config, db *pgxpool.Pool, log *slog.Logger, srv *server) error {
	return untilAnswered(ctx, log, srv, func() error {
		err := checkOrMigrate(ctx, cfg, db)
		var old *engine.SchemaError
		if errors.As(err, &old) {
			return backoff.Permanent(err)
		}
		return err
	})
}

// untilAnswered asks the database until it answers, or ctx is canceled. A permanent error is an answer.
func untilAnswered(ctx context.Context, log *slog.Logger, srv *server, ask func() error) error {
	waiting := false
	attempt := func() (struct{}, error) {
		err := ask()
		var answer *backoff.PermanentError
		if err == nil || errors.As(err, &answer) {
			return struct{}{}, err
		}
		if !waiting {
			waiting = true
			log.Warn("the database does not answer: trying again", "error", err)
		}
		srv.ready(func() error { return fmt.Errorf("database: %w", err) })
		return struct{}{}, err
	}
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 5*time.Second
	_, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0))
	if err == nil && waiting {
		log.Info("the database answers")
	}
	return err
}

func checkOrMigrate(ctx context.Context, cfg *config.Config, db *pgxpool.Pool) error {
	err := engine.CheckSchema(ctx, db, cfg.Database.Schema)
	var old *engine.SchemaError
	if errors.As(err, &old) && cfg.MigrateOnStart {
		return migrations.Up(ctx, cfg.Database.URL, cfg.Database.Schema)
	}
	return err
}
