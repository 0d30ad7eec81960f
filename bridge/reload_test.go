package bridge

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pointsman/pointsman/engine"
)

// reload and check what it says it did.
func (b *bundle) reload(want Reloaded, routes ...Route) {
	b.Helper()
	change, err := b.bridge.Reload(routes, true)
	if err != nil {
		b.Fatal(err)
	}
	if !reflect.DeepEqual(change, want) {
		b.Errorf("change %+v, want %+v", change, want)
	}
}

// named is a route of ORDERS that reads one subject.
func named(name string) Route {
	r := ordersRoute()
	r.Name, r.Subjects = name, []string{"orders." + name}
	return r
}

func TestReload(t *testing.T) {
	b := setup(t, "a")
	b.stream("ORDERS", "orders.>")
	b.run(b.config(named("kept"), named("gone"), named("changed")))
	b.ready()
	untouched := b.bridge.routes[0]
	for i, subject := range []string{"orders.kept", "orders.gone", "orders.changed"} {
		b.publish(subject, fmt.Sprintf(`{"key":"a","n":%d}`, i))
	}
	b.signals(3)

	other := named("changed")
	other.Signal = "other"
	b.reload(Reloaded{Added: []string{"new"}, Changed: []string{"changed"}, Removed: []string{"gone"}}, named("kept"), other, named("new"))
	b.ready()
	if b.bridge.routes[0] != untouched {
		t.Error("a route that is the same was started anew")
	}
	for i, subject := range []string{"orders.kept", "orders.gone", "orders.changed", "orders.new"} {
		b.publish(subject, fmt.Sprintf(`{"key":"a","n":%d}`, 10+i))
	}
	b.signals(6)
	b.inbox.mu.Lock()
	if !slices.ContainsFunc(b.inbox.signals, func(i engine.Intake) bool { return i.Name == "other" && string(i.Payload) == `{"key":"a","n":12}` }) {
		t.Errorf("the changed route does not run: %v", b.inbox.payloads())
	}
	b.inbox.mu.Unlock()

	// Its consumer keeps the place of a route that is gone, so that it goes on from there when it is back.
	if n := testutil.CollectAndCount(b.bridge.metrics.pending); n != 3 {
		t.Errorf("%d routes have gauges, want 3", n)
	}
	b.reload(Reloaded{Added: []string{"gone"}, Removed: []string{"changed", "kept", "new"}}, named("gone"))
	b.signals(7)
	b.acked("ORDERS", "pointsman-gone", 5)
	b.counted("gone", fateDuplicate, 0)
}

// A reload of the same routes, also with their defaults written out, touches none.
func TestReloadOfTheSame(t *testing.T) {
	b := setup(t)
	b.run(b.config(b.orders()))
	same := ordersRoute()
	same.MaxDeliver, same.Format, same.OnMissing = 10, FormatJSON, engine.MissingHold
	b.reload(Reloaded{}, same)
}

func TestReloadRefused(t *testing.T) {
	b := setup(t, "a")
	b.run(b.config(b.orders()))
	b.ready()
	broken := named("new")
	broken.Signal = "{{payload."
	if _, err := b.bridge.Reload([]Route{broken}, false); err == nil || !strings.Contains(err.Error(), `routes[0] "new": signal: column`) {
		t.Errorf("error %v", err)
	}
	if err := b.bridge.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
}

// A route that is stopped while its batch is being taken in settles it first, and its successor waits for that.
func TestReloadDrains(t *testing.T) {
	b := setup(t, "a")
	b.inbox.gate = make(chan struct{})
	cfg := b.config(b.orders())
	read := reads(&cfg)
	b.run(cfg)
	b.publish("orders.paid", `{"key":"a"}`)
	b.eventually("the message is in hand", func() bool { return read() == 1 })
	other := ordersRoute()
	other.Signal = "other"
	done := make(chan struct{})
	go func() { defer close(done); b.reload(Reloaded{Changed: []string{"orders"}}, other) }()
	b.eventually("the successor is there", func() bool {
		b.bridge.mu.Lock()
		defer b.bridge.mu.Unlock()
		return b.bridge.routes[0].route.Signal == "other"
	})
	select {
	case <-done:
		t.Error("did not wait for what is in hand")
	default:
	}
	close(b.inbox.gate)
	<-done
	b.signals(1)
	b.acked("ORDERS", "pointsman-orders", 1)
	b.publish("orders.paid", `{"key":"a","n":2}`)
	b.signals(2)
	if b.inbox.signals[1].Name != "other" {
		t.Errorf("got %q of the route before", b.inbox.signals[1].Name)
	}
}

// What a route that is gone could not do is not the bridge's trouble any more.
func TestReloadEndsTrouble(t *testing.T) {
	b := setup(t, "a")
	b.inbox.err = errors.New("connection refused")
	b.run(b.config(b.orders()))
	b.publish("orders.paid", `{"key":"a"}`)
	b.eventually("trouble", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.Contains(err.Error(), "connection refused")
	})
	b.reload(Reloaded{Removed: []string{"orders"}})
	if err := b.bridge.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	b.inbox.do(func() { b.inbox.err = nil })
	b.reload(Reloaded{Added: []string{"orders"}}, ordersRoute())
	b.signals(1)
}

// Routes that are added, changed and removed while messages flow lose none and take none in twice, and disturb no other route.
func TestReloadUnderTraffic(t *testing.T) {
	b := setup(t, "a")
	b.stream("ORDERS", "orders.>")
	b.run(b.config(named("kept"), named("flapping")))
	const n = 300
	var publishing sync.WaitGroup
	for _, name := range []string{"kept", "flapping"} {
		publishing.Go(func() {
			for i := range n {
				if _, err := b.js.Publish(b.Context(), "orders."+name, fmt.Appendf(nil, `{"key":"a","n":"%s-%d"}`, name, i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	changed := named("flapping")
	for i := range 12 {
		b.inboxHas("some more", func() bool { return len(b.inbox.signals) >= 20*i })
		changed.Batch.Size = 100 + i%3
		routes := []Route{named("kept"), changed}
		if i%4 == 3 {
			routes = routes[:1]
		}
		if _, err := b.bridge.Reload(routes, true); err != nil {
			t.Fatal(err)
		}
	}
	publishing.Wait()
	if _, err := b.bridge.Reload([]Route{named("kept"), changed}, true); err != nil {
		t.Fatal(err)
	}
	b.signals(2 * n)
	b.acked("ORDERS", "pointsman-kept", n)
	b.acked("ORDERS", "pointsman-flapping", n)
	for _, f := range []fate{fateDuplicate, fateRetried} {
		b.counted("kept", f, 0)
	}
	b.counted("kept", fateDelivered, n)
}

func TestReloadBeforeAndAfterRun(t *testing.T) {
	b := setup(t, "a")
	b.stream("ORDERS", "orders.>")
	stop := b.runWith(b.config(named("first"), named("second")), func(br *Bridge) {
		b.bridge = br
		other := named("second")
		other.Signal = "other"
		b.reload(Reloaded{Added: []string{"third"}, Changed: []string{"second"}, Removed: []string{"first"}}, other, named("third"))
		if err := br.Ready(); err == nil || !strings.Contains(err.Error(), "route second: is starting") || strings.Contains(err.Error(), "first") {
			t.Errorf("ready: %v", err)
		}
	})
	b.publish("orders.second", `{"key":"a"}`)
	b.signals(1)
	stop()
	b.reload(Reloaded{Added: []string{"first"}, Removed: []string{"second", "third"}}, named("first"))
}
