package stories

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// solo are starts by request that contend for few unique keys. One that is refused starts nothing.
type solo struct{}

const uniqueKeys = 2

func (solo) Name() string { return "solo" }

func (solo) Routes() string { return "" }

type soloState struct{ Journal }

func (solo) Machines() []*engine.Machine {
	return []*engine.Machine{must(engine.Define(engine.Definition[soloState]{
		Name: "solo", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[soloState]{
			"begin": step(func(*engine.Visit[soloState]) move { return await("end", 50*time.Millisecond, "never") }),
			"end":   step(func(*engine.Visit[soloState]) move { return done() }),
		},
	}))}
}

func (solo) Play(ctx context.Context, p *Player) error {
	e := oracle.Event{ID: p.id("start"), Key: p.Key, Want: oracle.Asked}
	started, err := p.ask(ctx, e, map[string]any{"machine": "solo", "correlation_key": p.Key, "unique_key": fmt.Sprint("solo-", p.Rand.IntN(uniqueKeys))})
	if err != nil || !started {
		return err
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}
