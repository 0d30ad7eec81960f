package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/migrations"
)

// Pointsman is the command of cmd/pointsman.
func Pointsman() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "pointsman", Short: "Long-running processes that wait for events on NATS JetStream, with their state in Postgres",
		Long: `pointsman runs and operates long-running processes that wait for events on NATS JetStream, with their state in Postgres.

Commands that ask a bridge do so over NATS, as pointsman.yaml and POINTSMAN_NATS_URL say, or over HTTP with --url or POINTSMAN_URL, and --token
or POINTSMAN_TOKEN. They write a table, or with -o json, yaml, or what a JSONPath selects. What goes wrong is on the standard error.

Exit statuses: 0, it is done; 1, it failed or was refused, or what was looked for is wrong; 2, the call or the configuration is wrong.`,
		Args: args(cobra.NoArgs), RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	o.add(root)
	root.AddCommand(devCommand(&o), devPartCommand(&o), migrateCommand(&o),
		startCommand(&o), signalCommand(&o), getCommand(&o), listCommand(&o), inboxCommand(&o), historyCommand(&o), eventsCommand(&o), updateCommand(&o), cancelCommand(&o),
		retryCommand(&o), pauseCommand(&o), resumeCommand(&o),
		childrenCommand(&o), jobsCommand(&o),
		statsCommand(&o), queuesCommand(&o), workersCommand(&o), topCommand(&o), doctorCommand(&o), purgeCommand(&o),
		publishCommand(&o), routesCommand(&o), heldCommand(&o), dlqCommand(&o), messageCommand(&o),
		auditCommand(&o), triggersCommand(&o), webhooksCommand(&o),
		keysCommand(&o), flowsCommand(&o), schemaCommand(), benchCommand(&o), benchPartCommand(&o),
		sub(&o, "bridge", "Run a bridge, as cmd/bridge does", runBridge), sub(&o, "worker", "Run a worker, as cmd/worker does", runWorker()))
	return root
}

func sub(o *options, name, short string, run func(context.Context, *config.Config, *slog.Logger) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Example: "  pointsman " + name + " --config pointsman.yaml", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c, run) },
	}
}

func migrateCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the database schema up to date, or show its version", Args: args(cobra.NoArgs),
		Example: "  pointsman migrate status\n  pointsman migrate up",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		migrationCommand(o, "up", "Apply what is missing; safe to run from several places at once", "POINTSMAN_DATABASE_URL=postgres://localhost/shop pointsman migrate up",
			func(ctx context.Context, cfg *config.Config) error {
				return migrations.Up(ctx, cfg.Database.URL, cfg.Database.Schema)
			}),
		migrationCommand(o, "status", "Show the version of the schema, and the one this build needs", "pointsman migrate status --config pointsman.yaml",
			func(context.Context, *config.Config) error { return nil }))
	return c
}

// migrationCommand does something to the schema, and says which version it has then.
func migrationCommand(o *options, name, short, example string, do func(context.Context, *config.Config) error) *cobra.Command {
	var f output
	c := &cobra.Command{
		Use: name, Short: short, Example: "  " + example, Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c, func(ctx context.Context, cfg *config.Config, _ *slog.Logger) error {
				if err := cfg.CheckDatabase(); err != nil {
					return err
				}
				if err := do(ctx, cfg); err != nil {
					return err
				}
				return printVersion(ctx, cfg, c, &f)
			})
		},
	}
	f.addOutput(c)
	return c
}

// schemaVersion is what --json says of a schema.
type schemaVersion struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	Needed  int    `json:"needed"` // by this build
}

func printVersion(ctx context.Context, cfg *config.Config, c *cobra.Command, f *output) error {
	conn, err := pgx.Connect(ctx, cfg.Database.URL)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer conn.Close(ctx)
	version, err := migrations.Current(ctx, conn, cfg.Database.Schema)
	if err != nil {
		return err
	}
	if f.json {
		return f.document(c.OutOrStdout(), schemaVersion{cfg.Database.Schema, version, migrations.Version})
	}
	state := "up to date"
	if version < migrations.Version {
		state = "run pointsman migrate up"
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "schema %s: version %d, this build needs %d: %s\n", cfg.Database.Schema, version, migrations.Version, state)
	return err
}
