package natsio_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/internal/natsserver"
	"github.com/pointsman/pointsman/internal/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, cfg natsio.Config) *nats.Conn {
	t.Helper()
	nc, err := natsio.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// await returns when the connection stands, or is away.
func await(t *testing.T, nc *nats.Conn, connected bool) {
	t.Helper()
	changes := nc.StatusChanged()
	defer nc.RemoveStatusListener(changes)
	timeout := time.After(90 * time.Second)
	for nc.IsConnected() != connected {
		select {
		case <-changes:
		case <-timeout:
			t.Fatalf("status %s, want connected: %t", nc.Status(), connected)
		}
	}
}

func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	s, log := natstest.Start(t), &logBuffer{}
	nc := connect(t, natsio.Config{URL: s.URL, Logger: log.logger()})
	s.Down(t)
	await(t, nc, false)
	s.Up(t)
	await(t, nc, true)
	log.await(t, "nats is back")
	if n := strings.Count(log.String(), "nats is away"); n != 1 {
		t.Errorf("%d lines about the loss:\n%s", n, log)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, log)
	}
}

func TestServerComesLater(t *testing.T) {
	t.Parallel()
	s, log := natstest.Start(t), &logBuffer{}
	s.Down(t)
	nc := connect(t, natsio.Config{URL: s.URL, Logger: log.logger()})
	log.await(t, "nats is away")
	s.Up(t)
	await(t, nc, true)
	log.await(t, "nats is back")
}

func TestCloseIsNotAnOutage(t *testing.T) {
	t.Parallel()
	s, log := natstest.Start(t), &logBuffer{}
	nc := connect(t, natsio.Config{URL: s.URL, Logger: log.logger()})
	closed := nc.StatusChanged(nats.CLOSED)
	if err := nc.Drain(); err != nil {
		t.Fatal(err)
	}
	<-closed
	if log.String() != "" {
		t.Errorf("logged: %s", log)
	}
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	nc := connect(t, natsio.Config{InProcess: s, Name: "me"})
	if !nc.IsConnected() || nc.Opts.Name != "me" {
		t.Errorf("status %s, name %q", nc.Status(), nc.Opts.Name)
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	url := natstest.Start(t).URL
	for name, cfg := range map[string]natsio.Config{
		"url":   {URL: "nats://127.0.0.1:not-a-port"},
		"creds": {URL: url, Creds: missing},
		"nkey":  {URL: url, NKey: missing},
		"ca":    {URL: url, TLS: natsio.TLS{CA: missing}},
		"cert":  {URL: url, TLS: natsio.TLS{Cert: missing, Key: missing}},
	} {
		if nc, err := natsio.Connect(t.Context(), cfg); err == nil {
			nc.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

// A server that takes the connection and says nothing must not keep a caller that has given up.
func TestConnectEndsWithContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := natsio.Connect(ctx, natsio.Config{URL: "nats://" + l.Addr().String(), Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// logBuffer is a log that a test can wait on.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
	on []chan struct{}
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.on {
		close(c)
	}
	l.on = nil
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(90 * time.Second)
	for {
		l.mu.Lock()
		found, written := strings.Contains(l.b.String(), text), make(chan struct{})
		l.on = append(l.on, written)
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-written:
		case <-timeout:
			t.Fatalf("%q was not logged:\n%s", text, l)
		}
	}
}
