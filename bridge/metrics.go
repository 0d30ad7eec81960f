package bridge

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fate is what became of a message: the value of the label "result".
type fate string

const (
	fateDelivered    fate = "delivered"
	fateDuplicate    fate = "duplicate"
	fateConflict     fate = "conflict"
	fateHeld         fate = "held"
	fateStarted      fate = "started"
	fateFiltered     fate = "filtered"
	fateDropped      fate = "dropped"
	fateDeadLettered fate = "dead_lettered"
	fateRetried      fate = "retried"
)

// metrics of a bridge. Labels are bounded: routes come from the configuration, results are the fates above.
type metrics struct {
	messages   *prometheus.CounterVec
	batch      prometheus.Histogram
	age        prometheus.Histogram
	pending    *prometheus.GaugeVec
	ackPending *prometheus.GaugeVec
	outbox     prometheus.Gauge
	published  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	latency := []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600}
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pointsman_bridge_messages_total", Help: "Messages by what became of them.",
		}, []string{"route", "result"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pointsman_bridge_batch_seconds", Help: "Time to take in one batch, from mapped to committed.", Buckets: latency[:15],
		}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pointsman_signal_age_seconds", Help: "Age of a message when its signal is in the inbox.", Buckets: latency,
		}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pointsman_bridge_pending_messages", Help: "Messages that the route's consumer has not delivered yet.",
		}, []string{"route"}),
		ackPending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pointsman_bridge_ack_pending", Help: "Messages that are delivered and not acked.",
		}, []string{"route"}),
		outbox: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pointsman_outbox_pending", Help: "Publications that wait in the outbox, at most 10,000.",
		}),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pointsman_outbox_published_total", Help: "Publications that are out.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.messages, m.batch, m.age, m.pending, m.ackPending, m.outbox, m.published} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// routeMetrics are one route's, looked up once.
type routeMetrics struct {
	*metrics
	fates      map[fate]prometheus.Counter
	pending    prometheus.Gauge
	ackPending prometheus.Gauge
}

func (m *metrics) route(name string) *routeMetrics {
	rm := &routeMetrics{
		metrics:    m,
		fates:      map[fate]prometheus.Counter{},
		pending:    m.pending.WithLabelValues(name),
		ackPending: m.ackPending.WithLabelValues(name),
	}
	for _, f := range []fate{
		fateDelivered, fateDuplicate, fateConflict, fateHeld, fateStarted, fateFiltered, fateDropped, fateDeadLettered, fateRetried,
	} {
		rm.fates[f] = m.messages.WithLabelValues(name, string(f))
	}
	return rm
}

// forget the gauges of a route that is no more; what it has counted stays.
func (m *metrics) forget(name string) {
	m.pending.DeleteLabelValues(name)
	m.ackPending.DeleteLabelValues(name)
}

// count one message whose fate is settled; published is when its stream stored it.
func (m *routeMetrics) count(f fate, published time.Time) {
	m.fates[f].Inc()
	if f == fateDelivered || f == fateStarted {
		m.age.Observe(max(0, time.Since(published).Seconds()))
	}
}
