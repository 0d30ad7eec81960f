package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/store"
)

// inboxes are what a cycle costs an instance whose inbox is long.
func (b *run) inboxes(ctx context.Context, own *pgxpool.Pool) error {
	depths := slices.Sorted(slices.Values(b.Depths))
	c := &crowd{run: b, own: own, schema: schema}
	if _, err := b.park(ctx, schema, machineCycle, len(depths), false); err != nil {
		return err
	}
	var sides []side
	for i, depth := range depths {
		number := i + 1
		if err := b.exec(ctx, schema, `
insert into pointsman.signals (instance_id, name, payload)
select i.id, 'other', '{"n": 1}' from pointsman.instances i, generate_series(1, $2::int) where i.project = $3 and i.correlation_key = $1 and i.live`, keyOf(number), depth, engine.DefaultProject); err != nil {
			return err
		}
		sides = append(sides, side{strconv.Itoa(depth), fmt.Sprintf("%d other signals wait", depth), c.cycle(number)})
	}
	if err := b.exec(ctx, schema, `vacuum analyze pointsman.signals`); err != nil {
		return err
	}
	slices.Reverse(sides)
	return b.alternate(ctx, &Case{
		Name: "inbox", Unit: "cycle", compared: []string{p50, p99, walBytes},
		About: fmt.Sprintf("%d cycles of one instance by our own statements, bare, at one connection: deliver, pick and commit of a signal that it waits for; beside so many others in its inbox that it does not", b.calls()),
	}, sides...)
}

// cycle leaves an instance as it was.
func (c *crowd) cycle(number int) probe {
	return func(ctx context.Context, m *measurement) error {
		var batch []store.Signal
		return c.timed(ctx, m, func() error {
			batch = c.signals(newLoad([]int{number}), 1)[0]
			return nil
		}, func(s *store.Store) error {
			if _, err := s.Deliver(ctx, engine.DefaultProject, false, batch); err != nil {
				return err
			}
			n, err := drainOwn(ctx, s, 1, 1)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d cycles, want 1", n)
			}
			return err
		}, func() error { return nil })
	}
}
