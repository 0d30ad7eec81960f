package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Records says what is known of intakes; an [engine.Client] is one.
type Records interface {
	Look(ctx context.Context, in engine.Intake) (engine.Record, error)
	LookAll(ctx context.Context, batch []engine.Intake) ([]engine.Record, error)
	Trails(ctx context.Context, origins []engine.Origin) ([]engine.Trail, error)
}

// Tracer says what became of messages: it reads them again, maps them as the routes do now, and looks for what each route made of them.
// It changes nothing. Make it with [NewTracer].
type Tracer struct {
	js      jetstream.JetStream
	space   subjects.Space
	mapper  *Mapper
	records Records
	origins *origins
	kept    time.Duration
}

// NewTracer traces messages of these routes. kept is how long records outlive what they are of: what is older may have been purged.
func NewTracer(js jetstream.JetStream, space subjects.Space, mapper *Mapper, records Records, kept time.Duration) *Tracer {
	return &Tracer{js: js, space: space, mapper: mapper, records: records, origins: newOrigins(js), kept: kept}
}

// Fates of a message.
const (
	FateStarted      = string(engine.Started)
	FateDelivered    = string(engine.Delivered)
	FateDuplicate    = string(engine.Duplicate)
	FateConflict     = string(engine.Conflict)
	FateHeld         = string(engine.Held)
	FateFiltered     = "filtered"
	FateDropped      = "dropped"
	FateDeadLettered = "dead-lettered"
	FatePending      = "pending" // not taken in yet
	FateUnknown      = "unknown" // nothing is known of it, or nothing any more
)

// Trace is the fate of one message by one route.
type Trace struct {
	Stream     string
	Seq        uint64
	MsgID      string
	Subject    string
	Route      string // "": no route reads it
	Fate       string
	Reason     string
	InstanceID uuid.UUID // uuid.Nil: of none, or not known
	SignalID   int64
	At         time.Time // zero: not known
}

// ErrNoMessage: the stream does not have the message, or does not have it any more.
var ErrNoMessage = errors.New("there is no such message")

// Trace returns the fate of a message by each route that reads it, in the order of the configuration; where none does, one trace says
// so. Of a message that the stream has no longer it returns what is left of each route that may have read it. The error is [ErrNoMessage]
// where the stream never had it.
func (t *Tracer) Trace(ctx context.Context, stream string, seq uint64) ([]Trace, error) {
	s, err := t.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrInvalidStreamName) {
		return nil, fmt.Errorf("%w: there is no stream %.60q", ErrNoMessage, stream)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	raw, err := s.GetMsg(ctx, seq)
	state := s.CachedInfo().State
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound) && (seq == 0 || seq > state.LastSeq):
		return nil, fmt.Errorf("%w: %s has the sequences %d to %d, and has not come to %d", ErrNoMessage, stream, state.FirstSeq, state.LastSeq, seq)
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return t.traceGone(ctx, s, seq)
	}
	if err != nil {
		return nil, fmt.Errorf("message %d of %s: %w", seq, stream, err)
	}
	m := &message{subject: raw.Subject, headers: stored(raw.Header), body: raw.Data, stream: stream, created: s.CachedInfo().Created, sequence: seq, stored: raw.Time}
	if mirror := s.CachedInfo().Config.Mirror; mirror != nil {
		m.mirrors = mirror.Name
	}
	if m.origin, err = t.origins.of(ctx, m); err != nil {
		return nil, err
	}
	return t.trace(ctx, m)
}

func (t *Tracer) trace(ctx context.Context, m *message) (traces []Trace, err error) {
	base := Trace{Stream: m.stream, Seq: m.sequence, MsgID: m.headers.Get(subjects.HeaderMsgID), Subject: m.subject}
	for _, rt := range t.mapper.routes() {
		if rt.passesBy(Message{Subject: m.subject, Stream: m.stream}) != "" {
			continue
		}
		own := *m
		if rt.Existing != "" { // as such a route reads it, see locate
			own.created = m.stored
			own.origin = engine.Origin{Stream: m.stream, Created: m.stored, Sequence: m.sequence}
		}
		trace := base
		trace.Route = rt.Name
		if err := t.traceRoute(ctx, rt, &own, &trace); err != nil {
			return nil, fmt.Errorf("route %s: %w", rt.Name, err)
		}
		traces = append(traces, trace)
	}
	if len(traces) == 0 {
		base.Fate, base.Reason = FateUnknown, fmt.Sprintf("no route reads %s of the stream %s", m.subject, m.stream)
		traces = []Trace{base}
	}
	return traces, nil
}

func (t *Tracer) traceRoute(ctx context.Context, rt *route, m *message, trace *Trace) error {
	// The consumer is asked first: what it says is acked has its record by the time that this is looked for.
	where, err := t.progress(ctx, rt, m)
	if err != nil {
		return err
	}
	mapped := rt.mapMessage(m)
	found, err := t.recorded(ctx, mapped.intakes, where, trace)
	if err != nil || found {
		return err
	}
	if where.acked || where.reached {
		if found, err = t.deadLettered(ctx, rt, m, trace); err != nil || found {
			return err
		}
		if found, err = t.trailed(ctx, rt, m.origin, trace); err != nil || found {
			return err
		}
	}
	switch {
	case where.known && !where.acked:
		trace.Fate, trace.Reason = FatePending, where.reason
	case mapped.filtered:
		trace.Fate, trace.Reason = FateFiltered, "when: is false, as the route is now"
	case where.known && rt.mayDrop() && time.Since(m.stored) < t.kept:
		trace.Fate, trace.Reason = FateDropped, fmt.Sprintf("it was acked and left no record, and the route may drop: on_missing is %s, on_terminal is %s", rt.OnMissing, rt.OnTerminal)
	case mapped.reason != "":
		trace.Fate, trace.Reason = FateUnknown, "no dead letter of it is left, and the route as it is now refuses it: "+mapped.reason
	default:
		trace.Fate, trace.Reason = FateUnknown, "nothing is on record of it: that may have been purged, or the route maps it another way now"
		if !where.known {
			trace.Reason += "; " + where.reason
		}
	}
	return nil
}

func (rt *route) mayDrop() bool {
	return rt.OnMissing == engine.MissingDrop || rt.OnTerminal == engine.TerminalDrop
}

// recorded looks for what the intakes of a message became; of several the worst counts, as when it was settled. What is not delivered
// yet is no duplicate yet.
func (t *Tracer) recorded(ctx context.Context, intakes []engine.Intake, where position, trace *Trace) (found bool, err error) {
	for _, in := range intakes {
		r, err := t.records.Look(ctx, in)
		if err != nil {
			return false, err
		}
		own := r.Result == engine.Delivered || r.Result == engine.Started || r.Result == engine.Held
		if r.Result == "" || !own && where.known && !where.reached {
			continue
		}
		if found && severity(fate(r.Result)) <= severity(fate(trace.Fate)) {
			continue
		}
		found = true
		trace.Fate, trace.InstanceID, trace.SignalID, trace.At = string(r.Result), r.InstanceID, r.SignalID, r.At
		trace.Reason = recordReason(in, r)
	}
	return found, nil
}

func recordReason(in engine.Intake, r engine.Record) string {
	switch r.Result {
	case engine.Duplicate:
		return fmt.Sprintf("the dedup key %q was taken in before, from another place%s", in.DedupKey, ofWhat(r))
	case engine.Conflict:
		return fmt.Sprintf("the dedup key %q was taken in before, from another place and with another name or body", in.DedupKey)
	case engine.Held:
		if in.Event != "" {
			return fmt.Sprintf("no trigger has waited with the key %q yet", in.Event)
		}
		return fmt.Sprintf("nobody has the key %q yet", in.To.Key())
	}
	if r.Changed {
		return "the route, or the body that it takes, was another then"
	}
	return ""
}

// ofWhat says of what a duplicate is one.
func ofWhat(r engine.Record) string {
	switch {
	case r.InstanceID == uuid.Nil:
		return fmt.Sprintf(": as what is held since %s", r.At.UTC().Format(time.RFC3339))
	case r.SignalID == 0:
		return fmt.Sprintf(": as the start of %s at %s", r.InstanceID, r.At.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf(": as signal %d of %s at %s", r.SignalID, r.InstanceID, r.At.UTC().Format(time.RFC3339))
}

// deadLettered looks for the dead letter that a route, or the hold after it, made of a message.
func (t *Tracer) deadLettered(ctx context.Context, rt *route, m *message, trace *Trace) (found bool, err error) {
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{t.space.DeadLetter(rt.Name)}, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &m.stored,
	}
	if m.stored.IsZero() { // not known any more
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverAllPolicy, nil
	}
	seq := strconv.FormatUint(m.sequence, 10)
	complete, err := scan(ctx, t.js, t.space.DeadLettersStream(), cfg, func(letter jetstream.Msg, _ uint64) bool {
		h := letter.Headers()
		if h.Get(subjects.HeaderStream) != m.stream || h.Get(subjects.HeaderSeq) != seq {
			return false
		}
		// A stream that was made again had another message with this sequence.
		if o, ok := originOf(rt.Name, h.Get(subjects.HeaderOrigin)); ok && rt.Existing == "" && o.Stream == m.stream && !o.Created.Equal(m.created) {
			return false
		}
		found = true
		if trace.Subject == "" {
			trace.Subject, trace.MsgID = h.Get(subjects.HeaderSubject), h.Get(subjects.HeaderOriginalMsgID)
		}
		trace.Fate, trace.Reason = FateDeadLettered, h.Get(subjects.HeaderReason)
		if meta, err := letter.Metadata(); err == nil {
			trace.At = meta.Timestamp
		}
		if strings.HasPrefix(trace.Reason, subjects.ReasonConflict) {
			trace.Fate = FateConflict
		}
		return true
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err == nil && !found && !complete {
		found = true
		trace.Fate, trace.Reason = FateUnknown, fmt.Sprintf("nothing is on record of it, and it is not among the first %d dead letters of the route since then", maxScan)
	}
	return found, err
}

// position is how far the consumer of a route is, seen from one message.
type position struct {
	known   bool
	reached bool // the message has been delivered
	acked   bool
	reason  string // of not acked, or not known
}

func (t *Tracer) progress(ctx context.Context, rt *route, m *message) (position, error) {
	name := rt.consumerName()
	c, err := t.js.Consumer(ctx, rt.Stream, name)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return position{known: true, reason: fmt.Sprintf("the route has no consumer %s yet: no bridge has run it", name)}, nil
	case err != nil && rt.Existing != "": // the right to ask may be missing
		return position{reached: true, reason: fmt.Sprintf("the consumer %s cannot be asked: %v", name, err)}, nil
	case err != nil:
		return position{}, fmt.Errorf("consumer %s: %w", name, err)
	}
	info := c.CachedInfo()
	p := position{known: true, reached: m.sequence <= info.Delivered.Stream, acked: m.sequence <= info.AckFloor.Stream || m.sequence <= info.Delivered.Stream && info.NumAckPending == 0}
	switch {
	case rt.Paused:
		p.reason = "the route is paused"
	case p.reached:
		p.reason = "it has been delivered to a bridge, and is not acked yet"
	default:
		p.reason = fmt.Sprintf("the route has not come to it: it has read up to sequence %d", info.Delivered.Stream)
	}
	return p, nil
}

// Find returns where the latest message with a Nats-Msg-Id stands, in one stream or, where that is "", in any that a route reads. Of each
// the last 50,000 are looked through. The error is [ErrNoMessage] where none of these is it.
func (t *Tracer) Find(ctx context.Context, stream, msgID string) (foundIn string, seq uint64, err error) {
	streams := []string{stream}
	if stream == "" {
		streams = t.mapper.streams()
	}
	all := true
	for _, name := range streams {
		seq, complete, err := findMsgID(ctx, t.js, name, msgID)
		if err != nil || seq != 0 {
			return name, seq, err
		}
		all = all && complete
	}
	if !all {
		return "", 0, fmt.Errorf("%w: no message with the id %q is among the last %d of %v: name its stream and sequence", ErrNoMessage, msgID, maxScan, streams)
	}
	return "", 0, fmt.Errorf("%w: no message with the id %q is in %v", ErrNoMessage, msgID, streams)
}

// streams that routes read, each once.
func (m *Mapper) streams() (names []string) {
	seen := map[string]bool{}
	for _, rt := range m.routes() {
		if !seen[rt.Stream] {
			seen[rt.Stream], names = true, append(names, rt.Stream)
		}
	}
	return names
}
