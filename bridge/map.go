package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// message is what a route sees of a message.
type message struct {
	subject string
	headers nats.Header
	body    []byte

	stream     string // it was read from
	created    time.Time
	sequence   uint64
	mirrors    string    // the stream that stream is a mirror of
	stored     time.Time // by the stream
	deliveries uint64
	seenBefore bool // it may have been taken in before

	origin engine.Origin
}

// mapping is what a route makes of a message: intakes, or nothing because when: is false, or the reason why it can never be taken in.
// It is exactly one of these.
type mapping struct {
	intakes  []engine.Intake
	filtered bool
	reason   string
}

// maxKeys bounds the targets of one message, as they are written in one transaction.
const maxKeys = 1000

// mapMessage maps a message. It is pure; whatever the message holds, it does not panic.
func (rt *route) mapMessage(m *message) mapping {
	intakes, err := rt.intakes(m)
	switch {
	case errors.Is(err, errFiltered):
		return mapping{filtered: true}
	case err != nil:
		return mapping{reason: err.Error()}
	}
	return mapping{intakes: intakes}
}

var errFiltered = errors.New("filtered")

func (rt *route) intakes(m *message) ([]engine.Intake, error) {
	if len(m.body) > rt.MaxBody {
		return nil, fmt.Errorf("body: has %d bytes, at most %d are allowed", len(m.body), rt.MaxBody)
	}
	c, err := rt.open(m)
	if err != nil {
		return nil, err
	}
	in := &expr.Input{Payload: c.payload, Headers: c.headers, Subject: m.subject, Stream: m.stream, Seq: m.sequence, Time: m.stored}
	if rt.when != nil {
		switch pass, err := rt.when.Eval(in); {
		case err != nil:
			return nil, fmt.Errorf("when: %w", err)
		case !pass:
			return nil, errFiltered
		}
	}
	targets, err := rt.targets(in, m)
	if err != nil {
		return nil, err
	}
	body := m.body
	if body == nil { // an empty body is one too, however it was read
		body = []byte{}
	}
	intake := engine.Intake{
		Body: body, Origin: rt.origin(m), Redelivered: m.seenBefore,
		OnMissing: rt.OnMissing, OnTerminal: rt.OnTerminal, HoldFor: rt.HoldFor, Traceparent: traceparent(m.headers),
	}
	if intake.Name, err = rt.signalName(in, m); err != nil {
		return nil, err
	}
	if intake.DedupKey, err = rt.dedupKey(in, m, c); err != nil {
		return nil, err
	}
	if intake.Payload, err = rt.render(rt.payload, "payload", in, c.payload); err != nil {
		return nil, err
	}
	if intake.Event, err = rt.eventKey(in); err != nil {
		return nil, err
	}
	if intake.Start, err = rt.start(in, &intake); err != nil {
		return nil, err
	}
	if rt.OnMissing == engine.MissingHold {
		intake.Message = &engine.Message{
			Route: rt.Name, Subject: strings.ToValidUTF8(m.subject, "\uFFFD"), Headers: m.headers, Deliveries: m.deliveries, Stored: m.stored,
		}
		if m.origin.Stream != m.stream {
			intake.Message.Stream, intake.Message.Sequence = m.stream, m.sequence
		}
	}
	return fanOut(intake, targets), nil
}

// origin is the message's, as this route reads it.
func (rt *route) origin(m *message) engine.Origin {
	o := m.origin
	o.Route = rt.Name
	return o
}

// fanOut gives the intake to each target.
func fanOut(intake engine.Intake, targets []engine.Ref) []engine.Intake {
	intakes := make([]engine.Intake, len(targets))
	for i, to := range targets {
		intakes[i] = intake
		intakes[i].To = to
		if to.ID() != uuid.Nil { // an instance named by its id is there or is not; nobody will start with that id
			intakes[i].OnMissing, intakes[i].Message = engine.MissingReject, nil
		}
		if intake.Start != nil {
			start := *intake.Start
			start.Project, start.CorrelationKey = to.Project(), to.Key()
			intakes[i].Start = &start
		}
	}
	return intakes
}

// targets are the instances that a message is for.
func (rt *route) targets(in *expr.Input, m *message) ([]engine.Ref, error) {
	if rt.builtin {
		to, err := headerTarget(m.headers)
		return []engine.Ref{to}, err
	}
	if len(rt.keys) == 0 { // a start without a key, or an event
		return []engine.Ref{engine.ByKey(rt.Project, "")}, nil
	}
	var keys []string
	for _, t := range rt.keys {
		some, err := t.Strings(in)
		if err != nil {
			return nil, fmt.Errorf("correlation_key: %w", err)
		}
		keys = append(keys, some...)
	}
	if len(keys) == 0 {
		return nil, errors.New("correlation_key: is an empty list")
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("correlation_key: is a list of %d keys, at most %d are allowed", len(keys), maxKeys)
	}
	targets, seen := make([]engine.Ref, 0, len(keys)), make(map[string]bool, len(keys))
	for _, key := range keys {
		if err := ident.Key("correlation_key", key); err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key], targets = true, append(targets, engine.ByKey(rt.Project, key))
		}
	}
	return targets, nil
}

func (rt *route) signalName(in *expr.Input, m *message) (string, error) {
	var name string
	switch {
	case rt.builtin:
		name, _ = rt.space.SignalName(m.subject)
	case rt.signal == nil:
		return "", nil
	default:
		var err error
		if name, err = rt.signal.String(in); err != nil {
			return "", fmt.Errorf("signal: %w", err)
		}
	}
	return name, ident.Name("signal", name)
}

// eventKey is the key of the trigger that a message is for.
func (rt *route) eventKey(in *expr.Input) (string, error) {
	if rt.event == nil {
		return "", nil
	}
	key, err := rt.event.String(in)
	if err != nil {
		return "", fmt.Errorf("event: %w", err)
	}
	return key, ident.EventKey("event", key)
}

// dedupKey is the route's, else what identifies the message wherever it is read: its Nats-Msg-Id within the stream where it was
// published, its identity as a CloudEvent, or its place in one incarnation of that stream.
func (rt *route) dedupKey(in *expr.Input, m *message, c content) (key string, err error) {
	stream, _ := m.copiedFrom()
	id := m.headers.Get(subjects.HeaderMsgID)
	switch {
	case rt.dedup != nil:
		if key, err = rt.dedup.String(in); err != nil {
			return "", fmt.Errorf("dedup_key: %w", err)
		}
	case id != "":
		key = stream + ":" + id
	case c.eventSource != "" && c.eventID != "":
		key = c.eventSource + "#" + c.eventID
	default:
		key = placeKey(m.origin)
	}
	return key, ident.Key("dedup_key", key)
}

// placeKey is the dedup key of a message that nothing but its place identifies.
func placeKey(o engine.Origin) string {
	return o.Stream + "@" + strconv.FormatInt(o.Created.UnixNano(), 10) + ":" + strconv.FormatUint(o.Sequence, 10)
}

// render a template to JSON that Postgres can hold; without a template it is the default.
func (rt *route) render(t *expr.Template, field string, in *expr.Input, byDefault json.RawMessage) (json.RawMessage, error) {
	value := byDefault
	if t != nil {
		var err error
		if value, err = t.JSON(in); err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
	}
	if value == nil || isWhole(value, in.Payload) && len(value) <= ident.MaxJSON {
		return value, nil
	}
	return value, ident.JSON(field, value, ident.MaxJSON)
}

// isWhole says whether a document is the payload itself, in its own memory: that has been checked when the message was opened, and is not read
// again for every field that is all of it.
func isWhole(doc, payload json.RawMessage) bool {
	return len(doc) > 0 && len(doc) == len(payload) && &doc[0] == &payload[0]
}

func (rt *route) start(in *expr.Input, intake *engine.Intake) (*engine.NewInstance, error) {
	s := rt.Start
	if s == nil {
		return nil, nil
	}
	state, err := rt.render(rt.state, "start.state", in, nil)
	if err != nil {
		return nil, err
	}
	n := &engine.NewInstance{
		Machine: s.Machine, Version: s.Version, State: state, Queue: s.Queue, Priority: s.Priority,
		DedupKey: intake.DedupKey, Traceparent: intake.Traceparent,
	}
	if rt.replyTo != nil {
		if n.ReplyTo, err = rt.replyTo.String(in); err != nil {
			return nil, fmt.Errorf("start.reply_to: %w", err)
		}
		if err := subjects.ValidSubject(n.ReplyTo); err != nil {
			return nil, fmt.Errorf("start.reply_to: %w", err)
		}
	}
	if rt.notify != nil {
		if n.NotifyURL, err = rt.notify.String(in); err != nil {
			return nil, fmt.Errorf("start.notify_url: %w", err)
		}
		if err := ident.URL("start.notify_url", n.NotifyURL); err != nil {
			return nil, err
		}
	}
	n.UniqueScope = s.UniqueScope
	if n.PartitionKey, err = renderKey(rt.partition, "start.partition_key", in); err != nil {
		return nil, err
	}
	n.UniqueKey, err = renderKey(rt.unique, "start.unique_key", in)
	return n, err
}

// renderKey renders one key; without a template there is none.
func renderKey(t *expr.Template, field string, in *expr.Input) (string, error) {
	if t == nil {
		return "", nil
	}
	key, err := t.String(in)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return key, ident.Key(field, key)
}

var traceparentPattern = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent of a message; one that is not well-formed is none, as the standard asks.
func traceparent(h nats.Header) string {
	if t := header(h, subjects.HeaderTraceparent); t != "" && traceparentPattern.MatchString(t) {
		return t
	}
	return ""
}

// header looks a header up in whatever case it was written: producers behind HTTP write Ce-Id and Content-Type.
func header(h nats.Header, name string) string {
	if v := h.Get(name); v != "" {
		return v
	}
	for k, values := range h {
		if len(values) > 0 && strings.EqualFold(k, name) {
			return values[0]
		}
	}
	return ""
}
