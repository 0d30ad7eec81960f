package bridge

import (
	"testing"
	"time"
)

// throttled waits until the latest bridge has this reason.
func (b *bundle) throttled(want string) {
	b.Helper()
	b.eventually("throttled: "+want, func() bool { return b.bridge.Throttle("orders") == want })
}

// An inbox that is slow is told from one that is away, and from a consumer whose messages are all out.
func TestThrottle(t *testing.T) {
	for name, with := range map[string]struct {
		route  func(*Route)
		change func(*route)
		reason string
	}{
		"slow": {func(r *Route) { r.Batch.Size = 2 }, func(rt *route) { rt.ackWait = time.Second }, throttleSlow},
		"full": {func(*Route) {}, func(rt *route) { rt.maxAckPending = 3 }, throttleFull},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, "a")
			gate := make(chan struct{})
			b.inbox.gate = gate
			r := b.orders()
			with.route(&r)
			b.runWith(b.watchful(r), func(b *Bridge) { with.change(b.routes[0].route) })
			b.throttled("")
			b.publishN(10)
			b.throttled(with.reason)
			b.inbox.do(func() { b.inbox.gate = nil })
			close(gate)
			b.signals(10)
			b.throttled("")
		})
	}
}

// A route that this bridge has not has no reason.
func TestThrottleOfNoRoute(t *testing.T) {
	b := setup(t)
	b.run(b.config())
	if got := b.bridge.Throttle("orders"); got != "" {
		t.Errorf("got %q", got)
	}
}
