// Package natstest gives each test a NATS server with JetStream of its own, inside the test process.
package natstest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/natsserver"
)

// Where Linux (from 32768 on), macOS and Windows (49152) find no ports for others, and few services have theirs.
const firstPort, lastPort = 12000, 32000

// reconnectWait is short: a test that takes NATS away waits for its return.
const reconnectWait = 20 * time.Millisecond

// Server is a test's server. It listens on a free port of 127.0.0.1 and ends with the test.
type Server struct {
	URL string // the same after a restart

	running *natsserver.Server
	cfg     natsserver.Config
}

// Start runs a server with no streams.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{cfg: natsserver.Config{Dir: t.TempDir(), Port: freePort(t)}}
	s.Up(t)
	t.Cleanup(func() { s.Down(t) })
	s.URL = s.running.URL()
	return s
}

// freePort is one that no system gives to who asks for any port, be it for a connection: nobody takes it while the server is down.
func freePort(t testing.TB) int {
	t.Helper()
	var err error
	for range 100 {
		var l net.Listener
		port := firstPort + rand.IntN(lastPort-firstPort)
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("natstest: no port is free: %v", err)
	return 0
}

// Down stops the server: NATS is away until Up. Streams are kept.
func (s *Server) Down(t testing.TB) {
	t.Helper()
	if err := s.running.Shutdown(); err != nil {
		t.Errorf("natstest: %v", err)
	}
}

// Up starts a server that is down, where it was.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	running, err := natsserver.Start(s.cfg)
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	s.running = running
}

// Conn is a new connection, closed with the test. It comes back by itself after Down and Up.
func (s *Server) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(0, 0)}, opts...)
	nc, err := nats.Connect(s.URL, opts...)
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream is the JetStream API on a new connection.
func (s *Server) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(s.Conn(t))
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	return js
}

// Stream creates a stream.
func (s *Server) Stream(t testing.TB, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	stream, err := s.JetStream(t).CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatalf("natstest: stream %s: %v", cfg.Name, err)
	}
	return stream
}
