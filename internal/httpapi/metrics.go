package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a server. Labels are bounded: routes are the patterns that it answers, and one for all else; statuses are classes.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pointsman_http_requests_total", Help: "Requests by the pattern of their route and the class of their status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pointsman_http_request_seconds", Help: "Time to answer a request, with what it asked to wait; of a stream until it ends.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 300},
		}, []string{"route"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// unrouted is the route of requests that no operation answers.
const unrouted = "other"

// count a request that has been answered. pattern is "" for one that no operation answers.
func (m *metrics) count(pattern string, status int, took time.Duration) {
	if pattern == "" {
		pattern = unrouted
	}
	m.requests.WithLabelValues(pattern, fmt.Sprintf("%dxx", status/100)).Inc()
	m.seconds.WithLabelValues(pattern).Observe(took.Seconds())
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// answered is the status that was sent; a handler that says none says 200.
func (r *recorder) answered() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}
