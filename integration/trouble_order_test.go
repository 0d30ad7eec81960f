package integration

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// ordered is an ordered route under traffic on several subjects, with two bridges.
type ordered struct {
	*stack
	yaml    string
	bridges map[string]*process
	made    int
	sent    atomic.Int64
	quiet   chan struct{} // closed to end the traffic
	done    chan error
}

const orderedSubjects, orderedKeys = 5, 3

func newOrdered(t *testing.T) *ordered {
	t.Helper()
	o := &ordered{stack: newStack(t), bridges: map[string]*process{}, quiet: make(chan struct{}), done: make(chan error, 1)}
	c := o.client(o.databaseURL)
	for key := range orderedKeys {
		o.waiting(c, fmt.Sprint("k", key))
	}
	o.stream("ORDERED")
	o.yaml = "routes:\n" + route("ordered", "ORDERED", ", ordered: true, batch: {size: 100}")
	o.add()
	o.add()
	go func() { o.done <- o.traffic() }()
	return o
}

// add a bridge.
func (o *ordered) add() {
	o.made++
	p, addr := o.bridge(fmt.Sprint("bridge-", o.made), o.yaml)
	o.bridges[addr] = p
}

// traffic publishes some hundred messages a second, whose numbers are those of the stream.
func (o *ordered) traffic() error {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for n := 1; ; n++ {
		subject, body := fmt.Sprint("ordered.", n%orderedSubjects), fmt.Appendf(nil, `{"key": "k%d", "n": %d, "subject": %d}`, n%orderedKeys, n, n%orderedSubjects)
		ack, err := o.js.Publish(o.Context(), subject, body)
		if err != nil {
			return err
		}
		if ack.Sequence != uint64(n) {
			return fmt.Errorf("message %d is number %d of its stream", n, ack.Sequence)
		}
		o.sent.Store(int64(n))
		select {
		case <-o.quiet:
			return nil
		case <-pace.C:
		}
	}
}

// active waits until one of the bridges takes messages in, and returns it.
func (o *ordered) active() (addr string) {
	o.Helper()
	taken := `pointsman_bridge_messages_total{result="delivered",route="ordered"}`
	before := map[string]float64{}
	for a := range o.bridges {
		before[a] = o.metric(a, taken)
	}
	o.until(patience, "a bridge is active", func() (bool, string) {
		for a := range o.bridges {
			if o.metric(a, taken) > before[a] {
				addr = a
			}
		}
		return addr != "", ""
	})
	return addr
}

// more waits until a message is taken in that was not sent when it was called, and says how long that took.
func (o *ordered) more(what string) {
	o.Helper()
	began, sent := time.Now(), o.sent.Load()+1 // one may be on its way
	o.until(patience, what, func() (bool, string) {
		return o.count(`select count(*) from pointsman.v_inbox where (payload->>'n')::int > $1`, sent) > 0, ""
	})
	o.Logf("%s: goes on after %s", what, time.Since(began).Round(time.Millisecond))
}

// kill the active bridge, and put another in its place.
func (o *ordered) killActive() {
	o.Helper()
	addr := o.active()
	o.bridges[addr].kill()
	delete(o.bridges, addr)
	o.more("kill -9")
	o.add()
}

// end the traffic, and look at all that was taken in.
func (o *ordered) end() {
	o.Helper()
	close(o.quiet)
	o.must(<-o.done)
	sent := int(o.sent.Load())
	o.until(patience, fmt.Sprint("all of ", sent, " messages"), func() (bool, string) {
		n := o.count(`select count(*) from pointsman.v_inbox`)
		return n >= sent, fmt.Sprint(n)
	})
	if n, distinct := o.count(`select count(*) from pointsman.v_inbox`), o.count(`select count(distinct payload->>'n') from pointsman.v_inbox`); n != sent || distinct != sent {
		o.Errorf("%d messages were sent, %d signals are there, %d of them distinct", sent, n, distinct)
	}
	violations := o.count(`select count(*) from (
  select (payload->>'n')::int n, lag((payload->>'n')::int) over (partition by correlation_key, payload->>'subject' order by id) before from pointsman.v_inbox) x where n < before`)
	if violations != 0 {
		o.Errorf("%d of %d signals stand after a later one of their subject", violations, sent)
	}
	if letters := len(o.messages("POINTSMAN_DLQ")); letters != 0 {
		o.Errorf("%d dead letters", letters)
	}
	o.Logf("%d messages in order", sent)
	o.audited(o.yaml, "ordered", fmt.Sprint("delivered:", sent))
}

// TestOrderedUnderKills: whoever is active is killed with -9. POINTSMAN_TEST_LONG=1 kills five in a minute.
func TestOrderedUnderKills(t *testing.T) {
	t.Parallel()
	o := newOrdered(t)
	if os.Getenv("POINTSMAN_TEST_LONG") == "" {
		o.killActive()
		o.killActive()
		o.end()
		return
	}
	begin := time.Now()
	for n := range 5 {
		o.killActive()
		next := begin.Add(time.Duration(n+1) * 12 * time.Second)
		o.until(patience, "the next kill is due", func() (bool, string) { return time.Now().After(next), "" })
	}
	o.end()
}

// TestOrderedZombie: the active bridge stands still for longer than the route is its own, and wakes up when another has gone on.
func TestOrderedZombie(t *testing.T) {
	t.Parallel()
	o := newOrdered(t)
	zombie := o.bridges[o.active()]
	o.must(zombie.cmd.Process.Signal(syscall.SIGSTOP))
	o.more("SIGSTOP")
	o.must(zombie.cmd.Process.Signal(syscall.SIGCONT))
	o.more("SIGCONT")
	o.active()
	o.end()
}
