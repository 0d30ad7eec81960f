package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

func TestDeliversInOrderAndAcks(t *testing.T) {
	b := setup(t, "a", "b")
	stop := b.run(b.config(b.orders()))
	var want []string
	for i := range 200 {
		body := fmt.Sprintf(`{"key":%q,"n":%d}`, []string{"a", "b"}[i%2], i)
		b.publish("orders.paid", body)
		want = append(want, body)
	}
	b.signals(200)
	b.acked("ORDERS", "pointsman-orders", 200)
	b.counted("orders", fateDelivered, 200)
	b.ready()
	stop()
	if got := b.inbox.payloads(); !slices.Equal(got, want) {
		t.Errorf("out of order: %v", got)
	}
}

// A message that was committed and not acked, as after a crash, comes again to the next bridge and is a duplicate there.
func TestRestart(t *testing.T) {
	b := setup(t, "a")
	stop := b.run(b.config(b.orders()))
	b.publish("orders.paid", `{"key":"a","n":1}`)
	b.signals(1)
	b.acked("ORDERS", "pointsman-orders", 1)
	stop()

	// As if the consumer had been lost: it begins at the first message again.
	if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
		t.Fatal(err)
	}
	b.publish("orders.paid", `{"key":"a","n":2}`)
	b.run(b.config(ordersRoute()))
	b.signals(2)
	b.acked("ORDERS", "pointsman-orders", 2)
	b.counted("orders", fateDuplicate, 1)
	b.counted("orders", fateDelivered, 1)
}

func TestInboxOutage(t *testing.T) {
	b := setup(t, "a")
	b.inbox.err = errors.New("connection refused")
	b.run(b.config(b.orders()))
	const n = 1500 // more than is in hand at once
	for i := range n {
		b.publish("orders.paid", fmt.Sprintf(`{"key":"a","n":%d}`, i))
	}
	b.inboxHas("attempts", func() bool { return b.inbox.attempts >= 5 })
	if err := b.bridge.Ready(); err == nil || !strings.Contains(err.Error(), "inbox for route orders: accept: connection refused") {
		t.Errorf("ready: %v", err)
	}
	c, err := b.js.Consumer(t.Context(), "ORDERS", "pointsman-orders")
	if err != nil {
		t.Fatal(err)
	}
	if floor := c.CachedInfo().AckFloor.Stream; floor != 0 {
		t.Errorf("acked up to %d during the outage", floor)
	}
	b.inbox.do(func() { b.inbox.err = nil })
	b.signals(n)
	b.acked("ORDERS", "pointsman-orders", n)
	b.counted("orders", fateDelivered, n)
	b.counted("orders", fateRetried, 0)
	b.ready()
	if got := strings.Count(b.log.String(), "inbox for route orders"); got != 2 {
		t.Errorf("%d log lines of the outage, want its begin and its end:\n%s", got, b.log)
	}
}

func TestNATSOutage(t *testing.T) {
	b := setup(t, "a")
	b.run(b.config(b.orders()))
	b.publish("orders.paid", `{"key":"a","n":1}`)
	b.signals(1)
	b.server.Down(t)
	b.eventually("not ready", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.HasPrefix(err.Error(), "nats: ") // the connection has noticed
	})
	b.server.Up(t)
	b.eventually("connected", b.conn.IsConnected)
	b.publish("orders.paid", `{"key":"a","n":2}`)
	b.signals(2)
	b.acked("ORDERS", "pointsman-orders", 2)
	b.ready()
}

// What is in hand when the bridge is stopped is settled: committed, and acked before Run returns.
func TestDrain(t *testing.T) {
	b := setup(t, "a")
	gate := make(chan struct{})
	b.inbox.gate = gate
	cfg := b.config(b.orders())
	read := reads(&cfg)
	stop := b.run(cfg)
	b.ready()
	const n = 50
	for i := range n {
		b.publish("orders.paid", fmt.Sprintf(`{"key":"a","n":%d}`, i))
	}
	b.eventually("all in hand", func() bool { return read() == n })
	done := make(chan struct{})
	go func() { stop(); close(done) }()
	select {
	case <-done:
		t.Fatal("stopped with a batch in hand")
	default:
	}
	close(gate)
	<-done
	b.signals(n)
	b.acked("ORDERS", "pointsman-orders", n)
}

// Postgres away at the end: the bridge gives back what it cannot commit, and is gone.
func TestStopDuringOutage(t *testing.T) {
	b := setup(t, "a")
	b.inbox.err = errors.New("connection refused")
	stop := b.run(b.config(b.orders()))
	b.publish("orders.paid", `{"key":"a"}`)
	b.inboxHas("an attempt", func() bool { return b.inbox.attempts > 0 })
	stop()
	b.inbox.do(func() { b.inbox.err = nil })
	b.run(b.config(ordersRoute()))
	b.signals(1) // after a second, not after AckWait
	b.acked("ORDERS", "pointsman-orders", 1)
}

func TestStreamAppearsLater(t *testing.T) {
	b := setup(t, "a")
	b.run(b.config(ordersRoute()))
	b.eventually("the stream is missed", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.Contains(err.Error(), "route orders: stream ORDERS: nats: API error: code=404")
	})
	b.orders()
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
	b.ready()
	if got := strings.Count(b.log.String(), `part="route orders"`); got != 2 {
		t.Errorf("%d log lines, want one for each change:\n%s", got, b.log)
	}
}

// A stream that is made again counts from 1 again; its first message is not the old stream's.
func TestStreamMadeAgain(t *testing.T) {
	b := setup(t, "a")
	b.run(b.config(b.orders()))
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
	b.acked("ORDERS", "pointsman-orders", 1)
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	b.orders()
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(2)
	if x, y := b.inbox.signals[0], b.inbox.signals[1]; x.DedupKey == y.DedupKey || x.Origin.Created.Equal(y.Origin.Created) {
		t.Errorf("the same: %s and %s", x.DedupKey, y.DedupKey)
	}
}

func TestSourcedStream(t *testing.T) {
	b := setup(t, "a")
	b.stream("UPSTREAM", "up.>")
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Sources: []*jetstream.StreamSource{{Name: "UPSTREAM"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "UPSTREAM"}}); err != nil {
		t.Fatal(err)
	}
	var routes []Route
	for _, stream := range []string{"UPSTREAM", "ORDERS", "MIRROR"} {
		r := ordersRoute()
		r.Name, r.Stream, r.Subjects = "from-"+stream, stream, nil
		routes = append(routes, r)
	}
	b.run(b.config(routes...))
	b.publish("up.1", `{"key":"a","n":1}`)
	b.publish("up.1", `{"key":"a","n":2}`, subjects.HeaderMsgID, "two")
	for _, stream := range []string{"UPSTREAM", "ORDERS", "MIRROR"} {
		b.acked(stream, "pointsman-from-"+stream, 2)
	}
	b.signals(2)
	if got := b.inbox.signals[1].DedupKey; got != "UPSTREAM:two" {
		t.Errorf("dedup key %s", got)
	}
}

func TestExistingConsumer(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	r.Existing = "theirs"
	cfg := jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 7}
	if _, err := b.js.CreateConsumer(t.Context(), "ORDERS", cfg); err != nil {
		t.Fatal(err)
	}
	b.run(b.config(r))
	b.ready()
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
	b.publish("orders.paid", `{"key":"a","n":2}`)
	b.signals(2)
	b.acked("ORDERS", "theirs", 2)
	c, err := b.js.Consumer(t.Context(), "ORDERS", "theirs")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config.MaxAckPending; got != 7 {
		t.Errorf("their consumer was changed: max ack pending %d", got)
	}
}

// The right to pull from an existing consumer, and to ack, is all that its route needs.
func TestExistingConsumerNeedsNoOtherRight(t *testing.T) {
	t.Parallel()
	limited := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.CONSUMER.MSG.NEXT.ORDERS.theirs", "$JS.ACK.ORDERS.theirs.>"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		Users: []*server.User{{Username: "admin", Password: "x"}, {Username: "bridge", Password: "x", Permissions: limited}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(patience) {
		t.Fatal("not ready")
	}
	connect := func(user string) (*nats.Conn, jetstream.JetStream) {
		conn, err := nats.Connect(ns.ClientURL(), nats.UserInfo(user, "x"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		return conn, js
	}
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{T: t, space: space, inbox: newMemInbox("a"), journal: newMemJournal(), log: &logBuffer{}}
	_, b.js = connect("admin")
	r := b.orders()
	r.Existing = "theirs"
	if _, err := b.js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	b.publish("orders.paid", `{"key":"a"}`)
	cfg := b.config(r)
	cfg.ManageStreams = false
	cfg.Conn, cfg.JetStream = connect("bridge")
	b.run(cfg)
	b.signals(1)
	b.acked("ORDERS", "theirs", 1)
	b.ready()
}

func TestExistingConsumerThatIsNotThere(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	r.Existing = "theirs"
	b.run(b.config(r))
	b.eventually("refused", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.Contains(err.Error(), "route orders: pull from consumer theirs of stream ORDERS: nats: no responders")
	})
	if _, err := b.js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
	b.ready()
}

// A message that looks like a note of the server to its client is lost on the client, and stops no other.
func TestMessageThatPosesAsStatus(t *testing.T) {
	b := setup(t, "a")
	b.run(b.config(b.orders()))
	b.publish("orders.paid", ``, "Status", "999", "Description", "gotcha")
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
	b.ready()
}

func TestConsumerIsUpdatedInPlace(t *testing.T) {
	b := setup(t, "a")
	stream := b.stream("ORDERS", "orders.>")
	old := jetstream.ConsumerConfig{
		Durable: "pointsman-orders", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3, FilterSubject: "orders.old",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1, BackOff: []time.Duration{time.Second, time.Second},
	}
	if _, err := stream.CreateConsumer(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	rt, err := compile(b.space, ordersRoute())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := (&consumer{route: rt}).ensureConsumer(t.Context(), stream, engine.Checkpoint{}, false)
		if err != nil {
			t.Fatal(err)
		}
		cfg := c.CachedInfo().Config
		if cfg.MaxDeliver != -1 || !slices.Equal(filters(cfg), []string{"orders.>"}) || len(cfg.BackOff) != 0 || cfg.OptStartSeq != 1 {
			t.Errorf("got %+v", cfg)
		}
	}
}

func TestConsumerThatCannotBeUsed(t *testing.T) {
	b := setup(t, "a")
	stream := b.stream("ORDERS", "orders.>")
	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "pointsman-orders", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	b.run(b.config(ordersRoute()))
	b.eventually("refused", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.Contains(err.Error(), `has ack policy "AckNone"; a route needs explicit acks`)
	})
}

func TestPausedRouteKeepsItsConsumer(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	r.Paused = true
	stop := b.run(b.config(r))
	b.publish("orders.paid", `{"key":"a"}`)
	b.eventually("a consumer with one message", func() bool {
		c, err := b.js.Consumer(t.Context(), "ORDERS", "pointsman-orders")
		return err == nil && c.CachedInfo().NumPending == 1
	})
	b.ready()
	stop()
	if len(b.inbox.signals) != 0 {
		t.Error("a paused route read a message")
	}
}

func TestSignalsRoute(t *testing.T) {
	b := setup(t, "order-1")
	cfg := b.config()
	cfg.NoSignalsRoute = false
	b.run(cfg)
	b.ready()
	b.publish(b.space.Signal("order.paid"), `{"amount":12345678901234567890}`, subjects.HeaderCorrelationKey, "order-1", subjects.HeaderMsgID, "m1")
	b.publish(b.space.Signal("ping"), ``, subjects.HeaderCorrelationKey, "order-1")
	b.publish(b.space.Signal("lost"), `1`)
	b.signals(2)
	s := b.inbox.signals[0]
	if s.Name != "order.paid" || s.DedupKey != "POINTSMAN_SIGNALS:m1" || string(s.Payload) != `{"amount":12345678901234567890}` || s.To.Project() != "default" {
		t.Errorf("got %+v", s)
	}
	if s := b.inbox.signals[1]; s.Name != "ping" || string(s.Payload) != "null" {
		t.Errorf("got %+v", s)
	}
	letter := b.deadLetters(1)[0]
	if got := letter.Header.Get(subjects.HeaderReason); !strings.HasPrefix(got, subjects.HeaderCorrelationKey+": is empty") {
		t.Errorf("reason %q", got)
	}
}

func TestStandstill(t *testing.T) {
	t.Parallel()
	info := func(pending uint64, unacked int, paused bool) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{NumPending: pending, NumAckPending: unacked, Paused: paused, Config: jetstream.ConsumerConfig{MaxAckPending: 10}}
	}
	begun := time.Now()
	at := func(minutes int) time.Time { return begun.Add(time.Duration(minutes) * time.Minute) }
	type look struct {
		info    *jetstream.ConsumerInfo
		waiting int64
		want    time.Duration
	}
	idle := begun.Add(-time.Hour).UnixNano()
	for name, looks := range map[string][]look{
		"stands still":                       {{info(1, 9, false), idle, 0}, {info(1, 9, false), idle, time.Minute}, {info(2, 9, false), idle, 2 * time.Minute}},
		"nothing is there":                   {{info(0, 0, false), idle, 0}, {info(0, 0, false), idle, 0}},
		"one came a moment ago, and is read": {{info(1, 0, false), idle, 0}, {info(0, 0, false), at(0).Add(1).UnixNano(), 0}, {info(1, 0, false), at(0).Add(1).UnixNano(), 0}},
		"one was read between":               {{info(1, 0, false), idle, 0}, {info(1, 0, false), at(0).Add(1).UnixNano(), 0}, {info(1, 0, false), at(0).Add(1).UnixNano(), time.Minute}},
		"waits for acks":                     {{info(1, 10, false), idle, 0}, {info(1, 10, false), idle, 0}},
		"was paused":                         {{info(1, 0, true), idle, 0}, {info(1, 0, true), idle, 0}, {info(1, 0, false), idle, 0}, {info(1, 0, false), idle, time.Minute}},
		"the bridge is busy":                 {{info(1, 0, false), 0, 0}, {info(1, 0, false), 0, 0}},
	} {
		var still standstill
		for i, l := range looks {
			if got := still.looked(l.info, l.waiting, at(i)); got != l.want {
				t.Errorf("%s, look %d: %s, want %s", name, i, got, l.want)
			}
		}
	}
}

func TestOutliveEndsAfterGrace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	work, stop := outlive(ctx, time.Millisecond)
	defer stop()
	if work.Err() != nil {
		t.Fatal("work has ended before ctx")
	}
	cancel()
	<-work.Done()
	if got := context.Cause(work).Error(); got != "shutdown: not settled within 1ms" {
		t.Errorf("cause %q", got)
	}
}
