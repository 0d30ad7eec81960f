package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// Validator asks a service for the verdict on an update: whoever answers <prefix>.validate.<machine>.<update>. Nobody there, no answer
// within the time-out and an answer that is none are failures of the validator, so that nothing is delivered. A time-out of 0 is that of
// the context.
func Validator(conn *nats.Conn, space subjects.Space, machine, update string, timeout time.Duration) engine.Validator {
	subject := space.Validate(machine, update)
	return func(ctx context.Context, arg json.RawMessage) error {
		if err := subjects.ValidSubject(subject); err != nil {
			return fmt.Errorf("no service can answer for it: %w", err)
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		reply, err := conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: arg})
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return fmt.Errorf("no service answers %s", subject)
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("no answer from %s in time", subject)
		case errors.Is(err, nats.ErrMaxPayload):
			return fmt.Errorf("the argument has %d bytes, and the NATS server takes %d", len(arg), conn.MaxPayload())
		case err != nil:
			return fmt.Errorf("request to %s: %w", subject, err)
		}
		return verdict(subject, reply)
	}
}

// Validators is [Validator] for whatever update, as engine.Config.AskValidator wants it.
func Validators(conn *nats.Conn, space subjects.Space) func(machine, update string) engine.Validator {
	return func(machine, update string) engine.Validator { return Validator(conn, space, machine, update, 0) }
}

// verdict reads an answer: {} accepts, {"reason": "…"} refuses, {"error": "…"} is a failure.
func verdict(subject string, msg *nats.Msg) error {
	if err := serviceError(subject, msg); err != nil {
		return err
	}
	if err := ident.JSON("the answer", msg.Data, maxAnswer); err != nil {
		return bad(subject, err)
	}
	var err error
	a := newObject("", msg.Data, &err)
	if a.isAck() {
		return bad(subject, fmt.Errorf("it is the ack of stream %s, which stores the requests: no stream may have %s", show(a.fields["stream"]), subject))
	}
	reason, failure := a.text("reason"), a.text("error")
	a.close("a verdict")
	switch {
	case err != nil:
		return bad(subject, err)
	case failure != "":
		return errors.New(failure)
	case reason != "":
		return engine.Refuse(reason)
	}
	return nil
}

func serviceError(subject string, msg *nats.Msg) error {
	if text := msg.Header.Get(subjects.HeaderServiceError); text != "" || msg.Header.Get(subjects.HeaderServiceErrorCode) != "" {
		return fmt.Errorf("service error %s from %s: %s", msg.Header.Get(subjects.HeaderServiceErrorCode), subject, text)
	}
	return nil
}

// ValidatorsConfig of [ServeValidators]. Conn, Subjects and Client are required.
type ValidatorsConfig struct {
	Conn            *nats.Conn // stays the caller's
	Subjects        subjects.Space
	Client          *engine.Client
	Machines        []string      // whose validators are served; nil: all that the client has
	ShutdownTimeout time.Duration // for what is in work when it is stopped; zero: 30s
	Logger          *slog.Logger  // zero: slog.Default
}

// maxValidating is how many validators one process runs at once; more requests wait.
const maxValidating = 256

// flushTimeout is how long the server may take to know of the subscriptions.
const flushTimeout = 10 * time.Second

// validatorsQueue is the queue group of all programs that have the same validators.
const validatorsQueue = "pointsman-validators"

// ValidatorService answers for the validators of a client.
type ValidatorService struct {
	cfg     ValidatorsConfig
	work    context.Context
	cancel  context.CancelFunc
	subs    []*nats.Subscription
	slots   chan struct{}
	drained sync.WaitGroup // subscriptions
	working sync.WaitGroup
}

// ServeValidators begins to answer requests for the verdicts of a client's validators, those that are registered when it is called: by
// [engine.NewWorker] for its machines, or with [engine.Client.Validate]. So a bridge, or another program that has [Validators], asks those
// that are Go code here. Call it before [engine.Worker.Run], which makes known that they are there, and stop it after that.
func ServeValidators(cfg ValidatorsConfig) (*ValidatorService, error) {
	if cfg.Conn == nil || cfg.Client == nil || cfg.Subjects == (subjects.Space{}) {
		return nil, errors.New("serve validators: Conn, Subjects and Client are required")
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &ValidatorService{cfg: cfg, slots: make(chan struct{}, maxValidating)}
	s.work, s.cancel = context.WithCancel(context.Background())
	if err := s.subscribe(); err != nil {
		return nil, errors.Join(fmt.Errorf("serve validators: %w", err), s.Stop())
	}
	return s, nil
}

func (s *ValidatorService) subscribe() error {
	for machine, updates := range s.cfg.Client.Validators() {
		if s.cfg.Machines != nil && !slices.Contains(s.cfg.Machines, machine) {
			continue
		}
		for _, update := range updates {
			subject := s.cfg.Subjects.Validate(machine, update)
			if err := subjects.ValidSubject(subject); err != nil {
				return fmt.Errorf("update %q: %w", update, err)
			}
			sub, err := s.cfg.Conn.QueueSubscribe(subject, validatorsQueue, func(m *nats.Msg) {
				s.slots <- struct{}{}
				s.working.Go(func() {
					defer func() { <-s.slots }()
					s.answer(machine, update, m)
				})
			})
			if err != nil {
				return fmt.Errorf("%s: %w", subject, err)
			}
			s.drained.Add(1)
			sub.SetClosedHandler(func(string) { s.drained.Done() })
			s.subs = append(s.subs, sub)
		}
	}
	ctx, cancel := context.WithTimeout(s.work, flushTimeout)
	defer cancel()
	if err := s.cfg.Conn.FlushWithContext(ctx); err != nil && s.cfg.Conn.IsConnected() {
		return err
	}
	return nil // where NATS is away they are made when it is back
}

// Stop takes no more requests, and returns when those that are here are answered, within ShutdownTimeout.
func (s *ValidatorService) Stop() (err error) {
	defer s.cancel()
	for _, sub := range s.subs {
		if e := sub.Drain(); e != nil && !errors.Is(e, nats.ErrConnectionClosed) && !errors.Is(e, nats.ErrBadSubscription) {
			err = errors.Join(err, fmt.Errorf("stop validators: %w", e))
		}
	}
	answered := make(chan struct{})
	go func() { s.drained.Wait(); s.working.Wait(); close(answered) }()
	select {
	case <-answered:
		return err
	case <-time.After(s.cfg.ShutdownTimeout):
		return errors.Join(err, fmt.Errorf("stop validators: some did not decide within %s", s.cfg.ShutdownTimeout))
	}
}

func (s *ValidatorService) answer(machine, update string, m *nats.Msg) {
	var says struct {
		Reason string `json:"reason,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	err := ident.JSON("arg", m.Data, ident.MaxJSON)
	if err == nil {
		err = s.cfg.Client.Judge(s.work, machine, update, m.Data)
	}
	var refused *engine.RefusedError
	var failed *engine.ValidatorError
	switch {
	case errors.As(err, &refused):
		says.Reason = refused.Reason
	case errors.As(err, &failed):
		says.Error = failed.Err.Error()
	case err != nil:
		says.Error = err.Error()
	}
	body, err := ident.Encode(says)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		s.cfg.Logger.Warn("a verdict is lost: who asked is told that nobody answered", "machine", machine, "update", update, "error", err)
	}
}
