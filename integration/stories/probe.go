package stories

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// probe is the shortest way through everything: a message starts an instance, whose only step ends it.
type probe struct{}

func (probe) Name() string { return "probe" }

func (probe) Routes() string {
	return `  - {name: probe, stream: STORIES, subject: "stories.probe.*.start", correlation_key: "probe-{{subject[2]}}", start: {machine: probe, state: "{{payload}}"}}
`
}

type probeState struct{ Journal }

func (probe) Machines() []*engine.Machine {
	return []*engine.Machine{must(engine.Define(engine.Definition[probeState]{
		Name: "probe", Start: "only", Retry: retry,
		Steps: map[string]engine.Step[probeState]{"only": step(func(*engine.Visit[probeState]) move { return done() })},
	}))}
}

func (s probe) Play(ctx context.Context, p *Player) error {
	if err := s.send(ctx, p); err != nil {
		return err
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}

func (probe) send(ctx context.Context, p *Player) error {
	return p.publish(ctx, p.signal(p.subject("probe", "start"), "", oracle.Starts, nil))
}
