package bridge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func (b *bundle) pause(paused bool) {
	b.journal.do(func() { b.journal.paused["orders"] = paused })
}

// idle waits until nobody asks the route's consumer for messages.
func (b *bundle) idle() {
	b.Helper()
	b.eventually("nobody pulls", func() bool {
		c, err := b.js.Consumer(b.Context(), "ORDERS", "pointsman-orders")
		return err == nil && c.CachedInfo().NumWaiting == 0
	})
}

// All bridges stop reading a paused route, and go on when it is resumed; one that starts meanwhile does not begin.
func TestPausedByAnOperator(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	stop := b.run(b.watchful(r))
	b.run(b.watchful(r))
	b.publishN(10)
	b.signals(10)
	b.pause(true)
	b.idle()
	stop()
	b.run(b.watchful(r))
	b.ready()
	b.publishN(5)
	b.unread(10, 5)
	b.signals(10)
	b.pause(false)
	b.signals(15)
	b.acked("ORDERS", "pointsman-orders", 15)
}

// unread sees that nobody has pulled what came after the message read last. The server counts it in its own time.
func (b *bundle) unread(last, after uint64) {
	b.Helper()
	var info jetstream.ConsumerInfo
	b.eventually(fmt.Sprintf("%d are pending", after), func() bool {
		c, err := b.js.Consumer(b.Context(), "ORDERS", "pointsman-orders")
		if err == nil {
			info = *c.CachedInfo()
		}
		return err == nil && info.Delivered.Stream+info.NumPending == last+after
	})
	if info.Delivered.Stream != last || info.NumWaiting != 0 {
		b.Errorf("%+v", info)
	}
}

// Whoever has paused a route may count on it: what is published then is not read.
func TestPauseIsAnsweredWhenNobodyReads(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	b.run(b.watchful(r))
	b.run(b.watchful(r))
	b.publishN(10)
	b.signals(10)
	if _, err := b.operator(r).Pause(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	b.publishN(5)
	b.unread(10, 5)
}

// A route whose inbox does not answer is no trouble any more when it is paused.
func TestPausedInTrouble(t *testing.T) {
	b := setup(t, "a")
	b.inbox.err = errors.New("away")
	b.run(b.watchful(b.orders()))
	b.publishN(3)
	b.eventually("trouble", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.Contains(err.Error(), "inbox for route orders")
	})
	b.pause(true)
	b.ready()
}

// What is in hand when a route is paused is taken in; what the inbox refused then comes again after the resume.
func TestPauseSettlesWhatIsInHand(t *testing.T) {
	b := setup(t, "a")
	gate := make(chan struct{})
	b.inbox.gate = gate
	cfg := b.watchful(b.orders())
	read := reads(&cfg)
	b.run(cfg)
	b.publishN(3)
	b.eventually("in hand", func() bool { return read() == 3 })
	b.pause(true)
	b.idle()
	b.inbox.do(func() { b.inbox.gate = nil })
	close(gate)
	b.signals(3)
	b.acked("ORDERS", "pointsman-orders", 3)

	b.pause(false)
	b.inbox.do(func() { b.inbox.err = errors.New("away") })
	b.publishN(1)
	b.eventually("refused", func() bool { return strings.Contains(fmt.Sprint(b.bridge.Ready()), "away") })
	b.pause(true)
	b.idle()
	b.inbox.do(func() { b.inbox.err = nil })
	b.pause(false)
	b.publishN(1)
	b.inboxHas("what was refused", func() bool { return len(b.inbox.signals) == 5 })
}

// An ordered route is paused as any other, by the bridge that holds it.
func TestPausedOrdered(t *testing.T) {
	b := setup(t, "a")
	b.inbox.epoch = 1
	cfg := b.config(b.ordered())
	cfg.pace = pace{every: 5 * time.Millisecond, stall: patience, ack: publishTimeout}
	b.runWith(cfg, impatient)
	b.publishFrom(0, 10)
	b.signals(10)
	b.pause(true)
	b.idle()
	b.publishFrom(10, 15)
	b.pause(false)
	b.inOrder(15)
}

// Which routes are paused has to be known before any is read, also one that needs no journal otherwise.
func TestNothingIsReadBeforePausesAreKnown(t *testing.T) {
	b := setup(t, "a")
	b.journal.err = errors.New("connection refused")
	b.run(b.watchful(b.orders()))
	b.publishN(1)
	b.eventually("said", func() bool {
		return strings.Contains(fmt.Sprint(b.bridge.Ready()), "routes: which are paused: connection refused")
	})
	b.journal.do(func() { b.journal.err = nil })
	b.signals(1)
	b.ready()
}
