package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/programs"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.Crowd(2)
	pgtest.Main(m)
}

// patience is how long a test waits for what should come soon. Only one that fails waits so long.
const patience = 2 * time.Minute

// built returns the path of a built program. They are built once for all tests.
func built(program string) (string, error) {
	if program == ordersWorker {
		dir, err := builtExample()
		return filepath.Join(dir, "worker"), err
	}
	dir, err := builtPrograms()
	return filepath.Join(dir, program), err
}

// ordersWorker is the worker of the orders example.
const ordersWorker = "orders-worker"

var (
	builtPrograms = sync.OnceValues(func() (string, error) {
		return programs.Build(context.Background(), programs.Options{}, "./cmd/bridge", "./cmd/worker", "./cmd/pointsman")
	})
	builtExample = sync.OnceValues(func() (string, error) {
		return programs.Build(context.Background(), programs.Options{}, "./examples/orders/worker")
	})
)

// stack is a Postgres and a nats-server, and the programs that run on them.
type stack struct {
	*testing.T
	databaseURL string
	db          *pgx.Conn
	nc          *nats.Conn
	js          jetstream.JetStream
	natsURL     string
	dir         string
}

func newStack(t *testing.T) *stack {
	t.Helper()
	s := &stack{T: t, dir: t.TempDir(), databaseURL: pgtest.Database(t)}
	server := natstest.Start(t)
	s.natsURL, s.nc, s.js = server.URL, server.Conn(t), server.JetStream(t)
	s.must(s.start("migrate", "pointsman", "migrate", "up").wait(patience))
	var err error
	if s.db, err = pgx.Connect(t.Context(), s.databaseURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close(context.Background()) })
	return s
}

func (s *stack) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// process is a running program. What it prints is shown when the test fails.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *syncBuffer
	done chan struct{}
	err  error
}

// start runs a built program with the stack's addresses in its environment.
func (s *stack) start(name, program string, args ...string) *process {
	s.Helper()
	path, err := built(program)
	s.must(err)
	p := &process{name: name, out: &syncBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = s.dir
	p.cmd.Env = append(os.Environ(), "POINTSMAN_DATABASE_URL="+s.databaseURL, "POINTSMAN_NATS_URL="+s.natsURL,
		"POINTSMAN_HTTP_ADDR=127.0.0.1:0", "POINTSMAN_WORKER_HTTP_ADDR=127.0.0.1:0")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	s.must(p.cmd.Start())
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	s.Cleanup(func() {
		p.kill()
		if s.Failed() {
			s.Logf("%s printed:\n%s", name, p.out)
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop is SIGTERM; the program has to drain and exit with 0.
func (p *process) stop(within time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return p.wait(within)
}

func (p *process) wait(within time.Duration) error {
	select {
	case <-p.done:
	case <-time.After(within):
		return fmt.Errorf("%s still runs after %s:\n%s", p.name, within, p.out)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.out)
	}
	return nil
}

// until polls a condition that other processes have to bring about.
func (s *stack) until(within time.Duration, what string, condition func() (bool, string)) {
	s.Helper()
	deadline := time.Now().Add(within)
	for {
		ok, state := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s: %s", within, what, state)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *stack) count(sql string, args ...any) (n int) {
	s.Helper()
	s.must(s.db.QueryRow(s.Context(), sql, args...).Scan(&n))
	return n
}

// messages reads a whole stream.
func (s *stack) messages(stream string) (all []jetstream.Msg) {
	s.Helper()
	st, err := s.js.Stream(s.Context(), stream)
	s.must(err)
	info, err := st.Info(s.Context())
	s.must(err)
	if info.State.Msgs == 0 {
		return nil
	}
	c, err := st.OrderedConsumer(s.Context(), jetstream.OrderedConsumerConfig{})
	s.must(err)
	for uint64(len(all)) < info.State.Msgs {
		batch, err := c.Fetch(int(info.State.Msgs)-len(all), jetstream.FetchMaxWait(patience))
		s.must(err)
		before := len(all)
		for m := range batch.Messages() {
			all = append(all, m)
		}
		if len(all) == before {
			s.Fatalf("stream %s: %d of %d messages came", stream, len(all), info.State.Msgs)
		}
	}
	return all
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(b.b.String())
}
