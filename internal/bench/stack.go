package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/internal/pgserver"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/migrations"
	"github.com/pointsman/pointsman/subjects"
)

// What a benchmark makes on servers that may hold something else too, and removes again. Nothing else is touched.
const (
	schema      = "pointsman_bench"
	ownSchema   = "pointsman_bench_own"   // of cycle
	largeSchema = "pointsman_bench_large" // of backlog
	limitSchema = "pointsman_bench_limit"
	prefix      = "pointsman_bench"

	streamIn    = "POINTSMAN_BENCH_IN"    // what the bridge takes in
	streamStart = "POINTSMAN_BENCH_START" // starts
	streamOut   = "POINTSMAN_BENCH_OUT"   // what steps and the limits publish
	streamPipe  = "POINTSMAN_BENCH_PIPE"  // what the limits take in
)

func subjectIn(route int) string   { return fmt.Sprintf("%s.in.%d", prefix, route) }
func subjectPipe(route int) string { return fmt.Sprintf("%s.pipe.%d", prefix, route) }
func routeIn(route int) string     { return fmt.Sprintf("in%d", route) }

const (
	subjectStart = prefix + ".start"
	subjectOut   = prefix + ".out.limit"
	routeStart   = "start"
)

func echoSubject(space subjects.Space) string { return space.Prefix() + ".out.echo" }

// window in which the streams drop duplicates: the least that a server allows, so that they come through.
const window = 100 * time.Millisecond

// patience is for what should not take long.
const patience = time.Minute

// stack is the servers and what runs on them.
type stack struct {
	o        *Options
	say      func(format string, args ...any)
	dir      string
	postgres *pgserver.Server // nil: it is not ours
	url      string           // of the database
	probeURL string           // the same for what is measured: round trips may be counted on the way
	trips    *relay           // nil: they are not
	natsURL  string
	space    subjects.Space
	parts    map[string]*part
	died     chan error

	db      *pgxpool.Pool // for what stands around the probes
	version int           // of Postgres, as 150018
	counts  bool          // there is pg_stat_statements
	nc      *nats.Conn
	js      jetstream.JetStream
}

func startStack(ctx context.Context, o *Options, say func(string, ...any)) (*stack, error) {
	st := &stack{o: o, say: say, url: o.DatabaseURL, natsURL: o.NATSURL, parts: map[string]*part{}, died: make(chan error, 1)}
	if err := st.start(ctx); err != nil {
		return nil, errors.Join(err, st.stop())
	}
	return st, nil
}

func (st *stack) start(ctx context.Context) (err error) {
	if st.space, err = subjects.New(prefix); err != nil {
		return err
	}
	if st.dir, err = os.MkdirTemp("", "pointsman-bench-*"); err != nil {
		return err
	}
	if err = st.startServers(ctx); err != nil {
		return err
	}
	if err = st.connect(ctx); err != nil {
		return err
	}
	if err = st.clean(ctx); err != nil {
		return err
	}
	if err = migrations.Up(ctx, st.url, schema); err != nil {
		return err
	}
	return st.makeStreams(ctx)
}

// settings of a private Postgres: as of a server that is meant to be fast, and loses nothing. It has a quarter of the memory for its buffers, as
// its manual would begin with: what a long run leaves in the ledger and the history is more than a gigabyte.
func settings() map[string]string {
	buffers := min(max(leastBuffers, machineMemory()/4), mostBuffers)
	return map[string]string{
		"shared_buffers": fmt.Sprintf("%dMB", buffers>>20), "max_wal_size": "8GB", "checkpoint_timeout": "30min", "max_connections": "300",
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "5000", "pg_stat_statements.track_utility": "off",
	}
}

const leastBuffers, mostBuffers = 256 << 20, 8 << 30

func (st *stack) startServers(ctx context.Context) (err error) {
	if st.url == "" {
		st.say("starting Postgres ...")
		all := settings()
		st.postgres, err = pgserver.Start(ctx, pgserver.Config{Install: true, Settings: all})
		if err != nil && ctx.Err() == nil { // most likely it comes without its modules
			maps.DeleteFunc(all, func(name, value string) bool { return strings.Contains(name+value, "pg_stat_statements") })
			st.postgres, err = pgserver.Start(ctx, pgserver.Config{Install: true, Settings: all})
		}
		if err != nil {
			return err
		}
		st.url = st.postgres.URL()
	}
	if st.probeURL = st.url; st.o.Counts {
		if st.trips, err = newRelay(filepath.Join(st.dir, "trips"), st.url); err != nil {
			return err
		}
		st.probeURL = st.trips.url
	}
	if st.natsURL == "" {
		p, err := st.startPart(ctx, partNATS, "--dir", filepath.Join(st.dir, "nats"))
		if err != nil {
			return err
		}
		st.natsURL = p.addr
	}
	return nil
}

func (st *stack) connect(ctx context.Context) (err error) {
	if st.db, err = pgxpool.New(ctx, st.url); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if err := st.db.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&st.version); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if strings.Contains(st.setting(ctx, "shared_preload_libraries"), "pg_stat_statements") {
		if _, err := st.db.Exec(ctx, `create extension if not exists pg_stat_statements`); err != nil {
			st.say("statements are not counted: %v", err)
		} else {
			st.counts = true
		}
	}
	if st.nc, err = nats.Connect(st.natsURL, nats.Name("pointsman bench"), nats.MaxReconnects(-1)); err != nil {
		return fmt.Errorf("NATS: %s: %w", st.natsURL, err)
	}
	// A machine that is measured may take its time with answers.
	st.js, err = jetstream.New(st.nc, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithDefaultTimeout(patience))
	return err
}

func (st *stack) setting(ctx context.Context, name string) (value string) {
	if err := st.db.QueryRow(ctx, `select coalesce(current_setting($1, true), '')`, name).Scan(&value); err != nil {
		return ""
	}
	return value
}

// clean removes what a benchmark made, this one or one that was killed.
func (st *stack) clean(ctx context.Context) error {
	rows, err := st.db.Query(ctx, `select nspname from pg_namespace where nspname = any($1) or starts_with(nspname, $2)`, []string{schema, ownSchema, limitSchema}, largeSchema)
	if err != nil {
		return err
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, s := range schemas {
		if _, err := st.db.Exec(ctx, `drop schema `+s+` cascade`); err != nil {
			return fmt.Errorf("drop schema %s: %w", s, err)
		}
	}
	for _, name := range st.streams() {
		if err := st.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
	}
	return nil
}

func (st *stack) streams() []string {
	return []string{streamIn, streamStart, streamOut, streamPipe, st.space.SignalsStream(), st.space.OutcomesStream(), st.space.DeadLettersStream()}
}

func (st *stack) makeStreams(ctx context.Context) error {
	for name, filter := range map[string]string{streamIn: prefix + ".in.>", streamStart: subjectStart, streamOut: prefix + ".out.>", streamPipe: prefix + ".pipe.>"} {
		cfg := jetstream.StreamConfig{Name: name, Subjects: []string{filter}, Storage: jetstream.FileStorage, Duplicates: window}
		if name == streamIn && st.o.Soak > 0 { // what is done long ago goes; what waits is far less
			cfg.MaxBytes = max(1<<30, 4*int64(st.o.N)*int64(st.o.Payload+256))
		}
		if _, err := st.js.CreateStream(ctx, cfg); err != nil {
			return fmt.Errorf("create stream %s: %w", name, err)
		}
	}
	return natsio.EnsureStreams(ctx, st.js, st.space, 1)
}

// runParts starts programs with this configuration, in the place of those that run. One that is named again is another copy.
func (st *stack) runParts(ctx context.Context, yaml string, names ...string) error {
	st.stopPrograms()
	file := filepath.Join(st.dir, "pointsman.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		return err
	}
	for _, name := range names {
		p, err := st.startPart(ctx, name, "--config", file)
		if err != nil {
			return err
		}
		if p.addr != "" {
			if err := st.untilReady(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// config of the parts. slots are those of the worker's queue.
func (b *run) config(slots int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "database: {url: %q, schema: %s}\nnats: {url: %q, subject_prefix: %s}\nsignals_route: false\nhttp: {addr: \"127.0.0.1:0\"}\n", b.probeURL, schema, b.natsURL, prefix)
	fmt.Fprintf(&text, "worker: {http_addr: \"127.0.0.1:0\", queues: {default: %d}}\n", slots)
	fmt.Fprintf(&text, "machines:\n  - {name: %s, start: %s}\nroutes:\n", machineRemote, stepGo)
	for i := range b.Conns {
		fmt.Fprintf(&text, "  - {name: %s, stream: %s, subject: %s, signal: %s, correlation_key: \"{{payload.key}}\", batch: {size: %d}}\n",
			routeIn(i), streamIn, subjectIn(i), signalGo, b.Batch)
	}
	fmt.Fprintf(&text, "  - {name: %s, stream: %s, subject: %s, correlation_key: \"{{payload.key}}\", start: {machine: %s, state: \"{{payload}}\"}, batch: {size: %d}}\n",
		routeStart, streamStart, subjectStart, machineLife, b.Batch)
	return text.String()
}

// pids of all that is measured and runs on this machine as far as it is ours.
func (st *stack) pids() map[string][]int {
	pids := map[string][]int{partBench: {os.Getpid()}}
	for _, p := range st.parts {
		pids[p.name] = append(pids[p.name], p.cmd.Process.Pid)
	}
	if st.postgres != nil {
		if text, err := os.ReadFile(filepath.Join(st.postgres.DataDir(), "postmaster.pid")); err == nil {
			line, _, _ := strings.Cut(string(text), "\n")
			if pid, err := strconv.Atoi(line); err == nil {
				pids[partPostgres] = []int{pid}
			}
		}
	}
	return pids
}

// tuned is a pool as the programs have it.
func (st *stack) tuned(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(st.probeURL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns)
	store.Tune(cfg, false)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// session is one connection with the settings that our own statements have, for statements of the limits.
func (st *stack) session(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgxpool.ParseConfig(st.probeURL)
	if err != nil {
		return nil, err
	}
	store.Tune(cfg, false)
	cfg.ConnConfig.RuntimeParams["search_path"] = limitSchema
	return pgx.ConnectConfig(ctx, cfg.ConnConfig)
}

// alive is nil unless a part has ended by itself.
func (st *stack) alive() error {
	select {
	case err := <-st.died:
		return err
	default:
		return nil
	}
}

// until asks again and again, ever less often: the end of what takes long need not be known as exactly as that of what does not, and to
// ask costs those who are measured something. What it waits for is another process's to do.
func (st *stack) until(ctx context.Context, what string, within time.Duration, so func() (bool, error)) error {
	for began := time.Now(); ; {
		ok, err := so()
		if err == nil {
			err = st.alive()
		}
		if ok || err != nil {
			return err
		}
		waited := time.Since(began)
		if waited > within {
			return fmt.Errorf("%s: not within %s", what, within)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(max(waited/exactness, firstLook), lastLook)):
		}
	}
}

// How exactly the end of something is known: to a hundredth of the time it took, and mostly better.
const (
	exactness = 100
	firstLook = 5 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

func (st *stack) stop() error {
	st.stopPrograms()
	var errs []error
	if st.db != nil && st.js != nil && st.alive() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		errs = append(errs, st.clean(ctx))
		cancel()
	}
	if st.db != nil {
		st.db.Close()
	}
	if st.nc != nil {
		st.nc.Close()
	}
	if st.trips != nil {
		_ = st.trips.listener.Close()
	}
	st.stopPart(partNATS)
	if st.postgres != nil {
		errs = append(errs, st.postgres.Stop())
	}
	if st.dir != "" {
		errs = append(errs, os.RemoveAll(st.dir))
	}
	return errors.Join(errs...)
}

// describe the machine.
func (st *stack) describe(ctx context.Context) Machine {
	m := Machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Postgres: st.setting(ctx, "server_version"), NATS: st.nc.ConnectedServerVersion(),
		Private: st.postgres != nil && st.o.NATSURL == "", Settings: map[string]string{},
	}
	for _, name := range []string{"shared_buffers", "max_wal_size", "checkpoint_timeout", "synchronous_commit", "fsync", "full_page_writes", "wal_level", "shared_preload_libraries"} {
		m.Settings[name] = st.setting(ctx, name)
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			m.Processor = strings.TrimLeft(line, "\t :")
		}
	}
	m.Memory = machineMemory()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.LoadBefore)
	}
	return m
}

// machineMemory in bytes, or 0 where it is not told.
func machineMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kb int64
	_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &kb)
	return kb << 10
}
