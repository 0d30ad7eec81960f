package bridge

import (
	"errors"
	"slices"
)

// Trouble is what keeps a route of this bridge from its work; nil: nothing does.
func (b *Bridge) Trouble(route string) error {
	return b.health.of(partRoute(route), partInbox(route), partDeadLetters(route))
}

// PausedByOperator is what this bridge has last heard of a route.
func (b *Bridge) PausedByOperator(route string) bool {
	paused, _ := b.pauses.is(route, true)
	return paused
}

// Reasons of a [Bridge.Throttle] that are no trouble. The others begin with where the trouble is.
const (
	throttlePausedConfig   = "paused: by the configuration"
	throttlePausedOperator = "paused: by an operator"
	throttleStandby        = "standby: another bridge reads this ordered route"
	throttleFull           = "full: as many messages are delivered and not acked as the consumer allows"
	throttleSlow           = "slow: what was read is not taken in yet, and no more is pulled meanwhile"
)

// Throttle is why this bridge reads nothing of a route at the moment, or more slowly than it could; "": nothing holds it back. What is meant to
// be so comes before trouble: who has paused a route need not look for more.
func (b *Bridge) Throttle(route string) string {
	b.mu.Lock()
	i := slices.IndexFunc(b.routes, func(c *consumer) bool { return c.route.Name == route })
	if i < 0 {
		b.mu.Unlock()
		return ""
	}
	c := b.routes[i]
	b.mu.Unlock()
	switch {
	case c.route.Paused:
		return throttlePausedConfig
	case b.PausedByOperator(route):
		return throttlePausedOperator
	case c.standingBy.Load():
		return throttleStandby
	}
	for _, part := range []struct{ name, key string }{
		{"inbox", partInbox(route)}, {"dead letters", partDeadLetters(route)}, {"stream", partRoute(route)}, {"routes", partPauses},
	} {
		if err := b.health.of(part.key); errors.Is(err, errStarting) {
			return "starting"
		} else if err != nil {
			return part.name + ": " + err.Error()
		}
	}
	switch {
	case c.slow.Load():
		return throttleSlow
	case c.full.Load():
		return throttleFull
	}
	return ""
}
