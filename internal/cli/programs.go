package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
)

// Bridge is the command of cmd/bridge.
func Bridge() *cobra.Command {
	return program("bridge", "Carry JetStream messages to instances, and their outcomes back",
		`bridge consumes the subjects of the configured routes, puts signals into the inboxes of instances in Postgres, and publishes outcomes.
More copies share the work. SIGTERM drains.`,
		"  bridge --config pointsman.yaml\n  POINTSMAN_DATABASE_URL=postgres://localhost/shop bridge", runBridge)
}

// Worker is the command of cmd/worker.
func Worker() *cobra.Command { return WorkerWith() }

// WorkerWith is the command of a worker that has these machines beside those of its configuration.
func WorkerWith(machines ...*engine.Machine) *cobra.Command {
	return program("worker", "Run the instances of the configured machines",
		`worker runs the flows of the configuration, and its machines, whose steps are answered over NATS by services of yours, and does what any worker
does for all instances: deadlines, delayed starts, leases and holds that ran out. Machines in Go run in a program of your own that
imports package engine. More copies share the work. SIGTERM drains.`,
		"  worker --config pointsman.yaml\n  POINTSMAN_DATABASE_URL=postgres://localhost/shop worker", runWorker(machines...))
}

func program(name, short, long, example string, run func(context.Context, *config.Config, *slog.Logger) error) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: name, Short: short, Long: long, Example: example, Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c, run) },
	}
	o.add(c)
	return c
}

func (o *options) run(c *cobra.Command, run func(context.Context, *config.Config, *slog.Logger) error) error {
	log, err := o.logger(c)
	if err != nil {
		return err
	}
	cfg, err := o.load(c)
	if err != nil {
		return err
	}
	return run(c.Context(), cfg, log)
}

func runBridge(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	return app.RunBridge(ctx, cfg, log, announceTo(log))
}

func runWorker(machines ...*engine.Machine) func(context.Context, *config.Config, *slog.Logger) error {
	return func(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
		return app.RunWorker(ctx, cfg, log, machines, announceTo(log))
	}
}

func announceTo(log *slog.Logger) func(addr string) {
	return func(addr string) { log.Info("listening", "addr", addr) }
}
