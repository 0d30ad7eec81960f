package natstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDownAndUp(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	s.Stream(t, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	lost, back := make(chan struct{}), make(chan struct{})
	nc := s.Conn(t,
		nats.DisconnectErrHandler(func(*nats.Conn, error) { close(lost) }),
		nats.ReconnectHandler(func(*nats.Conn) { close(back) }))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("before")); err != nil {
		t.Fatal(err)
	}

	s.Down(t)
	await(t, lost)
	s.Up(t)
	await(t, back)
	nc.SetDisconnectErrHandler(nil)
	ack, err := js.Publish(t.Context(), "s", []byte("after"))
	if err != nil || ack.Sequence != 2 {
		t.Errorf("got %+v, %v; want sequence 2", ack, err)
	}
}

func TestServersAreApart(t *testing.T) {
	t.Parallel()
	a, b := natstest.Start(t), natstest.Start(t)
	a.Stream(t, jetstream.StreamConfig{Name: "S"})
	if _, err := b.JetStream(t).Stream(t.Context(), "S"); err == nil {
		t.Error("the other server has the stream too")
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	select {
	case <-c:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
}
