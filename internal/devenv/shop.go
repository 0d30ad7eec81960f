package devenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/app"
)

const (
	lookEvery = 100 * time.Millisecond
	// stallAfter is how long nothing may move before the traffic is taken for as settled as it will be. It is more than a message
	// takes to come again after a bridge was killed.
	stallAfter = 90 * time.Second
	// longestWindow is how long it is waited for the streams to forget the first wave. They may be another's, and remember for hours.
	longestWindow = 5 * time.Second
)

// errStalled: the traffic does not settle. What is missing is the summary's to say.
var errStalled = errors.New("nothing has moved for a while")

// shop publishes a traffic and watches it settle.
type shop struct {
	*environment
	traffic   *traffic
	publisher *publisher
	outcomes  *outcomes
	audit     *audit
	progress  *progress
	streams   []string      // that it publishes to
	window    time.Duration // in which they drop duplicates
	took      time.Duration
}

func (e *environment) newShop(ctx context.Context) (*shop, error) {
	s := &shop{environment: e, traffic: newTraffic(e.Traffic, uint64(time.Now().UnixMilli())), publisher: newPublisher(e.js)}
	mapper, err := app.Mapper(e.cfg)
	if err != nil {
		return nil, err
	}
	client, err := engine.NewClient(e.db, engine.Config{Schema: e.cfg.Database.Schema, Logger: e.Log})
	if err != nil {
		return nil, err
	}
	s.audit = &audit{js: e.js, space: e.space, mapper: mapper, client: client, from: map[string]uint64{}}
	for _, stream := range s.readBy() {
		s.streams = append(s.streams, stream)
		st, err := e.js.Stream(ctx, stream)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", stream, err)
		}
		s.window = min(longestWindow, max(s.window, st.CachedInfo().Config.Duplicates))
	}
	for _, stream := range append([]string{e.space.OutcomesStream(), e.space.DeadLettersStream()}, s.streams...) {
		last, err := lastSequence(ctx, e.js, stream)
		if err != nil {
			return nil, err
		}
		s.audit.from[stream] = last + 1
	}
	s.outcomes = &outcomes{js: e.js, stream: e.space.OutcomesStream(), next: s.audit.from[e.space.OutcomesStream()], of: map[string][]outcome{}}
	for _, o := range s.traffic.orders {
		s.outcomes.of[o.key()] = nil
	}
	return s, nil
}

// readBy are the streams of the routes.
func (e *environment) readBy() []string {
	streams := map[string]bool{}
	for _, r := range e.cfg.Routes {
		streams[r.Stream] = true
	}
	return slices.Sorted(maps.Keys(streams))
}

// run publishes all, waits until it is settled, and says what came of it.
func (s *shop) run(ctx context.Context) (*summary, error) {
	s.progress = newProgress(s.Out, s.counts())
	defer s.progress.end()
	err := s.publishAll(ctx)
	if err == nil {
		err = s.settle(ctx, s.consumed)
	}
	if err != nil && !errors.Is(err, errStalled) {
		return nil, err
	}
	s.progress.end()
	s.say("counting what is stored ...")
	if err := s.audit.run(ctx, s.streams); err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	instances, err := s.audit.instances(ctx, "order-"+s.traffic.run+"-")
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	sum := &summary{traffic: s.traffic, stored: s.audit.stored, dropped: s.publisher.dropped, instances: instances, outcomes: s.outcomes.of, took: s.took}
	sum.check()
	return sum, nil
}

// publishAll sends the first wave, the second when all orders have ended and the streams have forgotten the first, and the chaos
// strikes during the first.
func (s *shop) publishAll(ctx context.Context) error {
	if err := s.wave(ctx, s.publishFirst); err != nil {
		return err
	}
	forgotten := time.Now().Add(s.window)
	ended := func(context.Context) (string, bool) {
		return fmt.Sprint(s.outcomes.ended), s.outcomes.ended == len(s.traffic.orders) && time.Now().After(forgotten)
	}
	if err := s.settle(ctx, ended); err != nil {
		return err
	}
	return s.wave(ctx, func(ctx context.Context) error { return s.publisher.publish(ctx, s.traffic.second) })
}

func (s *shop) publishFirst(ctx context.Context) error {
	if !s.Chaos {
		return s.publisher.publish(ctx, s.traffic.first)
	}
	c := s.newChaos(s.progress.say)
	size := (len(s.traffic.first) + kills - 1) / kills
	for part := range slices.Chunk(s.traffic.first, size) {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return c.strike(ctx) })
		group.Go(func() error { return s.publisher.publish(ctx, part) })
		if err := group.Wait(); err != nil {
			return err
		}
	}
	for c.struck < kills { // a little traffic has fewer parts
		if err := c.strike(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wave publishes while the counts are shown, and waits until the routes have taken it in. Its time counts.
func (s *shop) wave(ctx context.Context, publish func(ctx context.Context) error) error {
	began := time.Now()
	defer func() { s.took += time.Since(began) }()
	published := make(chan error, 1)
	go func() { published <- publish(ctx) }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-published:
			if err != nil {
				return err
			}
			return s.settle(ctx, s.consumed)
		case <-tick.C:
			s.look(ctx)
		}
	}
}

// settle waits until done says so, as long as its state changes now and then.
func (s *shop) settle(ctx context.Context, done func(ctx context.Context) (state string, ok bool)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last string
	moved := time.Now()
	for {
		s.look(ctx)
		state, ok := done(ctx)
		switch {
		case ok:
			return nil
		case state != last:
			last, moved = state, time.Now()
		case time.Since(moved) > stallAfter:
			return errStalled
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// look takes in new outcomes and shows the counts. What cannot be read now is read the next time.
func (s *shop) look(ctx context.Context) {
	_ = s.outcomes.poll(ctx)
	s.progress.show(s.counts())
}

func (s *shop) counts() counts {
	return counts{sent: int(s.publisher.sent.Load()), all: len(s.traffic.first) + len(s.traffic.second), ended: s.outcomes.ended, orders: len(s.traffic.orders)}
}

// consumed says whether the routes have acked all that is published.
func (s *shop) consumed(ctx context.Context) (state string, ok bool) {
	ok = true
	for _, r := range s.cfg.Routes {
		c, err := s.js.Consumer(ctx, r.Stream, s.space.Durable(r.Name))
		if err != nil {
			return "", false
		}
		info := c.CachedInfo()
		ok = ok && info.NumPending == 0 && info.NumAckPending == 0
		state += fmt.Sprintf("%d %d ", info.AckFloor.Stream, info.NumAckPending)
	}
	return state, ok
}
