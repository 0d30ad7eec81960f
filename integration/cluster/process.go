package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one run of a program, with the processes that it starts.
type process struct {
	cmd  *exec.Cmd
	log  string
	from int64         // where its part of the log begins
	done chan struct{} // closed when it has ended
	err  error         // how; read it after done
}

// spawn runs a program until it ends, or until this process does.
func spawn(cmd *exec.Cmd, dir string, env []string, log string, as *syscall.Credential) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, from: info.Size(), done: make(chan struct{})}
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, attributes(as)
	cmd.Stdout, cmd.Stderr = file, file
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread that started the child ends
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait returns how it ended.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("it still runs: %w", context.Cause(ctx))
	}
}

func (p *process) end(ctx context.Context, signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return err
	}
	return p.wait(ctx)
}

// all are the process and those that it has started, itself first.
func (p *process) all() ([]int, error) {
	below, err := children(p.cmd.Process.Pid)
	return append([]int{p.cmd.Process.Pid}, below...), err
}

func (p *process) kill(ctx context.Context) error {
	all, err := p.all()
	if !p.runs() {
		all = nil // its number may be another's by now
	}
	for _, pid := range all {
		if kerr := syscall.Kill(pid, syscall.SIGKILL); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("it still runs: %w", context.Cause(ctx))
	}
	return until(ctx, func() bool {
		for _, pid := range all {
			if !gone(pid) {
				return false
			}
		}
		return true
	})
}

func (p *process) pause(ctx context.Context) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return until(ctx, func() bool {
		all, err := p.all()
		for _, pid := range all {
			if !still(pid) {
				return false
			}
		}
		return err == nil
	})
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

// signal reaches the process first, so that it starts no others meanwhile.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return err
	}
	all, err := p.all()
	for _, pid := range all[1:] {
		if kerr := syscall.Kill(pid, s); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	return err
}

// refused waits until a Postgres listens or has ended, and says whether it did because another still holds its data.
func (p *process) refused(ctx context.Context) bool {
	listens := func() bool { return strings.Contains(p.printed(), "listening on") }
	if err := until(ctx, func() bool { return !p.runs() || listens() }); err != nil {
		return false
	}
	return !p.runs() && lockHeld.MatchString(p.printed())
}

func (p *process) printed() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.from {
		return ""
	}
	return string(text[p.from:])
}

func until(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPause):
		}
	}
	return nil
}
