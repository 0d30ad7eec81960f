package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of metrics, as they stand in the JSON. Costs are for one of N where no other unit is named.
const (
	rate         = "per_second"
	walBytes     = "wal_bytes"
	statements   = "statements"
	transactions = "transactions"
	roundTrips   = "round_trips"
	fsyncs       = "fsyncs"
	p50          = "p50_us"
	p99          = "p99_us"
	longest      = "max_us"
	diskBytes    = "disk_bytes_per_instance" // parked, with a timer
	cpuTotal     = "cpu_seconds_per_million"
	cpuPrefix    = "cpu_seconds_per_million." // and a part
	allocsPrefix = "allocations."             // and a part
	bytesPrefix  = "allocated_bytes."         // and a part
	rssPrefix    = "rss_bytes."               // and a part
)

// measurement is one probe of one side: begin and end stand around what is measured, and nothing else is done between.
type measurement struct {
	run        *run
	before     reading
	sessions   sessions
	n          int
	seconds    float64
	metrics    map[string]float64
	statements map[string]calls
}

func (m *measurement) begin(ctx context.Context) (err error) {
	if m.run.Checkpoint {
		if _, err := m.run.db.Exec(ctx, `checkpoint`); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	if m.sessions, err = m.run.readSessions(ctx); err != nil {
		return err
	}
	m.before, err = m.run.read(ctx)
	return err
}

// end of a probe that did n. Its rate is over all of the time since begin, unless it has one already.
func (m *measurement) end(ctx context.Context, n int) error {
	took := time.Since(m.before.at).Seconds()
	after, err := m.run.read(ctx)
	if err != nil {
		return err
	}
	m.n = n
	if m.seconds == 0 {
		m.seconds = took
		m.metrics[rate] = float64(n) / took
	}
	each := func(name string, total float64) { m.metrics[name] = total / float64(n) }
	each(walBytes, float64(after.wal-m.before.wal))
	cpu := 0.0
	for part, seconds := range after.cpu {
		each(cpuPrefix+part, (seconds-m.before.cpu[part])*1e6)
		cpu += seconds - m.before.cpu[part]
	}
	if len(after.cpu) > 0 {
		each(cpuTotal, cpu*1e6)
	}
	for part, a := range after.allocs {
		each(allocsPrefix+part, a.objects-m.before.allocs[part].objects)
		each(bytesPrefix+part, a.bytes-m.before.allocs[part].bytes)
	}
	for part, rss := range after.rss {
		m.metrics[rssPrefix+part] = rss
	}
	if after.calls != nil {
		m.statements = map[string]calls{}
		total := 0.0
		for name, c := range after.calls {
			if c = c.less(m.before.calls[name]); c.calls > 0 {
				m.statements[name] = c
				total += c.calls
			}
		}
		each(statements, total)
	}
	if !m.run.Counts {
		return nil
	}
	each(roundTrips, after.trips-m.before.trips)
	late, err := m.run.readSessions(ctx)
	each(fsyncs, late.fsyncs-m.sessions.fsyncs)
	each(transactions, late.transactions-m.sessions.transactions)
	return err
}

// counted says that the rate is of n in this time, and not of all until the end.
func (m *measurement) counted(n int, took time.Duration) {
	m.seconds = took.Seconds()
	m.metrics[rate] = float64(n) / m.seconds
}

func (m *measurement) times(times []time.Duration) {
	if len(times) > 0 {
		m.metrics[p50], m.metrics[p99], m.metrics[longest] = quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1)
	}
}

func (m *measurement) summary() string {
	var parts []string
	if v, ok := m.metrics[rate]; ok {
		parts = append(parts, fmt.Sprintf("%.0f/s", v))
	}
	if v, ok := m.metrics[p50]; ok {
		parts = append(parts, fmt.Sprintf("p50 %.0f µs, p99 %.0f µs", v, m.metrics[p99]))
	}
	if v, ok := m.metrics[walBytes]; ok && m.n > 0 {
		parts = append(parts, fmt.Sprintf("%.0f B of WAL each", v))
	}
	return strings.Join(parts, ", ")
}

// reading of all counters at one moment.
type reading struct {
	at     time.Time
	wal    int64
	trips  float64
	cpu    map[string]float64 // seconds
	rss    map[string]float64
	allocs map[string]allocations
	calls  map[string]calls
}

// calls of a statement.
type calls struct{ calls, micro, wal, rows float64 }

func (c calls) less(d calls) calls {
	return calls{c.calls - d.calls, c.micro - d.micro, c.wal - d.wal, c.rows - d.rows}
}

type allocations struct{ objects, bytes float64 }

// sessions is what sessions of Postgres count for themselves, and tell of now and then.
type sessions struct{ fsyncs, transactions float64 }

// sessionsReport is how long a session of Postgres may keep what it counts to itself when it is idle.
const sessionsReport = 11 * time.Second

func (st *stack) read(ctx context.Context) (r reading, err error) {
	if r.calls, err = st.readCalls(ctx); err != nil {
		return r, err
	}
	r.cpu, r.rss, r.allocs = map[string]float64{}, map[string]float64{}, map[string]allocations{}
	for name, pids := range st.pids() {
		for _, pid := range pids {
			if cpu, ok := cpuOf(pid, name == partPostgres); ok {
				r.cpu[name] += cpu
			}
			if rss, ok := rssOf(pid, "VmRSS"); ok && name != partPostgres {
				r.rss[name] = max(r.rss[name], rss)
			}
		}
	}
	for _, p := range st.parts {
		if p.name == partBridge || p.name == partWorker {
			a, err := scrape(ctx, p.addr)
			if err != nil {
				return r, err
			}
			sum := r.allocs[p.name]
			r.allocs[p.name] = allocations{sum.objects + a.objects, sum.bytes + a.bytes}
		}
	}
	if r.wal, err = st.walAt(ctx); err != nil {
		return r, err
	}
	if st.trips != nil {
		r.trips = float64(st.trips.trips.Load())
	}
	r.at = time.Now()
	return r, nil
}

func (st *stack) walAt(ctx context.Context) (at int64, err error) {
	err = st.db.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&at)
	return at, err
}

// readCalls knows statements by the comment that each begins with. Those of the benchmark itself have none.
func (st *stack) readCalls(ctx context.Context) (map[string]calls, error) {
	if !st.counts {
		return nil, nil
	}
	rows, err := st.db.Query(ctx, `
select coalesce(substring(query from '/\* ([a-z ]+) \*/'), ''), sum(calls)::float8, (sum(total_exec_time) * 1000)::float8, sum(wal_bytes)::float8, sum(rows)::float8
from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database()) group by 1`)
	if err != nil {
		return nil, fmt.Errorf("pg_stat_statements: %w", err)
	}
	defer rows.Close()
	all := map[string]calls{}
	for rows.Next() {
		var name string
		var c calls
		if err := rows.Scan(&name, &c.calls, &c.micro, &c.wal, &c.rows); err != nil {
			return nil, err
		}
		if name != "" {
			all[name] = c
		}
	}
	return all, rows.Err()
}

// readSessions waits until all sessions have told. Postgres moved its count of fsyncs from one view to another.
func (st *stack) readSessions(ctx context.Context) (s sessions, err error) {
	if !st.o.Counts {
		return s, nil
	}
	select {
	case <-time.After(sessionsReport):
	case <-ctx.Done():
		return s, context.Cause(ctx)
	}
	sql := `select wal_sync::float8 from pg_stat_wal`
	if st.version >= 180000 {
		sql = `select coalesce(sum(fsyncs), 0)::float8 from pg_stat_io where object = 'wal'`
	}
	if err = st.db.QueryRow(ctx, sql).Scan(&s.fsyncs); err != nil {
		return s, fmt.Errorf("fsyncs: %w", err)
	}
	err = st.db.QueryRow(ctx, `select xact_commit::float8 from pg_stat_database where datname = current_database()`).Scan(&s.transactions)
	return s, err
}

// threadTime is the processor time of this thread.
func threadTime() (time.Duration, bool) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err == nil
}

// machineTime is what the processors of this machine have spent since it began, by all, and what another machine took from them, in seconds.
func machineTime() (busy, stolen float64, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	line, _, _ := strings.Cut(string(text), "\n")
	const idle, ioWait, steal = 4, 5, 8 // the first is the name
	fields := strings.Fields(line)
	if len(fields) <= steal {
		return 0, 0, false
	}
	for i, field := range fields[1 : steal+1] {
		ticks, _ := strconv.ParseFloat(field, 64)
		switch i + 1 {
		case idle, ioWait:
		case steal:
			stolen = ticks / ticksPerSecond
		default:
			busy += ticks / ticksPerSecond
		}
	}
	return busy, stolen, true
}

// cpuOf a process, of its ended children, and with family of the living ones, in seconds. false: this system does not tell.
func cpuOf(pid int, family bool) (seconds float64, ok bool) {
	ticks, ok := ticksOf(pid, family)
	if family {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		ok = ok && err == nil
		for child := range strings.FieldsSeq(string(children)) {
			n, _ := strconv.Atoi(child)
			t, _ := ticksOf(n, false) // it may have ended: then it is the parent's
			ticks += t
		}
	}
	return ticks / ticksPerSecond, ok
}

const ticksPerSecond = 100 // of /proc on Linux, whatever the kernel's own

func ticksOf(pid int, reaped bool) (ticks float64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const utime, cstime = 11, 14
	last := utime + 1
	if reaped {
		last = cstime
	}
	for i := utime; i <= last && i < len(fields); i++ {
		n, _ := strconv.ParseFloat(fields[i], 64)
		ticks += n
	}
	return ticks, true
}

// rssOf is VmRSS, what a process has in memory now, or VmHWM, the most it ever had.
func rssOf(pid int, field string) (bytes float64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, field+":"); found {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb * 1024, err == nil
		}
	}
	return 0, false
}

// scrape asks a part what it has allocated.
func scrape(ctx context.Context, addr string) (a allocations, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return a, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, fmt.Errorf("metrics of a part: %w", err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "go_memstats_mallocs_total":
			a.objects, _ = strconv.ParseFloat(value, 64)
		case "go_memstats_alloc_bytes_total":
			a.bytes, _ = strconv.ParseFloat(value, 64)
		}
	}
	return a, lines.Err()
}
