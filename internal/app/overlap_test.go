package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
)

// Each route reads every message that its filter selects, whatever others read. What two of them make of one message are two signals where
// these are for two instances, or have dedup keys of their own; for one instance one dedup key is one signal.
func TestRoutesThatReadTheSameMessages(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	server := natstest.Start(t)
	server.Stream(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	js := server.JetStream(t)
	for _, key := range []string{"buyer", "seller"} {
		if _, err := k.Start(t.Context(), engine.NewInstance{Machine: "m", CorrelationKey: key, Queue: "nobodys"}); err != nil {
			t.Fatal(err)
		}
	}
	yaml := "signals_route: false\nhttp: {addr: \"127.0.0.1:0\"}\ndatabase: {url: \"" + k.database + "\"}\nnats: {url: \"" + server.URL + "\"}\nroutes:\n"
	for _, r := range []string{
		`name: buyer, subject: orders.paid, signal: paid, correlation_key: buyer`,
		`name: seller, subject: "orders.*", signal: paid, correlation_key: seller`,
		`name: own, subject: "*.paid", signal: booked, correlation_key: buyer, dedup_key: "booked-{{headers['Nats-Msg-Id']}}"`,
		`name: again, subject: "orders.>", signal: paid, correlation_key: buyer`,
	} {
		yaml += "  - {stream: ORDERS, " + r + "}\n"
	}
	for n := range 3 {
		if _, err := js.Publish(t.Context(), "orders.paid", []byte(`{}`), jetstream.WithMsgID(fmt.Sprint("m", n))); err != nil {
			t.Fatal(err)
		}
	}
	stop := runBridge(t, yaml)
	for _, route := range []string{"buyer", "seller", "own", "again"} {
		untilAcked(t, js, route)
	}
	stop()
	for key, want := range map[string]string{"buyer": "booked booked booked paid paid paid", "seller": "paid paid paid"} {
		i, err := k.Get(t.Context(), engine.ByKey("", key))
		if err != nil {
			t.Fatal(err)
		}
		signals, err := k.Inbox(t.Context(), i.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range signals {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %q, want %q", key, got, want)
		}
	}
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := js.Stream(t.Context(), space.DeadLettersStream()); err != nil || s.CachedInfo().State.Msgs != 0 {
		t.Errorf("dead letters: %v", err)
	}

	// Without a dedup key of its own another name is a conflict.
	stop = runBridge(t, yaml+"  - {stream: ORDERS, name: clash, subject: orders.paid, signal: other, correlation_key: buyer}\n")
	untilAcked(t, js, "clash")
	stop()
	s, err := js.Stream(t.Context(), space.DeadLettersStream())
	if err != nil || s.CachedInfo().State.Msgs != 3 {
		t.Fatalf("dead letters: %v", err)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil || !strings.HasPrefix(m.Header.Get(subjects.HeaderReason), subjects.ReasonConflict) {
		t.Errorf("dead letter %v, %v", m, err)
	}
}
