package bench

import (
	"slices"
	"strings"
	"time"
)

// SchemaVersion of the JSON of a [Report]: it changes when a field gets another meaning or goes, not when one is added.
const SchemaVersion = 1

// Report is what a benchmark found.
type Report struct {
	Schema     int        `json:"schema"`
	Benchmark  string     `json:"benchmark"`
	Version    string     `json:"version"`
	StartedAt  time.Time  `json:"started_at"`
	Seconds    float64    `json:"seconds"`
	Machine    Machine    `json:"machine"`
	Parameters Parameters `json:"parameters"`
	Cases      []*Case    `json:"cases"`
}

// Machine is where it was measured.
type Machine struct {
	OS         string            `json:"os"`
	CPUs       int               `json:"cpus"`
	Processor  string            `json:"processor,omitempty"`
	Memory     int64             `json:"memory_bytes,omitempty"`
	Go         string            `json:"go"`
	Postgres   string            `json:"postgres"`
	NATS       string            `json:"nats"`
	Private    bool              `json:"private"`               // both servers were started for this
	LoadBefore float64           `json:"load_before,omitempty"` // of a minute, before the first probe: what else goes on
	Settings   map[string]string `json:"postgres_settings"`
}

// Parameters are the options as they were used.
type Parameters struct {
	N          int       `json:"n"`
	Payload    int       `json:"payload_bytes"`
	Batch      int       `json:"batch"`
	Rounds     int       `json:"rounds"`
	Conns      int       `json:"conns"`
	Parked     int       `json:"parked"`
	Groups     []int     `json:"groups,omitempty"`
	Sizes      []int     `json:"sizes,omitempty"`
	Depths     []int     `json:"depths,omitempty"`
	Routes     []int     `json:"routes,omitempty"`
	Copies     []int     `json:"copies,omitempty"`
	Loads      []float64 `json:"loads,omitempty"`
	Duration   float64   `json:"duration_seconds,omitempty"`
	Soak       float64   `json:"soak_seconds,omitempty"`
	Checkpoint bool      `json:"checkpoint"`
	Counts     bool      `json:"counts"`
}

// Case is a comparison. The first side is the real path, or what else is judged; the others are what it is held against.
type Case struct {
	Name   string  `json:"name"`
	About  string  `json:"about"`
	Unit   string  `json:"unit"` // what the rates and the costs are of
	Sides  []*Side `json:"sides"`
	Ratios []Ratio `json:"ratios"`

	Minutes []Minute `json:"minutes,omitempty"` // of a soak

	compared []string // metrics; nil: [defaultCompared]
}

// Side is one of what is compared.
type Side struct {
	Name       string            `json:"name"`
	About      string            `json:"about"`
	Rounds     []Round           `json:"rounds"`
	Metrics    map[string]Spread `json:"metrics"` // over the rounds
	Statements []Statement       `json:"statements,omitempty"`
}

// Round is one probe of a side.
type Round struct {
	N       int                `json:"n"`
	Seconds float64            `json:"seconds"`
	Metrics map[string]float64 `json:"metrics"`
}

// Spread of a figure over the rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Ratio of a metric of the first side to that of another, taken round by round.
type Ratio struct {
	Metric string `json:"metric"`
	Of     string `json:"of"`
	To     string `json:"to"`
	Spread
}

// Statement is what Postgres says of one statement, over all rounds of a side.
type Statement struct {
	Name  string  `json:"name"`
	Calls float64 `json:"calls"`     // for one of N
	Micro float64 `json:"time_us"`   // inside Postgres, for one of N
	WAL   float64 `json:"wal_bytes"` // for one of N
	Rows  float64 `json:"rows"`      // for one of N
}

// defaultCompared are the metrics whose ratios are made, where both sides have them.
var defaultCompared = []string{rate, cpuTotal, walBytes, p50, p99}

func newReport(o Options, version string) *Report {
	return &Report{
		Schema: SchemaVersion, Benchmark: o.Benchmark, Version: version, StartedAt: time.Now().UTC().Truncate(time.Second),
		Parameters: Parameters{
			N: o.N, Payload: o.Payload, Batch: o.Batch, Rounds: o.Rounds, Conns: o.Conns, Parked: o.Parked, Groups: o.Groups, Sizes: o.Sizes, Depths: o.Depths, Routes: o.Routes, Copies: o.Copies, Loads: o.Loads,
			Duration: o.Duration.Seconds(), Soak: o.Soak.Seconds(), Checkpoint: o.Checkpoint, Counts: o.Counts,
		},
	}
}

func (r *Report) finish() { r.Seconds = time.Since(r.StartedAt).Seconds() }

// add a round.
func (s *Side) add(m *measurement) {
	s.Rounds = append(s.Rounds, Round{N: m.n, Seconds: m.seconds, Metrics: m.metrics})
	s.Metrics = map[string]Spread{}
	for name := range m.metrics {
		var values []float64
		for _, r := range s.Rounds {
			if v, ok := r.Metrics[name]; ok {
				values = append(values, v)
			}
		}
		s.Metrics[name] = spread(values)
	}
	s.addStatements(m)
}

// addStatements keeps means over all that was counted so far.
func (s *Side) addStatements(m *measurement) {
	before := 0.0
	for _, r := range s.Rounds[:len(s.Rounds)-1] {
		before += float64(r.N)
	}
	all := before + float64(m.n)
	for i := range s.Statements {
		st := &s.Statements[i]
		for _, v := range []*float64{&st.Calls, &st.Micro, &st.WAL, &st.Rows} {
			*v *= before / all
		}
	}
	for name, c := range m.statements {
		i := slices.IndexFunc(s.Statements, func(st Statement) bool { return st.Name == name })
		if i < 0 {
			s.Statements, i = append(s.Statements, Statement{Name: name}), len(s.Statements)
		}
		st := &s.Statements[i]
		st.Calls, st.Micro, st.WAL, st.Rows = st.Calls+c.calls/all, st.Micro+c.micro/all, st.WAL+c.wal/all, st.Rows+c.rows/all
	}
	slices.SortFunc(s.Statements, func(a, b Statement) int {
		if a.Micro != b.Micro {
			return int(b.Micro*1e6 - a.Micro*1e6)
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// compare the first side with each of the others.
func (c *Case) compare() {
	metrics := c.compared
	if metrics == nil {
		metrics = defaultCompared
	}
	c.Ratios = []Ratio{}
	for _, metric := range metrics {
		for _, other := range c.Sides[1:] {
			var values []float64
			for i, r := range c.Sides[0].Rounds {
				if i >= len(other.Rounds) {
					break
				}
				a, ok := r.Metrics[metric]
				if b := other.Rounds[i].Metrics[metric]; ok && b != 0 {
					values = append(values, a/b)
				}
			}
			if len(values) > 0 {
				c.Ratios = append(c.Ratios, Ratio{Metric: metric, Of: c.Sides[0].Name, To: other.Name, Spread: spread(values)})
			}
		}
	}
}

func spread(values []float64) Spread {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// quantile of times, in microseconds.
func quantile(times []time.Duration, q float64) float64 {
	times = slices.Sorted(slices.Values(times))
	return float64(times[min(len(times)-1, int(q*float64(len(times))))].Nanoseconds()) / 1e3
}
