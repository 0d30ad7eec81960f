package stories

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// notice waits for an event that anybody can send by its key, and is sent it, also twice, or gives up when its trigger's time is up.
type notice struct{}

func (notice) Name() string { return "notice" }

func (notice) Routes() string {
	return `  - {name: notice, stream: STORIES, subject: "stories.notice.*.start", correlation_key: "notice-{{subject[2]}}", start: {machine: notice, state: "{{payload}}"}}
`
}

type noticeState struct {
	Journal
	Patience time.Duration `json:"patience"`
}

func noticeKey(key string) string { return key + "/notice" }

func (notice) Machines() []*engine.Machine {
	return []*engine.Machine{must(engine.Define(engine.Definition[noticeState]{
		Name: "notice", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[noticeState]{
			"begin": step(func(v *engine.Visit[noticeState]) move {
				key := noticeKey(v.Instance.CorrelationKey)
				m := await("heard", v.State.Patience, key)
				m.outcome = engine.Await("heard").OrEvent(engine.EventWait{Key: key, Timeout: v.State.Patience})
				return m
			}),
			"heard": step(func(v *engine.Visit[noticeState]) move {
				if v.TimedOut {
					return stop()
				}
				return done()
			}),
		},
	}))}
}

func (s notice) Play(ctx context.Context, p *Player) error {
	hears, patience := p.chance(70), time.Hour
	if !hears {
		patience = time.Second
	}
	if err := p.publish(ctx, p.signal(p.subject("notice", "start"), "", oracle.Starts, map[string]any{"patience": patience})); err != nil {
		return err
	}
	e := oracle.Event{ID: p.id("notice"), Key: p.Key, Name: noticeKey(p.Key), Want: oracle.Consumed, Internal: true}
	if !hears {
		e.Want = oracle.Filtered
	}
	p.Account.Expect(e)
	if hears {
		if err := s.tell(ctx, p, e.ID); err != nil {
			return err
		}
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	err := s.tell(ctx, p, e.ID) // again, or too late
	var refused *refusal
	if !hears && errors.As(err, &refused) && refused.Code == "conflict" {
		return nil
	}
	if !hears {
		return fmt.Errorf("an event that is sent when nobody waits any more: want conflict, got %w", err)
	}
	return err
}

// tell sends the event until it is taken in.
func (notice) tell(ctx context.Context, p *Player, event string) error {
	for {
		_, err := p.request(ctx, "send", map[string]any{"event_key": noticeKey(p.Key), "payload": map[string]any{"event": event}}, "")
		var refused *refusal
		if !errors.As(err, &refused) || refused.Code != "not_found" {
			return err
		}
		if err := p.pause(ctx, nextAttempt); err != nil { // nobody waits yet
			return err
		}
	}
}
