package webhook

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of attempts, as the metrics call them.
const (
	resultDelivered = "delivered"
	resultRetried   = "retried"
	resultFailed    = "failed"
)

type metrics struct {
	deliveries *prometheus.CounterVec
	failing    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pointsman_webhook_deliveries_total",
			Help: "Attempts to send a webhook by what came of them: delivered, retried (it will be sent again), failed (it will not).",
		}, []string{"result"}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pointsman_webhook_hosts_failing",
			Help: "Hosts of receivers that fail, and are tried with one webhook at a time; the log names them.",
		}),
	}
	for _, result := range []string{resultDelivered, resultRetried, resultFailed} {
		m.deliveries.WithLabelValues(result)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.deliveries, m.failing} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
