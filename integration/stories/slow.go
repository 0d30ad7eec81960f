package stories

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// slow are instances whose first step takes long, and heeds it when it is told to stop.
type slow struct{}

func (slow) Name() string { return "slow" }

func (slow) Routes() string {
	return `  - {name: slow, stream: STORIES, subject: "stories.slow.*.start", correlation_key: "slow-{{subject[2]}}", start: {machine: slow, state: "{{payload}}"}}
`
}

type slowState struct {
	Journal
	Takes int `json:"takes"` // milliseconds
}

func (slow) Machines() []*engine.Machine {
	return []*engine.Machine{must(engine.Define(engine.Definition[slowState]{
		Name: "slow", Start: "long", Retry: retry,
		Steps: map[string]engine.Step[slowState]{
			"long": stepWith(func(ctx context.Context, v *engine.Visit[slowState]) move {
				select {
				case <-time.After(time.Duration(v.State.Takes) * time.Millisecond):
					return next("short")
				case <-ctx.Done():
					return failing(context.Cause(ctx))
				}
			}),
			"short": step(func(*engine.Visit[slowState]) move { return done() }),
		},
	}))}
}

func (slow) Play(ctx context.Context, p *Player) error {
	milliseconds := 100 + p.Rand.IntN(400)
	if p.chance(25) {
		milliseconds = 2000
	}
	if err := p.publish(ctx, p.signal(p.subject("slow", "start"), "", oracle.Starts, map[string]any{"takes": milliseconds})); err != nil {
		return err
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}
