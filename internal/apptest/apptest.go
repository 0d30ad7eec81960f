// Package apptest gives tests the whole of pointsman: a bridge and a worker, as the programs run them, on a NATS server and a database
// of their own.
package apptest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/subjects"
)

// patience is how long the programs may take to be ready, or to stop.
const patience = 90 * time.Second

// Stack is what runs.
type Stack struct {
	NATS        *natstest.Server
	NATSURL     string
	DatabaseURL string
	HTTPURL     string // of the bridge
	WorkerURL   string // of the worker: health and metrics
	Config      *config.Config
	Space       subjects.Space
	JS          jetstream.JetStream
	log         *slog.Logger
}

// Start runs everything until the test ends: the routes of a configuration file, on streams of these subjects, and these machines.
func Start(t testing.TB, yaml string, streams map[string][]string, machines ...*engine.Machine) *Stack {
	t.Helper()
	s := &Stack{NATS: natstest.Start(t), DatabaseURL: pgtest.Database(t)}
	s.NATSURL, s.JS = s.NATS.URL, s.NATS.JetStream(t)
	for name, filters := range streams {
		s.NATS.Stream(t, jetstream.StreamConfig{Name: name, Subjects: filters})
	}
	s.configure(t, yaml)
	s.log = slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.HTTPURL = s.Bridge(t)
	s.WorkerURL = "http://" + s.run(t, "worker", func(ctx context.Context, announce func(string)) error {
		return app.RunWorker(ctx, s.Config, s.log, machines, announce)
	})
	return s
}

// Bridge runs one more bridge until the test ends, and returns the URL of its HTTP API.
func (s *Stack) Bridge(t testing.TB) (url string) {
	t.Helper()
	return "http://" + s.run(t, "bridge", func(ctx context.Context, announce func(string)) error {
		return app.RunBridge(ctx, s.Config, s.log, announce)
	})
}

func (s *Stack) configure(t testing.TB, yaml string) {
	t.Helper()
	own := map[string]string{"POINTSMAN_DATABASE_URL": s.DatabaseURL, "POINTSMAN_NATS_URL": s.NATSURL}
	env := func(name string) (string, bool) { v, ok := own[name]; return v, ok }
	var err error
	if s.Config, err = config.Parse("pointsman.yaml", []byte(yaml), env); err == nil {
		err = s.Config.ApplyEnv(env)
	}
	if err != nil {
		t.Fatalf("apptest: %v", err)
	}
	s.Config.MigrateOnStart = true
	s.Config.HTTP.Addr, s.Config.Worker.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0"
	s.Config.Worker.ReapInterval, s.Config.Worker.PollInterval = 50*time.Millisecond, 50*time.Millisecond
	if s.Space, err = subjects.New(s.Config.NATS.SubjectPrefix); err != nil {
		t.Fatalf("apptest: %v", err)
	}
}

// run a program until the test ends, and wait until it is ready. It returns the address of its HTTP server.
func (s *Stack) run(t testing.TB, name string, program func(ctx context.Context, announce func(string)) error) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- program(ctx, func(a string) { addr <- a }) }()
	t.Cleanup(sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("apptest: %s: %v", name, err)
			}
		case <-time.After(patience):
			t.Errorf("apptest: %s does not stop", name)
		}
	}))
	select {
	case address = <-addr:
		untilReady(t, name, address)
	case err := <-done:
		done <- nil
		t.Fatalf("apptest: %s: %v", name, err)
	}
	return address
}

// untilReady asks a program until it says so.
func untilReady(t testing.TB, name, addr string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	deadline := time.Now().Add(patience)
	last := "no answer"
	for time.Now().Before(deadline) {
		if resp, err := client.Get("http://" + addr + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if last = resp.Status; resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("apptest: %s is never ready: %s", name, last)
}

// logWriter is a log that is shown where the test fails.
type logWriter struct{ t testing.TB }

func (l logWriter) Write(p []byte) (int, error) {
	l.t.Log(string(p))
	return len(p), nil
}

// Publish a message; headers are pairs.
func (s *Stack) Publish(t testing.TB, subject, body string, headers ...string) *jetstream.PubAck {
	t.Helper()
	msg := nats.NewMsg(subject)
	msg.Data = []byte(body)
	for pair := range slices.Chunk(headers, 2) {
		msg.Header.Set(pair[0], pair[1])
	}
	ack, err := s.JS.PublishMsg(t.Context(), msg)
	if err != nil {
		t.Fatalf("apptest: publish %s: %v", subject, err)
	}
	return ack
}

// Eventually asks until it is so.
func Eventually(t testing.TB, what string, so func() (bool, error)) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		ok, err := so()
		if ok {
			return
		}
		last = err
	}
	t.Fatal(fmt.Errorf("never: %s: %w", what, last))
}
