package engine

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/internal/store"
)

// metrics are those of the contract that the engine itself can tell. Labels are bounded by what is registered (machines, their
// steps, queues), and the steps of machines that take any by [stepLabels].
type metrics struct {
	stepLabels     stepLabels
	steps          *prometheus.CounterVec
	stepSeconds    *prometheus.HistogramVec
	pickSeconds    prometheus.Histogram
	commitSeconds  prometheus.Histogram
	wakeToRun      prometheus.Histogram
	queueDepth     *prometheus.GaugeVec
	queueOldest    *prometheus.GaugeVec
	leasesExpired  prometheus.Counter
	commitsRefused prometheus.Counter
	retired        *prometheus.CounterVec

	eventsRefused prometheus.Counter

	triggersCreated, triggersReceived, triggersTimedOut *prometheus.CounterVec
	projects                                            projectLabels

	unservedLanes     prometheus.Gauge
	unservedInstances prometheus.Gauge
	unservedOldest    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, unguarded, waits func() int64) (*metrics, error) {
	fast := prometheus.ExponentialBucketsRange(0.0002, 10, 16)
	m := &metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pointsman_steps_total",
			Help: "Executions of steps by what they came to: next, replay, await, done, stop, error, release.",
		}, []string{"machine", "step", "outcome"}),
		stepSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pointsman_step_seconds",
			Help: "Time in the code of a step.", Buckets: prometheus.ExponentialBucketsRange(0.0002, 300, 18),
		}, []string{"machine", "step"}),
		pickSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pointsman_pick_seconds",
			Help: "Time to pick a batch of ready instances.", Buckets: fast,
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pointsman_commit_seconds",
			Help: "Time to commit a group of outcomes.", Buckets: fast,
		}),
		wakeToRun: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pointsman_wake_to_run_seconds",
			Help: "Time from when an instance became ready to when its step began.", Buckets: prometheus.ExponentialBucketsRange(0.0002, 300, 18),
		}),
		queueDepth: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pointsman_queue_depth",
			Help: "Instances that are ready in a queue, counted up to 10,000.",
		}, []string{"queue"}),
		queueOldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pointsman_queue_oldest_seconds",
			Help: "How long the instance that is next in a queue has been ready.",
		}, []string{"queue"}),
		leasesExpired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pointsman_leases_expired_total",
			Help: "Instances whose lease ran out and that were made ready again.",
		}),
		commitsRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pointsman_commits_refused_total",
			Help: "Outcomes that came too late: the lease was lost, or the instance was canceled.",
		}),
		retired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pointsman_retention_deleted_total",
			Help: "What the retention has deleted, by table.",
		}, []string{"table"}),
		unservedLanes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pointsman_unserved_lanes",
			Help: "Queues, and machine versions within a queue, where instances are ready that no worker serves; the log names them.",
		}),
		unservedInstances: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pointsman_unserved_instances",
			Help: "Instances that are ready and that no worker serves, counted up to 10,000 a lane.",
		}),
		unservedOldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pointsman_unserved_oldest_seconds",
			Help: "How long the oldest instance that no worker serves has been ready.",
		}),
	}
	for _, table := range []string{"instances", "jobs", "ledger", "triggers", "verdicts", "webhook_deliveries"} {
		m.retired.WithLabelValues(table) // 0 is a figure too
	}
	m.eventsRefused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "pointsman_awaits_refused_total",
		Help: "Awaits of an event whose key another trigger waits with, or that are over the quota: errors of their steps.",
	})
	of := []string{"source_type", "project_id"}
	m.triggersCreated = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pointsman_event_triggers_created_total", Help: "Triggers that were created."}, of)
	m.triggersReceived = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pointsman_event_triggers_received_total", Help: "Triggers that received their event, and sleeps that are over."}, of)
	m.triggersTimedOut = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pointsman_event_triggers_timed_out_total", Help: "Triggers whose time was over before their event came."}, of)
	if reg == nil {
		return m, nil
	}
	withoutKey := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pointsman_unique_unguarded_total",
		Help: "Instances that came back into the scope of their unique key while another held it, and went on without.",
	},
		func() float64 { return float64(unguarded()) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pointsman_waits",
		Help: "Calls of this process that wait for an instance.",
	},
		func() float64 { return float64(waits()) })
	for _, c := range []prometheus.Collector{
		m.steps, m.stepSeconds, m.pickSeconds, m.commitSeconds, m.wakeToRun, m.queueDepth, m.queueOldest, m.leasesExpired, m.commitsRefused,
		m.unservedLanes, m.unservedInstances, m.unservedOldest, m.retired, m.eventsRefused, m.triggersCreated, m.triggersReceived, m.triggersTimedOut, withoutKey, waiting,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

// otherProjects is the label of the projects that came when there were maxProjectLabels already. No project has this name.
const (
	maxProjectLabels = 1000
	otherProjects    = "(other)"
)

// projectLabels bounds a label that whoever asks chooses the values of.
type projectLabels struct {
	mu    sync.Mutex
	known map[string]bool
}

func (p *projectLabels) label(project string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known[project] {
		if len(p.known) >= maxProjectLabels {
			return otherProjects
		}
		if p.known == nil {
			p.known = map[string]bool{}
		}
		p.known[project] = true
	}
	return project
}

func (m *metrics) triggerEnded(e store.EndedTrigger) {
	switch e.Status {
	case store.TriggerReceived:
		m.triggersReceived.WithLabelValues(e.Source, m.projects.label(e.Project)).Inc()
	case store.TriggerTimedOut:
		m.triggersTimedOut.WithLabelValues(e.Source, m.projects.label(e.Project)).Inc()
	}
}
