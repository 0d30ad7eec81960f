package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/store"
)

// ingest is messages from their stream into inboxes. No worker runs: what wakes stays ready.
func ingest(ctx context.Context, b *run) error {
	if err := b.makeLimits(ctx); err != nil {
		return err
	}
	if err := b.runParts(ctx, b.config(1), partBridge); err != nil {
		return err
	}
	db, err := b.tuned(ctx, b.Conns)
	if err != nil {
		return err
	}
	defer db.Close()
	in := &intake{run: b, db: db}
	fresh := &Case{
		Name: "ingest", Unit: "message",
		About: fmt.Sprintf("%d messages wait in a stream; each is for another of %d parked instances, and wakes it. Until all are acked", b.N, b.Parked),
	}
	if err := b.alternate(ctx, fresh,
		side{"path", "JetStream, bridge, Postgres", in.path(false)},
		side{"statement", fmt.Sprintf("our own deliver, bare, at %d connections", b.Conns), in.statement(false)},
		side{"pipe", "least code: JetStream to rows of an inbox and a ledger, no instance looked at", in.pipe},
	); err != nil {
		return err
	}
	again := &Case{Name: "duplicates", Unit: "message", About: "the same messages once more: none is new"}
	return b.alternate(ctx, again,
		side{"path", "JetStream, bridge, Postgres", in.path(true)},
		side{"statement", fmt.Sprintf("our own deliver, bare, at %d connections", b.Conns), in.statement(true)},
		side{"ledger", "least code: insert into a ledger that has them all, on conflict do nothing", in.ledger},
	)
}

type intake struct {
	*run
	db     *pgxpool.Pool
	parked *instances
}

// load is messages for instances that wait. What a probe woke is not used again.
func (in *intake) load(ctx context.Context) (l load, err error) {
	if err := in.sweep(ctx); err != nil {
		return l, err
	}
	if in.parked == nil || in.parked.left() < in.N {
		if in.parked, err = in.park(ctx, schema, machineCycle, in.Parked, false); err != nil {
			return l, err
		}
	}
	return newLoad(in.parked.take(in.N)), nil
}

// path has the messages in the stream before the bridge may read them. Duplicates have been taken in before that.
func (in *intake) path(duplicates bool) probe {
	return func(ctx context.Context, m *measurement) error {
		l, err := in.load(ctx)
		if err != nil {
			return err
		}
		if duplicates {
			if err := in.deliver(ctx, in.signals(l, in.Batch), store.Delivered); err != nil {
				return err
			}
		}
		g := in.gateIn()
		if err := g.hold(ctx, l); err != nil {
			return err
		}
		if err := g.release(ctx, m); err != nil {
			return err
		}
		if err := g.taken(ctx); err != nil {
			return err
		}
		if err := m.end(ctx, in.N); err != nil {
			return err
		}
		return in.verify(ctx)
	}
}

// verify that each message is in an inbox and in the ledger, once, and woke its instance.
func (in *intake) verify(ctx context.Context) error {
	return errors.Join(
		in.expect(ctx, schema, "signals", in.N, `select count(*) from pointsman.signals`),
		in.expect(ctx, schema, "rows of the ledger", in.N, `select count(*) from pointsman.ledger`),
		in.expect(ctx, schema, "ready instances", in.N, `select count(*) from pointsman.ready`),
		in.expectNoLetters(ctx),
	)
}

func (in *intake) deliver(ctx context.Context, batches [][]store.Signal, want store.Verdict) error {
	s, err := store.New(in.db, schema)
	if err != nil {
		return err
	}
	return each(in.Conns, batches, func(_ int, batch []store.Signal) error {
		ds, err := s.Deliver(ctx, "default", false, batch)
		if err != nil {
			return err
		}
		for _, d := range ds {
			if d.Verdict != want {
				return fmt.Errorf("deliver: verdict %d, want %d", d.Verdict, want)
			}
		}
		return nil
	})
}

func (in *intake) statement(duplicates bool) probe {
	return func(ctx context.Context, m *measurement) error {
		l, err := in.load(ctx)
		if err != nil {
			return err
		}
		batches, want := in.signals(l, in.Batch), store.Delivered
		if duplicates {
			if err := in.deliver(ctx, batches, want); err != nil {
				return err
			}
			want = store.Duplicate
		}
		if err := m.begin(ctx); err != nil {
			return err
		}
		if err := in.deliver(ctx, batches, want); err != nil {
			return err
		}
		if err := m.end(ctx, in.N); err != nil {
			return err
		}
		return in.verify(ctx)
	}
}

// emptyLimits leaves rows of no probe before.
func (b *run) emptyLimits(ctx context.Context) error {
	_, err := b.db.Exec(ctx, `truncate `+limitSchema+`.signals, `+limitSchema+`.ledger, `+limitSchema+`.history, `+limitSchema+`.ready, `+limitSchema+`.leases, `+limitSchema+`.outbox`)
	return err
}

func (in *intake) ledger(ctx context.Context, m *measurement) error {
	if err := in.emptyLimits(ctx); err != nil {
		return err
	}
	sessions, stop, err := in.limits(ctx, in.Conns)
	if err != nil {
		return err
	}
	defer stop()
	batches := in.rows(newLoad(shuffled(in.Parked)[:in.N]), in.Batch)
	var fresh atomic.Int64
	know := func(conn int, r rows) error {
		n, err := sessions[conn].know(ctx, r)
		fresh.Add(int64(n))
		return err
	}
	if err := each(in.Conns, batches, know); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := each(in.Conns, batches, know); err != nil {
		return err
	}
	if n := fresh.Load(); n != int64(in.N) {
		return fmt.Errorf("the ledger has taken %d, want %d", n, in.N)
	}
	return m.end(ctx, in.N)
}

// pipe is JetStream to rows with nothing between.
func (in *intake) pipe(ctx context.Context, m *measurement) error {
	if err := errors.Join(in.sweep(ctx), in.emptyLimits(ctx)); err != nil {
		return err
	}
	sessions, stop, err := in.limits(ctx, in.Conns)
	if err != nil {
		return err
	}
	defer stop()
	l := newLoad(shuffled(in.Parked)[:in.N])
	if err := in.publish(ctx, in.N, func(i int) *nats.Msg { return in.message(l, i, subjectPipe(i%in.Conns)) }); err != nil {
		return err
	}
	consumers := make([]jetstream.Consumer, in.Conns)
	for i := range consumers {
		if consumers[i], err = in.js.CreateOrUpdateConsumer(ctx, streamPipe, jetstream.ConsumerConfig{
			Name: fmt.Sprint("pipe", i), AckPolicy: jetstream.AckAllPolicy, FilterSubject: subjectPipe(i), MaxAckPending: 10 * in.Batch, InactiveThreshold: patience,
		}); err != nil {
			return err
		}
		defer func() { _ = in.js.DeleteConsumer(context.WithoutCancel(ctx), streamPipe, fmt.Sprint("pipe", i)) }()
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := each(in.Conns, consumers, func(conn int, c jetstream.Consumer) error {
		return in.pour(ctx, sessions[conn], c)
	}); err != nil {
		return err
	}
	if err := m.end(ctx, in.N); err != nil {
		return err
	}
	n, err := in.count(ctx, limitSchema, `select count(*) from `+limitSchema+`.signals`)
	if err == nil && n != in.N {
		err = fmt.Errorf("the pipe stored %d, want %d", n, in.N)
	}
	return err
}

// pour one consumer's messages into rows: the next are on their way while one batch is stored.
func (in *intake) pour(ctx context.Context, to limit, from jetstream.Consumer) error {
	left := int(from.CachedInfo().NumPending)
	messages, err := from.Messages(jetstream.PullMaxMessages(2*in.Batch), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for left > 0 {
		var r rows
		var last jetstream.Msg
		for range min(in.Batch, left) {
			if last, err = messages.Next(jetstream.NextMaxWait(patience)); err != nil {
				return err
			}
			id := last.Headers().Get(jetstream.MsgIDHeader)
			number, err := strconv.ParseInt(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
			if err != nil {
				return err
			}
			r.numbers, r.names, r.payloads, r.dedups = append(r.numbers, number), append(r.names, signalGo), append(r.payloads, string(last.Data())), append(r.dedups, dedupOf(id))
		}
		fresh, err := to.insert(ctx, r)
		if err != nil {
			return err
		}
		if fresh != len(r.dedups) {
			return fmt.Errorf("the pipe took %d of %d", fresh, len(r.dedups))
		}
		if err := last.DoubleAck(ctx); err != nil {
			return err
		}
		left -= len(r.dedups)
	}
	return nil
}
