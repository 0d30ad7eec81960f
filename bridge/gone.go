package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// traceGone is [Tracer.Trace] of a message that its stream had. Without its subject, headers and body nobody can say what routes made of
// it; what is left of it elsewhere is found by its place: a dead letter, the note of one that was dropped, an instance that it started.
func (t *Tracer) traceGone(ctx context.Context, s jetstream.Stream, seq uint64) (traces []Trace, err error) {
	info := s.CachedInfo()
	m := &message{stream: info.Config.Name, created: info.Created, sequence: seq}
	unknown := Trace{Stream: m.stream, Seq: seq, Fate: FateUnknown, Reason: whyGone(info.State, m.stream, seq)}
	if info.Config.Mirror != nil {
		m.mirrors = info.Config.Mirror.Name
	}
	asMirrored := *m
	asMirrored.stored = time.Now() // so that the upstream as it is now counts
	if m.origin, err = t.origins.of(ctx, &asMirrored); err != nil {
		return nil, err
	}
	var rest []Trace // of which nothing is known
	for _, rt := range t.mapper.routes() {
		if rt.Stream != m.stream {
			continue
		}
		trace := unknown
		trace.Route, trace.Reason = rt.Name, ""
		found, err := t.deadLettered(ctx, rt, m, &trace)
		if err == nil && !found && rt.Existing == "" { // the origin that such a route gives its messages has their time
			found, err = t.trailed(ctx, rt, m.origin, &trace)
		}
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", rt.Name, err)
		}
		if found {
			traces = append(traces, trace)
			continue
		}
		trace.Reason = unknown.Reason
		rest = append(rest, trace)
	}
	if len(traces)+len(rest) == 0 {
		unknown.Reason += "; and no route reads the stream"
		rest = []Trace{unknown}
	}
	return append(traces, rest...), nil
}

func whyGone(state jetstream.StreamState, stream string, seq uint64) string {
	gone := "it was deleted, by hand or as the stream is configured"
	if seq < state.FirstSeq {
		gone = fmt.Sprintf("it was purged, or dropped by the limits of the stream, which begins at %d now", state.FirstSeq)
	}
	return fmt.Sprintf("%s no longer has message %d: %s. What is known of a message is found by its key, which went with it", stream, seq, gone)
}

// trailed looks for what is known of a place alone.
func (t *Tracer) trailed(ctx context.Context, rt *route, origin engine.Origin, trace *Trace) (found bool, err error) {
	origin.Route = rt.Name
	trails, err := t.records.Trails(ctx, []engine.Origin{origin})
	if err != nil {
		return false, err
	}
	switch trail := trails[0]; {
	case trail.Start == engine.Duplicate:
		trace.Reason = "the instance had the key when it came"
		fallthrough
	case trail.Start != "":
		trace.Fate, trace.InstanceID, trace.At = string(trail.Start), trail.InstanceID, trail.At
		return true, nil
	case !trail.DroppedAt.IsZero():
		trace.Fate, trace.At = FateDropped, trail.DroppedAt
		trace.Reason = "it was a dead letter, which an operator dropped: " + trail.Reason
		return true, nil
	}
	return false, nil
}
