// Command worker runs the order machine of package orders against a database and a NATS server of yours:
//
//	POINTSMAN_DATABASE_URL=postgres://localhost/shop POINTSMAN_NATS_URL=nats://localhost:4222 go run ./examples/orders/worker
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/subjects"
	"github.com/pointsman/pointsman/wake"
)

func main() {
	lease := flag.Duration("lease", time.Minute, "how long an order is this worker's without a heartbeat")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *lease); err != nil {
		slog.Error("worker", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, lease time.Duration) error {
	db, err := engine.Connect(ctx, os.Getenv("POINTSMAN_DATABASE_URL"), 0, false)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := nats.Connect(os.Getenv("POINTSMAN_NATS_URL"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	space, err := subjects.New("")
	machine, err2 := orders.Machine()
	if err := errors.Join(err, err2); err != nil {
		return err
	}

	waker := wake.New(nc, space)
	defer waker.Close()
	client, err := engine.NewClient(db, engine.Config{Waker: waker})
	if err != nil {
		return err
	}
	worker, err := engine.NewWorker(client, engine.WorkerConfig{Machines: []*engine.Machine{machine}, Lease: lease})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}
