package stories_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/oracle"
	"github.com/pointsman/pointsman/integration/stories"
	"github.com/pointsman/pointsman/internal/natstest"
)

// TestWatch: what a stream has is read to its end, past what it has no more.
func TestWatch(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js := server.JetStream(t)
	stream := server.Stream(t, jetstream.StreamConfig{Name: stories.Stream, Subjects: []string{"stories.>"}})
	const messages = 50
	for n := range messages {
		msg := nats.NewMsg("stories.x")
		msg.Header.Set(oracle.HeaderEvent, fmt.Sprint("event ", n))
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	for _, seq := range []uint64{1, 20, 21} {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	account := oracle.NewAccount()
	watch := stories.NewWatch(js, account)
	watched := make(chan struct{})
	go func() { defer close(watched); watch.Run(ctx) }()
	defer func() { cancel(); <-watched }()
	for news := account.News(); account.Count().Messages < messages-3; news = account.News() {
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("read %d messages of %d", account.Count().Messages, messages-3)
		}
	}
	if read, err := watch.CaughtUp(ctx); err != nil || !read {
		t.Errorf("all is read: %v, %v", read, err)
	}
}
