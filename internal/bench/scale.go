package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	overload     = 1.2 // of the rate of what waits in a stream already
	searches     = 4
	comesThrough = 0.98
	tickEvery    = 5 * time.Millisecond
	sayEvery     = 30 * time.Second
	warmShare    = 10 // the first tenth of the time of a load is not counted
)

// scale offers loads, and says what comes through and how long it takes. Every hundredth instance answers on a subject when its cycle is
// committed: from these the times are.
func scale(ctx context.Context, b *run) error {
	sc := &scaling{run: b, sent: map[string]time.Time{}}
	if err := b.runParts(ctx, b.config(slots(maxGroup)), partBridge, partWorker); err != nil {
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

// sustained is the highest rate of which all but a fiftieth comes through in its time. It is below that of messages that are in their stream
// already: who publishes, and the server that stores it, take their part of the machine too. And it is above what comes through when far more
// is offered: then the bridge has the processors that the worker would need.
func (sc *scaling) sustained(ctx context.Context) (perSecond float64, err error) {
	c := &Case{Name: "highest", Unit: "cycle", About: sc.aboutCycles()}
	cy := &cycles{run: sc.run, parked: sc.waiting}
	if err := sc.alternate(ctx, c, side{"path", "JetStream, bridge, Postgres, worker, Postgres", cy.path}); err != nil {
		return 0, err
	}
	if err := sc.outboxEmpty(ctx); err != nil {
		return 0, err
	}
	through := func(name, about string, offered float64) (float64, error) {
		c := &Case{Name: name, Unit: "cycle", About: fmt.Sprintf("%.0f messages a second for %s, %s", offered, sc.Duration, about)}
		err := sc.steady(ctx, c, offered, sc.Duration)
		return c.Sides[0].Metrics[rate].Median, err
	}
	most := c.Sides[0].Metrics[rate].Median
	low, err := through("overload", fmt.Sprintf("which is %.0f %% of the highest rate", overload*100), overload*most)
	for n := 1; n <= searches && err == nil; n++ {
		offered, got := (low+most)/2, 0.0
		got, err = through(fmt.Sprintf("search %d", n), "between what came through and what did not. The loads are shares of the most that did", offered)
		if got >= comesThrough*offered {
			low = offered
		} else {
			most = offered
		}
	}
	return low, err
}

// steady offers one load.
func (sc *scaling) steady(ctx context.Context, c *Case, perSecond float64, d time.Duration) error {
	s := &Side{Name: "path", About: "JetStream, bridge, Postgres, worker, Postgres, and back for every hundredth"}
	c.Sides, c.Ratios = []*Side{s}, []Ratio{}
	sc.report.Cases = append(sc.report.Cases, c)
	m, err := sc.beginLoad(ctx, perSecond)
	if err != nil {
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

// beginLoad of what is to be offered, with nothing left of what was before.
func (sc *scaling) beginLoad(ctx context.Context, perSecond float64) (*measurement, error) {
	if err := sc.sweep(ctx); err != nil {
		return nil, err
	}
	m := &measurement{run: sc.run, metrics: map[string]float64{"offered_per_second": perSecond}}
	return m, m.begin(ctx)
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
	return between(sc.takeTimed(), from, to)
}

func (sc *scaling) takeTimed() []timed {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	times := sc.times
	sc.times = nil
	return times
}

// between are the times of what was published then.
func between(times []timed, from, to time.Time) (in []time.Duration) {
	for _, t := range times {
		if !t.at.Before(from) && t.at.Before(to) {
			in = append(in, t.took)
		}
	}
	return in
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
