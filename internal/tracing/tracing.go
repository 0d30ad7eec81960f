// Package tracing makes the spans of OpenTelemetry that the engine and the bridge tell of themselves. What it continues are trace contexts as
// they stand in headers and rows, so that a wait is no span: whoever goes on after it begins one of its own, with a link to what was before.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. A nil one makes none, and costs a comparison.
type Tracer struct{ tracer trace.Tracer }

// New returns the tracer of a provider, nil where that is nil.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{tracer: p.Tracer("github.com/pointsman/pointsman")}
}

// Span is something that is going on. A nil one is of a nil [Tracer].
type Span struct{ span trace.Span }

// maxLinks bounds the links of a span.
const maxLinks = 16

// Start begins a span in ctx. It continues parent, a traceparent; "" begins a trace. Links are traceparents that it has to do with, of which those of
// its own parent and the empty ones are left out.
func (t *Tracer) Start(ctx context.Context, name string, kind trace.SpanKind, parent string, links []string, attributes ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attributes...)}
	if of := remote(parent); of.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, of)
	} else {
		options = append(options, trace.WithNewRoot())
	}
	seen := map[string]bool{"": true, parent: true}
	for _, link := range links {
		if of := remote(link); !seen[link] && len(seen) < maxLinks+2 && of.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: of}))
		}
		seen[link] = true
	}
	ctx, span := t.tracer.Start(ctx, name, options...)
	return ctx, &Span{span: span}
}

// Request begins the span of a request, in a context that what the request does continues: [Of] it is the span's, or, where there is no tracing,
// what whoever asks has sent.
func (t *Tracer) Request(ctx context.Context, name, parent string, attributes ...attribute.KeyValue) (context.Context, *Span) {
	if t != nil {
		return t.Start(ctx, name, trace.SpanKindServer, parent, nil, attributes...)
	}
	if of := remote(parent); of.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, of)
	}
	return ctx, nil
}

// Of is the traceparent that what is done in ctx continues, or "".
func Of(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	format.Inject(ctx, carrier)
	return carrier[header]
}

var format propagation.TraceContext

const header = "traceparent"

func remote(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(format.Extract(context.Background(), propagation.MapCarrier{header: traceparent}))
}

// Traceparent is how others continue the span; otherwise of a nil one.
func (s *Span) Traceparent(otherwise string) string {
	if s == nil {
		return otherwise
	}
	return Of(trace.ContextWithSpan(context.Background(), s.span))
}

// End ends the span, with what it came to. An error is one of the span.
func (s *Span) End(err error, attributes ...attribute.KeyValue) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attributes...)
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}
