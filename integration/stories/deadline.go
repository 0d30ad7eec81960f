package stories

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// deadline is a question that is answered at once, at about its deadline, or never. In the end it was answered, or the time was up; an answer
// that lost the race is dead, or went with the end.
type deadline struct{}

const patience = time.Second

func (deadline) Name() string { return "deadline" }

func (deadline) Routes() string {
	return `  - {name: deadline-start, stream: STORIES, subject: "stories.deadline.*.start", correlation_key: "deadline-{{subject[2]}}", start: {machine: deadline, state: "{{payload}}"}}
  - {name: deadline, stream: STORIES, subject: "stories.deadline.*.answer", signal: answer, correlation_key: "deadline-{{subject[2]}}"}
`
}

type deadlineState struct{ Journal }

func (deadline) Machines() []*engine.Machine {
	return []*engine.Machine{must(engine.Define(engine.Definition[deadlineState]{
		Name: "deadline", Start: "ask", Retry: retry,
		Steps: map[string]engine.Step[deadlineState]{
			"ask": step(func(*engine.Visit[deadlineState]) move { return await("decide", patience, "answer") }),
			"decide": step(func(v *engine.Visit[deadlineState]) move {
				if v.TimedOut {
					return stop()
				}
				return done()
			}),
		},
	}))}
}

func (deadline) Play(ctx context.Context, p *Player) error {
	if err := p.publish(ctx, p.signal(p.subject("deadline", "start"), "", oracle.Starts, nil)); err != nil {
		return err
	}
	switch p.Rand.IntN(3) {
	case 0:
		if err := p.publish(ctx, p.signal(p.subject("deadline", "answer"), "answer", oracle.Once, nil)); err != nil {
			return err
		}
	case 1:
		near := patience - 50*time.Millisecond + time.Duration(p.Rand.IntN(100))*time.Millisecond
		if err := p.pause(ctx, near); err != nil {
			return err
		}
		if err := p.publish(ctx, p.signal(p.subject("deadline", "answer"), "answer", oracle.Once, nil)); err != nil {
			return err
		}
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}
