package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// flushTimeout bounds what is sent of the spans when a program ends.
const flushTimeout = 5 * time.Second

// startTracing sends spans to the collector that the standard variables of OpenTelemetry name (OTEL_EXPORTER_OTLP_ENDPOINT, or …_TRACES_ENDPOINT).
// Where they name none the provider is nil, and nothing is done. stop sends what is left.
func startTracing(ctx context.Context, program string, log *slog.Logger) (provider trace.TracerProvider, stop func(), err error) {
	if !tracingWanted() {
		return nil, func() {}, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if v := os.Getenv(name); v != "" && v != "http/protobuf" {
			return nil, nil, fmt.Errorf("%s is %q: only http/protobuf is spoken, which collectors take on port 4318", name, v)
		}
	}
	exporter, err := otlptracehttp.New(ctx) // it connects to nobody yet
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	// Later ones win: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES may say otherwise.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "pointsman-"+program), attribute.String("service.version", Version)), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	otel.SetErrorHandler(&tracingTrouble{log: log})
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return p, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			log.Warn("spans are lost", "error", err)
		}
	}, nil
}

func tracingWanted() bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// tracingTrouble logs that spans are lost, once a minute at most: a collector that is away is no trouble of what is traced.
type tracingTrouble struct {
	log  *slog.Logger
	last atomic.Int64
}

// Handle is called by the library with each error.
func (t *tracingTrouble) Handle(err error) {
	now := time.Now().Unix()
	if last := t.last.Load(); now-last >= 60 && t.last.CompareAndSwap(last, now) {
		t.log.Warn("spans are lost", "error", err)
	}
}
