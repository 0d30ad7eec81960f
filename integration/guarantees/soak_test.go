package guarantees

import (
	"os"
	"testing"
	"time"

	"github.com/pointsman/pointsman/integration/cluster"
)

// all are the stories of a nemesis.
var all = []string{"pack", "ticks", "deadline", "family", "brood", "expense", "notice", "lanes", "solo", "garbage", "slow", "probe"}

// TestNemesis plays all stories under one fault after another, chosen by a seed that is printed: with it the same faults come again.
func TestNemesis(t *testing.T) {
	t.Parallel()
	cfg := cluster.Config{Bridges: 2, Workers: 2}
	a := newArena(t, cfg, all...)
	a.workload.Players = 2
	began := time.Now()
	r := a.rampage(cfg, a.workload.Seed, func(struck int) bool { return struck < orLess(15) && time.Since(began) < time.Minute })
	r.write(t)
}

const (
	soakVariable    = "POINTSMAN_SOAK"         // how long; without it there is no soak
	backendVariable = "POINTSMAN_SOAK_BACKEND" // containers or processes
)

// TestSoak is TestNemesis for as long as it is told, on everything that a cluster can be made of: make soak DURATION=30m.
func TestSoak(t *testing.T) {
	text := os.Getenv(soakVariable)
	if text == "" {
		t.Skipf("soak: set %s to how long, as 30m", soakVariable)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", soakVariable, err)
	}
	cfg := cluster.Config{Backend: cluster.Backend(os.Getenv(backendVariable)), NATS: 3, Standby: true, Bridges: 2, Workers: 3}
	a := newArena(t, cfg, all...)
	a.workload.Players = 2
	began := time.Now()
	r := a.rampage(cfg, a.workload.Seed, func(int) bool { return time.Since(began) < d })
	r.write(t)
}
