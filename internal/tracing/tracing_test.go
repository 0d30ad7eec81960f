package tracing_test

import (
	"errors"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/internal/tracing"
)

const (
	first  = "00-11111111111111111111111111111111-1111111111111111-01"
	second = "00-22222222222222222222222222222222-2222222222222222-01"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	tracer := tracing.New(provider)
	_, s := tracer.Start(t.Context(), "one", trace.SpanKindConsumer, first, []string{first, "", second, second, "nonsense"})
	if got := s.Traceparent(""); !strings.HasPrefix(got, first[:36]) || got == first {
		t.Errorf("it is continued by %s", got)
	}
	s.End(errors.New("it failed"))
	_, s = tracer.Start(t.Context(), "two", trace.SpanKindInternal, "", []string{first})
	s.End(nil)
	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	one, two := spans[0], spans[1]
	if one.Parent().SpanID().String() != first[36:52] || len(one.Links()) != 1 || one.Links()[0].SpanContext.TraceID().String() != second[3:35] || one.Status().Description != "it failed" {
		t.Errorf("one: parent %v, links %v, status %v", one.Parent(), one.Links(), one.Status())
	}
	if two.Parent().IsValid() || len(two.Links()) != 1 || two.SpanContext().TraceID() == one.SpanContext().TraceID() {
		t.Errorf("two: parent %v, links %v", two.Parent(), two.Links())
	}
}

// Off, it makes nothing: no span, no context, no allocation.
func TestOff(t *testing.T) {
	off := tracing.New(nil)
	ctx, s := off.Start(t.Context(), "x", trace.SpanKindInternal, first, nil)
	if ctx != t.Context() || s != nil || s.Traceparent(first) != first {
		t.Errorf("there is a span: %v", s)
	}
	if n := testing.AllocsPerRun(100, func() {
		_, s := off.Start(ctx, "x", trace.SpanKindInternal, first, nil)
		s.End(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a request does continues its span; where there is no tracing, what the caller sent, and nothing that is no trace context.
func TestRequest(t *testing.T) {
	t.Parallel()
	on := tracing.New(sdk.NewTracerProvider())
	ctx, s := on.Request(t.Context(), "request", first)
	if got := tracing.Of(ctx); got != s.Traceparent("") || !strings.HasPrefix(got, first[:36]) || got == first {
		t.Errorf("it is continued by %q", got)
	}
	off := tracing.New(nil)
	if ctx, s = off.Request(t.Context(), "request", first); s != nil || tracing.Of(ctx) != first {
		t.Errorf("without tracing: %v, %q", s, tracing.Of(ctx))
	}
	for _, parent := range []string{"", "nonsense"} {
		if ctx, _ := off.Request(t.Context(), "request", parent); ctx != t.Context() || tracing.Of(ctx) != "" {
			t.Errorf("%q: %q is continued", parent, tracing.Of(ctx))
		}
	}
}
