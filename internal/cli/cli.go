// Package cli is the command line of the three programs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// Main runs a command until it is done, or until SIGTERM or SIGINT and it has drained, and returns the exit status. A second
// signal ends the process at once.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Version = app.Version
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(c, err) })
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(cmd.ErrOrStderr(), err)
	var wrong *usageError
	var broken config.Errors
	if errors.As(err, &wrong) || errors.As(err, &broken) {
		return exitUsage
	}
	return exitFailure
}

// usageError is a wrong call.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usage(c *cobra.Command, err error) error {
	return &usageError{fmt.Errorf("%w\nTry: %s --help", err, c.CommandPath())}
}

// args makes the number of arguments a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(c, err)
		}
		return nil
	}
}

// options are the flags that all programs take.
type options struct {
	config    string
	logFormat string
	logLevel  string
}

func (o *options) add(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&o.config, "config", "", "configuration file (default pointsman.yaml where it exists)")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

const defaultConfig = "pointsman.yaml"

// load reads the configuration. Without --config and without pointsman.yaml it is the defaults and the environment.
func (o *options) load(c *cobra.Command) (*config.Config, error) {
	file := o.config
	if file == "" {
		if _, err := os.Stat(defaultConfig); err != nil {
			cfg := config.Default()
			return cfg, cfg.ApplyEnv(os.LookupEnv)
		}
		file = defaultConfig
	}
	cfg, err := config.Load(file, os.LookupEnv)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, usage(c, err)
	}
	return cfg, err
}

func (o *options) logger(c *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, usage(c, fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel))
	}
	handler, err := o.handler(c.ErrOrStderr(), level)
	if err != nil {
		return nil, usage(c, err)
	}
	log := slog.New(handler)
	slog.SetDefault(log)
	return log, nil
}

func (o *options) handler(w io.Writer, level slog.Level) (slog.Handler, error) {
	switch o.logFormat {
	case "text":
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}), nil
	case "json":
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}), nil
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", o.logFormat)
	}
}
