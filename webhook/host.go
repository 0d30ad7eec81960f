package webhook

import (
	"time"

	"github.com/sony/gobreaker/v2"
)

// breakAfter is how many failures in a row make a sender leave a host alone.
const breakAfter = 10

// host is a receiver, or many behind one name and port. There is one while something is on its way to it, and while it fails.
type host struct {
	name    string
	sending int
	full    bool      // there may be more for it than there was room for
	failing time.Time // since when it has done nothing else; zero: it does not
	seen    time.Time // when it last was sent something
	told    bool      // the log knows that it is left alone
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
}

func (s *Sender) newHost(name string) *host {
	return &host{name: name, breaker: newBreaker(s.cfg.breakFor)}
}

func newBreaker(open time.Duration) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1, Timeout: open, IsExcluded: isCutOff,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakAfter },
	})
}

// room is how many attempts the host may have beside those that it has: one at a time while it fails, so that it holds up no others.
func (h *host) room() int {
	switch state := h.breaker.State(); {
	case state == gobreaker.StateOpen:
		return 0
	case state == gobreaker.StateHalfOpen || !h.failing.IsZero():
		return max(0, 1-h.sending)
	}
	return max(0, perHost-h.sending)
}

// heard takes what an attempt says of the host: err is no or a bad answer, and nil any other, also one that refuses the webhook.
func (s *Sender) heard(h *host, answered func(error), err error) {
	answered(err)
	switch {
	case isCutOff(err):
	case err == nil:
		h.failing = time.Time{}
		if h.told {
			s.log.Info("webhooks: a host answers again", "host", h.name)
			h.breaker = newBreaker(s.cfg.breakFor) // an answer to an older attempt counts too
			s.unmark(h)
		}
	default:
		if h.failing.IsZero() {
			h.failing = time.Now()
		}
		if !h.told && h.breaker.State() == gobreaker.StateOpen {
			h.told = true
			s.metrics.failing.Inc()
			s.log.Warn("webhooks: a host fails, and is tried with one at a time", "host", h.name, "error", err)
		}
	}
	if h.full {
		h.full, s.wanted = false, true
	}
	if h.sending == 0 && h.failing.IsZero() {
		delete(s.hosts, h.name)
	}
}

// unmark a host that was said to fail.
func (s *Sender) unmark(h *host) {
	if h.told {
		h.told = false
		s.metrics.failing.Dec()
	}
}
