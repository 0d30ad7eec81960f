package stories

import (
	"context"
	"crypto/rand"
	"os"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/integration/oracle"
)

// records is the first token of what machines publish of themselves.
const records = "records."

// Journal is the part of every machine's state that makes a chain of its records.
type Journal struct {
	Event string `json:"event,omitempty"` // that started the instance
	Seq   int    `json:"seq,omitempty"`
	Link  string `json:"link,omitempty"`
}

func (j *Journal) journal() *Journal { return j }

// retry outlasts any run: a step that nothing but its workers' deaths keeps from its end must not fail for that.
var retry = engine.RetryPolicy{MaxAttempts: 100_000, Initial: 20 * time.Millisecond, Max: time.Second}

// step makes a step of one that writes its record. The record of what it does commits with it, and so does the link, in the state.
func step[S any, P interface {
	*S
	journal() *Journal
}](play func(v *engine.Visit[S]) move) engine.Step[S] {
	return stepWith[S, P](func(_ context.Context, v *engine.Visit[S]) move { return play(v) })
}

// stepWith is step for one that takes long.
func stepWith[S any, P interface {
	*S
	journal() *Journal
}](play func(ctx context.Context, v *engine.Visit[S]) move) engine.Step[S] {
	return func(ctx context.Context, v *engine.Visit[S]) (engine.Outcome, error) {
		began := time.Now()
		m := play(ctx, v)
		if m.err != nil {
			return engine.Outcome{}, m.err
		}
		j := P(&v.State).journal()
		r := oracle.Record{
			Instance: v.Instance.ID.String(), Machine: v.Instance.Machine, Key: v.Instance.CorrelationKey, Seq: j.Seq + 1, Prev: j.Link, Link: rand.Text(),
			Step: v.Instance.Step, Visit: v.IdempotencyKey(), Attempt: v.Instance.Attempt, Start: j.Event, TimedOut: v.TimedOut, Awaits: m.awaits, Within: int64(m.within), Got: len(v.Awaited),
			Ends: m.ends, Lane: v.Instance.PartitionKey, Unique: v.Instance.UniqueKey, Worker: os.Getpid(), Began: began.UnixNano(),
		}
		for _, s := range m.consumed(v.Awaited, v.Inbox) {
			r.Consumed = append(r.Consumed, seen(s))
		}
		if len(v.Inbox) > 0 {
			r.Handed = v.Inbox[len(v.Inbox)-1].ID
		}
		j.Seq, j.Link = r.Seq, r.Link
		o := m.outcome
		if m.ends {
			o = engine.Done(map[string]string{"link": r.Link})
			if m.fails {
				o = engine.Stop(r.Link)
			}
		}
		if m.effects != nil {
			o = m.effects(o, r.Link)
		}
		r.Stopped = time.Now().UnixNano()
		return o.Publish(records+v.Instance.Machine, r, nil), nil
	}
}

// seen is what the oracle knows of a signal: its event, which for the end of a child is told by the child's key.
func seen(s engine.Signal) oracle.Seen {
	if s.Kind == engine.KindChild {
		var end engine.ChildEnd
		if err := s.Decode(&end); err != nil {
			return oracle.Seen{ID: s.ID, Name: nameOfEnd, Event: err.Error()}
		}
		return oracle.Seen{ID: s.ID, Name: nameOfEnd, Event: endOf(end.CorrelationKey)}
	}
	return oracle.Seen{ID: s.ID, Name: s.Name, Event: eventIn(s.Payload)}
}

// move is what a step of a story wants to happen.
type move struct {
	outcome     engine.Outcome
	awaits      []string
	within      time.Duration
	ends, fails bool
	takes       taking
	effects     func(o engine.Outcome, link string) engine.Outcome
	err         error
}

// taking is what an outcome consumes.
type taking int

const (
	takesNothing taking = iota
	takesAwaited
	takesAll
)

func (m move) consumed(awaited, inbox []engine.Signal) []engine.Signal {
	switch m.takes {
	case takesAwaited:
		return awaited
	case takesAll:
		return inbox
	}
	return nil
}

func next(step string) move { return move{outcome: engine.Next(step), takes: takesAwaited} }

func await(step string, within time.Duration, names ...string) move {
	m := move{outcome: engine.Await(step, names...), awaits: names, within: within}
	if within > 0 {
		m.outcome = m.outcome.Within(within)
	}
	return m
}

func (m move) consuming() move {
	m.outcome, m.takes = m.outcome.Consuming(), takesAwaited
	return m
}

func done() move { return move{ends: true, takes: takesAll} }

func stop() move { return move{ends: true, fails: true, takes: takesAll} }

func failing(err error) move { return move{err: err} }

func (m move) with(effects func(o engine.Outcome, link string) engine.Outcome) move {
	m.effects = effects
	return m
}
