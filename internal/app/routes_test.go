package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// A message that one bridge has started an instance for starts none when another bridge, whose route makes another dedup key of it, reads
// the stream again.
func TestAMessageStartsOnceAfterAChangeOfTheRoute(t *testing.T) {
	t.Parallel()
	server, database := natstest.Start(t), pgtest.Database(t)
	server.Stream(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	js := server.JetStream(t)
	for _, key := range []string{"", `, correlation_key: "{{payload.id}}"`} {
		name := fmt.Sprint("route", len(key))
		bridge := func(dedup string) (stop func()) {
			return runBridge(t, "migrate_on_start: true\nhttp: {addr: \"127.0.0.1:0\"}\ndatabase: {url: \""+database+"\"}\nnats: {url: \""+server.URL+"\"}\n"+
				"routes:\n  - {name: "+name+", stream: ORDERS, subject: orders."+name+", start: {machine: "+name+"}, dedup_key: \""+dedup+"\""+key+"}\n")
		}
		if _, err := js.Publish(t.Context(), "orders."+name, []byte(`{"id": "`+name+`"}`)); err != nil {
			t.Fatal(err)
		}
		stop := bridge("first-{{payload.id}}")
		untilAcked(t, js, name)
		stop()
		if err := js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-"+name); err != nil {
			t.Fatal(err)
		}
		stop = bridge("second-{{payload.id}}")
		untilAcked(t, js, name)
		stop()
		if n := instances(t, database, name); n != 1 {
			t.Errorf("%s: %d instances, want 1", name, n)
		}
	}
}

// runBridge runs one until stop is called.
func runBridge(t *testing.T, yaml string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	cfg := parse(t, yaml)
	go func() { done <- RunBridge(ctx, cfg, quiet, func(string) {}) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("bridge: %v", err)
		}
	}
}

// untilAcked waits until the consumer of a route has acked all there is.
func untilAcked(t *testing.T, js jetstream.JetStream, route string) {
	t.Helper()
	last := "no consumer"
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		consumer, err := js.Consumer(t.Context(), "ORDERS", "pointsman-"+route)
		if err != nil {
			continue
		}
		info, err := consumer.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if last = fmt.Sprintf("%+v", info); info.AckFloor.Consumer > 0 && info.NumPending == 0 && info.NumAckPending == 0 {
			return
		}
	}
	t.Fatalf("%s never reads all: %s", route, last)
}

func instances(t *testing.T, database, machine string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if err := conn.QueryRow(t.Context(), `select count(*) from pointsman.instances where machine = $1`, machine).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
