package guarantees

import (
	"testing"
	"time"

	"github.com/pointsman/pointsman/integration/cluster"
)

// TestGuarantee3_NoParkedInstanceSleepsOnItsSignal: signals meet instances that park, under everything that may come between a delivery, a park
// and a wake: workers that die or stand still, a database that crashes, pokes that are lost with their NATS server.
func TestGuarantee3_NoParkedInstanceSleepsOnItsSignal(t *testing.T) {
	t.Parallel()
	a := newArena(t, cluster.Config{Bridges: 2, Workers: 2}, "pack", "ticks", "family", "deadline")
	end := a.begin()
	a.played(10)
	a.during(a.Kill(a.ctx, a.Workers()[0]))(func() { a.played(5) })
	a.during(a.Pause(a.ctx, a.Workers()[1]))(a.while(4 * time.Second))
	a.during(a.Kill(a.ctx, a.Primary()))(func() {})
	a.played(5)
	a.during(a.Kill(a.ctx, a.NATS()[0]))(func() {})
	a.during(a.Refuse(a.ctx, a.Workers()[0], a.NATS()...))(func() { a.played(5) })
	a.played(10)
	end()
	a.settled()
}
