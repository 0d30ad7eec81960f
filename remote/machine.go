package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// DefaultTimeout is how long an answer may take where [Config] does not say.
const DefaultTimeout = 30 * time.Second

// Config of a [Machine]. Conn, Subjects, Name and Start are required.
type Config struct {
	Conn     *nats.Conn // stays the caller's
	Subjects subjects.Space
	Name     string
	Version  int    // zero: 1
	Start    string // the first step
	Queue    string // of instances whose start names none; zero: engine.DefaultQueue

	Timeout time.Duration // how long an answer may take; zero: DefaultTimeout
	Retry   engine.RetryPolicy
	Logger  *slog.Logger // zero: slog.Default
}

func (cfg Config) check() error {
	switch {
	case cfg.Conn == nil:
		return errors.New("no Conn")
	case cfg.Subjects == subjects.Space{}:
		return errors.New("no Subjects: make them with subjects.New")
	case cfg.Timeout < 0:
		return fmt.Errorf("a time-out of %s: want more than 0", cfg.Timeout)
	}
	return checkStep("start", cfg.Start)
}

// Machine makes an engine machine of the configuration. It asks nobody yet: a service may come and go.
func Machine(cfg Config) (*engine.Machine, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("remote machine %q: %w", cfg.Name, err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &service{conn: cfg.Conn, space: cfg.Subjects, machine: cfg.Name, timeout: cfg.Timeout, log: cfg.Logger}
	return engine.Define(engine.Definition[json.RawMessage]{Name: cfg.Name, Version: cfg.Version, Start: cfg.Start, Queue: cfg.Queue, Any: s.step, Retry: cfg.Retry})
}

// checkStep: a name of a step has to make a subject, which it does not with an empty token in it.
func checkStep(field, step string) error {
	if err := subjects.ValidSubject(step); err != nil {
		return &engine.InvalidError{Field: field, Reason: err.Error()}
	}
	return ident.Name(field, step)
}

// service is whoever answers the steps of one machine.
type service struct {
	conn    *nats.Conn
	space   subjects.Space
	machine string
	timeout time.Duration
	log     *slog.Logger
	missing atomic.Bool  // nobody answered the last request
	wrongAt atomic.Int64 // when a bad answer was logged last, in unix nanoseconds
}

// awayDelay is after how long a step is tried again that could not be asked for because NATS is away.
const awayDelay = 2 * time.Second

// step asks for one execution of a step.
func (s *service) step(ctx context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
	if err := checkStep("step", v.Instance.Step); err != nil {
		return engine.Outcome{}, engine.Terminal(err)
	}
	msg, err := s.request(v)
	if err != nil {
		return engine.Outcome{}, err
	}
	reply, err := s.ask(ctx, msg)
	if err != nil && !s.conn.IsConnected() {
		// An outage is no fault of the step: run it again, uncounted.
		return engine.Replay(awayDelay), nil
	}
	if err != nil {
		return engine.Outcome{}, err
	}
	o, err := s.outcome(reply, v)
	s.noteWrong(reply, err)
	return o, err
}

// ask returns the answer to a request, or why there is none.
func (s *service) ask(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := s.conn.RequestMsgWithContext(ctx, msg)
	s.noteMissing(msg.Subject, errors.Is(err, nats.ErrNoResponders))
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no service answers %s", msg.Subject)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer from %s within %s", msg.Subject, s.timeout)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("the request to %s has %d bytes, and the NATS server takes %d: make state and payloads smaller, or raise max_payload",
			msg.Subject, len(msg.Data), s.conn.MaxPayload())
	default:
		return nil, fmt.Errorf("request to %s: %w", msg.Subject, err)
	}
}

// noteWrong logs a bad answer, but not more than one a minute: a service that answers one step wrongly does so often.
func (s *service) noteWrong(reply *nats.Msg, err error) {
	var wrong *badAnswer
	if !errors.As(err, &wrong) {
		return
	}
	now, last := time.Now().UnixNano(), s.wrongAt.Load()
	if now-last > int64(time.Minute) && s.wrongAt.CompareAndSwap(last, now) {
		s.log.Warn("a service answers a step wrongly", "machine", s.machine, "subject", wrong.subject, "error", wrong.err, "answer", show(reply.Data))
	}
}

// noteMissing logs when a service goes missing, and when it is back, once each.
func (s *service) noteMissing(subject string, missing bool) {
	switch was := s.missing.Swap(missing); {
	case missing && !was:
		s.log.Warn("no service answers the steps of a machine", "machine", s.machine, "subject", subject)
	case was && !missing:
		s.log.Info("the steps of a machine are answered again", "machine", s.machine, "subject", subject)
	}
}
