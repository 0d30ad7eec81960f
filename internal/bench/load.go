package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/migrations"
)

func keyOf(number int) string { return fmt.Sprintf("order-%09d", number) }

// body of a message for an instance, of as many bytes as are wanted.
func (o *Options) body(number int) []byte {
	text := fmt.Appendf(nil, `{"key":"%s","pad":"`, keyOf(number))
	return append(append(text, strings.Repeat("p", max(0, o.Payload-len(text)-2))...), `"}`...)
}

// load is the messages of one probe: which instance each is for, and its id.
type load struct {
	tag     string
	numbers []int
}

var loads atomic.Int64

func newLoad(numbers []int) load {
	return load{tag: fmt.Sprintf("%x-%d", time.Now().UnixNano(), loads.Add(1)), numbers: numbers}
}

func (l load) id(i int) string { return fmt.Sprintf("%s-%d-%d", l.tag, i, l.numbers[i]) }

func (b *run) message(l load, i int, subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: b.body(l.numbers[i]), Header: nats.Header{jetstream.MsgIDHeader: {l.id(i)}}}
}

// publish messages, and return when the server has them all.
func (b *run) publish(ctx context.Context, n int, message func(i int) *nats.Msg) error {
	var failed atomic.Pointer[error]
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
		failed.Store(&err)
	}))
	if err != nil {
		return err
	}
	defer js.CleanupPublisher()
	for i := range n {
		if _, err := js.PublishMsgAsync(message(i), jetstream.WithStallWait(patience)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		if i%10_000 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.New("publish: the acks of the server do not come")
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("publish: %w", *err)
	}
	return nil
}

// instances are those that a probe may have messages for, in an order that has nothing to do with where they stand.
type instances struct {
	machine string
	order   []int
	used    int
}

func (in *instances) left() int { return len(in.order) - in.used }

// take the next n, from the beginning again where so many are not left.
func (in *instances) take(n int) []int {
	if n > in.left() {
		in.used = 0
	}
	in.used += n
	return in.order[in.used-n : in.used]
}

// park fills a schema with instances that wait, in the place of what is there. Every hundredth is of the machine echo, where there are any.
func (b *run) park(ctx context.Context, schema, machine string, n int, echo bool) (*instances, error) {
	if err := errors.Join(b.empty(ctx, schema), b.truncate(ctx, schema, "instances", "departed")); err != nil {
		return nil, err
	}
	if err := b.fill(ctx, schema, machine, 1, n, echo); err != nil {
		return nil, err
	}
	return &instances{machine: machine, order: shuffled(n)}, b.exec(ctx, schema, `vacuum analyze pointsman.instances`)
}

func shuffled(n int) []int {
	order := rand.Perm(n)
	for i := range order {
		order[i]++
	}
	return order
}

// fillChunk is how many instances one statement makes.
const fillChunk = 500_000

func (b *run) fill(ctx context.Context, schema, machine string, from, to int, echo bool) error {
	for at := from; at <= to; at += fillChunk {
		last := min(to, at+fillChunk-1)
		if err := b.exec(ctx, schema, `
insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, parked, awaits)
select gen_random_uuid(), $1, case when $5 and g % 100 = 0 then '`+machineEcho+`' else $2 end, 1, 'default', key, encode(substring(sha256(convert_to($1, 'UTF8') || '\x00'::bytea || convert_to(key, 'UTF8')) for 16), 'hex')::uuid,
  '`+stepGo+`', jsonb_build_object('n', 0, 'pad', repeat('s', 280)), true, '{signal/`+signalGo+`}'
from (select g, 'order-' || lpad(g::text, 9, '0') as key from generate_series($3::int, $4::int) g) k`, engine.DefaultProject, machine, at, last, echo); err != nil {
			return err
		}
		if to > fillChunk {
			b.say("parked %d of %d", last, to)
		}
	}
	return nil
}

// exec a statement that stands around the probes, and is not counted.
func (st *stack) exec(ctx context.Context, schema, sql string, args ...any) error {
	if _, err := st.db.Exec(ctx, migrations.Qualify(sql, schema), append([]any{pgx.QueryExecModeDescribeExec}, args...)...); err != nil {
		return fmt.Errorf("%.60q: %w", strings.TrimSpace(sql), err)
	}
	return nil
}

func (st *stack) count(ctx context.Context, schema, sql string, args ...any) (n int, err error) {
	if err = st.db.QueryRow(ctx, migrations.Qualify(sql, schema), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%.60q: %w", strings.TrimSpace(sql), err)
	}
	return n, nil
}

// empty removes what probes left beside the instances.
func (b *run) empty(ctx context.Context, schema string) error {
	return b.truncate(ctx, schema, "ready", "leases", "timers", "signals", "ledger", "held", "history", "outbox")
}

// truncate tables one by one: the programs look at them meanwhile, in orders of their own.
func (b *run) truncate(ctx context.Context, schema string, tables ...string) error {
	for _, table := range tables {
		if err := b.exec(ctx, schema, `truncate pointsman.`+table); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what probes of the path left, in the streams too.
func (b *run) sweep(ctx context.Context) error {
	for _, stream := range []string{streamIn, streamStart, streamOut, streamPipe, b.space.OutcomesStream(), b.space.DeadLettersStream()} {
		s, err := b.js.Stream(ctx, stream)
		if err == nil {
			err = s.Purge(ctx)
		}
		if err != nil {
			return fmt.Errorf("purge %s: %w", stream, err)
		}
	}
	return b.empty(ctx, schema)
}

// expect compares what is stored with what was sent: a figure of messages that were lost is none.
func (b *run) expect(ctx context.Context, schema, what string, want int, sql string) error {
	have, err := b.count(ctx, schema, sql)
	if err == nil && have != want {
		err = fmt.Errorf("%s: %d, want %d", what, have, want)
	}
	return err
}

// expectNoLetters: what went to the dead letters was not done.
func (b *run) expectNoLetters(ctx context.Context) error {
	n, err := b.stored(ctx, b.space.DeadLettersStream())
	if err == nil && n > 0 {
		err = fmt.Errorf("%d dead letters", n)
	}
	return err
}

func (b *run) stored(ctx context.Context, stream string) (int, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	return int(s.CachedInfo().State.Msgs), nil
}

// gate holds the messages of routes back at the server, so that they are all there when the bridge may have them.
type gate struct {
	*run
	stream    string
	consumers []string
	subject   func(i int) string // of the i-th message
}

func (b *run) gateIn() *gate {
	g := &gate{run: b, stream: streamIn, subject: func(i int) string { return subjectIn(i % b.Conns) }}
	for i := range b.Conns {
		g.consumers = append(g.consumers, b.space.Durable(routeIn(i)))
	}
	return g
}

func (b *run) gateStart() *gate {
	return &gate{run: b, stream: streamStart, consumers: []string{b.space.Durable(routeStart)}, subject: func(int) string { return subjectStart }}
}

// hold the messages of a load.
func (g *gate) hold(ctx context.Context, l load) error {
	if _, err := g.pause(ctx, 24*time.Hour); err != nil {
		return err
	}
	return g.publish(ctx, len(l.numbers), func(i int) *nats.Msg { return g.message(l, i, g.subject(i)) })
}

// opensIn is how long it takes to tell the server when to let go, at most: it is told of each consumer.
func (g *gate) opensIn() time.Duration {
	return 250*time.Millisecond + time.Duration(len(g.consumers))*5*time.Millisecond
}

// release lets the messages go, and starts the clock of the measurement then. The end of the pause wakes those who wait for messages; a
// resume before it would not, and they would find out by their heartbeats, seconds later.
func (g *gate) release(ctx context.Context, m *measurement) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	at, err := g.pause(ctx, g.opensIn())
	if err != nil {
		return err
	}
	select {
	case <-time.After(time.Until(at)):
		m.before.at = at
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause the consumers for so long, and say when that is over.
func (g *gate) pause(ctx context.Context, d time.Duration) (at time.Time, err error) {
	until := time.Now().Add(d)
	for _, c := range g.consumers {
		p, err := g.js.PauseConsumer(ctx, g.stream, c, until)
		if err != nil || !p.Paused {
			return at, fmt.Errorf("pause consumer %s for %s (NATS 2.11 or newer can, if its clock agrees with this one): %w", c, d, err)
		}
		at = time.Now().Add(p.PauseRemaining)
	}
	return at, nil
}

// left is how many messages are not acked yet.
func (g *gate) left(ctx context.Context) (n int, err error) {
	for _, name := range g.consumers {
		of, err := g.leftOf(ctx, name)
		if err != nil {
			return 0, err
		}
		n += of
	}
	return n, nil
}

func (g *gate) leftOf(ctx context.Context, consumer string) (int, error) {
	c, err := g.js.Consumer(ctx, g.stream, consumer)
	if err != nil {
		return 0, fmt.Errorf("consumer %s: %w", consumer, err)
	}
	return int(c.CachedInfo().NumPending) + c.CachedInfo().NumAckPending, nil
}

// stallAfter is how long a probe may take. Long runs have a bound of their own.
func (b *run) stallAfter() time.Duration {
	return 2*time.Minute + time.Duration(b.N)*10*time.Millisecond
}

// taken waits until all is acked. Nothing comes meanwhile, so a consumer that has nothing left is not asked again: of a thousand consumers
// the server would tell at length.
func (g *gate) taken(ctx context.Context) error {
	ask := g.consumers
	return g.until(ctx, "all messages are taken in", g.stallAfter(), func() (bool, error) {
		for len(ask) > 0 {
			if n, err := g.leftOf(ctx, ask[0]); n > 0 || err != nil {
				return false, err
			}
			ask = ask[1:]
		}
		return true, nil
	})
}

// idle waits until nothing is in an inbox, ready or executing.
func (b *run) idle(ctx context.Context) error {
	return b.until(ctx, "all instances wait again", b.stallAfter(), func() (bool, error) {
		n, err := b.count(ctx, schema, `select (exists (select from pointsman.signals) or exists (select from pointsman.ready) or exists (select from pointsman.leases))::int`)
		return n == 0, err
	})
}

// signals are the messages of a load as the bridge would have them stored, in batches.
func (b *run) signals(l load, batch int) (batches [][]store.Signal) {
	all := make([]store.Signal, len(l.numbers))
	for i, number := range l.numbers {
		body, dedup := b.body(number), streamIn+":"+l.id(i)
		all[i] = store.Signal{
			Key: keyOf(number), Kind: engine.KindSignal, Name: signalGo, Payload: body, DedupKey: dedup, Dedup: store.SignalDedup(dedup), Hash: store.SignalHash(engine.KindSignal, signalGo, body),
		}
	}
	return slices.Collect(slices.Chunk(all, batch))
}

// each calls do for every item, from as many goroutines as there are connections. do is told which.
func each[T any](conns int, items []T, do func(conn int, item T) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, conns)
	for conn := range conns {
		group.Go(func() {
			for errs[conn] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				errs[conn] = do(conn, items[i])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
