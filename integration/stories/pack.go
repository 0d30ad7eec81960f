package stories

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// pack is an order: it waits for some items and a payment, in any order, and takes all of it at once when all is there. Its messages come
// early, twice, inside of the stream's window and outside of it, after its end, with a dedup key that was used, and some cannot be read.
type pack struct{}

func (pack) Name() string { return "pack" }

func (pack) Routes() string {
	return `  - {name: pack-start, stream: STORIES, subject: "stories.pack.*.start", correlation_key: "pack-{{subject[2]}}", start: {machine: pack, state: "{{payload}}"}}
  - {name: pack, stream: STORIES, subject: ["stories.pack.*.item", "stories.pack.*.paid"], signal: "{{subject[3]}}", correlation_key: "pack-{{subject[2]}}", when: "!has(payload.skip)"}
`
}

type packState struct {
	Journal
	Items int `json:"items"`
}

func (pack) Machines() []*engine.Machine {
	return []*engine.Machine{must(engine.Define(engine.Definition[packState]{
		Name: "pack", Start: "begin", Retry: retry,
		Steps: map[string]engine.Step[packState]{
			"begin": step(func(*engine.Visit[packState]) move { return await("collect", 0, "item", "paid") }),
			"collect": step(func(v *engine.Visit[packState]) move {
				items, paid := 0, false
				for _, s := range v.Awaited {
					switch s.Name {
					case "item":
						items++
					case "paid":
						paid = true
					}
				}
				if items < v.State.Items || !paid {
					return await("collect", 0, "item", "paid")
				}
				return next("ship")
			}),
			"ship": step(func(*engine.Visit[packState]) move {
				time.Sleep(5 * time.Millisecond) // what the world takes
				return done()
			}),
		},
	}))}
}

var unreadable = []string{`{"event": `, "not json", `{"event": "a\u0000"}`, "\xff\xfe", `[]`}

func (s pack) Play(ctx context.Context, p *Player) error {
	n := 1 + p.Rand.IntN(4)
	start := p.signal(p.subject("pack", "start"), "", oracle.Starts, map[string]any{"items": n})
	var parts []event
	for range n {
		parts = append(parts, p.signal(p.subject("pack", "item"), "item", oracle.Consumed, nil))
	}
	parts = append(parts, p.signal(p.subject("pack", "paid"), "paid", oracle.Consumed, nil))
	if p.chance(10) {
		parts[n].msgID, parts[n].Unkeyed = "-", true
	}
	var rival event
	if p.chance(20) {
		rival = p.signal(p.subject("pack", "item"), "item", oracle.Dead, map[string]any{"again": true})
		rival.msgID, rival.Rival = parts[0].ID, parts[0].ID
		parts[0].msgID, parts[0].Rival = parts[0].ID, parts[0].ID
	}
	if p.chance(20) {
		parts = append(parts, p.signal(p.subject("pack", "item"), "item", oracle.Filtered, map[string]any{"skip": true}))
	}
	if p.chance(20) {
		bad := p.signal(p.subject("pack", "item"), "item", oracle.Dead, nil)
		bad.raw = []byte(unreadable[p.Rand.IntN(len(unreadable))])
		parts = append(parts, bad)
	}
	p.Rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	early := p.Rand.IntN(len(parts)) * p.Rand.IntN(2)
	all := append(append(append([]event{}, parts[:early]...), start), parts[early:]...)
	var last event
	if p.chance(50) { // else all is there at once
		last, all = all[len(all)-1], all[:len(all)-1]
	}
	var twice []event
	for _, e := range all {
		if err := p.publish(ctx, e); err != nil {
			return err
		}
		if e.msgID != "-" && p.chance(15) {
			if err := p.again(ctx, e); err != nil { // inside of the window
				return err
			}
		}
		if e.msgID != "-" && p.chance(20) {
			twice = append(twice, e)
		}
	}
	if err := p.outsideWindow(ctx); err != nil {
		return err
	}
	if err := p.again(ctx, twice...); err != nil {
		return err
	}
	if rival.ID != "" {
		if err := p.publish(ctx, rival); err != nil {
			return err
		}
	}
	if last.ID != "" {
		if err := p.publish(ctx, last); err != nil {
			return err
		}
	}
	if err := p.ended(ctx, p.Key); err != nil {
		return fmt.Errorf("%s does not end: %w", p.Key, err)
	}
	return s.after(ctx, p, append(twice, start))
}

// after the end what has come before is a duplicate, and what is new is too late.
func (pack) after(ctx context.Context, p *Player, before []event) error {
	if err := p.outsideWindow(ctx); err != nil {
		return err
	}
	if p.chance(50) {
		if err := p.again(ctx, before...); err != nil {
			return err
		}
	}
	if p.chance(50) {
		return p.publish(ctx, p.signal(p.subject("pack", "item"), "item", oracle.Dead, nil))
	}
	return nil
}
