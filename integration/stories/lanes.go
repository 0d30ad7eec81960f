package stories

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// lanes are instances of some steps each, started by request, that share few partition keys.
type lanes struct{}

const partitionKeys = 3

func (lanes) Name() string { return "lanes" }

func (lanes) Routes() string { return "" }

type lanesState struct{ Journal }

func (lanes) Machines() []*engine.Machine {
	work := func(m move) engine.Step[lanesState] {
		return step(func(*engine.Visit[lanesState]) move {
			time.Sleep(3 * time.Millisecond) // what the world takes
			return m
		})
	}
	return []*engine.Machine{must(engine.Define(engine.Definition[lanesState]{
		Name: "lanes", Start: "one", Retry: retry,
		Steps: map[string]engine.Step[lanesState]{"one": work(next("two")), "two": work(next("three")), "three": work(done())},
	}))}
}

func (lanes) Play(ctx context.Context, p *Player) error {
	e := oracle.Event{ID: p.id("start"), Key: p.Key, Want: oracle.Asked}
	_, err := p.ask(ctx, e, map[string]any{"machine": "lanes", "correlation_key": p.Key, "partition_key": fmt.Sprint("lane-", p.Rand.IntN(partitionKeys))})
	if err != nil {
		return err
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}
