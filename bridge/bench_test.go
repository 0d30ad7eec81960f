package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/subjects"
)

// instant is an inbox that takes everything in at once.
type instant struct{ seen chan int }

func (i instant) AcceptOrdered(ctx context.Context, _ engine.Fence, batch []engine.Intake) ([]engine.Receipt, error) {
	return i.Accept(ctx, batch)
}

func (i instant) Accept(_ context.Context, batch []engine.Intake) ([]engine.Receipt, error) {
	receipts := make([]engine.Receipt, len(batch))
	for n := range receipts {
		receipts[n].Result = engine.Delivered
	}
	i.seen <- len(batch)
	return receipts, nil
}

func benchmarkBridge(b *testing.B) (*nats.Conn, jetstream.JetStream, chan int) {
	b.Helper()
	server := natstest.Start(b)
	conn := server.Conn(b)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(10_000))
	if err != nil {
		b.Fatal(err)
	}
	space, err := subjects.New("")
	if err != nil {
		b.Fatal(err)
	}
	server.Stream(b, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	seen := make(chan int, 1<<20)
	r := ordersRoute()
	r.When = "payload.amount > 0"
	br, err := New(Config{
		Conn: server.Conn(b), JetStream: js, Subjects: space, Inbox: instant{seen}, Journal: newMemJournal(), Routes: []Route{r}, NoSignalsRoute: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = br.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return conn, js, seen
}

// From a publication into an idle stream to the inbox.
func BenchmarkIdleLatency(b *testing.B) {
	conn, _, seen := benchmarkBridge(b)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := conn.Publish("orders.paid", []byte(`{"key":"a","amount":1}`)); err != nil {
			b.Fatal(err)
		}
		<-seen
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// Messages a second from a stream that is full.
func BenchmarkThroughput(b *testing.B) {
	_, js, seen := benchmarkBridge(b)
	for i := range b.N {
		if _, err := js.PublishAsync("orders.paid", fmt.Appendf(nil, `{"key":"order-%d","amount":1}`, i), jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	batches := 0
	for n := 0; n < b.N; batches++ {
		n += <-seen
	}
	b.ReportMetric(float64(b.N)/float64(batches), "msgs/batch")
}

// Messages a second that many routes of one stream take, each its part of the subjects, and what a route costs while nothing comes.
func BenchmarkRoutes(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := natstest.Start(b)
			server.Stream(b, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
			conn := server.Conn(b)
			js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(10_000))
			if err != nil {
				b.Fatal(err)
			}
			space, err := subjects.New("")
			if err != nil {
				b.Fatal(err)
			}
			routes := make([]Route, n)
			for i := range routes {
				routes[i] = ordersRoute()
				routes[i].Name, routes[i].Subjects = fmt.Sprint("r", i), []string{fmt.Sprint("orders.", i, ".*")}
			}
			seen := make(chan int, 1<<20)
			var before, after runtime.MemStats
			goroutines := runtime.NumGoroutine()
			runtime.GC()
			runtime.ReadMemStats(&before)
			br, err := New(Config{
				Conn: conn, JetStream: js, Subjects: space, Inbox: instant{seen}, Journal: newMemJournal(), Routes: routes, NoSignalsRoute: true,
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = br.Run(ctx) }()
			b.Cleanup(func() { cancel(); <-done })
			for br.Ready() != nil {
				time.Sleep(time.Millisecond)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			goroutines = runtime.NumGoroutine() - goroutines
			sent := conn.Stats().OutMsgs
			const idle = 6 * time.Second
			time.Sleep(idle)
			sent = conn.Stats().OutMsgs - sent
			b.ResetTimer()
			for i := range b.N {
				if _, err := js.PublishAsync(fmt.Sprint("orders.", i%n, ".paid"), fmt.Appendf(nil, `{"key":"order-%d","amount":1}`, i), jetstream.WithStallWait(time.Minute)); err != nil {
					b.Fatal(err)
				}
			}
			for got := 0; got < b.N; {
				got += <-seen
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			b.ReportMetric(float64(goroutines)/float64(n), "goroutines/route")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1024/float64(n), "KiB/route")
			b.ReportMetric(float64(sent)/idle.Seconds()/float64(n), "idle-requests/s/route")
		})
	}
}

// Publications a second from an outbox that is full.
func BenchmarkRelay(b *testing.B) {
	server := natstest.Start(b)
	space, err := subjects.New("")
	if err != nil {
		b.Fatal(err)
	}
	outbox := &endless{left: b.N, done: make(chan struct{})}
	js := server.JetStream(b)
	br, err := New(Config{
		Conn: js.Conn(), JetStream: js, Subjects: space, Inbox: instant{}, Journal: newMemJournal(), Outbox: outbox, NoSignalsRoute: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	server.Stream(b, jetstream.StreamConfig{Name: "OUT", Subjects: []string{space.OutcomeFilter()}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = br.Run(ctx) }()
	<-outbox.done
	cancel()
	<-ended
}

// endless is an outbox that has rows until enough are out.
type endless struct {
	memOutbox
	next    int64
	left    int
	pending []engine.Publication
	done    chan struct{}
}

func (o *endless) Publications(_ context.Context, _ []int, _ int64, n int) ([]engine.Publication, error) {
	for len(o.pending) < n {
		o.next++
		o.pending = append(o.pending, engine.Publication{
			ID: o.next, InstanceID: uuid.New(), Kind: engine.PublishOutcome, Project: "default", Subject: "order.done",
			MsgID: fmt.Sprint(o.next), Body: []byte(`{"status":"done"}`),
		})
	}
	return o.pending, nil
}

func (o *endless) Published(_ context.Context, ids []int64) error {
	out := map[int64]bool{}
	for _, id := range ids {
		out[id] = true
	}
	o.pending = slices.DeleteFunc(o.pending, func(p engine.Publication) bool { return out[p.ID] })
	if o.left > 0 {
		if o.left -= len(ids); o.left <= 0 {
			close(o.done)
		}
	}
	return nil
}
