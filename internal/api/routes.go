package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// TestRequest is a message to be tried on the routes.
type TestRequest struct {
	Subject string                 `json:"subject"`
	Headers map[string]HeaderValue `json:"headers,omitempty"`
	Data    json.RawMessage        `json:"data,omitempty"`        // the body, as JSON
	Base64  []byte                 `json:"data_base64,omitempty"` // or any other
	Stream  string                 `json:"stream,omitempty"`      // ""; any that a route reads
}

// HeaderValue is one value, or several.
type HeaderValue []string

// UnmarshalJSON reads a string or an array of strings.
func (h *HeaderValue) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*h = HeaderValue{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(h))
}

// RoutesTest says what the routes would make of a message: those that read it, or all of them and why not, where none does.
type RoutesTest struct {
	Routes []RouteTest `json:"routes" nullable:"false"`
}

// RouteTest is what one route would do.
type RouteTest struct {
	Route   string `json:"route"`
	Stream  string `json:"stream"`
	Matched bool   `json:"matched"`
	// Result is filtered or dead-lettered, where the message alone decides, or else what the database of now decides: delivered, started,
	// held, dropped, duplicate, conflict or dead-lettered. null: nobody asked the database.
	Result   *string         `json:"result"`
	Reason   string          `json:"reason"` // why, or what it depends on
	Signal   *string         `json:"signal"`
	DedupKey *string         `json:"dedup_key"` // null where it is the message's place in the stream
	Payload  json.RawMessage `json:"payload"`   // of the signal
	Start    *StartTest      `json:"start"`
	Targets  []TargetTest    `json:"targets" nullable:"false"`
}

// StartTest is the instance that a route would start.
type StartTest struct {
	Machine string          `json:"machine"`
	Version int             `json:"version,omitempty"`
	Queue   string          `json:"queue"`
	State   json.RawMessage `json:"state"`
}

// TargetTest is one instance that a message is for.
type TargetTest struct {
	Project        string  `json:"project"`
	CorrelationKey *string `json:"correlation_key"`
	InstanceID     *string `json:"instance_id"` // that has the key, where the database was asked
	Result         *string `json:"result"`
}

// TestRoutes maps a message, and asks nobody.
func TestRoutes(m *bridge.Mapper, r TestRequest) (RoutesTest, error) {
	tests, _, err := testRoutes(m, r)
	return tests, err
}

// TestRoutes maps a message, and says what the database of this moment would make of it. It changes nothing.
func (a *API) TestRoutes(ctx context.Context, r TestRequest) (RoutesTest, error) {
	tests, mappings, err := testRoutes(a.Mapper, r)
	if err != nil {
		return tests, err
	}
	for i := range tests.Routes {
		if err := a.decide(ctx, &tests.Routes[i], mappings[i].Intakes); err != nil {
			return tests, err
		}
	}
	return tests, nil
}

func testRoutes(m *bridge.Mapper, r TestRequest) (tests RoutesTest, mappings []bridge.Mapping, err error) {
	msg, err := r.message()
	if err != nil {
		return tests, nil, err
	}
	all := m.Map(msg)
	for _, mapping := range all {
		if mapping.Taken {
			mappings = append(mappings, mapping)
		}
	}
	if len(mappings) == 0 {
		mappings = all
	}
	tests.Routes = make([]RouteTest, len(mappings))
	for i, mapping := range mappings {
		tests.Routes[i] = routeTestOf(mapping)
	}
	return tests, mappings, nil
}

func (r TestRequest) message() (bridge.Message, error) {
	if err := subjects.ValidSubject(r.Subject); err != nil {
		return bridge.Message{}, invalid("subject", "%v", err)
	}
	if r.Data != nil && r.Base64 != nil {
		return bridge.Message{}, invalid("data", "and data_base64: want one of them")
	}
	msg := bridge.Message{Subject: r.Subject, Headers: map[string][]string{}, Data: r.Base64, Stream: r.Stream}
	if r.Data != nil {
		msg.Data = r.Data
	}
	for name, values := range r.Headers {
		msg.Headers[name] = values
	}
	return msg, nil
}

func routeTestOf(m bridge.Mapping) RouteTest {
	t := RouteTest{Route: m.Route.Name, Stream: m.Route.Stream, Matched: m.Taken, Reason: m.Reason, Targets: []TargetTest{}}
	switch {
	case !m.Taken:
		return t
	case m.Filtered:
		t.Result, t.Reason = optional(bridge.FateFiltered), "when: is false: "+m.Route.When
		return t
	case m.Reason != "":
		t.Result = optional(bridge.FateDeadLettered)
		return t
	}
	first := m.Intakes[0]
	t.Signal, t.Reason = optional(first.Name), outlook(m)
	if first.Name != "" {
		t.Payload = first.Payload
	}
	if !m.PlaceDedup {
		t.DedupKey = optional(first.DedupKey)
	}
	if s := first.Start; s != nil {
		t.Start = &StartTest{Machine: s.Machine, Version: s.Version, Queue: s.Queue, State: s.State}
		if s.Queue == "" {
			t.Start.Queue = engine.DefaultQueue
		}
	}
	for _, in := range m.Intakes {
		t.Targets = append(t.Targets, TargetTest{Project: in.To.Project(), CorrelationKey: optional(in.To.Key()), InstanceID: optionalID(in.To.ID())})
	}
	return t
}

// outlook says what the fate of a message depends on.
func outlook(m bridge.Mapping) string {
	in := m.Intakes[0]
	if in.Name == "" {
		return fmt.Sprintf("started, unless an instance with the key is live: then it is a duplicate%s", paused(m))
	}
	missing := map[engine.OnMissing]string{
		engine.MissingHold: fmt.Sprintf("held for %s, then dead-lettered", in.HoldFor), engine.MissingStart: "started", engine.MissingDrop: "dropped",
		engine.MissingReject: "dead-lettered",
	}[in.OnMissing]
	ended := map[engine.OnTerminal]string{engine.TerminalReject: "dead-lettered", engine.TerminalDrop: "dropped", engine.TerminalStart: "started"}[in.OnTerminal]
	return fmt.Sprintf("delivered, where an instance is live; where none is: %s; where the last one has ended: %s%s", missing, ended, paused(m))
}

func paused(m bridge.Mapping) string {
	if m.Route.Paused {
		return "; the route is paused"
	}
	return ""
}

// decide asks the database what would become of each intake. The result of the route is that of the first target.
func (a *API) decide(ctx context.Context, t *RouteTest, intakes []engine.Intake) error {
	for i, in := range intakes {
		r, err := a.Client.Look(ctx, in)
		if err != nil {
			return err
		}
		result, reason := string(r.Would), ""
		switch {
		case r.Would == engine.NoTarget && r.Ended != nil:
			result, reason = bridge.FateDeadLettered, (&engine.NoTargetError{Ended: *r.Ended}).Error()
		case r.Would == engine.NoTarget:
			result, reason = bridge.FateDeadLettered, engine.ErrNoTarget.Error()
		case r.Would == engine.Duplicate && in.Name == "" && r.Result == "":
			reason = fmt.Sprintf("instance %s has the key", r.Target)
		case r.Would == engine.Duplicate || r.Would == engine.Conflict:
			reason = fmt.Sprintf("the dedup key was taken in at %s", r.At.UTC().Format("2006-01-02T15:04:05Z"))
		case r.Target != uuid.Nil:
			reason = fmt.Sprintf("instance %s is live", r.Target)
		case r.Ended != nil:
			reason = (&engine.NoTargetError{Ended: *r.Ended}).Error()
		default:
			reason = "no instance has had the key"
		}
		t.Targets[i].Result = &result
		if r.Target != uuid.Nil {
			t.Targets[i].InstanceID = optionalID(r.Target)
		}
		if i == 0 {
			t.Result, t.Reason = &result, reason
		}
	}
	return nil
}
