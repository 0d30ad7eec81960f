package natsio_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
)

func space(t *testing.T) subjects.Space {
	t.Helper()
	s, err := subjects.New("acme.test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEnsureStreams(t *testing.T) {
	t.Parallel()
	js, space := natstest.Start(t).JetStream(t), space(t)
	if err := natsio.EnsureStreams(t.Context(), js, space, 1); err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]string{
		space.Signal("paid.in.full"):              "ACME_TEST_SIGNALS",
		space.Outcome("default", "order", "done"): "ACME_TEST_OUTCOMES",
		space.DeadLetter("payments"):              "ACME_TEST_DLQ",
	} {
		ack, err := js.Publish(t.Context(), subject, nil)
		if err != nil || ack.Stream != want {
			t.Errorf("%s: %+v, %v; want stream %s", subject, ack, err, want)
		}
	}
}

func TestEnsureStreamsLeavesExisting(t *testing.T) {
	t.Parallel()
	s, space := natstest.Start(t), space(t)
	s.Stream(t, jetstream.StreamConfig{Name: space.SignalsStream(), Subjects: []string{"mine"}, MaxAge: time.Hour})
	js := s.JetStream(t)
	if err := natsio.EnsureStreams(t.Context(), js, space, 1); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), space.SignalsStream())
	if err != nil {
		t.Fatal(err)
	}
	if cfg := stream.CachedInfo().Config; cfg.MaxAge != time.Hour || cfg.Subjects[0] != "mine" {
		t.Errorf("changed: %+v", cfg)
	}
}

func TestEnsureStreamsTogether(t *testing.T) {
	t.Parallel()
	s, space := natstest.Start(t), space(t)
	var g errgroup.Group
	for range 8 {
		js := s.JetStream(t)
		g.Go(func() error { return natsio.EnsureStreams(t.Context(), js, space, 1) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
