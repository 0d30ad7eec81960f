package bridge

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

// startSpan begins the span of a message, which continues its publisher's. What the message brings about continues the span.
func (d *delivery) startSpan(c *consumer) {
	if c.tracing == nil {
		return
	}
	_, d.span = c.tracing.Start(context.Background(), "receive "+c.route.Name, trace.SpanKindConsumer, traceparent(d.headers), nil,
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", d.message.subject),
		attribute.String("pointsman.route", c.route.Name), attribute.String("pointsman.stream", d.stream), attribute.Int64("pointsman.sequence", int64(d.sequence))) //nolint:gosec // no stream is that long
	for i := range d.intakes {
		d.intakes[i].Traceparent = d.span.Traceparent(d.intakes[i].Traceparent)
		if start := d.intakes[i].Start; start != nil {
			start.Traceparent = d.intakes[i].Traceparent
		}
	}
}

// endSpan ends it with the fate of the message.
func (d *delivery) endSpan(f fate, cause error) {
	if d.span == nil {
		return
	}
	attributes := []attribute.KeyValue{attribute.String("pointsman.result", string(f))}
	if len(d.intakes) > 0 {
		attributes = append(attributes, attribute.String("pointsman.correlation_key", d.intakes[0].To.Key()))
	}
	d.span.End(cause, attributes...)
}

// startSpan begins the span of a publication, and has whoever gets it continue the span. A dead letter keeps the headers of its message.
func (r *relay) startSpan(ctx context.Context, p engine.Publication, msg *nats.Msg) *tracing.Span {
	if r.tracing == nil || p.Kind == engine.PublishDeadLetter {
		return nil
	}
	_, span := r.tracing.Start(ctx, "publish "+string(p.Kind), trace.SpanKindProducer, traceparent(msg.Header), nil,
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", msg.Subject), attribute.String("pointsman.instance", p.InstanceID.String()))
	msg.Header.Set(subjects.HeaderTraceparent, span.Traceparent(""))
	return span
}
