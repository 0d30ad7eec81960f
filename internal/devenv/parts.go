package devenv

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
)

// runParts runs the bridge and the worker in this process.
func (e *environment) runParts(ctx context.Context, group *errgroup.Group) error {
	machines, err := e.machines()
	if err != nil {
		return err
	}
	group.Go(func() error { return app.RunBridge(ctx, e.cfg, e.Log, nil) })
	group.Go(func() error { return app.RunWorker(ctx, e.cfg, e.Log, machines, nil) })
	return nil
}

// machines of this process: the example's, unless the configuration has a machine or flow of that name. RunWorker adds the configuration's.
func (e *environment) machines() ([]*engine.Machine, error) {
	machine, err := orders.Machine()
	if err != nil || slices.ContainsFunc(e.cfg.Machines, func(m config.Machine) bool { return m.Name == machine.Name() }) ||
		slices.ContainsFunc(e.cfg.Flows, func(f config.Flow) bool { return f.Name == machine.Name() }) {
		return nil, err
	}
	return []*engine.Machine{machine}, nil
}

// startParts runs the bridge and the worker in processes of their own.
func (e *environment) startParts() error {
	env := []string{
		"POINTSMAN_DATABASE_URL=" + e.DatabaseURL, "POINTSMAN_NATS_URL=" + e.NATSURL,
		"POINTSMAN_HTTP_ADDR=" + e.cfg.HTTP.Addr, "POINTSMAN_WORKER_HTTP_ADDR=" + e.cfg.Worker.HTTPAddr,
	}
	e.bridge, e.worker = e.child(partBridge, env), e.child(partWorker, env)
	if err := e.bridge.start(); err != nil {
		return err
	}
	return e.worker.start()
}

func (e *environment) child(part string, env []string, args ...string) *child {
	return &child{name: part, args: append(args, e.Args...), env: env, err: e.Err, died: e.died}
}
