package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/migrations"
)

// deliverBatch is how many signals the limits of a cycle deliver before they pick.
const deliverBatch = 200

// cycle is a message, a wake, a step that does nothing, a commit, and waiting again; and a whole life.
func cycle(ctx context.Context, b *run) error {
	if err := b.parkLimits(ctx, b.Parked); err != nil {
		return err
	}
	db, err := b.tuned(ctx, b.Conns)
	if err != nil {
		return err
	}
	defer db.Close()
	cy := &cycles{run: b, db: db}
	if err := migrations.Up(ctx, b.url, ownSchema); err != nil {
		return err
	}
	for _, group := range b.Groups {
		if err := cy.compare(ctx, group); err != nil {
			return err
		}
	}
	return cy.lives(ctx)
}

type cycles struct {
	*run
	db     *pgxpool.Pool
	parked *instances
	own    *instances // in a schema where no worker is
}

// slots let the worker pick and commit groups of that size: it picks when half of them are free. More than twice as many do not make the
// largest groups larger: with them it picks and executes while it commits.
func slots(group int) int {
	if group == maxGroup {
		return 8 * group
	}
	return 2 * group
}

// maxGroup is what a pick and a commit take at most.
const maxGroup = 256

// aboutCycles is what a probe of the path does.
func (b *run) aboutCycles() string {
	return fmt.Sprintf("%d messages wait in a stream, each for another of %d parked instances, which runs a step and waits again; until all wait", b.N, b.Parked)
}

func (cy *cycles) compare(ctx context.Context, group int) error {
	c := &Case{
		Name: fmt.Sprintf("cycle, groups of %d", group), Unit: "cycle",
		About: fmt.Sprintf("%s. The worker has %d slots", cy.aboutCycles(), slots(group)),
	}
	if err := cy.runParts(ctx, cy.config(slots(group)), partBridge, partWorker); err != nil {
		return err
	}
	return cy.alternate(ctx, c,
		side{"path", "JetStream, bridge, Postgres, worker, Postgres", cy.path},
		side{"statements", fmt.Sprintf("our own deliver, pick and commit, bare, at %d connections", cy.Conns), cy.statements(group)},
		side{"least", fmt.Sprintf("least code: deliver, pick, commit and history, at %d connections", cy.Conns), cy.least(group)},
	)
}

// load is messages for instances that wait; they wait again afterwards.
func (cy *cycles) load(ctx context.Context, schema string, all **instances) (l load, err error) {
	if *all == nil {
		if *all, err = cy.park(ctx, schema, machineCycle, cy.Parked, false); err != nil {
			return l, err
		}
	}
	return newLoad((*all).take(cy.N)), nil
}

func (cy *cycles) path(ctx context.Context, m *measurement) error {
	if err := cy.sweep(ctx); err != nil {
		return err
	}
	l, err := cy.load(ctx, schema, &cy.parked)
	if err != nil {
		return err
	}
	g := cy.gateIn()
	if err := g.hold(ctx, l); err != nil {
		return err
	}
	if err := g.release(ctx, m); err != nil {
		return err
	}
	if err := g.taken(ctx); err != nil {
		return err
	}
	if err := cy.idle(ctx); err != nil {
		return err
	}
	if err := m.end(ctx, cy.N); err != nil {
		return err
	}
	return errors.Join(cy.verify(ctx, schema), cy.expectNoLetters(ctx))
}

// verify that each message was one cycle.
func (cy *cycles) verify(ctx context.Context, schema string) error {
	return errors.Join(
		cy.expect(ctx, schema, "transitions", cy.N, `select count(*) from pointsman.history where outcome = 'await'`),
		cy.expect(ctx, schema, "instances that wait", cy.Parked, `select count(*) from pointsman.instances where parked`),
	)
}

func (cy *cycles) statements(group int) probe {
	return func(ctx context.Context, m *measurement) error {
		if err := cy.empty(ctx, ownSchema); err != nil {
			return err
		}
		l, err := cy.load(ctx, ownSchema, &cy.own)
		if err != nil {
			return err
		}
		s, err := store.New(cy.db, ownSchema)
		if err != nil {
			return err
		}
		batches := cy.signals(l, deliverBatch)
		var done atomic.Int64
		if err := m.begin(ctx); err != nil {
			return err
		}
		if err := each(cy.Conns, batches, func(_ int, batch []store.Signal) error {
			if _, err := s.Deliver(ctx, engine.DefaultProject, false, batch); err != nil {
				return err
			}
			n, err := drainOwn(ctx, s, group, len(batch))
			done.Add(int64(n))
			return err
		}); err != nil {
			return err
		}
		// What one connection has left for the other, which has left by then.
		n, err := drainOwn(ctx, s, group, cy.N-int(done.Load()))
		if err != nil {
			return err
		}
		if done.Add(int64(n)); done.Load() != int64(cy.N) {
			return fmt.Errorf("%d cycles, want %d", done.Load(), cy.N)
		}
		if err := m.end(ctx, cy.N); err != nil {
			return err
		}
		return cy.verify(ctx, ownSchema)
	}
}

// drainOwn picks and commits until so many are done, or nothing is ready.
func drainOwn(ctx context.Context, s *store.Store, group, want int) (done int, err error) {
	known := []string{machineCycle + "@1"}
	for done < want {
		works, err := s.Pick(ctx, engine.DefaultQueue, "", "bench", known, group, time.Minute)
		if err != nil || len(works) == 0 {
			return done, err
		}
		outcomes := make([]store.Outcome, len(works))
		for i := range works {
			w := &works[i]
			outcomes[i] = store.Outcome{
				ID: w.ID, Project: w.Project, Rev: w.Rev, Token: w.Token, Kind: store.OutcomeAwait, Step: stepGo, State: []byte(benchState), Awaits: []string{"signal/" + signalGo}, Progress: true, Ran: stepGo,
			}
			for _, g := range w.Inbox {
				if g.Name == signalGo {
					outcomes[i].Consumed = append(outcomes[i].Consumed, g.ID)
				}
			}
		}
		settled, err := s.Commit(ctx, outcomes, store.Group{Last: []uuid.UUID{works[0].Token}})
		if err != nil {
			return done, err
		}
		if len(settled.Passed) != len(works) {
			return done, fmt.Errorf("committed %d of %d", len(settled.Passed), len(works))
		}
		done += len(works)
	}
	return done, nil
}

func (cy *cycles) least(group int) probe {
	return func(ctx context.Context, m *measurement) error {
		if err := cy.emptyLimits(ctx); err != nil {
			return err
		}
		sessions, stop, err := cy.limits(ctx, cy.Conns)
		if err != nil {
			return err
		}
		defer stop()
		batches := cy.rows(newLoad(shuffled(cy.Parked)[:cy.N]), deliverBatch)
		var done atomic.Int64
		if err := m.begin(ctx); err != nil {
			return err
		}
		if err := each(cy.Conns, batches, func(conn int, r rows) error {
			if _, err := sessions[conn].deliver(ctx, r); err != nil {
				return err
			}
			n, err := sessions[conn].drain(ctx, engine.DefaultQueue, group, len(r.keys))
			done.Add(int64(n))
			return err
		}); err != nil {
			return err
		}
		n, err := sessions[0].drain(ctx, engine.DefaultQueue, group, cy.N-int(done.Load()))
		if err != nil {
			return err
		}
		if done.Add(int64(n)); done.Load() != int64(cy.N) {
			return fmt.Errorf("%d cycles of the least code, want %d", done.Load(), cy.N)
		}
		return m.end(ctx, cy.N)
	}
}

// drain picks and parks until so many are done, or nothing is ready.
func (l limit) drain(ctx context.Context, queue string, group, want int) (done int, err error) {
	for done < want {
		token := uuid.New()
		works, err := l.pick(ctx, queue, group, token)
		if err != nil || len(works) == 0 {
			return done, err
		}
		if err := l.park(ctx, works, token); err != nil {
			return done, err
		}
		done += len(works)
	}
	return done, nil
}
