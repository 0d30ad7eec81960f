package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// server answers /healthz, /readyz and /metrics from its first moment, and hands the rest to what is there by then.
type server struct {
	listener net.Listener
	http     *http.Server
	state    atomic.Pointer[func() error]
	api      atomic.Pointer[http.Handler]
}

// listen binds the address; rest answers what is none of its own paths.
func listen(addr string, metrics *prometheus.Registry, rest http.Handler, log *slog.Logger) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	s := &server{listener: l}
	s.ready(func() error { return errors.New("starting") })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}))
	s.serveAPI(rest)
	s.http = &http.Server{
		Handler: s.own(mux), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// own keeps other paths out of the mux, which would redirect some of them.
func (s *server) own(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
			mux.ServeHTTP(w, r)
		default:
			(*s.api.Load()).ServeHTTP(w, r)
		}
	})
}

// serveAPI sets what answers all other paths.
func (s *server) serveAPI(h http.Handler) { s.api.Store(&h) }

func (s *server) addr() string { return s.listener.Addr().String() }

// ready sets what /readyz asks.
func (s *server) ready(check func() error) { s.state.Store(&check) }

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := (*s.state.Load())(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ready")
}

// serve answers until ctx is canceled, and lets requests that run finish within the grace.
func (s *server) serve(ctx context.Context, grace time.Duration) error {
	stopped := make(chan error, 1)
	go func() { stopped <- s.http.Serve(s.listener) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("http: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := s.http.Shutdown(end); err != nil {
		return fmt.Errorf("http: requests were cut off: %w", err)
	}
	if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http: %w", err)
	}
	return nil
}
