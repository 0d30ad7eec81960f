package stories

import (
	"context"
	"fmt"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// brood is a parent that waits for the ends of all its children, some of which fail.
type brood struct{}

func (brood) Name() string { return "brood" }

func (brood) Routes() string {
	return `  - {name: brood, stream: STORIES, subject: "stories.brood.*.start", correlation_key: "brood-{{subject[2]}}", start: {machine: brood, state: "{{payload}}"}}
`
}

type broodState struct {
	Journal
	Children int `json:"children,omitempty"`
	Child    int `json:"child,omitempty"`
}

func (brood) Machines() []*engine.Machine {
	parent := must(engine.Define(engine.Definition[broodState]{
		Name: "brood", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[broodState]{
			"begin": step(func(v *engine.Visit[broodState]) move {
				key, n := v.Instance.CorrelationKey, v.State.Children
				return move{outcome: engine.Await("gathered").OrChildren(engine.AllChildren)}.with(func(o engine.Outcome, _ string) engine.Outcome {
					for i := range n {
						state := broodState{Child: i}
						state.Event = childEvent(key, i)
						o = o.StartChild(engine.NewInstance{Machine: "chick", CorrelationKey: childKey(key, i), State: engine.MustJSON(state)})
					}
					return o
				})
			}),
			"gathered": step(func(v *engine.Visit[broodState]) move {
				if len(v.Awaited) != v.State.Children {
					return failing(fmt.Errorf("woken with %d of %d ends", len(v.Awaited), v.State.Children))
				}
				return done()
			}),
		},
	}))
	chick := must(engine.Define(engine.Definition[broodState]{
		Name: "chick", Start: "grow", Retry: retry,
		Steps: map[string]engine.Step[broodState]{
			"grow": step(func(*engine.Visit[broodState]) move { return next("go") }),
			"go": step(func(v *engine.Visit[broodState]) move {
				if v.State.Child%2 == 1 {
					return stop()
				}
				return done()
			}),
		},
	}))
	return []*engine.Machine{parent, chick}
}

// endOf is the event that the end of a child is for its parent, and nameOfEnd the name that it has here: there it is named by its id.
func endOf(childKey string) string { return "end of " + childKey }

const nameOfEnd = "end"

func (brood) Play(ctx context.Context, p *Player) error {
	children := 1 + p.Rand.IntN(4)
	for n := range children {
		p.Account.Expect(oracle.Event{ID: childEvent(p.Key, n), Key: childKey(p.Key, n), Want: oracle.Starts, Internal: true})
		p.Account.Expect(oracle.Event{ID: endOf(childKey(p.Key, n)), Key: p.Key, Name: nameOfEnd, Want: oracle.Consumed, Internal: true})
	}
	if err := p.publish(ctx, p.signal(p.subject("brood", "start"), "", oracle.Starts, map[string]any{"children": children})); err != nil {
		return err
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return nil
}
