package stories

import (
	"context"
	"fmt"
	"strings"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// garbage are messages that no instance is ever to see: without a key, with one that is none, for nobody.
type garbage struct{}

func (garbage) Name() string { return "garbage" }

func (garbage) Routes() string {
	return `  - {name: garbage, stream: STORIES, subject: "stories.garbage.*.rejected", signal: thing, correlation_key: "{{payload.key}}", on_missing: reject}
  - {name: forgotten, stream: STORIES, subject: "stories.garbage.*.dropped", signal: thing, correlation_key: "{{payload.key}}", on_missing: drop}
`
}

func (garbage) Machines() []*engine.Machine { return nil }

func (garbage) Play(ctx context.Context, p *Player) error {
	rejected := func(body map[string]any) event {
		return p.signal(p.subject("garbage", "rejected"), "thing", oracle.Dead, body)
	}
	last := rejected(nil)
	err := p.publish(ctx,
		rejected(map[string]any{"key": nil}),
		rejected(map[string]any{"key": ""}),
		rejected(map[string]any{"key": strings.Repeat("k", 513)}),
		rejected(map[string]any{"key": p.Key}),
		p.signal(p.subject("garbage", "dropped"), "thing", oracle.Filtered, map[string]any{"key": p.Key}),
		p.signal(p.subject("garbage", "dropped"), "thing", oracle.Dead, nil),
		last,
	)
	if err != nil {
		return err
	}
	if err := p.until(ctx, func() bool { return p.Account.Buried(last.ID) }); err != nil {
		return fmt.Errorf("%s is no dead letter: %w", last.ID, err)
	}
	return nil
}
