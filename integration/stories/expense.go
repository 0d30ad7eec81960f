package stories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// expense is decided on by updates: each request is validated, by a worker that has the machine, before the instance sees anything of it. Some are
// refused, some are sent again under their key, before and after the end.
type expense struct{}

const decision = "decision"

func (expense) Name() string { return "expense" }

func (expense) Routes() string {
	return `  - {name: expense, stream: STORIES, subject: "stories.expense.*.start", correlation_key: "expense-{{subject[2]}}", start: {machine: expense, state: "{{payload}}"}}
`
}

type expenseState struct {
	Journal
	Approvers int `json:"approvers"`
}

func (expense) Machines() []*engine.Machine {
	wait := func() move {
		m := await("decide", 0, decision)
		m.outcome = engine.Await("decide").OrUpdate(decision)
		return m
	}
	return []*engine.Machine{must(engine.Define(engine.Definition[expenseState]{
		Name: "expense", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[expenseState]{
			"begin": step(func(*engine.Visit[expenseState]) move { return wait() }),
			"decide": step(func(v *engine.Visit[expenseState]) move {
				if len(v.Awaited) < v.State.Approvers {
					return wait()
				}
				return done()
			}),
		},
		Validators: map[string]engine.Validator{decision: engine.ValidatorOf(func(_ context.Context, d struct {
			Event    string
			Approved bool
		},
		) error {
			if !d.Approved {
				return engine.Refuse("an expense is approved, or nothing is said")
			}
			return nil
		})},
	}))}
}

func (s expense) Play(ctx context.Context, p *Player) error {
	approvers := 1 + p.Rand.IntN(3)
	if err := p.publish(ctx, p.signal(p.subject("expense", "start"), "", oracle.Starts, map[string]any{"approvers": approvers})); err != nil {
		return err
	}
	var sent []string // what was accepted
	for len(sent) < approvers {
		e := oracle.Event{ID: p.id(decision), Key: p.Key, Name: decision, Want: oracle.Consumed, Internal: true}
		accept := p.chance(70)
		if !accept {
			e.Want = oracle.Filtered
		}
		p.Account.Expect(e)
		if err := s.decide(ctx, p, e.ID, accept); err != nil {
			return err
		}
		if p.chance(30) {
			if err := s.decide(ctx, p, e.ID, accept); err != nil {
				return err
			}
		}
		if accept {
			sent = append(sent, e.ID)
		}
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	if p.chance(50) {
		if err := s.decide(ctx, p, sent[0], true); err != nil {
			return err
		}
	}
	late := oracle.Event{ID: p.id(decision), Key: p.Key, Name: decision, Want: oracle.Filtered, Internal: true}
	p.Account.Expect(late)
	var refused *refusal
	if err := s.decide(ctx, p, late.ID, true); !errors.As(err, &refused) || refused.Code != "no_target" {
		return fmt.Errorf("an update after the end: want no_target, got %w", err)
	}
	return nil
}

// decide sends one update until there is a verdict on it, which has to be the one that is wanted.
func (expense) decide(ctx context.Context, p *Player, event string, accept bool) error {
	for {
		reply, err := p.request(ctx, "update", map[string]any{"ref": "key:" + p.Key, "name": decision, "arg": map[string]any{"event": event, "approved": accept}}, event)
		var refused *refusal
		if errors.As(err, &refused) && refused.Code == "not_found" { // its start is on the way
			if err := p.pause(ctx, nextAttempt); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		var verdict struct{ Accepted bool }
		if err := json.Unmarshal(reply, &verdict); err != nil || verdict.Accepted != accept {
			return fmt.Errorf("the verdict on %s: want accepted %t, got %s", event, accept, reply)
		}
		return nil
	}
}
