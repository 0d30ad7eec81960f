package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	startTimeout = time.Minute // recovery after a crash included
	stopTimeout  = 10 * time.Second
	retryPause   = 100 * time.Millisecond
	superuser    = "postgres"
	loopback     = "127.0.0.1"
	freePort     = -1
	defaultPort  = 5432
)

// Config says where a server keeps its data and how it is reached. The zero value is a server with temporary data on a Unix socket.
type Config struct {
	// Dir is the data directory. It is made where it is absent, and used again with what it holds. As root, when the user that runs
	// the server cannot reach it, it becomes a symbolic link to a directory under /var/lib/pointsman.
	// Empty: a temporary directory, removed by Stop.
	Dir string
	// Temp is where the temporary directory is made. Empty, or out of reach of the user that runs the server: os.TempDir() or /var/tmp.
	Temp string
	// Port is 0 for the Unix socket alone, -1 for a free TCP port of 127.0.0.1 besides, or the number of that port.
	// Over TCP a password is needed; it changes with every start and is part of the URL.
	Port int
	// Settings are server settings (max_connections, …) on top of the installation's defaults.
	Settings map[string]string
	// Log gets what the server logs. Nil: nobody does; errors quote the last lines either way.
	Log io.Writer
	// Install lets Start install the server programs where there are none, as Install does.
	Install bool
}

// Server is a running Postgres. Its methods may be called from any goroutine.
type Server struct {
	cfg   Config
	bin   string
	place *place
	port  int
	proc  *process
	url   string

	stop    sync.Once
	stopErr error
}

// Start runs a server and returns when it takes connections. ctx bounds the start alone: the server runs until Stop, or until this
// process ends. The error is ErrInUse when another process has a server on the same directory, ErrNoPrograms when there is nothing to run.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Port < freePort || cfg.Port > 65535 {
		return nil, fmt.Errorf("port %d is out of range", cfg.Port)
	}
	bin, err := findPrograms(ctx, cfg.Install)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := openPlace(cfg.Dir, cfg.Temp)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, bin: bin, place: p}
	if err = p.initdb(ctx, bin); err == nil {
		err = s.boot(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return s, nil
}

// boot starts the process until it stays up. Two refusals pass by themselves: the server of a predecessor that was killed is still
// shutting down (its pid file is for Postgres to judge and never ours to delete), and a free port was taken before we had it.
func (s *Server) boot(ctx context.Context) error {
	for {
		if err := s.choosePort(); err != nil {
			return err
		}
		proc, err := s.spawn()
		if err != nil {
			return err
		}
		if err = s.ready(ctx, proc); err == nil {
			s.proc = proc
			return nil
		}
		proc.kill()
		again := proc.log.says("already exists") || proc.log.says("still in use") ||
			s.cfg.Port == freePort && proc.log.says("Address already in use")
		if !again {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Server) choosePort() error {
	s.port = s.cfg.Port
	switch s.cfg.Port {
	case 0:
		s.port = defaultPort // names the socket, nothing listens on it
	case freePort:
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		s.port = l.Addr().(*net.TCPAddr).Port
		return l.Close()
	}
	return nil
}

func (s *Server) spawn() (*process, error) {
	settings := map[string]string{
		"listen_addresses":        "",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.place.socket,
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
	}
	for name, value := range s.cfg.Settings {
		settings[name] = value
	}
	if s.cfg.Port != 0 {
		settings["listen_addresses"] = loopback
	}
	return spawn(s.bin, s.place, settings, s.cfg.Log)
}

// ready waits until the server takes connections and sets the URL.
func (s *Server) ready(ctx context.Context, proc *process) error {
	socket := s.socketURL()
	conn, err := proc.connect(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	s.url = socket
	if s.cfg.Port != 0 {
		s.url, err = s.openTCP(ctx, conn)
	}
	return err
}

// openTCP gives the superuser a password: anyone on this machine can reach the port.
func (s *Server) openTCP(ctx context.Context, conn *pgx.Conn) (string, error) {
	password := rand.Text() // letters and digits, so it needs no quoting
	if _, err := conn.Exec(ctx, "alter role "+superuser+" password '"+password+"'"); err != nil {
		return "", fmt.Errorf("set the password: %w", err)
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, password), Path: "/postgres",
		Host: net.JoinHostPort(loopback, strconv.Itoa(s.port)), RawQuery: "sslmode=disable",
	}
	return u.String(), nil
}

func (s *Server) socketURL() string {
	q := url.Values{"host": {s.place.socket}, "port": {strconv.Itoa(s.port)}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/postgres", RawQuery: q.Encode()}
	return u.String()
}

// URL is where the superuser connects, from this process or any other of the same user or of root: over TCP when Config.Port asks for it,
// else over the Unix socket.
func (s *Server) URL() string { return s.url }

// DataDir is the directory that holds the data.
func (s *Server) DataDir() string { return s.place.data }

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// Stop disconnects every client, shuts the server down and waits for its end; temporary data is removed. The error says so when the server
// had already ended by itself. Calling it again returns what the first call did.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		signals := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} // fast, then immediate shutdown
		if s.place.temporary {
			signals = signals[1:] // nobody needs its last checkpoint
		}
		s.stopErr = errors.Join(s.proc.stop(signals), s.place.close())
	})
	return s.stopErr
}
