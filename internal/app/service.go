package app

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/httpapi"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
	"github.com/pointsman/pointsman/webhook"
)

// Mapper has the routes of a configuration, to see what they make of messages. It needs neither NATS nor a database.
func Mapper(cfg *config.Config) (*bridge.Mapper, error) {
	space, err := subjects.New(cfg.NATS.SubjectPrefix)
	if err != nil {
		return nil, err
	}
	routes, err := bridgeRoutes(cfg)
	if err != nil {
		return nil, err
	}
	return bridge.NewMapper(space, routes, !cfg.SignalsRoute)
}

// compileRoutes finds all that is wrong with the routes, each with its place in the file.
func compileRoutes(cfg *config.Config) (*bridge.Mapper, []bridge.Route, error) {
	var broken config.Errors
	mapper, err := Mapper(cfg)
	if err != nil {
		if !errors.As(err, &broken) {
			err = cfg.Errorf("routes", "%v", err)
		}
		return nil, nil, err
	}
	routes, err := bridgeRoutes(cfg)
	return mapper, routes, err
}

// operations are what answers requests, whoever carries them.
func (p *parts) operations(cfg *config.Config, mapper *bridge.Mapper, b *bridge.Bridge, log *slog.Logger) (*api.API, error) {
	letters := bridge.NewLetters(p.js, p.space)
	return api.New(api.Config{
		Client: p.client, Mapper: mapper, Letters: letters, Project: cfg.Project,
		Replayer: bridge.NewReplayer(letters, mapper, p.client),
		Dropper:  bridge.NewDropper(letters, p.client, cfg.Retention.Dedup),
		Tracer:   bridge.NewTracer(p.js, p.space, mapper, p.client, cfg.Retention.Dedup),
		Operator: bridge.NewOperator(p.js, mapper, p.client, p.client, b, log),
	})
}

// bridgeAndAPI run together. What a request did wakes the relay, so the bridge would have to stop last; but both only finish what they
// have in hand, and the outbox waits for the next bridge.
type bridgeAndAPI struct {
	*bridge.Bridge
	sender   *webhook.Sender
	jobs     *engine.JobRunner
	service  *natsapi.Service
	web      *httpapi.Server
	reloader *reloader
	deafen   func() // to wake-ups
}

func (b *bridgeAndAPI) Run(ctx context.Context) error {
	defer b.deafen()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.service.Run(ctx) })
	group.Go(func() error { return b.web.Run(ctx) })
	group.Go(func() error { b.reloader.run(ctx); return nil })
	group.Go(func() error { return b.sender.Run(ctx) })
	group.Go(func() error { return b.jobs.Run(ctx) })
	group.Go(func() error { return b.Bridge.Run(ctx) })
	return group.Wait()
}
