// Package devenv is "pointsman dev": a bridge, a worker, a NATS server and a private Postgres, with the orders example unless told
// otherwise. It can publish what a shop would, and say what came of it.
package devenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsserver"
	"github.com/pointsman/pointsman/internal/pgserver"
	"github.com/pointsman/pointsman/migrations"
	"github.com/pointsman/pointsman/subjects"
)

// Options of Run. The zero value of what is not said to be required is the example on private, temporary parts.
type Options struct {
	Config      string // file; "": the orders example
	DataDir     string // "": temporary, removed at the end
	DatabaseURL string // "": a private Postgres
	NATSURL     string // "": an embedded server
	EnvFile     string // is written when all is up, for other shells; "": none

	Traffic int  // orders to publish the events of
	Exit    bool // when the traffic is settled
	Chaos   bool // kill parts during the traffic

	Out  io.Writer                   // required
	Err  io.Writer                   // required: what parts in processes of their own log
	Log  *slog.Logger                // required
	Args []string                    // flags of such processes, for their logs
	Env  func(string) (string, bool) // required
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	switch {
	case o.Traffic < 0:
		return fmt.Errorf("--traffic %d: want the number of orders", o.Traffic)
	case o.Traffic > 0 && o.Config != "":
		return errors.New("--traffic publishes what the routes of the orders example read: leave --config out")
	case o.Traffic == 0 && o.Exit:
		return errors.New("--exit ends when the traffic is settled: say how much with --traffic")
	case o.Traffic == 0 && o.Chaos:
		return errors.New("--chaos kills parts during the traffic: say how much with --traffic")
	}
	return nil
}

// Run starts everything, says where it is, publishes what it is asked to, and stays up until ctx is canceled, or with Exit until the
// traffic is settled. With Exit the error is nil only if everything that was published is accounted for.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	e := &environment{Options: o, died: make(chan error, 1)}
	err := e.start(ctx)
	if err == nil {
		err = e.run(ctx)
	} else if ctx.Err() != nil && !o.Exit {
		err = nil // told to stop while it started
	}
	return errors.Join(err, e.stop())
}

// environment is what was started.
type environment struct {
	Options
	cfg      *config.Config
	space    subjects.Space
	postgres *pgserver.Server   // nil: it is not ours
	nats     *natsserver.Server // nil: it is not ours, or natsPart
	natsPart *child
	natsDir  string // of natsPart, when it is temporary
	bridge   *child // with Chaos
	worker   *child
	died     chan error
	// envWritten: EnvFile is ours to remove.
	envWritten bool

	// For what dev does itself, beside the parts.
	nc *nats.Conn
	js jetstream.JetStream
	db *pgxpool.Pool
}

func (e *environment) start(ctx context.Context) error {
	if err := e.startPostgres(ctx); err != nil {
		return err
	}
	if err := e.startNATS(ctx); err != nil {
		return err
	}
	if err := e.load(); err != nil {
		return err
	}
	if err := migrations.Up(ctx, e.cfg.Database.URL, e.cfg.Database.Schema); err != nil {
		return err
	}
	if err := e.connect(ctx); err != nil {
		return err
	}
	return e.makeStreams(ctx)
}

// load reads the configuration with what was started in the place of what it names.
func (e *environment) load() (err error) {
	own := map[string]string{"POINTSMAN_DATABASE_URL": e.DatabaseURL, "POINTSMAN_NATS_URL": e.NATSURL}
	env := func(name string) (string, bool) {
		if v, ok := own[name]; ok {
			return v, true
		}
		return e.Env(name)
	}
	if e.Config != "" {
		e.cfg, err = config.Load(e.Config, env)
	} else {
		e.cfg, err = exampleConfig(env)
	}
	if err != nil {
		return err
	}
	e.cfg.MigrateOnStart = true
	e.space, err = subjects.New(e.cfg.NATS.SubjectPrefix)
	return err
}

func exampleConfig(env func(string) (string, bool)) (*config.Config, error) {
	cfg, err := config.Parse("examples/orders/pointsman.yaml", orders.Config, env)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.ApplyEnv(env)
}

// connect gives dev its own connections. Unlike those of the parts they have to stand at first: a wrong address is an error.
func (e *environment) connect(ctx context.Context) (err error) {
	if e.nc, err = app.ConnectNATS(ctx, e.cfg, "dev", e.Log); err != nil {
		return err
	}
	if !e.nc.IsConnected() {
		return fmt.Errorf("connect to %s: %w", e.NATSURL, cmp.Or(e.nc.LastError(), nats.ErrNoServers))
	}
	if e.js, err = app.JetStream(e.nc, e.cfg); err != nil {
		return err
	}
	e.db, err = engine.Connect(ctx, e.cfg.Database.URL, e.cfg.Database.MaxConns, e.cfg.Database.Pooler == config.PoolerTransaction)
	return err
}

// run keeps the parts running while dev does what it is asked to.
func (e *environment) run(ctx context.Context) error {
	for _, addr := range []*string{&e.cfg.HTTP.Addr, &e.cfg.Worker.HTTPAddr} { // as late as can be, so that nobody takes them meanwhile
		if free := freeAddr(*addr); free != "" {
			*addr = free
		}
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	group, ctx := errgroup.WithContext(ctx)
	if e.Chaos {
		if err := e.startParts(); err != nil {
			return err
		}
		group.Go(func() error {
			select {
			case err := <-e.died:
				return err
			case <-ctx.Done():
				return nil
			}
		})
	} else if err := e.runParts(ctx, group); err != nil {
		return err
	}
	group.Go(func() error {
		e.banner()
		if err := e.up(ctx); err != nil {
			return err
		}
		if e.Traffic > 0 {
			if err := e.runTraffic(ctx); err != nil || e.Exit {
				done()
				return err
			}
		}
		return e.printOutcomes(ctx)
	})
	return group.Wait()
}

// runTraffic publishes, and prints what came of it.
func (e *environment) runTraffic(ctx context.Context) error {
	s, err := e.newShop(ctx)
	if err != nil {
		return err
	}
	sum, err := s.run(ctx)
	if ctx.Err() != nil {
		if e.Exit {
			return errors.New("stopped before the traffic was settled")
		}
		return nil
	}
	if err != nil {
		return err
	}
	sum.print(e.Out)
	if err := sum.err(); err != nil {
		return err
	}
	e.say("It adds up: each message is in one row, each order ended as it had to, and each end was told once.")
	return nil
}

// stop ends what was started, in the order of the data path.
func (e *environment) stop() error {
	for _, c := range []*child{e.bridge, e.worker} {
		if c != nil {
			c.stop()
		}
	}
	if e.db != nil {
		e.db.Close()
	}
	if e.nc != nil {
		e.nc.Close()
	}
	var errs []error
	if e.envWritten {
		errs = append(errs, os.Remove(e.EnvFile))
	}
	if e.natsPart != nil {
		e.natsPart.stop()
	}
	if e.natsDir != "" {
		errs = append(errs, os.RemoveAll(e.natsDir))
	}
	if e.nats != nil {
		errs = append(errs, e.nats.Shutdown())
	}
	if e.postgres != nil {
		errs = append(errs, e.postgres.Stop())
	}
	return errors.Join(errs...)
}

func (e *environment) say(format string, args ...any) {
	_, _ = fmt.Fprintf(e.Out, format+"\n", args...)
}

const streamTimeout = 30 * time.Second
