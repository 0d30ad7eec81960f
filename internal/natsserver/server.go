// Package natsserver runs a NATS server with JetStream inside this process, for tests and for "pointsman dev".
package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	readyTimeout = 30 * time.Second
	readyPoll    = 50 * time.Millisecond // how often a start looks whether it has failed
)

// Config says where a server keeps its streams and how it is reached. The zero value has temporary streams and is reached in process only.
type Config struct {
	Name string // the server's name; empty: "pointsman"
	// Dir is where JetStream keeps its streams. Empty: a temporary directory, removed by Shutdown.
	Dir string
	// Host to listen on; empty: 127.0.0.1.
	Host string
	// Port is 0 for connections in process alone, -1 for a free port, or the port to listen on.
	Port int
	// Logger gets the server's warnings and errors, and at debug level its notices. Nil: nobody does.
	Logger *slog.Logger
}

// Server is a running NATS server. It is a [nats.InProcessConnProvider].
type Server struct {
	ns    *server.Server
	cfg   Config
	temp  string
	stop  sync.Once
	ended error
}

// Start runs a server and returns when it takes connections.
func Start(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg}
	if err := s.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start nats: %w", err), s.Shutdown())
	}
	return s, nil
}

func (s *Server) start() error {
	dir := s.cfg.Dir
	if dir == "" {
		temp, err := os.MkdirTemp("", "pointsman-nats-*")
		if err != nil {
			return err
		}
		s.temp, dir = temp, filepath.Join(temp, "data")
	}
	host := s.cfg.Host
	if host == "" {
		host = "127.0.0.1"
	}
	name := s.cfg.Name
	if name == "" {
		name = "pointsman"
	}
	ns, err := server.NewServer(&server.Options{
		ServerName: name,
		Host:       host,
		Port:       s.cfg.Port,
		DontListen: s.cfg.Port == 0,
		JetStream:  true,
		StoreDir:   dir,
		NoSigs:     true, // signals are this process's to handle
	})
	if err != nil {
		return err
	}
	s.ns = ns
	log := newLogger(s.cfg.Logger)
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	return s.awaitReady(log)
}

// awaitReady exists because the server reports what stops it from starting to its logger and to nobody else.
func (s *Server) awaitReady(log *logger) error {
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); {
		ready := s.ns.ReadyForConnections(readyPoll)
		select {
		case err := <-log.fatal:
			return err
		default:
		}
		if ready {
			return nil
		}
	}
	return fmt.Errorf("not ready after %s", readyTimeout)
}

// URL is where clients connect; empty for a server that does not listen.
func (s *Server) URL() string {
	if s.cfg.Port == 0 {
		return ""
	}
	return s.ns.ClientURL()
}

// InProcessConn makes a connection without a socket; see [nats.InProcessServer].
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Shutdown disconnects every client and waits until all streams are closed; temporary ones are removed. Calling it again does nothing.
func (s *Server) Shutdown() error {
	s.stop.Do(func() {
		if s.ns != nil {
			s.ns.Shutdown()
			s.ns.WaitForShutdown()
		}
		if s.temp != "" {
			s.ended = os.RemoveAll(s.temp)
		}
	})
	return s.ended
}
