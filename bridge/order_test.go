package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func (b *bundle) ordered() Route {
	b.Helper()
	r := b.orders()
	r.Ordered, r.Batch.Size = true, 20
	return r
}

// impatient makes unacked messages come again soon.
func impatient(b *Bridge) {
	for _, c := range b.routes {
		c.route.ackWait = 2 * time.Second
	}
}

// inOrder waits for n signals, and wants them once each and in the order of the stream.
func (b *bundle) inOrder(n int) {
	b.Helper()
	b.signals(n)
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf(`{"key":"a","n":%d}`, i))
	}
	if got := b.inbox.payloads(); !slices.Equal(got, want) {
		b.Errorf("out of order: %v", got)
	}
}

func (b *bundle) publishFrom(from, to int) {
	b.Helper()
	for i := from; i < to; i++ {
		b.publish("orders.paid", fmt.Sprintf(`{"key":"a","n":%d}`, i))
	}
}

// takeOver gives the latest bridge the route, as if the time of who holds it were over.
func (b *bundle) takeOver() {
	owner := b.bridge.routes[0].owner
	b.journal.do(func() { b.journal.owner, b.journal.epoch = owner, b.journal.epoch+1 })
}

// A bridge that stands still with messages in hand loses its route. The next one waits for these before it goes on with later ones, and
// what the first one does when it wakes up is refused.
func TestOrderedTakeover(t *testing.T) {
	b := setup(t, "a")
	still := make(chan struct{})
	b.inbox.gates = map[int64]chan struct{}{1: still}
	r := b.ordered()
	b.inbox.epoch = 1
	b.runWith(b.config(r), impatient)
	b.publishFrom(0, 50)
	b.eventually("messages in hand", func() bool {
		c, err := b.js.Consumer(t.Context(), "ORDERS", "pointsman-orders")
		return err == nil && c.CachedInfo().NumAckPending >= 15
	})
	first := b.bridge
	second := b.config(r)
	b.runWith(second, impatient)
	b.inbox.do(func() { b.inbox.epoch = 2 })
	b.takeOver()
	b.publishFrom(50, 100)
	b.eventually("the first has noticed", func() bool { return strings.Contains(b.log.String(), "an ordered route is another bridge's now") })
	close(still)
	b.inOrder(100)
	b.acked("ORDERS", "pointsman-orders", 100)
	b.eventually("the first stands by", func() bool { return first.Ready() == nil })
}

// A bridge whose inbox does not answer loses its route. Then it stands by, and is as ready as any that does.
func TestOrderedStandsByAfterTrouble(t *testing.T) {
	b := setup(t, "a")
	b.inbox.epoch = 1
	b.inbox.err = errors.New("away")
	b.runWith(b.config(b.ordered()), impatient)
	b.publishFrom(0, 20)
	first := b.bridge
	b.eventually("trouble", func() bool {
		err := first.Ready()
		return err != nil && strings.Contains(err.Error(), "inbox for route orders")
	})
	b.runWith(b.config(b.ordered()), impatient)
	b.inbox.do(func() { b.inbox.epoch, b.inbox.err = 2, nil })
	b.takeOver()
	b.inOrder(20)
	b.eventually("the first is ready again", func() bool { return first.Ready() == nil })
}

// Some of its messages are given to another client of the consumer, as to a bridge that asked for them before it was killed.
func TestOrderedWhenMessagesGoElsewhere(t *testing.T) {
	b := setup(t, "a")
	b.inbox.epoch = 1
	b.runWith(b.config(b.ordered()), impatient)
	b.publishFrom(0, 10)
	b.signals(10)
	for n := 10; n < 100; n += 10 {
		// It asks before what follows is there, and acks nothing.
		if err := b.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.ORDERS.pointsman-orders", nats.NewInbox(), []byte(`{"batch":3,"expires":1000000000}`)); err != nil {
			t.Fatal(err)
		}
		b.publishFrom(n, n+10)
	}
	b.inOrder(100)
	b.acked("ORDERS", "pointsman-orders", 100)
}

// Of two bridges one reads; when it stops the other goes on at once.
func TestOrderedStandby(t *testing.T) {
	b := setup(t, "a")
	b.inbox.epoch = 1
	r := b.ordered()
	stop := b.runWith(b.config(r), impatient)
	b.publishFrom(0, 10)
	b.signals(10)
	b.runWith(b.config(r), impatient)
	b.ready() // it stands by
	b.inbox.do(func() { b.inbox.epoch = 2 })
	b.publishFrom(10, 15)
	stop()
	b.publishFrom(15, 30)
	b.inOrder(30)
}

func TestOrderedNeedsItsOwnConsumer(t *testing.T) {
	t.Parallel()
	r := ordersRoute()
	r.Ordered, r.Existing = true, "theirs"
	if err := r.check(); err == nil || !strings.Contains(err.Error(), "leave consumer.existing out") {
		t.Errorf("got %v", err)
	}
}
