package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

const stopGrace = 30 * time.Second // to drain

// part is a process of ours: this program, with PartCommand.
type part struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	addr   string // as it says; "": nothing to ask
	ending atomic.Bool
	done   chan struct{}
}

// startPart returns when the part says where it is.
func (st *stack) startPart(ctx context.Context, name string, args ...string) (*part, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	args = append([]string{PartCommand, name}, args...)
	if st.o.Profile != "" {
		args = append(args, "--profile", st.o.Profile)
	}
	p := &part{name: name, cmd: exec.Command(exe, append(args, st.o.PartArgs...)...), done: make(chan struct{})}
	p.cmd.Stderr = st.o.Err
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C at the terminal is for us to handle
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	key := name
	for i := 2; st.parts[key] != nil; i++ {
		key = fmt.Sprint(name, " ", i)
	}
	st.parts[key] = p
	said := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		if lines.Scan() {
			said <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, stdout) // to its end, which Wait may not come before
		_ = p.cmd.Wait()                   // how it ended is in ProcessState
		if !p.ending.Load() {
			select {
			case st.died <- fmt.Errorf("the %s ended by itself: %v", name, p.cmd.ProcessState):
			default: // the first is enough
			}
		}
		close(p.done)
	}()
	select {
	case p.addr = <-said:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("the %s ended as it began: %v", name, p.cmd.ProcessState)
	case <-time.After(patience):
		return nil, fmt.Errorf("the %s does not say where it is", name)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stopPrograms stops all but the server.
func (st *stack) stopPrograms() {
	for _, key := range slices.Sorted(maps.Keys(st.parts)) {
		if key != partNATS {
			st.stopPart(key)
		}
	}
}

// stopPart lets it drain.
func (st *stack) stopPart(key string) {
	p := st.parts[key]
	if p == nil {
		return
	}
	delete(st.parts, key)
	p.ending.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	_ = p.stdin.Close()
}

func (st *stack) untilReady(ctx context.Context, p *part) error {
	return st.until(ctx, "the "+p.name+" is ready", patience, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil // not yet, or it has ended
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}
