package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	connectPause   = 10 * time.Millisecond
	connectTimeout = time.Second
	logTail        = 4 << 10
)

// process is one run of the postgres program.
type process struct {
	cmd  *exec.Cmd
	log  *serverLog
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read it after done
}

func spawn(bin string, p *place, settings map[string]string, log io.Writer) (*process, error) {
	args := []string{"-D", p.data}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	proc := &process{
		cmd:  exec.Command(filepath.Join(bin, "postgres"), args...),
		log:  &serverLog{to: log},
		done: make(chan struct{}),
	}
	proc.cmd.Dir, proc.cmd.Env = p.data, environment()
	proc.cmd.Stdout, proc.cmd.Stderr = proc.log, proc.log
	proc.cmd.SysProcAttr = attributes(p.account)
	proc.cmd.WaitDelay = time.Second // a backend that survives its postmaster must not keep us

	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that started the child ends, so this thread is kept for as long as the child.
		runtime.LockOSThread()
		err := proc.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		proc.err = proc.cmd.Wait()
		close(proc.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return proc, nil
}

// connect returns the first connection that the server takes; the server's log is the error when it ends before.
func (p *process) connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = connectTimeout
	for {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			return conn, nil
		}
		select {
		case <-p.done:
			return nil, p.ended()
		case <-ctx.Done():
			return nil, fmt.Errorf("not ready: %w: %w", context.Cause(ctx), err)
		case <-time.After(connectPause):
		}
	}
}

// stop sends the signals one after the other until the process ends, and at last kills it.
func (p *process) stop(signals []syscall.Signal) error {
	select {
	case <-p.done:
		return p.ended()
	default:
	}
	for _, sig := range signals {
		_ = p.cmd.Process.Signal(sig) // it may end at this moment
		select {
		case <-p.done:
			return nil
		case <-time.After(stopTimeout):
		}
	}
	p.kill()
	return errors.New("postgres did not stop and was killed")
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) ended() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("postgres ended by itself: %s: %s", how, p.log)
}

// environment is ours without what would change the server: PGPORT and the like are defaults of its settings, LC_ALL its messages' language.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG") || strings.HasPrefix(kv, "TZ=")
	})
	return append(env, "TZ=UTC", "LC_ALL=C")
}

// serverLog passes the log on and keeps its end for error messages.
type serverLog struct {
	mu  sync.Mutex
	to  io.Writer
	end []byte
}

func (l *serverLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = append(l.end, b...)
	l.end = l.end[max(0, len(l.end)-logTail):]
	if l.to != nil {
		_, _ = l.to.Write(b) // a reader that is gone must not stop the server
	}
	return len(b), nil
}

func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.end))
}

func (l *serverLog) says(text string) bool { return strings.Contains(l.String(), text) }
