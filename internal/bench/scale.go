package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	soakShare  = 0.8
	overload   = 1.2             // of the rate of what waits in a stream already
	soakWindow = 5 * time.Minute // at the beginning and at the end
	tickEvery  = 5 * time.Millisecond
	sayEvery   = 30 * time.Second
	warmShare  = 10 // the first tenth of the time of a load is not counted
)

// scale offers loads, and says what comes through and how long it takes. Every hundredth instance answers on a subject when its cycle is
// committed: from these the times are.
func scale(ctx context.Context, b *run) error {
	sc := &scaling{run: b, sent: map[string]time.Time{}}
	if err := b.runParts(ctx, b.config(slots(256)), partBridge, partWorker); err != nil {
		return err
	}
	if err := b.sweep(ctx); err != nil {
		return err
	}
	all, err := b.park(ctx, schema, machineCycle, b.Parked, true)
	if err != nil {
		return err
	}
	sc.waiting = all
	stop, err := sc.listen()
	if err != nil {
		return err
	}
	defer stop()
	highest, err := sc.sustained(ctx)
	if err != nil {
		return err
	}
	for _, share := range b.Loads {
		offered := share * highest
		c := &Case{Name: fmt.Sprintf("load %.0f %%", share*100), Unit: "cycle", About: fmt.Sprintf("%.0f messages a second for %s, each for one of %d parked instances; times from publish to the answer of every hundredth, which follows its commit", offered, b.Duration, b.Parked)}
		if err := sc.steady(ctx, c, offered, b.Duration); err != nil {
			return err
		}
	}
	if b.Soak > 0 {
		return sc.soak(ctx, soakShare*highest)
	}
	return nil
}

type scaling struct {
	*run
	waiting *instances
	at      int

	mu    sync.Mutex
	sent  map[string]time.Time // of instances that answer, by key
	times []timed
}

// timed is an answer: when its message was published, and how long it took.
type timed struct {
	at   time.Time
	took time.Duration
}

// listen to the answers.
func (sc *scaling) listen() (stop func(), err error) {
	nc, err := nats.Connect(sc.natsURL)
	if err != nil {
		return nil, err
	}
	_, err = nc.Subscribe(echoSubject(sc.space), func(m *nats.Msg) {
		now := time.Now()
		var body struct {
			Key string `json:"key"`
		}
		if json.Unmarshal(m.Data, &body) != nil {
			return
		}
		sc.mu.Lock()
		defer sc.mu.Unlock()
		at, known := sc.sent[body.Key]
		if !known {
			return // of the search for the highest rate
		}
		delete(sc.sent, body.Key)
		sc.times = append(sc.times, timed{at, now.Sub(at)})
	})
	return nc.Close, errors.Join(err, nc.Flush())
}

// sustained is the rate that comes through when more is offered. It is below that of messages that are in their stream already: who
// publishes, and the server that stores it, take their part of the machine too.
func (sc *scaling) sustained(ctx context.Context) (perSecond float64, err error) {
	c := &Case{Name: "highest", Unit: "cycle", About: sc.aboutCycles()}
	cy := &cycles{run: sc.run, parked: sc.waiting}
	if err := sc.alternate(ctx, c, side{"path", "JetStream, bridge, Postgres, worker, Postgres", cy.path}); err != nil {
		return 0, err
	}
	if err := sc.outboxEmpty(ctx); err != nil {
		return 0, err
	}
	offered := overload * c.Sides[0].Metrics[rate].Median
	c = &Case{Name: "overload", Unit: "cycle", About: fmt.Sprintf("%.0f messages a second for %s, which is %.0f %% of the highest rate. The loads are shares of what comes through", offered, sc.Duration, overload*100)}
	if err := sc.steady(ctx, c, offered, sc.Duration); err != nil {
		return 0, err
	}
	return c.Sides[0].Metrics[rate].Median, nil
}

// steady offers one load.
func (sc *scaling) steady(ctx context.Context, c *Case, perSecond float64, d time.Duration) error {
	s := &Side{Name: "path", About: "JetStream, bridge, Postgres, worker, Postgres, and back for every hundredth"}
	c.Sides, c.Ratios = []*Side{s}, []Ratio{}
	sc.report.Cases = append(sc.report.Cases, c)
	if err := sc.sweep(ctx); err != nil {
		return err
	}
	m := &measurement{run: sc.run, metrics: map[string]float64{"offered_per_second": perSecond}}
	if err := m.begin(ctx); err != nil {
		return err
	}
	n, err := sc.offer(ctx, perSecond, d)
	if err != nil {
		return err
	}
	through, err := sc.consumed(ctx)
	if err != nil {
		return err
	}
	m.counted(through, time.Since(m.before.at))
	if err := sc.settle(ctx); err != nil {
		return err
	}
	if err := m.end(ctx, n); err != nil {
		return err
	}
	times := sc.take(m.before.at.Add(d/warmShare), m.before.at.Add(d))
	m.times(times)
	m.metrics["timed"] = float64(len(times))
	s.add(m)
	sc.say("%s: %s", c.Name, m.summary())
	done, err := sc.consumed(ctx)
	if err == nil && done != n {
		err = fmt.Errorf("%d signals were consumed, want %d", done, n)
	}
	return errors.Join(err, sc.expectNoLetters(ctx))
}

// consumed is how many signals have had their cycle.
func (b *run) consumed(ctx context.Context) (int, error) {
	return b.count(ctx, schema, `select coalesce(sum(cardinality(consumed)), 0)::int from pointsman.history`)
}

// settle waits until all is done, and all answers are there.
func (sc *scaling) settle(ctx context.Context) error {
	g := sc.gateIn()
	if err := errors.Join(g.taken(ctx), sc.idle(ctx), sc.outboxEmpty(ctx)); err != nil {
		return err
	}
	return sc.until(ctx, "all answers have come", patience, func() (bool, error) {
		sc.mu.Lock()
		defer sc.mu.Unlock()
		return len(sc.sent) == 0, nil
	})
}

// take the times of what was published between.
func (sc *scaling) take(from, to time.Time) (times []time.Duration) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, t := range sc.times {
		if !t.at.Before(from) && t.at.Before(to) {
			times = append(times, t.took)
		}
	}
	sc.times = nil
	return times
}

// offer messages at a rate that does not ask how fast they are taken. It returns how many the server has acked.
func (sc *scaling) offer(ctx context.Context, perSecond float64, d time.Duration) (n int, err error) {
	var failed atomic.Int64
	js, err := jetstream.New(sc.nc, jetstream.WithPublishAsyncMaxPending(1<<16), jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { failed.Add(1) }))
	if err != nil {
		return 0, err
	}
	defer js.CleanupPublisher()
	tag := newLoad(nil).tag
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	said := time.Now()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return n, context.Cause(ctx)
		case <-tick.C:
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			sc.say("offered %d messages in %s of %s", n, said.Sub(began).Round(time.Second), d)
		}
		if err := sc.alive(); err != nil {
			return n, err
		}
		elapsed := min(time.Since(began), d)
		for ; n < int(elapsed.Seconds()*perSecond); n++ {
			number := sc.next()
			msg := &nats.Msg{Subject: subjectIn(n % sc.Conns), Data: sc.body(number), Header: nats.Header{jetstream.MsgIDHeader: {tag + "-" + strconv.Itoa(n)}}}
			if number%100 == 0 && !sc.expects(keyOf(number)) {
				msg.Data = sc.body(number - 1) // it has not answered yet: its neighbour, which never does
			}
			if _, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(patience)); err != nil {
				return n, fmt.Errorf("publish: %w", err)
			}
		}
		if elapsed == d {
			break
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
	}
	if failed.Load() > 0 {
		err = fmt.Errorf("publish: %d messages failed", failed.Load())
	}
	return n, err
}

func (sc *scaling) next() int {
	if sc.at == len(sc.waiting.order) {
		rand.Shuffle(len(sc.waiting.order), func(i, j int) { o := sc.waiting.order; o[i], o[j] = o[j], o[i] })
		sc.at = 0
	}
	sc.at++
	return sc.waiting.order[sc.at-1]
}

// expects an answer of this instance, unless one is expected already.
func (sc *scaling) expects(key string) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if _, already := sc.sent[key]; already {
		return false
	}
	sc.sent[key] = time.Now()
	return true
}

// soakTables are looked at as they grow, or do not.
var soakTables = []string{"instances", "ready", "leases", "timers", "signals", "ledger", "history", "outbox"}

// soak offers one load for long, and compares its beginning with its end.
func (sc *scaling) soak(ctx context.Context, perSecond float64) error {
	part := min(soakWindow, sc.Soak/4)
	c := &Case{
		Name: "soak", Unit: "cycle", compared: []string{p50, p99},
		About: fmt.Sprintf("%.0f messages a second, %.0f %% of what comes through at most, for %s: the last %s beside the first", perSecond, soakShare*100, sc.Soak, part),
	}
	sc.report.Cases = append(sc.report.Cases, c)
	if err := sc.sweep(ctx); err != nil {
		return err
	}
	m := &measurement{run: sc.run, metrics: map[string]float64{"offered_per_second": perSecond}}
	if err := m.begin(ctx); err != nil {
		return err
	}
	looks, stopLooking := make(chan map[string]float64, 1), make(chan struct{})
	go func() { looks <- sc.sizesAfter(ctx, part, stopLooking) }()
	n, err := sc.offer(ctx, perSecond, sc.Soak)
	close(stopLooking)
	early := <-looks
	if err != nil {
		return err
	}
	late := sc.sizes(ctx)
	if err := sc.settle(ctx); err != nil {
		return err
	}
	if err := m.end(ctx, n); err != nil {
		return err
	}
	sc.mu.Lock()
	times := slices.Clone(sc.times)
	sc.times = nil
	sc.mu.Unlock()
	between := func(from, to time.Time) (in []time.Duration) {
		for _, t := range times {
			if !t.at.Before(from) && t.at.Before(to) {
				in = append(in, t.took)
			}
		}
		return in
	}
	first := &measurement{n: n, seconds: part.Seconds(), metrics: early}
	first.times(between(m.before.at, m.before.at.Add(part)))
	for name, v := range late {
		m.metrics[name] = v
	}
	m.times(between(m.before.at.Add(sc.Soak-part), m.before.at.Add(sc.Soak)))
	for _, s := range []struct {
		side *Side
		m    *measurement
	}{
		{&Side{Name: "last", About: "times and sizes of the end; the rate and the costs are of the whole"}, m},
		{&Side{Name: "first", About: "times and sizes of the beginning"}, first},
	} {
		s.side.add(s.m)
		c.Sides = append(c.Sides, s.side)
	}
	for _, table := range soakTables {
		c.compared = append(c.compared, sizePrefix+table)
	}
	c.compare()
	return sc.expectNoLetters(ctx)
}

// sizePrefix is of the bytes of a table with its indexes.
const sizePrefix = "table_bytes."

func (sc *scaling) sizesAfter(ctx context.Context, d time.Duration, stop <-chan struct{}) map[string]float64 {
	select {
	case <-time.After(d):
		return sc.sizes(ctx)
	case <-stop:
		return map[string]float64{}
	}
}

// sizes of the tables. One that cannot be asked for is left out.
func (sc *scaling) sizes(ctx context.Context) map[string]float64 {
	m := map[string]float64{}
	for _, table := range soakTables {
		if n, err := sc.count(ctx, schema, `select pg_total_relation_size('pointsman.`+table+`')::bigint`); err == nil {
			m[sizePrefix+table] = float64(n)
		}
	}
	return m
}
