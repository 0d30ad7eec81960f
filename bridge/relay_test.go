package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

var relayInstances = []uuid.UUID{uuid.MustParse("00000000-0000-7000-8000-000000000001"), uuid.MustParse("00000000-0000-7000-8000-000000000002")}

// row is a publication of one of two instances.
func row(id int64, instance int, kind engine.PublicationKind, subject string) engine.Publication {
	return engine.Publication{
		ID: id, InstanceID: relayInstances[instance], Kind: kind, Project: "default", Subject: subject,
		MsgID: fmt.Sprintf("msg-%d", id), Body: fmt.Appendf(nil, `{"row":%d}`, id), CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
}

func (b *bundle) relayConfig() Config {
	cfg := b.config()
	cfg.Outbox = b.outbox
	return cfg
}

func (b *bundle) outboxIs(what string, f func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if !b.outbox.until(ctx, f) {
		b.Fatalf("outbox is not: %s; ready: %v; log:\n%s", what, b.bridge.Ready(), b.log)
	}
}

func (b *bundle) outboxEmpty() {
	b.Helper()
	b.outboxIs("empty", func() bool { return len(b.outbox.rows) == 0 })
}

// bodies of a stream, in order.
func (b *bundle) bodies(stream string) (bodies []string) {
	b.Helper()
	s, err := b.js.Stream(b.Context(), stream)
	if err != nil {
		b.Fatal(err)
	}
	for seq := range s.CachedInfo().State.Msgs {
		m, err := s.GetMsg(b.Context(), seq+1)
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, string(m.Data))
	}
	return bodies
}

func TestOutcomeIsACloudEvent(t *testing.T) {
	b := setup(t)
	p := row(1, 0, engine.PublishOutcome, "order.done")
	p.Headers = map[string][]string{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	b.outbox.rows[1] = p
	b.run(b.relayConfig())
	b.outboxEmpty()
	s, err := b.js.Stream(t.Context(), b.space.OutcomesStream())
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "pointsman.outcome.default.order.done" || string(m.Data) != `{"row":1}` {
		t.Errorf("got %s %s", m.Subject, m.Data)
	}
	for name, want := range map[string]string{
		"Nats-Msg-Id": "msg-1", "ce-id": "msg-1", "ce-specversion": "1.0", "ce-source": "/pointsman/default/order",
		"ce-type": "pointsman.outcome.done", "ce-subject": relayInstances[0].String(), "ce-time": "2026-01-02T03:04:05.000000006Z",
		"content-type": "application/json", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	b.ready()
}

func TestRelayKinds(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	sub, err := b.conn.SubscribeSync("replies.1")
	if err != nil {
		t.Fatal(err)
	}
	dead := row(3, 0, engine.PublishDeadLetter, "orders")
	dead.InstanceID = uuid.Nil
	dead.Headers = map[string][]string{subjects.HeaderMsgID: {"theirs"}, subjects.HeaderReason: {"expi\nred"}, "Nats-Rollup": {"all"}}
	own := row(4, 1, engine.PublishMessage, "out.own")
	own.Headers = map[string][]string{subjects.HeaderMsgID: {"own"}}
	b.outbox.rows = map[int64]engine.Publication{
		1: row(1, 0, engine.PublishReply, "replies.1"), 2: row(2, 0, engine.PublishMessage, "out.1"), 3: dead, 4: own,
	}
	b.run(b.relayConfig())
	b.outboxEmpty()
	if m, err := sub.NextMsg(patience); err != nil || string(m.Data) != `{"row":1}` || m.Header.Get(subjects.HeaderMsgID) != "msg-1" {
		t.Errorf("reply %v, %v", m, err)
	}
	s, err := b.js.Stream(t.Context(), "OUT")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for seq := range uint64(2) {
		m, err := s.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.Header.Get(subjects.HeaderMsgID))
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"msg-2", "own"}) {
		t.Errorf("ids %v", ids)
	}
	h := b.deadLetters(1)[0].Header
	if h.Get(subjects.HeaderMsgID) != "msg-3" || h.Get(subjects.HeaderOriginalMsgID) != "theirs" || h.Get("Nats-Rollup") != "" || h.Get(subjects.HeaderReason) != "expi red" {
		t.Errorf("dead letter %v", h)
	}
}

func TestRelayKeepsOrderOfAnInstance(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	const n = 2000 // several windows
	for id := int64(1); id <= n; id++ {
		b.outbox.rows[id] = row(id, int(id%2), engine.PublishMessage, fmt.Sprintf("out.%d", id%2))
	}
	b.run(b.relayConfig())
	b.outboxEmpty()
	last := map[string]int64{}
	s, err := b.js.Stream(t.Context(), "OUT")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().State.Msgs; got != n {
		t.Fatalf("%d messages, want %d", got, n)
	}
	for seq := range uint64(n) {
		m, err := s.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		var id int64
		if _, err := fmt.Sscanf(string(m.Data), `{"row":%d}`, &id); err != nil {
			t.Fatal(err)
		}
		if id <= last[m.Subject] {
			t.Fatalf("row %d after row %d", id, last[m.Subject])
		}
		last[m.Subject] = id
	}
}

// A publication that no stream takes is tried again until there is one, and holds up nothing, of its own instance neither.
func TestRelayPostponesWhatNoStreamTakes(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	b.outbox.rows = map[int64]engine.Publication{
		1: row(1, 0, engine.PublishMessage, "nowhere.1"), 2: row(2, 0, engine.PublishMessage, "out.a"),
		3: row(3, 1, engine.PublishMessage, "out.b"), 4: row(4, 1, engine.PublishMessage, "out.c"), 5: row(5, 0, engine.PublishOutcome, "order.done"),
	}
	b.run(b.relayConfig())
	b.outboxIs("postponed, others out", func() bool { return len(b.outbox.delays) == 1 && len(b.outbox.rows) == 1 })
	b.outbox.due()
	b.outboxIs("postponed again", func() bool { return len(b.outbox.delays) == 2 })
	if !slices.Equal(b.outbox.delays, []time.Duration{time.Second, 2 * time.Second}) {
		t.Errorf("delays %v", b.outbox.delays)
	}
	b.stream("LATE", "nowhere.>")
	b.outbox.due()
	b.bridge.Poke()
	b.outboxEmpty()
	if got := slices.Sorted(slices.Values(b.bodies("OUT"))); !slices.Equal(got, []string{`{"row":2}`, `{"row":3}`, `{"row":4}`}) {
		t.Errorf("got %v", got)
	}
	b.ready()
}

func TestRelayGivesUp(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	lastAttempt := row(1, 0, engine.PublishMessage, "nowhere.1")
	lastAttempt.Attempts, lastAttempt.Refusals = 3*maxRefusals, maxRefusals-1
	tooLarge := row(3, 1, engine.PublishMessage, "out.large")
	tooLarge.Body = make([]byte, b.conn.MaxPayload()+1)
	b.outbox.rows = map[int64]engine.Publication{1: lastAttempt, 2: row(2, 0, engine.PublishMessage, "out.a"), 3: tooLarge}
	b.run(b.relayConfig())
	b.outboxIs("two dead, one out", func() bool { return len(b.outbox.dead) == 2 && len(b.outbox.rows) == 2 })
	if got := b.outbox.dead[1]; got != "publish to nowhere.1: no stream has this subject" {
		t.Errorf("reason %q", got)
	}
	if got := b.outbox.dead[3]; !strings.Contains(got, "maximum payload exceeded") {
		t.Errorf("reason %q", got)
	}
}

// An outage of NATS postpones nothing: a day of it must not kill what waits.
func TestRelayNATSOutage(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	b.run(b.relayConfig())
	b.ready()
	b.server.Down(t)
	b.eventually("disconnected", func() bool { return !b.conn.IsConnected() })
	b.outbox.do(func() { b.outbox.rows[1] = row(1, 0, engine.PublishMessage, "out.a") })
	b.bridge.Poke()
	b.eventually("relay reports", func() bool { return strings.Contains(fmt.Sprint(b.bridge.Ready()), "relay: nats: ") })
	b.server.Up(t)
	b.outboxEmpty()
	if len(b.outbox.delays) != 0 {
		t.Errorf("postponed: %v", b.outbox.delays)
	}
	b.ready()
}

// The ack of a publication is lost, so it is published again, under the same id: the stream has it once.
func TestRelayLosesAnAck(t *testing.T) {
	b := setup(t)
	mute := jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}, NoAck: true}
	if _, err := b.js.CreateStream(t.Context(), mute); err != nil {
		t.Fatal(err)
	}
	b.outbox.rows[1] = row(1, 0, engine.PublishMessage, "out.a")
	b.outbox.rows[2] = row(2, 0, engine.PublishMessage, "out.a")
	cfg := b.relayConfig()
	cfg.pace = defaultPace
	cfg.pace.ack = 100 * time.Millisecond
	b.run(cfg)
	b.outboxIs("postponed", func() bool { return len(b.outbox.delays) == 1 })
	mute.NoAck = false
	if _, err := b.js.UpdateStream(t.Context(), mute); err != nil {
		t.Fatal(err)
	}
	b.outbox.due()
	b.outboxEmpty()
	if got := b.bodies("OUT"); !slices.Equal(got, []string{`{"row":1}`, `{"row":2}`}) {
		t.Errorf("got %v", got)
	}
}

// A connection that breaks while a publication is handed to it may say so twice.
func TestRelayIsToldTwice(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	b.outbox.rows[1] = row(1, 0, engine.PublishMessage, "out.a")
	br, err := New(b.relayConfig())
	if err != nil {
		t.Fatal(err)
	}
	r := br.relay
	r.lanes.add(b.outbox.rows[1])
	msg := &nats.Msg{}
	r.flights[msg], r.sending = flight{row: b.outbox.rows[1]}, 1
	for range 2 {
		r.settle(t.Context(), sent{msg: msg, err: nats.ErrMaxPayload})
	}
	if r.sending != 0 || len(r.failed) != 1 {
		t.Errorf("%d are on their way, and %d have failed", r.sending, len(r.failed))
	}
}

// What is out while Postgres is away goes out once, and is removed when it is back.
func TestRelayPostgresOutage(t *testing.T) {
	b := setup(t)
	b.stream("OUT", "out.>")
	b.outbox.err = errors.New("connection refused")
	b.outbox.rows[1] = row(1, 0, engine.PublishMessage, "out.a")
	b.run(b.relayConfig())
	b.eventually("relay reports", func() bool {
		return strings.Contains(fmt.Sprint(b.bridge.Ready()), "relay: hold shards: connection refused")
	})
	b.outbox.do(func() { b.outbox.err = nil })
	b.outboxEmpty()
	b.ready()
	if got := strings.Count(b.log.String(), "part=relay"); got != 2 {
		t.Errorf("%d log lines of the outage, want its begin and its end:\n%s", got, b.log)
	}
}

// A relay that cannot publish lets its shards go to one that can.
func TestRelayWithoutNATSHoldsNothing(t *testing.T) {
	b := setup(t)
	cfg := b.relayConfig()
	cfg.Conn = b.server.Conn(t)
	cfg.Conn.Close()
	br, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := br.relay.turn(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "nats: CLOSED") {
			t.Errorf("got %v", err)
		}
	}
	if b.outbox.holds != 0 {
		t.Errorf("it held shards %d times", b.outbox.holds)
	}
}

func TestRelayReleasesItsShards(t *testing.T) {
	b := setup(t)
	stop := b.run(b.relayConfig())
	b.ready()
	stop()
	if !b.outbox.released {
		t.Error("shards are held after the end")
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("nats: %w", &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"})
	sealed := &jetstream.APIError{Code: 400, ErrorCode: 10109, Description: "invalid operation on sealed stream"}
	for _, c := range []struct {
		err       error
		kind      engine.PublicationKind
		connected bool
		want      publishFailure
	}{
		{errNoStream, engine.PublishMessage, true, refused},
		{jetstream.ErrNoStreamResponse, engine.PublishMessage, true, outage},
		{jetstream.ErrNoStreamResponse, engine.PublishOutcome, true, outage},
		{jetstream.ErrNoStreamResponse, engine.PublishMessage, false, unreachable},
		{full, engine.PublishMessage, true, outage},
		{full, engine.PublishOutcome, true, outage},
		{&jetstream.APIError{Code: 400, ErrorCode: 10002, Description: "resource limits exceeded for account"}, engine.PublishMessage, true, outage},
		{&jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}, engine.PublishMessage, true, outage},
		{sealed, engine.PublishMessage, true, refused},
		{sealed, engine.PublishOutcome, true, outage},
		{&jetstream.APIError{Code: 400, ErrorCode: 10054, Description: "message size exceeds maximum allowed"}, engine.PublishOutcome, true, refused},
		{context.DeadlineExceeded, engine.PublishMessage, true, outage},
		{context.DeadlineExceeded, engine.PublishMessage, false, unreachable},
		{nats.ErrTimeout, engine.PublishMessage, true, outage},
		{jetstream.ErrAsyncPublishTimeout, engine.PublishMessage, true, outage},
		{jetstream.ErrJetStreamNotEnabled, engine.PublishMessage, true, outage},
		{nats.ErrDisconnected, engine.PublishMessage, true, unreachable},
		{nats.ErrMaxPayload, engine.PublishMessage, true, hopeless},
		{nats.ErrBadSubject, engine.PublishMessage, false, hopeless},
	} {
		if got := classify(sent{row: engine.Publication{Kind: c.kind}, err: c.err}, c.connected); got != c.want {
			t.Errorf("%s: %v, connected %v: %d, want %d", c.kind, c.err, c.connected, got, c.want)
		}
	}
}

// A stream that is full, or a missing one of pointsman's own, is an outage: however often it is found so, nothing is given up, and all is
// published when there is room.
func TestRelayOutlastsAFullStream(t *testing.T) {
	b := setup(t)
	full := jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew}
	if _, err := b.js.CreateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	b.publish("out.first", "{}")
	b.outbox.rows = map[int64]engine.Publication{
		1: row(1, 0, engine.PublishMessage, "out.a"), 2: row(2, 0, engine.PublishMessage, "out.b"),
	}
	b.run(b.relayConfig())
	b.ready()
	if err := b.js.DeleteStream(t.Context(), b.space.OutcomesStream()); err != nil {
		t.Fatal(err)
	}
	b.outbox.do(func() { b.outbox.rows[3] = row(3, 1, engine.PublishOutcome, "order.done") })
	for n := range 2 * maxRefusals {
		b.outbox.due(1)
		b.bridge.Poke()
		b.outboxIs("postponed", func() bool { return b.outbox.rows[1].Attempts > n })
	}
	b.outboxIs("postponed", func() bool { return b.outbox.rows[3].Attempts > 0 })
	b.outbox.do(func() {
		if one, other := b.outbox.rows[1], b.outbox.rows[3]; len(b.outbox.dead) != 0 || one.Refusals != 0 || other.Refusals != 0 {
			t.Errorf("dead %v, refusals of %+v and %+v", b.outbox.dead, one, other)
		}
		if longest := slices.Max(b.outbox.delays); longest != lastInOutage {
			t.Errorf("the longest wait is %s", longest)
		}
	})
	full.MaxMsgs = 10
	if _, err := b.js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	b.stream(b.space.OutcomesStream(), b.space.OutcomeFilter())
	b.outbox.due(1, 3)
	b.bridge.Poke()
	b.outboxEmpty()
	if got := b.bodies("OUT"); !slices.Equal(got, []string{"{}", `{"row":1}`, `{"row":2}`}) {
		t.Errorf("got %v", got)
	}
	b.ready()
}

// What a step publishes to a subject of no stream is refused only where JetStream says that there is none: one that does not answer is an
// outage.
func TestRelayAsksWhyNobodyAnswers(t *testing.T) {
	b := setup(t)
	b.outbox.rows[1] = row(1, 0, engine.PublishMessage, "nowhere.1")
	mute := &mute{JetStream: b.js}
	mute.names.Store(true)
	cfg := b.relayConfig()
	cfg.JetStream = mute
	b.run(cfg)
	b.outboxIs("postponed", func() bool { return b.outbox.rows[1].Attempts == 1 && b.outbox.rows[1].Refusals == 0 })
	mute.names.Store(false)
	b.outbox.due(1)
	b.bridge.Poke()
	b.outboxIs("refused", func() bool { return b.outbox.rows[1].Attempts == 2 && b.outbox.rows[1].Refusals == 1 })
}

// mute has a stream of every subject that does not answer.
type mute struct {
	jetstream.JetStream
	names atomic.Bool
}

func (m *mute) StreamNameBySubject(ctx context.Context, subject string) (string, error) {
	if m.names.Load() {
		return "LEADERLESS", nil
	}
	return m.JetStream.StreamNameBySubject(ctx, subject)
}
