// Package app puts the programs together: it alone knows all the parts, and hands each what it needs of the others.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/dashboard"
	"github.com/pointsman/pointsman/internal/httpapi"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/remote"
	"github.com/pointsman/pointsman/subjects"
	"github.com/pointsman/pointsman/wake"
)

// RunBridge runs the bridge until ctx is canceled and all is drained. announce is told the address of the HTTP server. Where the configuration
// is of a file, the routes are those of the file as it changes, and SIGHUP reads it anew.
func RunBridge(ctx context.Context, cfg *config.Config, log *slog.Logger, announce func(addr string)) error {
	if err := errors.Join(checkDatabase(cfg), checkNATS(cfg)); err != nil {
		return err
	}
	if err := checkWebhooks(cfg); err != nil {
		return err
	}
	mapper, routes, err := compileRoutes(cfg)
	if err != nil {
		return err
	}
	hup := listenForHUP(cfg)
	defer hup.stop()
	return run(ctx, cfg, program{"bridge", cfg.HTTP.Addr, dashboard.Over(httpapi.Starting()), admitAPI}, log, announce, func(p *parts) (component, error) {
		b, err := bridge.New(bridge.Config{
			Conn: p.nc, JetStream: p.js, Subjects: p.space, Inbox: p.client, Journal: p.client, Outbox: p.client,
			Routes: routes, MaxBatches: max(1, cfg.Database.MaxConns*3/4), NoSignalsRoute: !cfg.SignalsRoute, ManageStreams: cfg.NATS.ManageStreams, Replicas: cfg.NATS.Replicas,
			ShutdownTimeout: cfg.HTTP.ShutdownTimeout, Logger: log, Metrics: p.metrics, Tracing: p.tracing,
		})
		if err != nil {
			return nil, err
		}
		operations, err := p.operations(cfg, mapper, b, log)
		if err != nil {
			return nil, err
		}
		service, err := natsapi.New(natsapi.Config{
			Conn: p.nc, Subjects: p.space, API: operations, Version: Version, ShutdownTimeout: cfg.HTTP.ShutdownTimeout, Tracing: p.tracing, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		web, err := p.web(cfg, operations, log)
		if err != nil {
			return nil, err
		}
		reloader, err := newReloader(cfg, b, mapper, hup, p.metrics, log)
		if err != nil {
			return nil, err
		}
		sender, err := p.sender(cfg, log)
		if err != nil {
			return nil, err
		}
		jobs, err := p.client.NewJobRunner(engine.JobRunnerConfig{})
		if err != nil {
			return nil, err
		}
		stop, err := p.waker.Listen([]string{engine.OutboxQueue, engine.WebhooksQueue, engine.JobsQueue}, func(queue string) {
			switch queue {
			case engine.WebhooksQueue:
				sender.Poke()
			case engine.JobsQueue:
				jobs.Poke()
			default:
				b.Poke()
			}
		})
		p.srv.serveAPI(dashboard.Over(web))
		return &bridgeAndAPI{Bridge: b, sender: sender, jobs: jobs, service: service, web: web, reloader: reloader, deafen: stop}, err
	})
}

// RunWorker runs a worker for the machines of the configuration, and for these, until ctx is canceled and all is drained.
func RunWorker(ctx context.Context, cfg *config.Config, log *slog.Logger, machines []*engine.Machine, announce func(addr string)) error {
	if err := errors.Join(checkDatabase(cfg), checkNATS(cfg)); err != nil {
		return err
	}
	if len(cfg.Machines)+len(cfg.Flows)+len(machines) == 0 {
		log.Warn("no machines are configured: this worker runs no steps, only deadlines and leases that ran out")
	}
	return run(ctx, cfg, program{"worker", cfg.Worker.HTTPAddr, http.NotFoundHandler(), admitAll}, log, announce, func(p *parts) (component, error) {
		remotes, err := remoteMachines(p, cfg, log)
		if err != nil {
			return nil, err
		}
		flows, err := flowMachines(ctx, p, cfg, log)
		if err != nil {
			return nil, err
		}
		worker, err := engine.NewWorker(p.client, engine.WorkerConfig{
			Machines: slices.Concat(machines, remotes, flows), Queues: cfg.Worker.Queues, Lease: cfg.Worker.Lease, Heartbeat: cfg.Worker.Heartbeat, PollInterval: cfg.Worker.PollInterval,
			ReapInterval: cfg.Worker.ReapInterval, ShutdownTimeout: cfg.Worker.ShutdownTimeout, Logger: log,
			Retention: engine.Retention{Instances: cfg.Retention.Instances, Dedup: cfg.Retention.Dedup, Triggers: cfg.Retention.Triggers, Webhooks: cfg.Retention.Webhooks, Jobs: cfg.Retention.Jobs},
		})
		if err != nil || len(cfg.Machines)+len(cfg.Flows)+len(machines) == 0 {
			return worker, err
		}
		return &workerOnNATS{Worker: worker, parts: p, machines: machines, shutdown: cfg.Worker.ShutdownTimeout, log: log}, nil
	})
}

// component is a part that runs until its context is canceled.
type component interface {
	Run(ctx context.Context) error
	Ready() error
}

// parts are what every program has.
type parts struct {
	db      *pgxpool.Pool
	nc      *nats.Conn
	js      jetstream.JetStream
	space   subjects.Space
	waker   *wake.Wake
	client  *engine.Client
	srv     *server
	metrics *prometheus.Registry
	tracing trace.TracerProvider // nil: none
}

// program is which one runs.
type program struct {
	name string
	addr string       // of its HTTP server
	rest http.Handler // answers what is not of health and metrics, until the program does
	// admit says whether it may answer there, as far as the database knows.
	admit func(ctx context.Context, cfg *config.Config, p *parts, log *slog.Logger) error
}

// gcPercent takes the place of Go's default, 100: what the programs keep is small, and what they make lives for a batch, so that at the
// default they would look through the same few megabytes many times a second.
const gcPercent = 300

// run serves health and metrics from the first moment, waits for the database, then runs what build makes.
func run(ctx context.Context, cfg *config.Config, prog program, log *slog.Logger, announce func(string), build func(*parts) (component, error)) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	p := &parts{metrics: newRegistry()}
	srv, err := listen(prog.addr, p.metrics, prog.rest, log)
	if err != nil {
		return err
	}
	p.srv = srv
	if announce != nil {
		announce(srv.addr())
	}
	group, ctx := errgroup.WithContext(ctx)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { return srv.serve(serving, cfg.HTTP.ShutdownTimeout) })
	group.Go(func() error {
		defer stopServing() // health answers while the rest drains
		return p.run(ctx, cfg, prog, log, build)
	})
	return group.Wait()
}

func (p *parts) run(ctx context.Context, cfg *config.Config, prog program, log *slog.Logger, build func(*parts) (component, error)) (err error) {
	if p.space, err = subjects.New(cfg.NATS.SubjectPrefix); err != nil {
		return err
	}
	tracing, flush, err := startTracing(ctx, prog.name, log)
	if err != nil {
		return err
	}
	defer flush()
	p.tracing = tracing
	if p.db, err = engine.Connect(ctx, cfg.Database.URL, cfg.Database.MaxConns, cfg.Database.Pooler == config.PoolerTransaction); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	defer p.db.Close()
	err = prog.admit(ctx, cfg, p, log)
	if err == nil {
		err = prepareDatabase(ctx, cfg, p.db, log, p.srv)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it waited
		}
		return err
	}
	nats := natsConfig(cfg, prog.name, log)
	nats.Trouble = &natsio.Trouble{}
	if p.nc, err = natsio.Connect(ctx, nats); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it waited
		}
		return err
	}
	defer p.nc.Close()
	if p.js, err = JetStream(p.nc, cfg); err != nil {
		return err
	}
	p.waker = wake.New(p.nc, p.space)
	defer p.waker.Close()
	if p.client, err = engine.NewClient(p.db, engine.Config{
		Schema: cfg.Database.Schema, Outcomes: outcomes(cfg), Waker: p.waker, Logger: log, Metrics: p.metrics, Tracing: p.tracing, AskValidator: remote.Validators(p.nc, p.space),
		ValidateTimeout: validateTimeout(cfg), MaxActiveTriggers: cfg.Quotas.MaxActiveTriggers, KeepDedup: cfg.Retention.Dedup,
	}); err != nil {
		return err
	}
	if err := p.registerValidators(cfg); err != nil {
		return err
	}
	c, err := build(p)
	if err != nil {
		return err
	}
	p.srv.ready(func() error {
		if err := c.Ready(); err != nil {
			return errors.Join(err, nats.Trouble.Err())
		}
		return nil
	})
	log.Info("running", "program", prog.name, "version", Version)
	return c.Run(ctx)
}

func outcomes(cfg *config.Config) []engine.Status {
	statuses := make([]engine.Status, len(cfg.Outcomes.Publish))
	for i, s := range cfg.Outcomes.Publish {
		statuses[i] = engine.Status(s)
	}
	return statuses
}

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pointsman_build_info", Help: "1, labeled with the version.", ConstLabels: prometheus.Labels{"version": Version}})
	build.Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
