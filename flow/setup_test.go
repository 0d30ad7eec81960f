package flow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/flow"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/natstest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

const patience = 90 * time.Second

// flows of a file.
func flows(t testing.TB, text string) (all []*dag.Flow) {
	t.Helper()
	c, err := config.Parse("flows.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Flows {
		all = append(all, f.Flow)
	}
	return all
}

// machines of all flows of a file.
func machines(t testing.TB, conn *nats.Conn, text string) (all []*engine.Machine) {
	t.Helper()
	for _, f := range flows(t, text) {
		ms, err := flow.Machines(flow.Config{Flow: f, Conn: conn, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ms...)
	}
	return all
}

// services answer calls, and note who was asked what.
type services struct {
	t    testing.TB
	conn *nats.Conn
	mu   sync.Mutex
	made []call
	// quiet ones note nothing.
	quiet bool
}

type call struct{ subject, data, key string }

func newServices(t testing.TB) *services {
	t.Helper()
	return &services{t: t, conn: natstest.Start(t).Conn(t)}
}

// answer a subject with what fn makes of the data. An error is the service's.
func (s *services) answer(subject string, fn func(data json.RawMessage) (any, error)) {
	s.t.Helper()
	_, err := s.conn.Subscribe(subject, func(m *nats.Msg) {
		go func() {
			if !s.quiet {
				s.mu.Lock()
				s.made = append(s.made, call{m.Subject, string(m.Data), m.Header.Get("Idempotency-Key")})
				s.mu.Unlock()
			}
			out, err := fn(m.Data)
			if err != nil {
				out = map[string]string{"error": err.Error()}
			}
			body, err := json.Marshal(out)
			if err != nil {
				s.t.Error(err)
			}
			_ = m.Respond(body) // a test that ends takes the connection away
		}()
	})
	if err == nil {
		err = s.conn.Flush()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// says is an answer that is always the same.
func says(out any) func(json.RawMessage) (any, error) {
	return func(json.RawMessage) (any, error) { return out, nil }
}

// calls of a subject.
func (s *services) calls(subject string) (made []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.made {
		if c.subject == subject {
			made = append(made, c)
		}
	}
	return made
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n%s\nwant\n%s", what, g, w)
	}
}

// same compares two documents.
func same(t testing.TB, what string, got json.RawMessage, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %q: %v", what, got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	a, errA := json.Marshal(g)
	b, errB := json.Marshal(w)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("%s:\n%s\nwant\n%s", what, a, b)
	}
}

// done is the result of an instance that is.
func done(in *enginetest.Instance) json.RawMessage { return in.Expect(engine.StatusDone).Result }

// start an instance of a flow.
func start(env *enginetest.Env, machine, payload string) *enginetest.Instance {
	return env.Start(engine.NewInstance{Machine: machine, State: json.RawMessage(payload)})
}

func replace(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
