package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"code.dny.dev/ssrf"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/engine"
)

// MaxAttempts is how often a webhook is sent, retries by an operator aside.
const MaxAttempts = 5

const (
	window       = 256              // attempts at once
	perHost      = 8                // of them for one host
	claimMargin  = 30 * time.Second // beside the time-out: how long what a killed sender had stays away from the others
	idlePoll     = time.Second      // what no poke told of is sent at most so late
	finalRecord  = 5 * time.Second  // for the results of the last attempts
	giveUpEvery  = 10 * time.Second //
	giveUpAfter  = time.Hour        // of failures, and nothing else: what has been due for as long fails too
	defaultLimit = 10 * time.Second
)

// Config of a [Sender]. Deliveries is required.
type Config struct {
	Deliveries engine.Webhooks
	// Secrets sign, each of them: base64, "whsec_" before it or not. None: webhooks go out unsigned.
	Secrets []string
	// AllowPrivate lets webhooks go to addresses that are not of the public internet.
	AllowPrivate bool
	// Timeout is for one attempt, from the name's resolution to the headers of the answer; zero: 10s.
	Timeout         time.Duration
	ShutdownTimeout time.Duration // for attempts that are under way when Run is told to stop; zero: 30s
	UserAgent       string        // zero: "pointsman"
	Logger          *slog.Logger  // zero: slog.Default
	Metrics         prometheus.Registerer

	breakFor time.Duration  // how long a host that fails is left alone; zero: 5s
	guard    *ssrf.Guardian // of addresses; nil: as AllowPrivate says
	names    *net.Resolver  // nil: the machine's
}

// Sender sends webhooks. Make it with [New].
type Sender struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	signer  signer
	client  *http.Client

	poked   chan struct{}
	results chan result

	// Of the loop alone.
	hosts    map[string]*host
	sending  int // attempts
	attempts sync.WaitGroup
	done     []engine.DeliveryResult // to be recorded
	after    string                  // where claims go on
	wanted   bool                    // something may be due
	giveUpAt time.Time
	trouble  bool // Postgres is away
}

// New checks the configuration, and talks to nobody.
func New(cfg Config) (*Sender, error) {
	if cfg.Deliveries == nil {
		return nil, errors.New("webhook: Deliveries is required")
	}
	if cfg.Timeout < 0 || cfg.ShutdownTimeout < 0 {
		return nil, errors.New("webhook: Timeout and ShutdownTimeout must not be negative")
	}
	setDefault(&cfg.Timeout, defaultLimit)
	setDefault(&cfg.ShutdownTimeout, 30*time.Second)
	setDefault(&cfg.UserAgent, "pointsman")
	setDefault(&cfg.breakFor, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.guard == nil && !cfg.AllowPrivate {
		cfg.guard = ssrf.New(ssrf.WithAnyPort())
	}
	s := &Sender{
		cfg: cfg, log: cfg.Logger, client: newClient(cfg.guard, cfg.names),
		poked: make(chan struct{}, 1), results: make(chan result, window), hosts: map[string]*host{}, wanted: true,
	}
	var err error
	if s.signer, err = newSigner(cfg.Secrets); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	if s.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	return s, nil
}

func setDefault[T comparable](v *T, def T) {
	if *v == *new(T) {
		*v = def
	}
}

// Poke says that there may be something new to send. It never blocks; correctness does not depend on it.
func (s *Sender) Poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// Run sends until ctx is cancelled. Then it claims no more, lets the attempts that are under way end within ShutdownTimeout, writes down
// what came of them, and returns nil. An attempt that was cut off is made again by another sender. A lost Postgres is waited for.
func (s *Sender) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(s.cfg.ShutdownTimeout, cancel)
		context.AfterFunc(work, func() { timer.Stop() })
	})
	defer stop()
	defer s.client.CloseIdleConnections()

	for ctx.Err() == nil {
		wait, err := s.turn(ctx, work)
		if ctx.Err() == nil {
			s.tell(err)
		}
		s.wait(ctx, wait)
	}
	for s.sending > 0 {
		s.settle(<-s.results) // each is bounded by work
	}
	s.attempts.Wait()
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), finalRecord)
	defer cancelLast()
	if err := s.record(last); err != nil {
		s.log.Warn("webhooks: results are not written down, so these are sent again", "webhooks", len(s.done), "error", err)
	}
	return nil
}

// tell of Postgres, when its trouble begins and when it ends.
func (s *Sender) tell(err error) {
	switch {
	case err != nil && !s.trouble:
		s.log.Warn("not ready", "part", "webhooks", "error", err)
	case err == nil && s.trouble:
		s.log.Info("ready", "part", "webhooks")
	}
	s.trouble = err != nil
}

// turn does what is to be done now, and returns when there is more.
func (s *Sender) turn(ctx, work context.Context) (wait time.Duration, err error) {
	if err := s.record(work); err != nil {
		return idlePoll, fmt.Errorf("record what was sent: %w", err)
	}
	if err := s.giveUp(ctx); err != nil {
		return idlePoll, fmt.Errorf("give up: %w", err)
	}
	wait = idlePoll
	for first := s.after; s.wanted && s.sending < window && ctx.Err() == nil; {
		claimed, err := s.claim(ctx)
		if err != nil {
			return idlePoll, fmt.Errorf("claim: %w", err)
		}
		for _, d := range claimed.Deliveries {
			s.send(work, d)
		}
		s.after = claimed.Next
		if claimed.Next != "" {
			continue
		}
		if claimed.Wait > 0 {
			wait = min(wait, claimed.Wait)
		}
		s.wanted = first != "" // then the hosts before the one that this began at are yet to be looked at
		first = ""
	}
	return wait, nil
}

func (s *Sender) record(ctx context.Context) error {
	if len(s.done) == 0 {
		return nil
	}
	if err := s.cfg.Deliveries.RecordDeliveries(ctx, s.done); err != nil {
		return err
	}
	s.done = s.done[:0]
	return nil
}

func (s *Sender) claim(ctx context.Context) (engine.Claimed, error) {
	room := map[string]int{}
	for name, h := range s.hosts {
		room[name] = h.room()
		h.full = room[name] == 0
	}
	return s.cfg.Deliveries.ClaimDeliveries(ctx, engine.DeliveryClaim{
		After: s.after, PerHost: perHost, Room: room, Limit: window - s.sending, For: s.cfg.Timeout + claimMargin, Idle: idlePoll,
	})
}

// send makes an attempt; its result comes over results.
func (s *Sender) send(work context.Context, d engine.ClaimedDelivery) {
	h := s.hosts[d.Host]
	if h == nil {
		h = s.newHost(d.Host)
		s.hosts[d.Host] = h
	}
	answered, err := h.breaker.Allow()
	if err != nil { // there was room for it, so this is for later rather than for never
		s.done = append(s.done, engine.DeliveryResult{ID: d.ID, Claim: d.Claim, Status: engine.DeliveryPending, Uncounted: true, Delay: idlePoll})
		return
	}
	s.sending++
	h.sending++
	h.seen = time.Now()
	h.full = h.room() == 0
	s.attempts.Go(func() { s.results <- result{delivery: d, host: h, answered: answered, answer: s.attempt(work, d)} })
}

// wait until there is something to do.
func (s *Sender) wait(ctx context.Context, d time.Duration) {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-s.poked:
		s.wanted = true
	case <-pause.C:
		s.wanted = true
	case r := <-s.results:
		s.settle(r)
	}
	for { // what has come in meanwhile is recorded in the same batch
		select {
		case r := <-s.results:
			s.settle(r)
		default:
			return
		}
	}
}

// giveUp what waits for hosts that have done nothing but fail for long. Without that it would wait for ever, as a host that fails gets one
// attempt at a time.
func (s *Sender) giveUp(ctx context.Context) error {
	now := time.Now()
	if now.Before(s.giveUpAt) {
		return nil
	}
	var lost []string
	for name, h := range s.hosts {
		switch {
		case h.failing.IsZero():
		case now.Sub(h.seen) > giveUpAfter && h.sending == 0: // nothing has been due for it
			s.unmark(h)
			delete(s.hosts, name)
		case now.Sub(h.failing) > giveUpAfter:
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		n, err := s.cfg.Deliveries.GiveUpDeliveries(ctx, lost, giveUpAfter, fmt.Sprintf("not sent: the host has failed for more than %s", giveUpAfter))
		if err != nil {
			return err
		}
		s.metrics.deliveries.WithLabelValues(resultFailed).Add(float64(n))
	}
	s.giveUpAt = now.Add(giveUpEvery)
	return nil
}
