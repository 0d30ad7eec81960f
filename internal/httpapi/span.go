package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/pointsman/pointsman/internal/tracing"
	"github.com/pointsman/pointsman/subjects"
)

// startSpan begins the span of a request, which continues the caller's. What the request starts, signals and updates continues the span. What
// no operation answers has none, and no stream.
func (s *Server) startSpan(r *http.Request, pattern string) (*http.Request, *tracing.Span) {
	if pattern == "" || s.untraced[pattern] {
		return r, nil
	}
	parent := r.Header.Get(subjects.HeaderTraceparent)
	if s.tracing == nil && parent == "" {
		return r, nil
	}
	_, route, _ := strings.Cut(pattern, " ")
	ctx, span := s.tracing.Request(r.Context(), pattern, parent,
		attribute.String("http.request.method", r.Method), attribute.String("http.route", route), attribute.String("url.path", r.URL.Path))
	return r.WithContext(ctx), span
}

// endSpan with the status of the answer. A refusal is no error of the bridge.
func endSpan(span *tracing.Span, status int) {
	if span == nil {
		return
	}
	var failed error
	if status >= http.StatusInternalServerError {
		failed = fmt.Errorf("status %d", status)
	}
	span.End(failed, attribute.Int("http.response.status_code", status))
}
