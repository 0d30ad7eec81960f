package natsserver_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg natsserver.Config) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func jetStream(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestStreamsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, natsserver.Config{Dir: dir, Port: -1})
	js := jetStream(t, s.URL())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}

	s = start(t, natsserver.Config{Dir: dir, Port: -1})
	stream, err := jetStream(t, s.URL()).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := stream.GetMsg(t.Context(), 1); err != nil || string(msg.Data) != "kept" {
		t.Errorf("got %v, %v", msg, err)
	}
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	s := start(t, natsserver.Config{Dir: filepath.Join(tmp, "js")})
	if s.URL() != "" {
		t.Errorf("URL %q of a server that does not listen", s.URL())
	}
	if _, err := jetStream(t, "", nats.InProcessServer(s)).AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTemporaryStreamsAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := start(t, natsserver.Config{})
	if _, err := jetStream(t, "", nats.InProcessServer(s)).AccountInfo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Shutdown(), s.Shutdown()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = natsserver.Start(natsserver.Config{Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}
