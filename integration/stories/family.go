package stories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// family is an instance whose step starts others, each of which tells it when it is done: effects that start, signal and publish values. Some
// of the children fail at first.
type family struct{}

func (family) Name() string { return "family" }

func (family) Routes() string {
	return `  - {name: family, stream: STORIES, subject: "stories.family.*.start", correlation_key: "family-{{subject[2]}}", start: {machine: family, state: "{{payload}}"}}
`
}

type familyState struct {
	Journal
	Children int    `json:"children,omitempty"`
	Parent   string `json:"parent,omitempty"`
	Child    int    `json:"child,omitempty"`
}

// The events of effects, which the player has to know beforehand.
func childKey(parent string, n int) string   { return fmt.Sprintf("%s.%d", parent, n) }
func childEvent(parent string, n int) string { return fmt.Sprintf("%s/start of child %d", parent, n) }
func backEvent(parent string, n int) string  { return fmt.Sprintf("%s/child %d is back", parent, n) }

const valueOfFamily = "link"

func (family) Machines() []*engine.Machine {
	parent := must(engine.Define(engine.Definition[familyState]{
		Name: "family", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[familyState]{
			"begin": step(func(v *engine.Visit[familyState]) move {
				key, n := v.Instance.CorrelationKey, v.State.Children
				return await("gather", 0, "back").with(func(o engine.Outcome, link string) engine.Outcome {
					for i := range n {
						state := familyState{Parent: key, Child: i}
						state.Event = childEvent(key, i)
						o = o.Start(engine.NewInstance{Machine: "child", CorrelationKey: childKey(key, i), DedupKey: childEvent(key, i), State: engine.MustJSON(state)})
					}
					return o.SetEvent(valueOfFamily, link)
				})
			}),
			"gather": step(func(v *engine.Visit[familyState]) move {
				publish := func(o engine.Outcome, link string) engine.Outcome { return o.SetEvent(valueOfFamily, link) }
				if len(v.Awaited) < v.State.Children {
					return await("gather", 0, "back").with(publish)
				}
				return done().with(publish)
			}),
		},
	}))
	child := must(engine.Define(engine.Definition[familyState]{
		Name: "child", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[familyState]{
			"begin": step(func(v *engine.Visit[familyState]) move {
				if v.State.Child%2 == 1 && v.Instance.Attempt == 0 {
					return failing(errors.New("a child stumbles at first"))
				}
				return next("work")
			}),
			"work": step(func(v *engine.Visit[familyState]) move {
				s := v.State
				return done().with(func(o engine.Outcome, _ string) engine.Outcome {
					event := backEvent(s.Parent, s.Child)
					return o.Signal(engine.ByKey("", s.Parent), engine.Signal{Name: "back", DedupKey: event, Payload: engine.MustJSON(map[string]string{"event": event})})
				})
			}),
		},
	}))
	return []*engine.Machine{parent, child}
}

func (family) Play(ctx context.Context, p *Player) error {
	children := 1 + p.Rand.IntN(4)
	for n := range children {
		p.Account.Expect(oracle.Event{ID: childEvent(p.Key, n), Key: childKey(p.Key, n), Want: oracle.Starts, Internal: true})
		p.Account.Expect(oracle.Event{ID: backEvent(p.Key, n), Key: p.Key, Name: "back", Want: oracle.Consumed, Internal: true})
	}
	if err := p.publish(ctx, p.signal(p.subject("family", "start"), "", oracle.Starts, map[string]any{"children": children})); err != nil {
		return err
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return p.readValue(ctx)
}

// readValue asks for the value that the instance published last.
func (p *Player) readValue(ctx context.Context) error {
	reply, err := p.request(ctx, "events", map[string]any{"ref": "key:" + p.Key}, "")
	if err != nil {
		return err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(reply, &values); err != nil {
		return fmt.Errorf("values of %s: %w: %s", p.Key, err, reply)
	}
	var link string
	if err := json.Unmarshal(values[valueOfFamily], &link); err != nil {
		return fmt.Errorf("values of %s: %w: %s", p.Key, err, reply)
	}
	p.Account.Value(p.Key, link)
	return nil
}
