package bridge

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Mapper says what routes make of a message, and takes nothing in. It asks nobody, and is safe for concurrent use. Make it with
// [NewMapper].
type Mapper struct{ current atomic.Pointer[[]*route] }

func (m *Mapper) routes() []*route { return *m.current.Load() }

// Replace the routes by another mapper's.
func (m *Mapper) Replace(by *Mapper) { m.current.Store(by.current.Load()) }

// NewMapper compiles routes, the built-in one too unless noSignalsRoute.
func NewMapper(space subjects.Space, routes []Route, noSignalsRoute bool) (*Mapper, error) {
	compiled, err := compileRoutes(Config{Subjects: space, Routes: routes, NoSignalsRoute: noSignalsRoute})
	if err != nil {
		return nil, err
	}
	m := &Mapper{}
	m.current.Store(&compiled)
	return m, nil
}

// Message is what a [Mapper] maps. Without a Stream it may be any that a route reads.
type Message struct {
	Subject string
	Headers map[string][]string
	Data    []byte

	Stream   string
	Created  time.Time // of the stream
	Sequence uint64
	Stored   time.Time // by the stream
}

// Mapping is what one route makes of a message.
type Mapping struct {
	Route Route // with its defaults filled in
	Taken bool  // the route reads this message
	// Reason is why the route does not take the message, or why it is a dead letter; "" where there are Intakes, or it is filtered.
	Reason   string
	Filtered bool // when: is false
	Intakes  []engine.Intake
	// PlaceDedup says that nothing but its place in the stream tells this message from another: its dedup key is of that.
	PlaceDedup bool
}

// Map gives one mapping for each route, in the order of the configuration, the built-in route last. Whatever the message holds, it
// does not panic.
func (m *Mapper) Map(msg Message) []Mapping {
	routes := m.routes()
	all := make([]Mapping, len(routes))
	for i, rt := range routes {
		all[i] = rt.explain(msg)
	}
	return all
}

func (rt *route) explain(msg Message) Mapping {
	out := Mapping{Route: rt.Route}
	if out.Reason = rt.passesBy(msg); out.Reason != "" {
		return out
	}
	m := &message{subject: msg.Subject, headers: msg.Headers, body: msg.Data, stream: msg.Stream, created: msg.Created, sequence: msg.Sequence, stored: msg.Stored}
	if m.stream == "" {
		m.stream = rt.Stream
	}
	m.origin = engine.Origin{Stream: m.stream, Created: m.created, Sequence: m.sequence}
	mapped := rt.mapMessage(m)
	out.Taken, out.Filtered, out.Reason, out.Intakes = true, mapped.filtered, mapped.reason, mapped.intakes
	for i := range out.Intakes {
		out.PlaceDedup = out.Intakes[i].DedupKey == placeKey(m.origin)
	}
	return out
}

// passesBy is why a route does not read a message; "" where it does.
func (rt *route) passesBy(msg Message) string {
	if msg.Stream != "" && msg.Stream != rt.Stream {
		return fmt.Sprintf("reads the stream %s", rt.Stream)
	}
	for _, filter := range rt.Subjects {
		if subjects.Match(filter, msg.Subject) {
			return ""
		}
	}
	switch {
	case len(rt.Subjects) > 0:
		return fmt.Sprintf("reads %q, and this is %s", rt.Subjects, msg.Subject)
	case rt.Existing != "" && msg.Stream == "":
		return fmt.Sprintf("reads what the consumer %s of %s selects, which is not known here", rt.Existing, rt.Stream)
	}
	return ""
}
