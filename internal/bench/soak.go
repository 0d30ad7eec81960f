package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"
)

const (
	soakShare   = 0.8
	soakWindow  = 5 * time.Minute // at the beginning and at the end
	soakPart    = time.Minute     // what is reported by itself
	sampleEvery = 100 * time.Millisecond
)

// soakTables are looked at as they grow, or do not.
var soakTables = []string{"instances", "ready", "leases", "timers", "signals", "ledger", "history", "outbox"}

// sizePrefix is of the bytes of a table with its indexes.
const sizePrefix = "table_bytes."

// Minute is one minute of a soak, or a quarter of one that is shorter than four.
type Minute struct {
	From    float64            `json:"from_seconds"`
	Metrics map[string]float64 `json:"metrics"` // times are of what was published in it
	// Waits is how many sessions of Postgres waited for this on average, or ran. Of those that are no clients the name begins with what they are.
	Waits map[string]float64 `json:"waits"`
}

// soak offers one load for long, and compares its beginning with its end.
func (sc *scaling) soak(ctx context.Context, perSecond float64) error {
	part := min(soakWindow, sc.Soak/4)
	c := &Case{
		Name: "soak", Unit: "cycle", compared: []string{p50, p99},
		About: fmt.Sprintf("%.0f messages a second, %.0f %% of what comes through at most, for %s: the last %s beside the first", perSecond, soakShare*100, sc.Soak, part),
	}
	for _, table := range soakTables {
		c.compared = append(c.compared, sizePrefix+table)
	}
	sc.report.Cases = append(sc.report.Cases, c)
	m, err := sc.beginLoad(ctx, perSecond)
	if err != nil {
		return err
	}
	looks, stopLooking := make(chan *watching, 1), make(chan struct{})
	go func() { looks <- sc.watch(ctx, part, stopLooking) }()
	n, err := sc.offer(ctx, perSecond, sc.Soak)
	close(stopLooking)
	w := <-looks
	if err != nil {
		return err
	}
	late := sc.sizes(ctx)
	if err := sc.settle(ctx); err != nil {
		return err
	}
	if err := m.end(ctx, n); err != nil {
		return err
	}
	began, times := m.before.at, sc.takeTimed()
	first := &measurement{n: n, seconds: part.Seconds(), metrics: w.early}
	first.times(between(times, began, began.Add(part)))
	for name, v := range late {
		m.metrics[name] = v
	}
	m.times(between(times, began.Add(sc.Soak-part), began.Add(sc.Soak)))
	c.Minutes = w.minutes
	for i := range c.Minutes {
		from := began.Add(time.Duration(i) * w.every)
		of := &measurement{metrics: c.Minutes[i].Metrics}
		of.times(between(times, from, from.Add(w.every)))
	}
	c.Sides = []*Side{{Name: "last", About: "times and sizes of the end; the rate and the costs are of the whole"}, {Name: "first", About: "times and sizes of the beginning"}}
	c.Sides[0].add(m)
	c.Sides[1].add(first)
	c.compare()
	return sc.expectNoLetters(ctx)
}

// watching is what is seen of a soak while it goes on.
type watching struct {
	every   time.Duration
	early   map[string]float64 // sizes after the first window
	minutes []Minute
}

// watch what the sessions of Postgres wait for, minute by minute, until it is stopped.
func (sc *scaling) watch(ctx context.Context, part time.Duration, stop <-chan struct{}) *watching {
	w := &watching{every: min(soakPart, sc.Soak/4), early: map[string]float64{}}
	began := time.Now()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var since counters
	spun := bytes.Repeat([]byte{1}, 256<<10) // more than the nearest caches hold, as what is measured does
	var spins []time.Duration
	for samples := 0; ; {
		select {
		case <-stop:
			return w
		case <-ctx.Done():
			return w
		case <-tick.C:
		}
		elapsed := time.Since(began)
		if len(w.early) == 0 && elapsed >= part {
			w.early = sc.sizes(ctx)
		}
		now, err := sc.counters(ctx)
		if err != nil {
			continue // what cannot be asked for is left out: the soak itself says what is wrong
		}
		if i := int(elapsed / w.every); i >= len(w.minutes) {
			w.minutes = append(w.minutes, Minute{From: (time.Duration(i) * w.every).Seconds(), Metrics: map[string]float64{}, Waits: map[string]float64{}})
			samples, since, spins = 0, now, nil
		}
		m := &w.minutes[len(w.minutes)-1]
		now.since(since, m.Metrics)
		if took, ok := spin(spun); ok {
			spins = append(spins, took)
			m.Metrics[spinTime] = quantile(spins, 0.5)
		}
		if sc.sample(ctx, m.Waits, samples) == nil {
			samples++
		}
	}
}

// counters of the machine.
type counters struct {
	at                time.Time
	wal, busy, stolen float64
	machine           bool // it tells
}

func (sc *scaling) counters(ctx context.Context) (counters, error) {
	wal, err := sc.walAt(ctx)
	busy, stolen, machine := machineTime()
	return counters{time.Now(), float64(wal), busy, stolen, machine}, err
}

// since is what has happened since then, each second.
func (c counters) since(then counters, metrics map[string]float64) {
	seconds := c.at.Sub(then.at).Seconds()
	if seconds == 0 {
		return
	}
	metrics[walRate] = (c.wal - then.wal) / seconds
	if c.machine {
		metrics[busyCPUs], metrics[stolenCPUs] = (c.busy-then.busy)/seconds, (c.stolen-then.stolen)/seconds
	}
}

// Metrics of a minute.
const (
	walRate    = "wal_bytes_per_second"
	busyCPUs   = "cpus_busy"   // of the machine, whoever had them
	stolenCPUs = "cpus_stolen" // by other machines of the same host
	spinTime   = "spin_us"     // processor time of something that is always the same
)

// spin takes the same processor time whenever the processor is as fast. On a machine that shares its host it is not.
func spin(through []byte) (took time.Duration, ok bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, ok := threadTime()
	if !ok {
		return 0, false
	}
	sha256.Sum256(through)
	ended, ok := threadTime()
	return ended - began, ok
}

// sample adds one to the means of so many.
func (sc *scaling) sample(ctx context.Context, waits map[string]float64, so int) error {
	rows, err := sc.db.Query(ctx, `
select case backend_type when 'client backend' then '' else backend_type || ' ' end || coalesce(wait_event_type || ':' || wait_event, 'runs'), count(*)::float8
from pg_stat_activity where pid <> pg_backend_pid() and (state = 'active' or backend_type <> 'client backend') and coalesce(wait_event_type, '') <> 'Activity' group by 1`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for name := range waits {
		waits[name] *= float64(so) / float64(so+1)
	}
	for rows.Next() {
		var name string
		var n float64
		if err := rows.Scan(&name, &n); err != nil {
			return err
		}
		waits[name] += n / float64(so+1)
	}
	return rows.Err()
}

// sizes of the tables. One that cannot be asked for is left out.
func (sc *scaling) sizes(ctx context.Context) map[string]float64 {
	m := map[string]float64{}
	for _, table := range soakTables {
		if n, err := sc.count(ctx, schema, `select pg_total_relation_size('pointsman.`+table+`')::bigint`); err == nil {
			m[sizePrefix+table] = float64(n)
		}
	}
	return m
}

// busiest are the waits of a minute, those of most sessions first.
func (m Minute) busiest() []string {
	return slices.SortedFunc(maps.Keys(m.Waits), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.Waits[b], m.Waits[a]), cmp.Compare(a, b))
	})
}
