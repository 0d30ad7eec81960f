package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsserver"
	"github.com/pointsman/pointsman/subjects"
)

// PartCommand is the hidden command that runs one part of a benchmark as a process of its own.
const PartCommand = "bench-part"

// The parts. Postgres has processes of its own anyway.
const (
	partBridge   = "bridge"
	partWorker   = "worker"
	partNATS     = "nats"
	partService  = "service" // answers remote steps
	partPostgres = "postgres"
	partBench    = "bench" // this process: it publishes, and has the limits
)

// PartOptions of RunPart.
type PartOptions struct {
	Part    string // bridge, worker, service or nats
	Config  string // file
	Dir     string // nats: of its streams
	Profile string // directory; "": no profiles
	Log     *slog.Logger
	In      io.Reader // its end is the end of who started this
	Out     io.Writer // one line, when it can be reached: where
}

// RunPart runs one part until ctx is canceled, or until In ends: a benchmark that is killed leaves nothing behind.
func RunPart(ctx context.Context, o PartOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, o.In)
		cancel()
	}()
	announce := func(addr string) { _, _ = fmt.Fprintln(o.Out, addr) }
	return profiled(o, func() error { return o.run(ctx, announce) })
}

func (o PartOptions) run(ctx context.Context, announce func(string)) error {
	if o.Part == partNATS {
		server, err := natsserver.Start(natsserver.Config{Name: "pointsman-bench", Dir: o.Dir, Port: -1, Logger: o.Log})
		if err != nil {
			return err
		}
		announce(server.URL())
		<-ctx.Done()
		return server.Shutdown()
	}
	cfg, err := config.Load(o.Config, os.LookupEnv)
	if err != nil {
		return err
	}
	switch o.Part {
	case partBridge:
		return app.RunBridge(ctx, cfg, o.Log, announce)
	case partWorker:
		space, err := subjects.New(cfg.NATS.SubjectPrefix)
		if err != nil {
			return err
		}
		machines, err := goMachines(echoSubject(space))
		if err != nil {
			return err
		}
		return app.RunWorker(ctx, cfg, o.Log, machines, announce)
	case partService:
		return serve(ctx, cfg, o.Log, announce)
	}
	return fmt.Errorf("there is no part %q", o.Part)
}

// profiled leaves profiles of all that do did.
func profiled(o PartOptions, do func() error) error {
	if o.Profile == "" {
		return do()
	}
	file, err := os.Create(filepath.Join(o.Profile, fmt.Sprintf("%s-%d.cpu.pprof", o.Part, os.Getpid())))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	err = do()
	pprof.StopCPUProfile()
	heap, herr := os.Create(filepath.Join(o.Profile, fmt.Sprintf("%s-%d.allocs.pprof", o.Part, os.Getpid())))
	if herr == nil {
		runtime.GC()
		herr = errors.Join(pprof.Lookup("allocs").WriteTo(heap, 0), heap.Close())
	}
	return errors.Join(err, file.Close(), herr)
}

// The machines. Their steps do nothing but say what comes next.
const (
	machineCycle  = "cycle"  // a signal, and it waits for the next
	machineEcho   = "echo"   // the same, and says so on a subject
	machineLast   = "last"   // a signal, and it ends
	machineLife   = "life"   // begins, waits for a signal, ends
	machineRemote = "remote" // as cycle, answered over NATS
	stepGo        = "go"
	signalGo      = "go"
)

type raw = json.RawMessage

func goMachines(echo string) ([]*engine.Machine, error) {
	again := func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
		return engine.Await("", signalGo).Consuming(), nil
	}
	end := func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) { return engine.Done(nil), nil }
	var all []*engine.Machine
	for _, d := range []engine.Definition[raw]{
		{Name: machineCycle, Start: stepGo, Steps: map[string]engine.Step[raw]{stepGo: again}},
		{Name: machineLast, Start: stepGo, Steps: map[string]engine.Step[raw]{stepGo: end}},
		{Name: machineEcho, Start: stepGo, Steps: map[string]engine.Step[raw]{
			stepGo: func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				o := engine.Await("", signalGo).Consuming()
				for _, s := range v.Awaited {
					o = o.Publish(echo, s.Payload, nil)
				}
				return o, nil
			},
		}},
		{Name: machineLife, Start: "begin", Steps: map[string]engine.Step[raw]{
			"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
				return engine.Await(stepGo, signalGo), nil
			},
			stepGo: end,
		}},
	} {
		m, err := engine.Define(d)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// serve answers the steps of machineRemote.
func serve(ctx context.Context, cfg *config.Config, log *slog.Logger, announce func(string)) error {
	nc, err := app.ConnectNATS(ctx, cfg, "bench service", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	space, err := subjects.New(cfg.NATS.SubjectPrefix)
	if err != nil {
		return err
	}
	answer := []byte(`{"outcome":"await","signals":["` + signalGo + `"],"consume":true}`)
	if _, err := nc.QueueSubscribe(space.Step(machineRemote, ">"), "bench", func(m *nats.Msg) { _ = m.Respond(answer) }); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	announce("") // nothing to ask
	<-ctx.Done()
	return nil
}
