package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lives are instances that a message starts, that wait, that a second message ends, and whose outcome is published.
func (cy *cycles) lives(ctx context.Context) error {
	group := cy.Groups[len(cy.Groups)-1]
	c := &Case{
		Name: "life", Unit: "life",
		About: fmt.Sprintf("%d messages start an instance each; as they are taken in, a second message for each follows, which ends it; until all outcomes are in their stream. The worker has %d slots", cy.N, slots(group)),
	}
	if err := cy.runParts(ctx, cy.config(slots(group)), partBridge, partWorker); err != nil {
		return err
	}
	return cy.alternate(ctx, c,
		side{"path", "JetStream, bridge, Postgres, worker, Postgres, bridge, JetStream", cy.lifePath},
		side{"least", fmt.Sprintf("least code: start, pick, park, deliver, pick, end, outbox, async publish, at %d connections", cy.Conns), cy.lifeLeast(group)},
	)
}

func (cy *cycles) lifePath(ctx context.Context, m *measurement) error {
	cy.parked = nil
	if err := cy.sweep(ctx); err != nil {
		return err
	}
	if err := cy.truncate(ctx, schema, "instances"); err != nil {
		return err
	}
	starts, signals := newLoad(shuffled(cy.N)), newLoad(nil)
	signals.numbers = starts.numbers
	g := cy.gateStart()
	if err := g.hold(ctx, starts); err != nil {
		return err
	}
	if err := g.release(ctx, m); err != nil {
		return err
	}
	sent := 0
	err := cy.until(ctx, "all starts are taken in", cy.stallAfter(), func() (bool, error) {
		left, err := g.left(ctx)
		if err != nil {
			return false, err
		}
		// What is acked is committed. The route has one session, and takes its messages in in their order.
		from, n := sent, cy.N-left-sent
		sent += n
		return sent == cy.N, cy.publish(ctx, n, func(i int) *nats.Msg { return cy.message(signals, from+i, subjectIn((from+i)%cy.Conns)) })
	})
	if err != nil {
		return err
	}
	if err := cy.outcomesStored(ctx, cy.N); err != nil {
		return err
	}
	if err := m.end(ctx, cy.N); err != nil {
		return err
	}
	if err := cy.outboxEmpty(ctx); err != nil {
		return err
	}
	return errors.Join(
		cy.expect(ctx, schema, "instances that are done", cy.N, `select count(*) from pointsman.instances where status = 'done'`),
		cy.expect(ctx, schema, "instances", cy.N, `select count(*) from pointsman.instances`),
		cy.expectNoLetters(ctx),
	)
}

// outcomesStored waits until the stream of outcomes holds so many. More are a second publication, which its window would have dropped.
func (b *run) outcomesStored(ctx context.Context, want int) error {
	return b.until(ctx, "all outcomes are published", b.stallAfter(), func() (bool, error) {
		n, err := b.stored(ctx, b.space.OutcomesStream())
		if err == nil && n > want {
			err = fmt.Errorf("%d outcomes, want %d", n, want)
		}
		return n == want, err
	})
}

func (b *run) outboxEmpty(ctx context.Context) error {
	return b.until(ctx, "the outbox is empty", patience, func() (bool, error) {
		n, err := b.count(ctx, schema, `select exists (select from pointsman.outbox)::int`)
		return n == 0, err
	})
}

// lifeLeast has a queue for each connection, so that each sees its own lives to the end.
func (cy *cycles) lifeLeast(group int) probe {
	return func(ctx context.Context, m *measurement) error {
		if err := errors.Join(cy.sweep(ctx), cy.makeLimits(ctx)); err != nil {
			return err
		}
		sessions, stop, err := cy.limits(ctx, cy.Conns)
		if err != nil {
			return err
		}
		defer stop()
		numbers := shuffled(cy.N)
		starts, signals := cy.rows(newLoad(numbers), deliverBatch), cy.rows(newLoad(numbers), deliverBatch)
		turns := make([]int, len(starts))
		for i := range turns {
			turns[i] = i
		}
		if err := m.begin(ctx); err != nil {
			return err
		}
		if err := each(cy.Conns, turns, func(conn int, turn int) error {
			return sessions[conn].live(ctx, cy.js, conn, group, starts[turn], signals[turn])
		}); err != nil {
			return err
		}
		if err := m.end(ctx, cy.N); err != nil {
			return err
		}
		n, err := cy.stored(ctx, streamOut)
		if err == nil && n != cy.N {
			err = fmt.Errorf("%d outcomes of the least code, want %d", n, cy.N)
		}
		return err
	}
}

// live sees a batch of instances from their start to their outcomes.
func (l limit) live(ctx context.Context, js jetstream.JetStream, owner, group int, starts, signals rows) error {
	queue := fmt.Sprint("queue", owner)
	if err := l.start(ctx, queue, starts); err != nil {
		return err
	}
	if n, err := l.drain(ctx, queue, group, len(starts.keys)); err != nil || n != len(starts.keys) {
		return errors.Join(err, fmt.Errorf("parked %d of %d", n, len(starts.keys)))
	}
	if _, err := l.deliver(ctx, signals); err != nil {
		return err
	}
	for ended := 0; ended < len(signals.keys); {
		token := uuid.New()
		works, err := l.pick(ctx, queue, group, token)
		if err == nil && len(works) == 0 {
			err = fmt.Errorf("ended %d of %d", ended, len(signals.keys))
		}
		if err == nil {
			err = l.end(ctx, works, token, owner)
		}
		if err != nil {
			return err
		}
		ended += len(works)
	}
	for {
		if n, err := l.relay(ctx, js, owner, 500); err != nil || n == 0 {
			return err
		}
	}
}
