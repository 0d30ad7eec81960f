package devenv

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/natsserver"
)

// PartCommand is the hidden command that runs one part of a dev with Chaos as a process of its own.
const PartCommand = "dev-part"

// The parts that can be killed.
const (
	partBridge   = "bridge"
	partWorker   = "worker"
	partNATS     = "nats"
	partPostgres = "postgres"
)

// What a worker that is killed keeps from the next one, for as long as a demonstration may take.
const (
	chaosLease     = 3 * time.Second
	chaosHeartbeat = time.Second
)

// PartOptions of RunPart.
type PartOptions struct {
	Part string // bridge, worker or nats
	Dir  string // nats: of its streams
	Port int    // nats
	Log  *slog.Logger
	Env  func(string) (string, bool)
	In   io.Reader // its end is the end of who started this
}

// RunPart runs one part until ctx is canceled, or until In ends: a parent that is killed leaves nothing behind.
func RunPart(ctx context.Context, o PartOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, o.In)
		cancel()
	}()
	if o.Part == partNATS {
		server, err := natsserver.Start(natsserver.Config{Name: natsName, Dir: o.Dir, Port: o.Port, Logger: o.Log})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return server.Shutdown()
	}
	cfg, err := exampleConfig(o.Env)
	if err != nil {
		return err
	}
	cfg.Worker.Lease, cfg.Worker.Heartbeat = chaosLease, chaosHeartbeat
	switch o.Part {
	case partBridge:
		return app.RunBridge(ctx, cfg, o.Log, nil)
	case partWorker:
		machine, err := orders.Machine()
		if err != nil {
			return err
		}
		return app.RunWorker(ctx, cfg, o.Log, []*engine.Machine{machine}, nil)
	}
	return fmt.Errorf("there is no part %q", o.Part)
}

// stopGrace is how long a child may take to drain.
const stopGrace = 10 * time.Second

// child is a part in a process of its own: this program, with PartCommand.
type child struct {
	name string
	args []string
	env  []string
	err  io.Writer
	died chan<- error // told when it ends by itself, where it has room

	run *childRun
}

// childRun is one life of a child.
type childRun struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	ending atomic.Bool // it is we who end it
	done   chan struct{}
}

func (c *child) start() error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r := &childRun{cmd: exec.Command(exe, append([]string{PartCommand, c.name}, c.args...)...), done: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), c.env...) // of a name that is there twice the last counts
	r.cmd.Stderr = c.err
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C at the terminal is for us to handle
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.run = r
	go func() {
		_ = r.cmd.Wait() // how it ended is in ProcessState
		if !r.ending.Load() {
			select {
			case c.died <- fmt.Errorf("the %s ended by itself: %v", c.name, r.cmd.ProcessState):
			default: // the first is enough to end all
			}
		}
		close(r.done)
	}()
	return nil
}

// kill is kill -9.
func (c *child) kill() {
	c.run.ending.Store(true)
	_ = c.run.cmd.Process.Kill() // it may have ended
	<-c.run.done
}

// stop lets it drain first.
func (c *child) stop() {
	if c.run == nil {
		return
	}
	c.run.ending.Store(true)
	_ = c.run.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.run.done:
	case <-time.After(stopGrace):
		c.kill()
	}
}
