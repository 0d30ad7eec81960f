package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/remote"
)

// workerOnNATS is a worker whose machines are asked over NATS, or have validators that are. It is not ready while NATS is away.
type workerOnNATS struct {
	*engine.Worker
	parts    *parts
	machines []*engine.Machine // in Go
	shutdown time.Duration
	log      *slog.Logger
}

// Run works, and serves the validators that are Go code here.
func (w *workerOnNATS) Run(ctx context.Context) error {
	if len(w.machines) == 0 {
		return w.Worker.Run(ctx)
	}
	names := make([]string, len(w.machines))
	for i, m := range w.machines {
		names[i] = m.Name()
	}
	validators, err := remote.ServeValidators(remote.ValidatorsConfig{
		Conn: w.parts.nc, Subjects: w.parts.space, Client: w.parts.client, Machines: names, ShutdownTimeout: w.shutdown, Logger: w.log,
	})
	if err != nil {
		return err
	}
	return errors.Join(w.Worker.Run(ctx), validators.Stop())
}

func (w *workerOnNATS) Ready() error {
	if !w.parts.nc.IsConnected() {
		return errors.Join(w.Worker.Ready(), fmt.Errorf("nats: %s", w.parts.nc.Status()))
	}
	return w.Worker.Ready()
}
