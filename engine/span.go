package engine

import (
	"context"
	"encoding/json"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/internal/tracing"
)

// startSpan begins the span of an execution. It continues what the visit does: the newest signal that woke it, else the start. The wait
// before is a link to the start and to the other signals, and so is a wait that ended in vain: whatever it lasted, no span does. Where there is no
// tracing nothing is done.
func (w *Worker) startSpan(ctx context.Context, work *store.Work, v *Visit[json.RawMessage]) (context.Context, *tracing.Span) {
	if w.client.tracing == nil {
		return ctx, nil
	}
	parent, links := v.Traceparent(), []string{v.trace}
	if v.TimedOut || v.Canceled {
		parent = ""
	}
	for _, s := range v.Awaited {
		links = append(links, s.Traceparent)
	}
	ctx, span := w.client.tracing.Start(ctx, "step "+work.Machine+"/"+work.Step, trace.SpanKindInternal, parent, links,
		attribute.String("pointsman.machine", work.Machine), attribute.Int("pointsman.version", work.Version), attribute.String("pointsman.step", work.Step),
		attribute.String("pointsman.instance", work.ID.String()), attribute.String("pointsman.project", work.Project), attribute.Int("pointsman.attempt", work.Attempt))
	v.span = span.Traceparent("")
	return ctx, span
}

// endSpan ends it with what the step came to.
func endSpan(span *tracing.Span, o Outcome, err error) {
	if span != nil {
		span.End(err, attribute.String("pointsman.outcome", o.kind))
	}
}
