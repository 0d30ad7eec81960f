package remote_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/remote"
	"github.com/pointsman/pointsman/subjects"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// config of the machine "m".
func config(t testing.TB, conn *nats.Conn) remote.Config {
	t.Helper()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	return remote.Config{Conn: conn, Subjects: space, Name: "m", Start: "begin", Logger: quiet}
}

func machine(t testing.TB, cfg remote.Config) *engine.Machine {
	t.Helper()
	m, err := remote.Machine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// answer serves the steps of a machine, each request in a goroutine of its own, as a service would.
func answer(t testing.TB, nc *nats.Conn, machine string, with func(*nats.Msg) *nats.Msg) {
	t.Helper()
	_, err := nc.Subscribe("pointsman.step."+machine+".>", func(m *nats.Msg) {
		go func() {
			if reply := with(m); reply != nil {
				_ = m.RespondMsg(reply) // a test that ends takes the connection away
			}
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// says is an answer with this body.
func says(body string) func(*nats.Msg) *nats.Msg {
	return func(*nats.Msg) *nats.Msg { return &nats.Msg{Data: []byte(body)} }
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return b
}

// patience is how long a test waits for what should come at once.
const patience = 90 * time.Second

// stage is a client on a schema of the test's own.
type stage struct {
	*engine.Client
	t   testing.TB
	env *enginetest.Env
}

func newStage(t testing.TB) *stage {
	t.Helper()
	env := enginetest.New(t)
	return &stage{Client: env.Client, t: t, env: env}
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// work runs a worker until the test ends.
func (s *stage) work(machines ...*engine.Machine) {
	s.t.Helper()
	s.env.Serve(engine.WorkerConfig{Machines: machines})
}

func (s *stage) begin(n engine.NewInstance) uuid.UUID {
	s.t.Helper()
	if n.Machine == "" {
		n.Machine = "m"
	}
	in, err := s.Start(s.t.Context(), n)
	s.must(err)
	return in.ID
}

func (s *stage) send(id uuid.UUID, signals ...engine.Intake) {
	s.t.Helper()
	for i := range signals {
		signals[i].To = engine.ByID(id)
	}
	receipts, err := s.Accept(s.t.Context(), signals)
	s.must(err)
	for _, r := range receipts {
		if r.Result != engine.Delivered {
			s.t.Fatalf("a signal is %s: %s", r.Result, r.Reason)
		}
	}
}

// until waits for an instance to be as it should.
func (s *stage) until(id uuid.UUID, what string, ok func(engine.Instance) bool) engine.Instance {
	s.t.Helper()
	return s.env.Instance(engine.ByID(id)).Until(what, ok)
}

func (s *stage) ends(id uuid.UUID, status engine.Status) engine.Instance {
	s.t.Helper()
	in := s.until(id, "ended", func(in engine.Instance) bool { return !in.Status.Live() })
	if in.Status != status {
		s.t.Fatalf("ended as %+v, want %s", in, status)
	}
	return in
}

// receive takes from a channel that something is about to be sent to.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n%s\nwant\n%s", what, g, w)
	}
}

// journal is a log that may be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
