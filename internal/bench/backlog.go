package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/migrations"
)

const (
	backlogCalls = 200 // of each statement in a probe, or fewer where there are fewer messages
	backlogGroup = 64  // signals, picks and timers of one
)

// backlog is what each statement costs beside many instances, and what the programs keep in memory beside many messages.
func backlog(ctx context.Context, b *run) error {
	own, err := b.tuned(ctx, 1)
	if err != nil {
		return err
	}
	defer own.Close()
	var crowds []*crowd
	for i, size := range b.Sizes {
		c := &crowd{run: b, own: own, size: size, schema: schema}
		if i > 0 {
			c.schema = fmt.Sprintf("%s_%d", largeSchema, i)
		}
		defer c.drop(context.WithoutCancel(ctx))
		if err := c.make(ctx); err != nil {
			return err
		}
		crowds = append(crowds, c)
	}
	for _, call := range []struct {
		name, about string
		of          func(*crowd) probe
	}{
		{"deliver", "signals for as many parked instances, each of which it wakes", func(c *crowd) probe { return c.deliver }},
		{"pick", "ready instances, of as many as are parked", func(c *crowd) probe { return c.pick }},
		{"sweep", "timers that are due, beside one of each parked instance that is not", func(c *crowd) probe { return c.sweepTimers }},
	} {
		cs := &Case{
			Name: call.name, Unit: "call", compared: []string{p50, p99, walBytes},
			About: fmt.Sprintf("%d calls of our own statement, bare, at one connection: %d %s", b.calls(), backlogGroup, call.about),
		}
		var sides []side
		for _, c := range crowds {
			sides = append([]side{{fmt.Sprint(c.size), fmt.Sprintf("%d parked and %d ready", c.size, c.size), call.of(c)}}, sides...)
		}
		if err := b.alternate(ctx, cs, sides...); err != nil {
			return err
		}
	}
	for _, c := range crowds {
		c.drop(ctx)
	}
	if err := b.inboxes(ctx, own); err != nil {
		return err
	}
	return b.waiting(ctx)
}

// crowd is a schema with many instances.
type crowd struct {
	*run
	own    *pgxpool.Pool // one connection, as the programs have theirs
	size   int
	schema string
	parked *instances
	disk   float64   // bytes of one that is parked and has a timer
	since  time.Time // by the database's clock: what a call makes ready comes after it
}

func (c *crowd) drop(ctx context.Context) {
	if c.schema != schema {
		_ = c.exec(ctx, c.schema, `drop schema if exists `+c.schema+` cascade`)
	}
}

func (c *crowd) make(ctx context.Context) error {
	c.drop(ctx)
	if err := migrations.Up(ctx, c.url, c.schema); err != nil {
		return err
	}
	// The first half waits, the second may run.
	if err := c.fill(ctx, c.schema, machineCycle, 1, 2*c.size, false); err != nil {
		return err
	}
	c.parked = &instances{order: shuffled(c.size)}
	for _, sql := range []string{
		fmt.Sprintf(`update pointsman.instances set parked = false where correlation_key > '%s'`, keyOf(c.size)),
		`insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from pointsman.instances where not parked`,
		`insert into pointsman.timers (instance_id, rev, run_at) select id, rev, now() + interval '1 day' from pointsman.instances where parked`,
		`vacuum analyze pointsman.instances`, `vacuum analyze pointsman.ready`, `vacuum analyze pointsman.timers`,
	} {
		if err := c.exec(ctx, c.schema, sql); err != nil {
			return err
		}
	}
	bytes, err := c.count(ctx, c.schema, `select pg_total_relation_size('pointsman.instances') / 2 + pg_total_relation_size('pointsman.timers')`)
	c.disk = float64(bytes) / float64(c.size)
	return err
}

func (b *run) calls() int { return min(backlogCalls, b.N) }

// timed calls a statement again and again. undo puts back what a call did.
func (c *crowd) timed(ctx context.Context, m *measurement, before func() error, call func(s *store.Store) error, undo func() error) error {
	s, err := store.New(c.own, c.schema)
	if err != nil {
		return err
	}
	var times []time.Duration
	var wal int64
	for i := range c.calls() + 5 { // the first ones prepare
		if err := c.db.QueryRow(ctx, `select clock_timestamp()`).Scan(&c.since); err != nil {
			return err
		}
		if err := before(); err != nil {
			return err
		}
		from, err := c.walAt(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := call(s); err != nil {
			return err
		}
		took := time.Since(begin)
		to, err := c.walAt(ctx)
		if err != nil {
			return err
		}
		if i >= 5 {
			times, wal = append(times, took), wal+to-from
		}
		if err := undo(); err != nil {
			return err
		}
	}
	m.times(times)
	m.n, m.metrics[walBytes] = len(times), float64(wal)/float64(len(times))
	for _, t := range times {
		m.seconds += t.Seconds()
	}
	return nil
}

// unready takes back what the last call made ready. There is no index by instance.
func (c *crowd) unready(ctx context.Context) error {
	return c.exec(ctx, c.schema, `delete from pointsman.ready where queue = 'default' and lane = '' and priority = 0 and run_at >= $1`, c.since)
}

func (c *crowd) deliver(ctx context.Context, m *measurement) error {
	var batch []store.Signal
	var ids []uuid.UUID
	m.metrics[diskBytes] = c.disk
	return c.timed(ctx, m, func() error {
		batch = c.signals(newLoad(c.parked.take(backlogGroup)), backlogGroup)[0]
		return nil
	}, func(s *store.Store) error {
		ids = ids[:0]
		ds, err := s.Deliver(ctx, engine.DefaultProject, false, batch)
		for _, d := range ds {
			if d.Verdict != store.Delivered {
				return fmt.Errorf("deliver: verdict %d", d.Verdict)
			}
			ids = append(ids, d.InstanceID)
		}
		return err
	}, func() error {
		return errors.Join(
			c.exec(ctx, c.schema, `update pointsman.instances set parked = true where id = any($1)`, ids),
			c.exec(ctx, c.schema, `delete from pointsman.signals where instance_id = any($1)`, ids),
			c.unready(ctx),
		)
	})
}

func (c *crowd) pick(ctx context.Context, m *measurement) error {
	var works []store.Work
	return c.timed(ctx, m, func() error { return nil }, func(s *store.Store) (err error) {
		works, err = s.Pick(ctx, engine.DefaultQueue, "", "bench", []string{machineCycle + "@1"}, backlogGroup, time.Minute)
		if err == nil && len(works) != backlogGroup {
			err = fmt.Errorf("picked %d of %d", len(works), backlogGroup)
		}
		return err
	}, func() error {
		ids := make([]uuid.UUID, len(works))
		for i, w := range works {
			ids[i] = w.ID
		}
		return errors.Join(
			c.exec(ctx, c.schema, `insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from pointsman.instances where id = any($1)`, ids),
			c.exec(ctx, c.schema, `delete from pointsman.leases`),
		)
	})
}

func (c *crowd) sweepTimers(ctx context.Context, m *measurement) error {
	var ids []uuid.UUID
	return c.timed(ctx, m, func() (err error) {
		keys := make([]string, backlogGroup)
		for i, number := range c.parked.take(backlogGroup) {
			keys[i] = keyOf(number)
		}
		err = c.db.QueryRow(ctx, migrations.Qualify(`select array_agg(id) from pointsman.instances where project = 'default' and live and correlation_key = any($1)`, c.schema), keys).Scan(&ids)
		return errors.Join(err, c.exec(ctx, c.schema, `update pointsman.timers set run_at = now() where instance_id = any($1)`, ids))
	}, func(s *store.Store) error {
		_, fired, err := s.SweepTimers(ctx, backlogGroup)
		if err == nil && fired != backlogGroup {
			err = fmt.Errorf("fired %d of %d", fired, backlogGroup)
		}
		return err
	}, func() error {
		return errors.Join(
			c.exec(ctx, c.schema, `update pointsman.instances set parked = true, timed_out = false where id = any($1)`, ids),
			c.exec(ctx, c.schema, `insert into pointsman.timers (instance_id, rev, run_at) select id, rev, now() + interval '1 day' from pointsman.instances where id = any($1)`, ids),
			c.unready(ctx),
		)
	})
}

// waiting is what bridge and worker keep in memory while messages wait, and while they are worked off.
func (b *run) waiting(ctx context.Context) error {
	cs := &Case{
		Name: "waiting", Unit: "message", compared: []string{rssPrefix + partBridge, rssPrefix + partWorker},
		About: fmt.Sprintf("what the programs have in memory: the most they ever had when %d messages have been worked off, each a signal for one of %d parked instances; while these waited in their stream; and before", b.N, b.Parked),
	}
	b.report.Cases = append(b.report.Cases, cs)
	if err := b.runParts(ctx, b.config(slots(backlogGroup)), partBridge, partWorker); err != nil {
		return err
	}
	if err := b.sweep(ctx); err != nil {
		return err
	}
	all, err := b.park(ctx, schema, machineCycle, b.Parked, false)
	if err != nil {
		return err
	}
	idle := b.memory("VmRSS")
	l := newLoad(make([]int, b.N))
	for i := range l.numbers {
		l.numbers[i] = all.order[i%len(all.order)]
	}
	g := b.gateIn()
	if err := g.hold(ctx, l); err != nil {
		return err
	}
	waiting := b.memory("VmRSS")
	b.say("%d messages wait", b.N)
	m := &measurement{run: b, metrics: map[string]float64{}}
	if err := g.release(ctx, m); err != nil {
		return err
	}
	if err := g.taken(ctx); err != nil {
		return err
	}
	if err := b.idle(ctx); err != nil {
		return err
	}
	if err := m.end(ctx, b.N); err != nil {
		return err
	}
	maps.Copy(m.metrics, b.memory("VmHWM"))
	for _, s := range []struct {
		side *Side
		m    *measurement
	}{
		{&Side{Name: "worked off", About: "the most they had until all was done; the rate and the costs are of that too"}, m},
		{&Side{Name: "waiting", About: "while all messages waited"}, &measurement{n: b.N, metrics: waiting}},
		{&Side{Name: "idle", About: "before there were any"}, &measurement{n: b.N, metrics: idle}},
	} {
		s.side.add(s.m)
		cs.Sides = append(cs.Sides, s.side)
	}
	cs.compare()
	done, err := b.consumed(ctx)
	if err == nil && done != b.N {
		err = fmt.Errorf("%d signals were consumed, want %d", done, b.N)
	}
	return errors.Join(err, b.expectNoLetters(ctx))
}

// memory of the programs. It is nothing where the system does not tell.
func (st *stack) memory(field string) map[string]float64 {
	m := map[string]float64{}
	for _, name := range []string{partBridge, partWorker} {
		if bytes, ok := rssOf(st.parts[name].cmd.Process.Pid, field); ok {
			m[rssPrefix+name] = bytes
		}
	}
	return m
}
