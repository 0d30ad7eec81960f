package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWholePath sends 20,000 messages of 1,000 orders through two bridges and two workers, and kills one of each in the middle.
// Every distinct message counts once, however often and in whatever order it comes; poison ends in the dead letters; every order
// ends once and says so once.
func TestWholePath(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	sh := newShop(s, uint64(time.Now().UnixNano()), 1000, 17)
	config, err := filepath.Abs("../examples/orders/pointsman.yaml")
	s.must(err)
	if _, err := os.Stat(config); err != nil {
		t.Fatal(err)
	}
	bridge := func(name string) *process { return s.start(name, "bridge", "--config", config) }
	worker := func(name string) *process { return s.start(name, ordersWorker, "-lease", "10s") }

	bridges := []*process{bridge("bridge 1"), bridge("bridge 2")}
	workers := []*process{worker("worker 1"), worker("worker 2")}
	now, later := sh.script()
	begin := time.Now()
	third := len(now) / 3
	sh.publish(now[:third])
	workers[0].kill()
	bridges[0].kill()
	sh.publish(now[third : 2*third])
	workers[0], bridges[0] = worker("worker 3"), bridge("bridge 3")
	sh.publish(now[2*third:])
	sh.outsideWindow()
	sh.publish(later)
	sh.settled(patience)
	t.Logf("%d messages, %d of them again later, %d poison, settled %.1f s after the first", sh.sent, len(later), len(sh.poison), time.Since(begin).Seconds())
	for _, route := range []string{"placed", "items", "payments"} {
		s.must(s.start("audit of "+route, "pointsman", "audit", "--config", config, "--route", route).wait(patience))
	}

	for _, p := range append(bridges, workers...) {
		if err := p.stop(patience); err != nil {
			t.Error(err)
		}
	}
}
