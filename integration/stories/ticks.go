package stories

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// ticks is a long-lived instance that takes its signals one after the other, from an ordered route. The first one that comes starts it.
type ticks struct{}

func (ticks) Name() string { return "ticks" }

func (ticks) Routes() string {
	return `  - {name: ticks, stream: TICKS, subject: "ticks.*.*", signal: tick, correlation_key: "ticks-{{subject[1]}}", ordered: true, on_missing: start, start: {machine: ticks, state: "{{payload}}"}, batch: {size: 100}}
`
}

type ticksState struct {
	Journal
	Total int `json:"total"`
	Taken int `json:"taken"`
}

func (ticks) Machines() []*engine.Machine {
	take := func(v *engine.Visit[ticksState]) move {
		v.State.Taken += len(v.Awaited)
		if v.State.Taken >= v.State.Total {
			return done()
		}
		return await("take", 0, "tick").consuming()
	}
	return []*engine.Machine{must(engine.Define(engine.Definition[ticksState]{
		Name: "ticks", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[ticksState]{
			"begin": step(func(v *engine.Visit[ticksState]) move {
				v.State.Event = "" // what started it is in its inbox as well, and counts there
				return await("take", 0, "tick")
			}),
			"take": step(take),
		},
	}))}
}

// lanesOfTicks is how many subjects one instance has.
const lanesOfTicks = 3

func (ticks) Play(ctx context.Context, p *Player) error {
	total := 10 + p.Rand.IntN(20)
	body := map[string]any{"total": total}
	for range total {
		lane := fmt.Sprintf("ticks.%s.%d", p.Token, p.Rand.IntN(lanesOfTicks))
		e := p.signal(lane, "tick", oracle.Consumed, body)
		e.Lane = lane
		if err := p.publish(ctx, e); err != nil {
			return err
		}
		if p.chance(10) {
			if err := p.again(ctx, e); err != nil {
				return err
			}
		}
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}
