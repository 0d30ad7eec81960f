// Package natsapi answers the operations of package api over NATS: as the micro service "pointsman", whose endpoints are
// pointsman.api.<verb>, and asks for them, as the command line does.
//
// A request is JSON, with the project in the header Pointsman-Project. The reply is JSON too; that of a refusal is
// {"error": {"code", "message", "details"}}, and has the error headers of NATS services.
package natsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

// Bounds of what is answered.
const (
	maxBody     = 8 << 20 // of a request; the server's max_payload is mostly less
	maxRequests = 512     // in work at once; one more is told to come again
	maxWaiting  = 10_000  // requests that wait for an instance, beside these
	// requestTimeout is for the work of a request, beside what a get or an update asks to wait.
	requestTimeout = 20 * time.Second // less than callers wait: an answer that says so is better than none
)

// Config of a [Service]. Conn, Subjects and API are required.
type Config struct {
	Conn            *nats.Conn
	Subjects        subjects.Space
	API             *api.API
	Version         string
	ShutdownTimeout time.Duration        // for requests in work; zero: 30s
	Logger          *slog.Logger         // zero: slog.Default
	Tracing         trace.TracerProvider // of the spans of requests; zero: none
}

// Service answers requests. Make it with [New].
type Service struct {
	cfg        Config
	tracing    *tracing.Tracer
	operations map[string]operation
	slots      chan struct{}
	waiting    chan struct{} // slots of requests that may wait
	working    sync.WaitGroup
}

// New checks the configuration, and talks to nobody.
func New(cfg Config) (*Service, error) {
	if cfg.Conn == nil || cfg.API == nil || cfg.Subjects == (subjects.Space{}) {
		return nil, errors.New("natsapi: Conn, Subjects and API are required")
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Service{cfg: cfg, tracing: tracing.New(cfg.Tracing), operations: allOperations(cfg.API), slots: make(chan struct{}, maxRequests), waiting: make(chan struct{}, maxWaiting)}, nil
}

// Run answers requests until ctx is cancelled. Then it takes no more, and returns when those in work are answered, within
// ShutdownTimeout. Several processes that run it share the requests.
func (s *Service) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	service, err := micro.AddService(s.cfg.Conn, micro.Config{
		Name: subjects.Service, Version: semver(s.cfg.Version), QueueGroup: subjects.Service,
		Description: "starts, signals and shows instances; see pointsman --help",
	})
	if err != nil {
		return fmt.Errorf("nats service: %w", err)
	}
	for _, verb := range slices.Sorted(maps.Keys(s.operations)) {
		do := s.operations[verb]
		err := service.AddEndpoint(verb, micro.HandlerFunc(func(r micro.Request) { s.take(work, verb, do, r) }), micro.WithEndpointSubject(s.cfg.Subjects.API(verb)))
		if err != nil {
			return errors.Join(fmt.Errorf("nats service: endpoint %s: %w", verb, err), service.Stop())
		}
	}
	<-ctx.Done()
	s.cfg.API.EndWaits()
	err = service.Stop()
	if errors.Is(err, nats.ErrConnectionClosed) {
		err = nil
	}
	grace := time.AfterFunc(s.cfg.ShutdownTimeout, cancel)
	defer grace.Stop()
	s.working.Wait()
	return err
}

// take hands a request to a goroutine: the library calls the handler of an endpoint for one request at a time, and some wait.
func (s *Service) take(ctx context.Context, verb string, do operation, r micro.Request) {
	// Its own answers note an error where the library reads it when the handler returns, so the reply is published by hand.
	reply, header, body := r.Reply(), nats.Header(r.Headers()), r.Data()
	if reply == "" {
		return // who asks for nothing gets nothing, also no start of which nobody would know
	}
	slots, limit := s.slots, requestTimeout
	if long[verb] {
		limit += api.MaxWait
	}
	if (verb == VerbGet || verb == VerbUpdate) && bytes.Contains(body, []byte(`"wait"`)) { // those that only seem to wait are no harm among them
		slots, limit = s.waiting, requestTimeout+api.MaxWait
	}
	select {
	case slots <- struct{}{}:
	default:
		s.respond(verb, reply, nil, &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("%d requests are in work: try again", cap(slots))})
		return
	}
	s.working.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		answer, err := s.answer(ctx, verb, do, header, body)
		<-slots // before who asked can ask again
		s.respond(verb, reply, answer, err)
	})
}

// answer does the operation; a panic of it is an error.
func (s *Service) answer(ctx context.Context, verb string, do operation, h nats.Header, body []byte) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Logger.Error("a request panicked", "verb", verb, "panic", p, "stack", string(debug.Stack()))
			answer, err = nil, &api.Error{Code: api.CodeUnavailable, Message: "the request failed: that is a bug, and is in the log of the bridge"}
		}
	}()
	if len(body) > maxBody {
		return nil, &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the request has %d bytes, at most %d are allowed", len(body), maxBody)}
	}
	project, err := s.cfg.API.ProjectOf(h.Get(subjects.HeaderProject))
	if err != nil {
		return nil, err
	}
	ctx, span := s.startSpan(ctx, verb, h)
	defer func() { endSpan(span, err) }()
	return do(ctx, project, h, body)
}

func (s *Service) respond(verb, reply string, answer any, err error) {
	msg := nats.NewMsg(reply)
	if err == nil {
		msg.Data, err = ident.Encode(answer)
	}
	if limit := s.cfg.Conn.MaxPayload(); err == nil && limit > 0 && int64(len(msg.Data)) > limit {
		err = &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the answer has %d bytes, and the NATS server carries %d: ask for less, or raise its max_payload", len(msg.Data), limit)}
	}
	if err != nil {
		s.refuse(verb, msg, err)
	}
	if err := s.cfg.Conn.PublishMsg(msg); err != nil {
		s.cfg.Logger.Warn("a reply is lost", "verb", verb, "error", err)
	}
}

// refuse makes msg the reply of a request that failed.
func (s *Service) refuse(verb string, msg *nats.Msg, err error) {
	e := api.ErrorOf(err)
	if e.Code == api.CodeUnavailable {
		s.cfg.Logger.Warn("a request failed", "verb", verb, "error", err)
	}
	body, err := json.Marshal(api.ErrorBody{Error: e})
	if err != nil {
		body = []byte(`{"error": {"code": "unavailable", "message": "the error cannot be written"}}`)
	}
	msg.Data = body
	msg.Header.Set(subjects.HeaderServiceErrorCode, strconv.Itoa(api.Status(e.Code)))
	msg.Header.Set(subjects.HeaderServiceError, e.Code)
}

var release = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)`)

// semver is a version as NATS wants it; that of a build that is no release is 0.0.0.
func semver(version string) string {
	if m := release.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0"
}
