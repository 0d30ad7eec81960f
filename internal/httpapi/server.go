package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/tracing"
)

// Bounds of what is answered.
const (
	maxRequests = 512    // in work at once; one more is told to come again
	maxWaiting  = 10_000 // requests that wait for an instance, and streams, beside these
	// workTimeout is for the work of a request, beside what it asks to wait.
	workTimeout = 20 * time.Second
	// transferTimeout is for what comes and goes over the network, so that a client that is slow on purpose holds nothing.
	transferTimeout = 30 * time.Second
)

// Config of a [Server]. API and Guard are required.
type Config struct {
	API             *api.API
	Guard           *auth.Guard
	MaxBody         int // bytes of a document; zero: 1 MiB
	Version         string
	ShutdownTimeout time.Duration         // for requests in work; zero: 30s
	Ping            time.Duration         // how often a stream says that it is there; zero: 15s
	Logger          *slog.Logger          // zero: slog.Default
	Metrics         prometheus.Registerer // zero: none
	Tracing         trace.TracerProvider  // of the spans of requests; zero: none
}

// Server answers requests. It is an [http.Handler]. Make it with [New].
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	huma     huma.API
	compress func(http.Handler) http.HandlerFunc
	origin   *http.CrossOriginProtection
	slots    chan struct{}
	waiting  chan struct{} // slots of requests that may wait
	metrics  *metrics
	tracing  *tracing.Tracer
	untraced map[string]bool // patterns of streams: what may last for days is no span

	mu       sync.Mutex
	draining bool
	working  sync.WaitGroup
	stop     context.Context // of streams
	endAll   context.CancelFunc
}

// New checks the configuration.
func New(cfg Config) (*Server, error) {
	if cfg.API == nil || cfg.Guard == nil {
		return nil, errors.New("httpapi: API and Guard are required")
	}
	or(&cfg.MaxBody, ident.MaxJSON)
	or(&cfg.ShutdownTimeout, 30*time.Second)
	or(&cfg.Ping, 15*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1400))
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, metrics: m, tracing: tracing.New(cfg.Tracing), untraced: map[string]bool{}, mux: http.NewServeMux(), compress: compress, origin: http.NewCrossOriginProtection(),
		slots: make(chan struct{}, maxRequests), waiting: make(chan struct{}, maxWaiting),
	}
	s.stop, s.endAll = context.WithCancel(context.Background())
	s.huma = humago.New(s.mux, describe(cfg.Version))
	s.instances()
	s.signals()
	s.streams()
	s.triggers()
	s.operating()
	s.webhooks()
	s.stats()
	s.updates()
	s.jobs()
	s.finishDocument()
	return s, s.serveDocument()
}

func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Run answers requests until ctx is canceled; then it takes no more, and returns when those in work are answered, within ShutdownTimeout.
// Those that wait are answered as if their time were up, and streams end.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.cfg.API.EndWaits()
	s.endAll()
	done := make(chan struct{})
	go func() { s.working.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(s.cfg.ShutdownTimeout):
		return fmt.Errorf("http: requests were cut off after %s", s.cfg.ShutdownTimeout)
	}
}

// enter counts a request in, unless the server stops.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.working.Add(1)
	return true
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun, rec := time.Now(), &recorder{ResponseWriter: w}
	w = rec
	handler, pattern := s.mux.Handler(r)
	if !clean(r) {
		pattern = ""
	}
	r, span := s.startSpan(identify(w, r), pattern)
	defer func() {
		s.metrics.count(pattern, rec.answered(), time.Since(begun))
		endSpan(span, rec.answered())
	}()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // panics with the value itself
				panic(p)
			}
			s.log(r).Error("a request panicked", "panic", p, "stack", string(debug.Stack()))
			s.refuse(w, r, &api.Error{Code: api.CodeUnavailable, Message: "the request failed: that is a bug, and is in the log of the bridge"})
		}
	}()
	secure(w.Header())
	if !s.enter() {
		w.Header().Set("Connection", "close")
		s.refuse(w, r, &api.Error{Code: api.CodeUnavailable, Message: "this bridge is stopping: try again, another may answer"})
		return
	}
	defer s.working.Done()
	if err := s.admit(r); err != nil {
		s.refuse(w, r, err)
		return
	}
	if pattern == "" {
		s.refuseUnknown(w, r, handler)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// admit says whether a request may be looked at, whoever sends it.
func (s *Server) admit(r *http.Request) error {
	if err := validText(r); err != nil {
		return err
	}
	if err := s.origin.Check(r); err != nil {
		return &api.Error{Code: api.CodeForbidden, Message: "the request comes from a page of another origin"}
	}
	return nil
}

// mount has an operation answered by a function, whose error is the answer where there is one.
func (s *Server) mount(o operation, do func(w http.ResponseWriter, r *http.Request, project string) error) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		if err := s.serve(o, w, r, do); err != nil {
			s.refuse(w, r, err)
		}
	}
	handler := s.compress(http.HandlerFunc(serve))
	if o.streams {
		handler = serve
		s.untraced[o.method+" "+o.path] = true
	}
	s.mux.HandleFunc(o.method+" "+o.path, handler)
}

func (s *Server) serve(o operation, w http.ResponseWriter, r *http.Request, do func(http.ResponseWriter, *http.Request, string) error) error {
	principal, project, err := s.authorize(o, r)
	if err != nil {
		return err
	}
	slots := s.slots
	if o.streams || o.waiting(r) {
		slots = s.waiting
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("%d requests are in work: try again", cap(slots))}
	}
	return do(w, r.WithContext(auth.With(r.Context(), principal)), project)
}

// clean says that a path is written as it would be routed: the mux redirects others.
func clean(r *http.Request) bool {
	path := r.URL.EscapedPath()
	return !strings.Contains(path, "//") && !strings.Contains(path+"/", "/./") && !strings.Contains(path+"/", "/../")
}

// refuseUnknown answers what no operation does, where the mux would with a text of its own.
func (s *Server) refuseUnknown(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	var said header
	if clean(r) {
		handler.ServeHTTP(&said, r)
	}
	if allow := said.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		s.write(w, r, http.StatusMethodNotAllowed, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("%s is not answered there, only %s", r.Method, allow)})
		return
	}
	s.refuse(w, r, &api.Error{Code: api.CodeNotFound, Message: "there is no such path: /openapi.json has all of them"})
}

// header takes what a handler says of its answer, and forgets the rest.
type header struct{ fields http.Header }

func (h *header) Header() http.Header {
	if h.fields == nil {
		h.fields = http.Header{}
	}
	return h.fields
}
func (h *header) Write(b []byte) (int, error) { return len(b), nil }
func (h *header) WriteHeader(int)             {}

// Starting answers every request while the server is being put together.
func Starting() http.Handler {
	s := &Server{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		s.refuse(w, identify(w, r), &api.Error{Code: api.CodeUnavailable, Message: "this bridge is starting: /readyz says what it waits for"})
	})
}
