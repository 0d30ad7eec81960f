package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A parcel goes its way through a bridge, a worker and the example, with the configuration beside it.
func TestParcel(t *testing.T) {
	t.Parallel()
	parcel(t, pgtest.Database(t), config.PoolerNone)
}

func TestParcelBehindPooler(t *testing.T) {
	t.Parallel()
	parcel(t, pgtest.NewBouncer(t, pgtest.Database(t)).URL, config.PoolerTransaction)
}

func parcel(t *testing.T, databaseURL, pooler string) {
	server := natstest.Start(t)
	server.Stream(t, jetstream.StreamConfig{Name: "PARCELS", Subjects: []string{"parcels.>"}})
	nc, js := server.Conn(t), server.JetStream(t)
	if err := serve(server.Conn(t)); err != nil {
		t.Fatal(err)
	}
	outcomes, err := nc.SubscribeSync("pointsman.outcome.>")
	if err != nil {
		t.Fatal(err)
	}
	run(t, server.URL, databaseURL, pooler)

	for _, m := range []struct{ subject, data string }{
		{"parcels.7.posted", `{"to": "Ada"}`}, {"parcels.7.scanned", `{"place": "depot"}`}, {"parcels.7.scanned", `{"place": "door"}`},
	} {
		if _, err := js.Publish(t.Context(), m.subject, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	msg, err := outcomes.NextMsg(90 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var outcome struct {
		CorrelationKey string `json:"correlation_key"`
		Result         struct{ Delivered bool }
	}
	if err := json.Unmarshal(msg.Data, &outcome); err != nil {
		t.Fatal(err)
	}
	if msg.Subject != "pointsman.outcome.default.parcel.done" || outcome.CorrelationKey != "parcel-7" || !outcome.Result.Delivered {
		t.Errorf("outcome %s %s", msg.Subject, msg.Data)
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		`{"step": "scanned", "timed_out": true}`:                                `{"outcome":"stop","reason":"no scan for two days"}`,
		`{"step": "scanned", "awaited": [{"payload": {"place": "the depot"}}]}`: `{"consume":true,"outcome":"await","signals":["scan"],"state":{"at":"the depot"},"step":"scanned","timeout_ms":172800000}`,
	} {
		var r request
		if err := json.Unmarshal([]byte(sent), &r); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(answer(r)); string(got) != want {
			t.Errorf("answer to %s:\n%s\nwant\n%s", sent, got, want)
		}
	}
}

// run has a bridge and a worker until the test ends.
func run(t *testing.T, natsURL, databaseURL, pooler string) {
	t.Helper()
	env := map[string]string{
		"POINTSMAN_NATS_URL": natsURL, "POINTSMAN_DATABASE_URL": databaseURL,
		"POINTSMAN_HTTP_ADDR": "127.0.0.1:0", "POINTSMAN_WORKER_HTTP_ADDR": "127.0.0.1:0",
	}
	cfg, err := config.Load("pointsman.yaml", func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	cfg.MigrateOnStart, cfg.Database.Pooler = true, pooler
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group errgroup.Group
	group.Go(func() error { return app.RunBridge(ctx, cfg, log, nil) })
	group.Go(func() error { return app.RunWorker(ctx, cfg, log, nil, nil) })
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}
