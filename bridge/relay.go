package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

const (
	relayWindow  = 512              // publications in hand
	shardTTL     = 6 * time.Second  // how long a relay that died keeps its shards from the others
	shardRenewal = 2 * time.Second  //
	depthEvery   = 10 * time.Second // counting the outbox is no work for every turn

	busyPoll = 50 * time.Millisecond // floor and ceiling of the poll, for what no poke told of
	idlePoll = time.Second

	firstPostponement = time.Second
	lastPostponement  = 5 * time.Minute
	lastInOutage      = time.Minute // so that it goes on soon after the outage, however long that was
	maxRefusals       = 20          // over more than an hour; then the row is dead, and visible

	firstReconnectDelay = 100 * time.Millisecond
	lastReconnectDelay  = 2 * time.Second
)

// relay publishes the outbox. Its loop owns all its state; what becomes of a publication comes back to it from the connection, in whatever
// order streams answer.
//
// It always reads the outbox from the lowest row, the rows in hand included: ids are drawn before their transactions commit, so a
// cursor could pass by a row that is not visible yet, and then see a later one of the same instance first.
type relay struct {
	name    string
	outbox  engine.Outbox
	conn    *nats.Conn
	js      jetstream.JetStream // is asked
	async   jetstream.JetStream // publishes
	space   subjects.Space
	health  *health
	metrics *metrics
	tracing *tracing.Tracer
	log     *slog.Logger

	poked   chan struct{}
	results chan sent // two for each lane at most

	lanes    *lanes
	sending  int // publications
	flights  map[*nats.Msg]flight
	senders  sync.WaitGroup // of what no stream answers: replies, and questions why
	out      []int64        // stored by their streams, not yet removed from the outbox
	failed   []sent         // not yet postponed in the outbox
	shards   []int
	heldTill time.Time
	renewAt  time.Time
	depthAt  time.Time
	poll     time.Duration
	wanted   bool // there may be something to read
}

// sent is what became of an attempt to publish the head of a lane; again is no outcome but the time to try once more. A message is of a flight,
// which has the row.
type sent struct {
	row   engine.Publication
	msg   *nats.Msg
	ack   *jetstream.PubAck
	err   error
	again bool
}

// flight is a row on its way to a stream.
type flight struct {
	row  engine.Publication
	span *tracing.Span
}

func newRelay(cfg Config, h *health, m *metrics) (*relay, error) {
	r := &relay{
		name: uuid.NewString(), outbox: cfg.Outbox, conn: cfg.Conn, js: cfg.JetStream, space: cfg.Subjects,
		health: h, metrics: m, tracing: tracing.New(cfg.Tracing), log: cfg.Logger,
		poked: make(chan struct{}, 1), results: make(chan sent, 2*relayWindow), lanes: newLanes(), flights: map[*nats.Msg]flight{}, poll: busyPoll, wanted: true,
	}
	var err error
	r.async, err = jetstream.New(cfg.Conn, jetstream.WithPublishAsyncMaxPending(relayWindow), jetstream.WithPublishAsyncTimeout(cfg.pace.ack),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, msg *nats.Msg, ack *jetstream.PubAck) {
			r.results <- sent{msg: msg, ack: ack}
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, msg *nats.Msg, err error) { r.results <- sent{msg: msg, err: err} }))
	return r, err
}

func (r *relay) poke() {
	select {
	case r.poked <- struct{}{}:
	default:
	}
}

// run relays until ctx is cancelled, then waits for what is on its way, and gives its shards back.
func (r *relay) run(ctx, work context.Context) {
	for ctx.Err() == nil {
		err := r.turn(ctx, work)
		if ctx.Err() == nil {
			r.health.report(partRelay, err)
		}
		r.wait(ctx, work, err != nil)
	}
	for r.sending > 0 && work.Err() == nil {
		select {
		case s := <-r.results:
			r.settle(work, s)
		case <-work.Done():
		}
	}
	r.async.CleanupPublisher()
	r.senders.Wait()
	if err := r.record(work); err != nil {
		r.log.Warn("relay: publications that are out stay in the outbox, and go out again", "error", err)
	}
	if err := r.outbox.ReleaseShards(work, r.name); err != nil {
		r.log.Warn("relay: shards stay held until they expire", "error", err)
	}
}

// turn does what is to be done now.
func (r *relay) turn(ctx, work context.Context) error {
	recording, cancel := context.WithTimeout(work, journalTimeout)
	defer cancel()
	if err := r.record(recording); err != nil {
		return err
	}
	if !r.conn.IsConnected() { // its shards run out, and go to a relay that can publish
		return fmt.Errorf("nats: %s", r.conn.Status())
	}
	ctx, cancel = context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	if err := r.hold(ctx); err != nil {
		return err
	}
	return r.read(ctx, work)
}

// record tells the outbox what is out and what failed.
func (r *relay) record(ctx context.Context) error {
	if len(r.out) > 0 {
		if err := r.outbox.Published(ctx, r.out); err != nil {
			return fmt.Errorf("remove what is out: %w", err)
		}
		r.lanes.forget(r.out)
		r.out = r.out[:0]
	}
	for len(r.failed) > 0 {
		f := r.failed[0]
		if err := r.postpone(ctx, f); err != nil {
			return fmt.Errorf("postpone a publication: %w", err)
		}
		r.lanes.drop(keyOf(f.row))
		r.failed = r.failed[1:]
	}
	return nil
}

// postponement is how long a publication waits that has failed so.
func postponement(kind publishFailure, p engine.Publication) time.Duration {
	if kind == refused {
		return doubling(firstPostponement, lastPostponement, p.Refusals)
	}
	return doubling(firstPostponement, lastInOutage, p.Attempts)
}

func (r *relay) postpone(ctx context.Context, f sent) error {
	kind := classify(f, true)
	verdict, delay, level := engine.PostponedByOutage, postponement(kind, f.row), slog.LevelDebug
	if kind == refused {
		verdict = engine.PostponedByRefusal
	}
	dead := kind == hopeless || kind == refused && f.row.Refusals+1 >= maxRefusals
	if dead {
		verdict, level = engine.GivenUp, slog.LevelError
	}
	reason := fmt.Sprintf("publish to %s: %v", f.row.Subject, f.err)
	if err := r.outbox.Postpone(ctx, f.row.ID, delay, reason, verdict); err != nil {
		return err
	}
	r.log.Log(ctx, level, "publication failed", "row", f.row.ID, "instance", f.row.InstanceID, "kind", f.row.Kind,
		"attempts", f.row.Attempts+1, "counted", verdict != engine.PostponedByOutage, "dead", dead, "delay", delay, "error", reason)
	return nil
}

// hold renews the relay's hold on its shards.
func (r *relay) hold(ctx context.Context) error {
	now := time.Now()
	if now.Before(r.renewAt) {
		return nil
	}
	shards, err := r.outbox.HoldShards(ctx, r.name, shardTTL)
	if err != nil {
		return fmt.Errorf("hold shards: %w", err)
	}
	if now.After(r.heldTill) || !slices.Equal(shards, r.shards) {
		r.lanes.keepHeads()
		r.wanted = true
	}
	r.shards, r.heldTill, r.renewAt = shards, now.Add(shardTTL), now.Add(shardRenewal)
	if now.After(r.depthAt) {
		r.depthAt = now.Add(depthEvery)
		depth, err := r.outbox.OutboxDepth(ctx)
		if err != nil {
			return fmt.Errorf("depth of the outbox: %w", err)
		}
		r.metrics.outbox.Set(float64(depth))
	}
	return nil
}

// read takes rows in hand while there is room, and sends those that are first of their instance.
func (r *relay) read(ctx, work context.Context) error {
	room := relayWindow - len(r.lanes.known)
	if !r.wanted || room < relayWindow/2 || len(r.shards) == 0 {
		return nil
	}
	n := len(r.lanes.known) + room
	rows, err := r.outbox.Publications(ctx, r.shards, 0, n)
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	r.wanted = len(rows) == n
	for _, p := range rows {
		if len(r.lanes.known) >= relayWindow || !time.Now().Before(r.heldTill) {
			break // rows of shards that were lost are in hand too, or all that are sent have taken too long
		}
		if r.lanes.add(p) {
			r.send(work, p)
		}
		r.poll = busyPoll
	}
	return nil
}

// send one publication; its result comes over results, which has room for all that can come: who sends it holds locks of the
// connection.
func (r *relay) send(work context.Context, p engine.Publication) {
	r.sending++
	msg := publication(r.space, p, int(r.conn.MaxPayload()))
	span := r.startSpan(work, p, msg)
	if p.Kind == engine.PublishReply {
		r.report(p, func() error {
			err := r.reply(work, msg)
			span.End(err)
			return err
		})
		return
	}
	r.flights[msg] = flight{p, span}
	if _, err := r.async.PublishMsgAsync(msg); err != nil {
		r.results <- sent{msg: msg, err: err}
	}
}

// report what becomes of a row, when it has.
func (r *relay) report(p engine.Publication, try func() error) {
	r.senders.Go(func() { r.results <- sent{row: p, err: try()} })
}

// landed ends a flight. There is no result yet where it has to be found out why no stream has answered.
func (r *relay) landed(work context.Context, s sent) (result sent, ok bool) {
	f, ok := r.flights[s.msg]
	if !ok {
		return s, false // a connection that broke while it was sent has said so twice
	}
	delete(r.flights, s.msg)
	f.span.End(s.err)
	switch {
	case s.err == nil && r.log.Enabled(work, slog.LevelDebug):
		r.log.Debug("publication stored", "row", f.row.ID, "id", s.msg.Header.Get(subjects.HeaderMsgID), "stream", s.ack.Stream, "sequence", s.ack.Sequence, "duplicate", s.ack.Duplicate)
	case errors.Is(s.err, jetstream.ErrNoStreamResponse) && f.row.Kind == engine.PublishMessage:
		r.report(f.row, func() error { return r.whyNoStream(work, f.row.Subject) })
		return s, false
	}
	return sent{row: f.row, err: s.err}, true
}

// wait until there is something to do.
func (r *relay) wait(ctx, work context.Context, trouble bool) {
	pause := time.NewTimer(min(r.poll, max(0, time.Until(r.renewAt))+time.Millisecond))
	if trouble {
		pause.Reset(idlePoll)
	}
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-r.poked:
		r.wanted, r.poll = true, busyPoll
	case <-pause.C:
		r.wanted, r.poll = true, min(2*r.poll, idlePoll)
	case s := <-r.results:
		r.settle(work, s)
	}
	for { // what has come in meanwhile goes to the outbox in the same batch
		select {
		case s := <-r.results:
			r.settle(work, s)
		default:
			return
		}
	}
}

// tell readiness of a stream of outcomes that takes none: it is pointsman's own, and every machine's. What a step publishes elsewhere is
// that step's matter.
func (r *relay) tell(s sent, kind publishFailure) {
	switch {
	case s.row.Kind != engine.PublishOutcome:
	case s.err == nil:
		r.health.report(partOutcomes, nil)
	case kind != unreachable:
		r.health.reportFor(partOutcomes, fmt.Errorf("publish to %s: %w", r.space.OutcomesStream(), s.err), postponement(kind, s.row))
	}
}

// settle what became of a publication, and send the next one of its instance.
func (r *relay) settle(work context.Context, s sent) {
	if s.msg != nil {
		var ok bool
		if s, ok = r.landed(work, s); !ok {
			return
		}
	}
	key := keyOf(s.row)
	held := time.Now().Before(r.heldTill)
	switch {
	case s.again && held:
		r.send(work, s.row)
		return
	case s.again:
		r.lanes.drop(key)
		return
	}
	r.sending--
	kind := classify(s, r.conn.IsConnected())
	r.tell(s, kind)
	if s.err == nil {
		r.metrics.published.Inc()
		r.out = append(r.out, s.row.ID)
		if next, ok := r.lanes.advance(key); ok && held {
			r.send(work, next)
		} else if ok {
			r.lanes.drop(key)
		}
		return
	}
	if kind != unreachable {
		r.failed = append(r.failed, s)
		return
	}
	ln := r.lanes.byKey[key]
	delay := doubling(firstReconnectDelay, lastReconnectDelay, ln.tries)
	ln.tries++
	time.AfterFunc(delay, func() { r.results <- sent{row: s.row, again: true} })
}
