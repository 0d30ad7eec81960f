// Command errands is cmd/worker with a machine in Go: an errand waits for its signal "back", and is done. It shows what a worker program of
// a test cluster looks like.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
)

func main() {
	file := flag.String("config", "", "configuration file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file); err != nil {
		fmt.Fprintln(os.Stderr, "errands:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string) error {
	cfg, err := config.Load(file, os.LookupEnv)
	if err != nil {
		return err
	}
	machine, err := engine.Define(engine.Definition[struct{}]{
		Name:  "errand",
		Start: "go",
		Steps: map[string]engine.Step[struct{}]{
			"go": func(context.Context, *engine.Visit[struct{}]) (engine.Outcome, error) {
				return engine.Await("home", "back").Within(time.Hour), nil
			},
			"home": func(_ context.Context, v *engine.Visit[struct{}]) (engine.Outcome, error) {
				if v.TimedOut {
					return engine.Stop("never came back"), nil
				}
				return engine.Done(len(v.Awaited)), nil
			},
		},
	})
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return app.RunWorker(ctx, cfg, log, []*engine.Machine{machine}, func(addr string) { log.Info("listening", "addr", addr) })
}
