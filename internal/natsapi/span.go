package natsapi

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

// startSpan begins the span of a request, which continues the caller's. What the request starts, signals and updates continues the span.
func (s *Service) startSpan(ctx context.Context, verb string, h nats.Header) (context.Context, *tracing.Span) {
	parent := h.Get(subjects.HeaderTraceparent)
	if s.tracing == nil {
		return s.tracing.Request(ctx, "", parent)
	}
	return s.tracing.Request(ctx, "request "+verb, parent, attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", s.cfg.Subjects.API(verb)))
}

// endSpan with the code of a refusal, which is no error of the bridge unless it could not do its work.
func endSpan(span *tracing.Span, err error) {
	switch {
	case span == nil:
	case err == nil:
		span.End(nil)
	default:
		code := api.ErrorOf(err).Code
		if code != api.CodeUnavailable {
			err = nil
		}
		span.End(err, attribute.String("pointsman.code", code))
	}
}
