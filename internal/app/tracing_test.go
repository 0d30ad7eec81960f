package app_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
)

// collected are the spans that programs have sent, as a collector takes them.
type collected struct {
	mu    sync.Mutex
	spans map[string]*spans.Span // by their names
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not a request for spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans[s.GetName()] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// span waits for one.
func (c *collected) span(t *testing.T, name string) (found *spans.Span) {
	t.Helper()
	apptest.Eventually(t, "the span "+name, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = c.spans[name]
		return found != nil, fmt.Errorf("there are %d", len(c.spans))
	})
	return found
}

// publisher is the traceparent of whoever publishes or asks.
func publisher(trace string) string { return "00-" + trace + "-b7ad6b7169203331-01" }

func id(b []byte) string { return hex.EncodeToString(b) }

// One trace goes from the publisher over the bridge and the steps to whoever gets the outcome. What wakes an instance later has its own
// trace, and the wait between is a link.
func TestTracing(t *testing.T) {
	got := &collected{spans: map[string]*spans.Span{}}
	server := httptest.NewServer(got)
	t.Cleanup(server.Close) // after the programs, which send their last spans when they end
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.Start(t, `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: order, state: "{{payload}}"}}
  - {name: paid, stream: ORDERS, subject: orders.*.paid, correlation_key: "{{subject[1]}}", signal: payment}
`, map[string][]string{"ORDERS": {"orders.>"}}, machine)
	const shop, bank = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
	span := func(name string) *spans.Span { t.Helper(); return got.span(t, name) }
	s.Publish(t, "orders.traced-1.placed", `{"amount": 5, "items": 0}`, subjects.HeaderTraceparent, publisher(shop))
	begin := span("step order/begin")
	s.Publish(t, "orders.traced-1.paid", `{"amount": 5}`, subjects.HeaderTraceparent, publisher(bank))

	receive, paid, collect, ship, publish := span("receive placed"), span("receive paid"), span("step order/collect"), span("step order/ship"), span("publish outcome")
	for _, want := range []struct {
		span          *spans.Span
		trace, parent string
	}{
		{receive, shop, "b7ad6b7169203331"},
		{begin, shop, id(receive.GetSpanId())},
		{ship, shop, id(receive.GetSpanId())},
		{publish, shop, id(receive.GetSpanId())},
		{paid, bank, "b7ad6b7169203331"},
		{collect, bank, id(paid.GetSpanId())},
	} {
		if trace, parent := id(want.span.GetTraceId()), id(want.span.GetParentSpanId()); trace != want.trace || parent != want.parent {
			t.Errorf("%s: trace %s, parent %s, want %s, %s", want.span.GetName(), trace, parent, want.trace, want.parent)
		}
		if took := time.Duration(want.span.GetEndTimeUnixNano() - want.span.GetStartTimeUnixNano()); want.span.GetEndTimeUnixNano() >= paid.GetEndTimeUnixNano() && want.span.GetStartTimeUnixNano() < paid.GetStartTimeUnixNano() {
			t.Errorf("%s goes on while the order waits: %s", want.span.GetName(), took)
		}
	}
	if !slices.ContainsFunc(collect.GetLinks(), func(l *spans.Span_Link) bool { return id(l.GetTraceId()) == shop }) {
		t.Errorf("collect has no link to what the order waited since: %v", collect.GetLinks())
	}
	outcomes, err := s.JS.OrderedConsumer(t.Context(), s.Space.OutcomesStream(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := outcomes.Next()
	if err != nil {
		t.Fatal(err)
	}
	if header, want := msg.Headers().Get(subjects.HeaderTraceparent), "00-"+shop+"-"+id(publish.GetSpanId())+"-01"; header != want {
		t.Errorf("the outcome has the traceparent %s, want %s", header, want)
	}
}

// A request has a span, which continues the caller's trace; what it starts and signals continues that. A stream has none.
func TestTracingRequests(t *testing.T) {
	got := &collected{spans: map[string]*spans.Span{}}
	server := httptest.NewServer(got)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.Start(t, "database: {url: \"${POINTSMAN_DATABASE_URL}\"}\nnats: {url: \"${POINTSMAN_NATS_URL}\"}\n", nil, machine)
	const web, bus = "2af7651916cd43dd8448eb211c80319c", "3bf7651916cd43dd8448eb211c80319c"
	ask := func(method, path, body, trace string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.HTTPURL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("traceparent", publisher(trace))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode >= 500 {
			t.Fatalf("%s %s: %v, %s: %s", method, path, err, answer.Status, text)
		}
	}
	ask("POST", "/v1/instances", `{"machine": "order", "correlation_key": "traced-2", "state": {"amount": 5, "items": 0}}`, web)
	ask("GET", "/v1/instances/nobody", "", web)
	msg := nats.NewMsg(s.Space.API(natsapi.VerbSignal))
	msg.Header.Set(subjects.HeaderTraceparent, publisher(bus))
	msg.Data = []byte(`{"correlation_key": "traced-2", "name": "payment", "payload": {"amount": 5}}`)
	if answer, err := s.NATS.Conn(t).RequestMsgWithContext(t.Context(), msg); err != nil || answer.Header.Get(subjects.HeaderServiceError) != "" {
		t.Fatalf("%v: %+v", err, answer)
	}
	ask("GET", "/v1/instances/key:traced-2?wait=60s", "", web)
	ask("GET", "/v1/instances/key:traced-2/stream", "", web) // it ends at once, as the order has ended
	ask("GET", "/v1/stats", "", web)
	got.span(t, "GET /v1/stats") // comes behind those before it

	start, refused, begin := got.span(t, "POST /v1/instances"), got.span(t, "GET /v1/instances/{ref}"), got.span(t, "step order/begin")
	request, collect := got.span(t, "request signal"), got.span(t, "step order/collect")
	for _, want := range []struct {
		span          *spans.Span
		trace, parent string
	}{
		{start, web, "b7ad6b7169203331"},
		{refused, web, "b7ad6b7169203331"},
		{begin, web, id(start.GetSpanId())},
		{request, bus, "b7ad6b7169203331"},
		{collect, bus, id(request.GetSpanId())},
	} {
		if trace, parent := id(want.span.GetTraceId()), id(want.span.GetParentSpanId()); trace != want.trace || parent != want.parent {
			t.Errorf("%s: trace %s, parent %s, want %s, %s", want.span.GetName(), trace, parent, want.trace, want.parent)
		}
		if status := want.span.GetStatus().GetCode(); status == spans.Status_STATUS_CODE_ERROR {
			t.Errorf("%s is an error", want.span.GetName())
		}
	}
	if start.GetKind() != spans.Span_SPAN_KIND_SERVER || request.GetKind() != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("kinds %s, %s", start.GetKind(), request.GetKind())
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	for name := range got.spans {
		if strings.Contains(name, "stream") || strings.Contains(name, "readyz") {
			t.Errorf("there is a span %s", name)
		}
	}
}

// A protocol that is not spoken is said before anything runs.
func TestTracingProtocol(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	cfg := &config.Config{}
	cfg.Database.URL, cfg.NATS.URL, cfg.HTTP.Addr = "postgres://127.0.0.1:1/x", "nats://127.0.0.1:1", "127.0.0.1:0"
	err := app.RunBridge(t.Context(), cfg, slog.New(slog.DiscardHandler), nil)
	if err == nil || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("%v", err)
	}
}
