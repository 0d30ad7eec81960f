package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

const (
	warmUp = 50                    // messages that are not counted
	pause  = 10 * time.Millisecond // after each: more than pokes for one queue are apart, so that nothing is in a flow
)

// latency is of one message at a time on an idle system. Commits are known by the pokes that follow them over NATS, in the path as in the
// floor: both have that hop in them.
func latency(ctx context.Context, b *run) error {
	lat := &latencies{run: b}
	if err := b.runParts(ctx, b.config(64), partBridge, partWorker); err != nil {
		return err
	}
	c := &Case{
		Name: "latency", Unit: "message", compared: []string{p50, p99, "ingested_p50_us", "committed_p50_us", "committed_p99_us"},
		About: fmt.Sprintf("%d messages, one after the other, each for an instance that it ends: from publish until it is taken in (ingested), its end is committed (committed), the outcome message is received (p50, p99)", b.N),
	}
	return b.alternate(ctx, c,
		side{"path", "JetStream, bridge, Postgres, poke, worker, Postgres, poke, bridge, JetStream", lat.path},
		side{"floor", "the same hops with the least code, all in one process", lat.floor},
	)
}

type latencies struct{ *run }

// marks are the moments of one message.
type marks struct{ ingested, committed, received time.Duration }

func (lat *latencies) report(m *measurement, all []marks) {
	var ingested, committed, received []time.Duration
	for _, k := range all {
		ingested, committed, received = append(ingested, k.ingested), append(committed, k.committed), append(received, k.received)
	}
	m.times(received)
	for name, times := range map[string][]time.Duration{"ingested": ingested, "committed": committed} {
		m.metrics[name+"_p50_us"], m.metrics[name+"_p99_us"] = quantile(times, 0.5), quantile(times, 0.99)
	}
}

// subjects of what is waited for: pokes of the queue and of the outbox, and what comes of the end.
type hops struct{ ready, outbox, outcome string }

// follow publishes one message after the other and waits for what each brings about.
func (lat *latencies) follow(ctx context.Context, m *measurement, h hops, send func(i int) *nats.Msg) error {
	nc, err := nats.Connect(lat.natsURL) // pokes do not wait behind what is published
	if err != nil {
		return err
	}
	defer nc.Close()
	ready, outbox, outcome := make(chan *nats.Msg, 64), make(chan *nats.Msg, 64), make(chan *nats.Msg, 64)
	for subject, to := range map[string]chan *nats.Msg{h.ready: ready, h.outbox: outbox, h.outcome: outcome} {
		if _, err := nc.ChanSubscribe(subject, to); err != nil {
			return err
		}
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	var all []marks
	for i := range lat.N + warmUp {
		if i == warmUp {
			if err := m.begin(ctx); err != nil {
				return err
			}
		}
		for _, c := range []chan *nats.Msg{ready, outbox} { // a second poke for what came before says nothing
			for len(c) > 0 {
				<-c
			}
		}
		var k marks
		msg := send(i)
		begin := time.Now()
		if err := lat.nc.PublishMsg(msg); err != nil {
			return err
		}
		if err := lat.nc.Flush(); err != nil {
			return err
		}
		over := time.NewTimer(patience)
		for k.received == 0 {
			select {
			case <-ready:
				k.ingested = time.Since(begin)
			case <-outbox:
				k.committed = time.Since(begin)
			case <-outcome:
				k.received = time.Since(begin)
			case <-over.C:
				return fmt.Errorf("message %d: no outcome within %s", i, patience)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		over.Stop()
		// What the relay was quicker with than the poke.
		k.ingested, k.committed = earlier(k.ingested, k.received), earlier(k.committed, k.received)
		if i >= warmUp {
			all = append(all, k)
		}
		time.Sleep(pause)
	}
	lat.report(m, all)
	m.seconds = time.Since(m.before.at).Seconds() // most of it is waiting: there is no rate
	return m.end(ctx, lat.N)
}

func earlier(at, last time.Duration) time.Duration {
	if at == 0 {
		return last
	}
	return at
}

func (lat *latencies) path(ctx context.Context, m *measurement) error {
	if err := lat.sweep(ctx); err != nil {
		return err
	}
	n := lat.N + warmUp
	waiting, err := lat.park(ctx, schema, machineLast, n, false)
	if err != nil {
		return err
	}
	l := newLoad(waiting.order)
	h := hops{lat.space.Wake(engine.DefaultQueue), lat.space.Wake(engine.OutboxQueue), lat.space.OutcomeFilter()}
	if err := lat.follow(ctx, m, h, func(i int) *nats.Msg { return lat.message(l, i, subjectIn(0)) }); err != nil {
		return err
	}
	if err := errors.Join(lat.outcomesStored(ctx, n), lat.outboxEmpty(ctx)); err != nil {
		return err
	}
	return errors.Join(lat.expect(ctx, schema, "instances that are done", n, `select count(*) from pointsman.instances where status = 'done'`), lat.expectNoLetters(ctx))
}

// floor has a bridge, a worker and a relay of a few lines each, on connections of their own.
func (lat *latencies) floor(ctx context.Context, m *measurement) error {
	n := lat.N + warmUp
	if err := errors.Join(lat.sweep(ctx), lat.parkLimits(ctx, n)); err != nil {
		return err
	}
	sessions, stop, err := lat.limits(ctx, 3)
	if err != nil {
		return err
	}
	defer stop()
	h := hops{prefix + ".limit.ready", prefix + ".limit.outbox", subjectOut}
	l := newLoad(shuffled(n))
	ids := map[string]int{}
	for i, number := range l.numbers {
		ids[l.id(i)] = number
	}
	failed := make(chan error, 3)
	fail := func(err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	conns := make([]*nats.Conn, 3)
	for i := range conns {
		if conns[i], err = nats.Connect(lat.natsURL); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	bridge, err := jetstream.New(conns[0])
	if err != nil {
		return err
	}
	consumer, err := bridge.CreateOrUpdateConsumer(ctx, streamPipe, jetstream.ConsumerConfig{Name: "floor", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: subjectPipe(0)})
	if err != nil {
		return err
	}
	defer func() { _ = lat.js.DeleteConsumer(context.WithoutCancel(ctx), streamPipe, "floor") }()
	reading, err := consumer.Consume(func(msg jetstream.Msg) {
		number := ids[msg.Headers().Get(jetstream.MsgIDHeader)]
		_, err := sessions[0].deliver(ctx, rows{
			keys: []string{keyOf(number)}, names: []string{signalGo}, payloads: []string{string(msg.Data())}, dedups: []uuid.UUID{dedupOf(msg.Headers().Get(jetstream.MsgIDHeader))},
		})
		fail(errors.Join(err, conns[0].Publish(h.ready, nil), msg.Ack()))
	})
	if err != nil {
		return err
	}
	defer reading.Stop()
	if _, err := conns[1].Subscribe(h.ready, func(*nats.Msg) {
		token := uuid.New()
		works, err := sessions[1].pick(ctx, engine.DefaultQueue, 64, token)
		if err == nil && len(works) > 0 {
			err = sessions[1].end(ctx, works, token, 0)
		}
		fail(errors.Join(err, conns[1].Publish(h.outbox, nil)))
	}); err != nil {
		return err
	}
	relay, err := jetstream.New(conns[2])
	if err != nil {
		return err
	}
	if _, err := conns[2].Subscribe(h.outbox, func(*nats.Msg) {
		_, err := sessions[2].relay(ctx, relay, 0, 64)
		fail(err)
	}); err != nil {
		return err
	}
	if err := errors.Join(conns[1].Flush(), conns[2].Flush()); err != nil {
		return err
	}
	err = lat.follow(ctx, m, h, func(i int) *nats.Msg { return lat.message(l, i, subjectPipe(0)) })
	reading.Stop()
	for _, nc := range conns {
		if derr := nc.Drain(); err == nil {
			err = derr
		}
	}
	for _, nc := range conns {
		err = errors.Join(err, lat.until(ctx, "the floor has ended", patience, func() (bool, error) { return nc.IsClosed(), nil }))
	}
	select {
	case ferr := <-failed:
		return errors.Join(err, ferr)
	default:
		return err
	}
}
