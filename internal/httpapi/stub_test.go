package httpapi_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/httpapi"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/subjects"
)

// stub is a server without a worker, in this test alone.
type stub struct {
	server  *httpapi.Server
	client  *engine.Client
	url     string
	stop    context.CancelFunc
	stopped chan error
}

func newStub(t testing.TB) *stub {
	t.Helper()
	db := pgtest.New(t)
	client, err := engine.NewClient(db.Pool, engine.Config{Schema: db.Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	js := natstest.Start(t).JetStream(t)
	streams(t, js, space)
	mapper, err := bridge.NewMapper(space, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	letters := bridge.NewLetters(js, space)
	operations, err := api.New(api.Config{
		Client: client, Mapper: mapper, Letters: letters, Replayer: bridge.NewReplayer(letters, mapper, client),
		Tracer: bridge.NewTracer(js, space, mapper, client, time.Hour), Operator: bridge.NewOperator(js, mapper, client, client, nil, slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.NewKeys(db.Pool, db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{client: client, stopped: make(chan error, 1)}
	s.server, err = httpapi.New(httpapi.Config{
		API: operations, Guard: auth.NewGuard(auth.GuardConfig{Keys: keys, Open: true}), MaxBody: 1 << 16, Ping: time.Millisecond, Version: "v1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.server)
	t.Cleanup(web.Close)
	s.url = web.URL
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = stop
	go func() { s.stopped <- s.server.Run(ctx) }()
	t.Cleanup(stop)
	return s
}

func streams(t testing.TB, js jetstream.JetStream, space subjects.Space) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: space.DeadLettersStream(), Subjects: []string{space.DeadLetterFilter()}})
	if err != nil {
		t.Fatal(err)
	}
}

// instance that nobody runs.
func (s *stub) instance(t testing.TB) string {
	t.Helper()
	in, err := s.client.Start(t.Context(), engine.NewInstance{Machine: "order"})
	if err != nil {
		t.Fatal(err)
	}
	return in.ID.String()
}
