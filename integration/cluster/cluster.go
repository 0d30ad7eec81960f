package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Backend is what the members of a cluster are.
type Backend string

const (
	// Containers are members in containers of this machine's Docker, with a network, a file system and a host name of their own each.
	Containers Backend = "containers"
	// Processes are members that are processes of this machine, on addresses of 127.0.0.1. They need no Docker.
	Processes Backend = "processes"
)

// Config is what a cluster is made of. Its zero value is one NATS server, one Postgres, one bridge and one worker, as processes.
type Config struct {
	// Backend is Processes where it is empty. Without Docker a test with Containers is skipped, and fails when CI is "true", unless
	// POINTSMAN_TEST_CONTAINERS is "never".
	Backend Backend
	// NATS is the number of NATS servers: 1, which is what 0 means, or 3 and more, which are a cluster.
	NATS int
	// Standby adds a Postgres that streams from the primary, which waits for it with each commit: a failover loses nothing.
	Standby bool
	// Pooler puts a PgBouncer in transaction mode before each Postgres.
	Pooler bool
	// Bridges and Workers are how many copies run; 0 is 1, and None is none.
	Bridges, Workers int
	// Config is the text of the pointsman.yaml that all programs get. The kit adds database.pooler, and nats.replicas where the text has
	// none; addresses are in the environment of the programs.
	Config string
	// Streams are made before the first bridge starts; a bridge is not ready without those of its routes. Replicas are those that the
	// cluster has room for, at most 3, where a stream names none.
	Streams []jetstream.StreamConfig
	// WorkerProgram is a Go package with a main, as a path below the module ("./integration/cmd/x") or an import path, that runs instead of
	// cmd/worker. It is called with --config FILE, has the addresses in its environment, serves /readyz and prints "msg=listening
	// addr=…", all as cmd/worker does: a program that calls app.RunWorker with machines of its own is one.
	WorkerProgram string
	// Build is the build of the bridges and workers; Upgrade changes it for one.
	Build Build
	// LogLevel is that of bridges and workers; "" is theirs.
	LogLevel string
	// Env is added to the environment of bridges and workers, as NAME=value.
	Env []string
	// NoMigration leaves the database empty. Else it has all migrations when Start returns.
	NoMigration bool
}

// None is a number of bridges or workers.
const None = -1

// Build says how programs are built.
type Build struct {
	Version string // what --version says; "" leaves that to the Go tool
	Tags    string // build tags, with commas
}

// Kind is what a member does.
type Kind string

// Kinds of members.
const (
	NATS     Kind = "nats"
	Postgres Kind = "postgres"
	Pooler   Kind = "pooler"
	Bridge   Kind = "bridge"
	Worker   Kind = "worker"
	proxy    Kind = "links" // between all members, so that their links can be cut. No faults for itself
)

// Member is one program of a cluster. It keeps its name, its data and its addresses through all faults.
type Member struct {
	c    *Cluster
	name string
	kind Kind
	url  string // where its HTTP server is, for the test

	mu    sync.Mutex
	state state
	fault string // that it has now
	build Build  // of a bridge or a worker
}

// state of a member.
type state string

const (
	running state = "running"
	stopped state = "stopped" // killed or terminated
	paused  state = "paused"
)

// Name is the kind and a number: bridge1.
func (m *Member) Name() string { return m.name }

// Kind of the member.
func (m *Member) Kind() Kind { return m.kind }

func (m *Member) String() string { return m.name }

// Running says whether the member runs: it has neither been killed nor terminated nor paused, or is back.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state == running
}

// URL is where a bridge or a worker answers HTTP, for the test, past all cut links. It stays the same.
func (m *Member) URL() string { return m.url }

// Log is all that the member has printed, through all its starts.
func (m *Member) Log() string { return m.c.backend.log(m) }

func (m *Member) set(s state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
}

// take reserves a member that runs for a fault.
func (m *Member) take(fault string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != "" {
		return fmt.Errorf("%s: %s has a fault already: %s", fault, m.name, m.fault)
	}
	if m.state != running {
		return fmt.Errorf("%s: %s is %s", fault, m.name, m.state)
	}
	m.fault = fault
	return nil
}

func (m *Member) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = ""
}

// Cluster is a running cluster. Its methods may be called from any goroutine.
type Cluster struct {
	t       testing.TB
	cfg     Config
	backend backend
	links   *links
	members []*Member
	secret  string // password of the database and token of the API

	failover sync.Mutex // one at a time
	mu       sync.Mutex
	primary  *Member
}

// Start starts a cluster that runs until the test ends, and returns when all of it is ready. What members printed is logged when the test
// has failed; with POINTSMAN_TEST_LOGS it is kept in that directory, a file for each member, whether it failed or not.
func Start(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	if err := cfg.complete(); err != nil {
		t.Fatalf("cluster: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := start(ctx, t, cfg)
	if errors.Is(err, errNoDocker) {
		t.Skipf("cluster: %v", err)
	}
	if err != nil {
		t.Fatalf("cluster: %v", err)
	}
	return c
}

const (
	startTimeout = 6 * time.Minute // has room for images that are pulled and programs that are built
	readyTimeout = 90 * time.Second
)

func (cfg *Config) complete() error {
	if cfg.Backend == "" {
		cfg.Backend = Processes
	}
	for _, n := range []*int{&cfg.NATS, &cfg.Bridges, &cfg.Workers} {
		if *n == 0 {
			*n = 1
		}
	}
	cfg.Bridges, cfg.Workers = max(cfg.Bridges, 0), max(cfg.Workers, 0)
	if cfg.NATS < 1 || cfg.NATS == 2 {
		return fmt.Errorf("%d NATS servers: want 1, or 3 and more", cfg.NATS)
	}
	return nil
}

// Backend that the cluster has.
func (c *Cluster) Backend() Backend { return c.cfg.Backend }

// Members are all of a kind, in the order of their numbers.
func (c *Cluster) Members(kind Kind) []*Member {
	return slices.Collect(func(yield func(*Member) bool) {
		for _, m := range c.members {
			if m.kind == kind && !yield(m) {
				return
			}
		}
	})
}

// Bridges of the cluster.
func (c *Cluster) Bridges() []*Member { return c.Members(Bridge) }

// Workers of the cluster.
func (c *Cluster) Workers() []*Member { return c.Members(Worker) }

// NATS servers of the cluster.
func (c *Cluster) NATS() []*Member { return c.Members(NATS) }

// Database is what bridges and workers connect to: the poolers where there are some, else the Postgres servers.
func (c *Cluster) Database() []*Member {
	if c.cfg.Pooler {
		return c.Members(Pooler)
	}
	return c.Members(Postgres)
}

// Primary is the Postgres that takes writes, or did so when it was last seen.
func (c *Cluster) Primary() *Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.primary
}

// Standby is the other Postgres, nil where there is none.
func (c *Cluster) Standby() *Member {
	primary := c.Primary()
	for _, m := range c.Members(Postgres) {
		if m != primary {
			return m
		}
	}
	return nil
}

// NATSURL leads the test to all NATS servers, past all cut links, for as long as the cluster runs.
func (c *Cluster) NATSURL() string {
	var urls []string
	for _, m := range c.NATS() {
		urls = append(urls, "nats://"+c.links.ofTest(m))
	}
	return strings.Join(urls, ",")
}

// DatabaseURL leads the test to the Postgres that takes writes, past all cut links and poolers, for as long as the cluster runs.
func (c *Cluster) DatabaseURL() string {
	var hosts []string
	for _, m := range c.Members(Postgres) {
		hosts = append(hosts, c.links.ofTest(m))
	}
	return c.databaseURL(hosts)
}

// Token is the API's admin token.
func (c *Cluster) Token() string { return c.secret }

// backend is how members are run, addressed and hurt.
type backend interface {
	// prepare builds what members need to be launched, as they are now.
	prepare(ctx context.Context, members []*Member) error
	// address is where the links reach a port of a member.
	address(m *Member, p port) string
	// bind is where the member itself listens.
	bind(m *Member, p port) string
	// dir is the member's directory as it sees it: files of its spec are there.
	dir(m *Member) string
	// control is where the test reaches the program that has the links.
	control(ctx context.Context, proxy *Member) (string, error)
	// listen is where the link number i listens; reach is where it is reached by who uses it, the answer of the program at hand.
	listen(i int, ofTest bool) string
	reach(ctx context.Context, i int, ofTest bool, answered string) (string, error)
	// launch runs the member on its data, making them where there are none, and returns when it runs, not when it answers.
	launch(ctx context.Context, m *Member, s spec) error
	// kill is kill -9 of all its processes. It returns when they are gone.
	kill(ctx context.Context, m *Member) error
	// terminate asks it to end, waits, and returns how it did.
	terminate(ctx context.Context, m *Member) error
	// quit asks a Go program to print where its goroutines are and end.
	quit(ctx context.Context, m *Member) error
	pause(ctx context.Context, m *Member) error
	resume(ctx context.Context, m *Member) error
	// forget removes what a member that does not run has: its data, and what it was launched from.
	forget(ctx context.Context, m *Member) error
	// exited says how a member ended; nil while it runs.
	exited(m *Member) error
	log(m *Member) string
	// close ends all members and removes what they have.
	close() error
}

func newBackend(ctx context.Context, c *Cluster) (backend, error) {
	switch c.cfg.Backend {
	case Processes:
		return newProcesses(ctx, c)
	case Containers:
		return newContainers(ctx, c)
	}
	return nil, fmt.Errorf("backend %q: want %q or %q", c.cfg.Backend, Processes, Containers)
}

// logsVariable names a directory for what members print.
const logsVariable = "POINTSMAN_TEST_LOGS"

// keepLogs shows what was printed, and writes it to files where that is asked for.
func (c *Cluster) keepLogs() {
	for _, m := range c.members {
		text := c.backend.log(m)
		if c.t.Failed() && (m.kind == Bridge || m.kind == Worker) && m.Running() {
			c.t.Logf("%s was at:\n%s", m, c.stacks(m, len(text)))
		}
		if dir := os.Getenv(logsVariable); dir != "" {
			c.writeLog(dir, m, text)
		}
		if !c.t.Failed() || m.kind == proxy {
			continue
		}
		if cut := len(text) - shownLog; cut > 0 {
			text = fmt.Sprintf("(%d bytes are left out; set %s to keep them)\n%s", cut, logsVariable, text[cut:])
		}
		c.t.Logf("%s printed:\n%s", m, text)
	}
}

// stacks has a program end and tell where it was, behind what it has printed before.
func (c *Cluster) stacks(m *Member, printed int) string {
	ctx, cancel := context.WithTimeout(context.Background(), tryFor)
	defer cancel()
	if err := c.backend.quit(ctx, m); err != nil {
		return err.Error()
	}
	text := c.backend.log(m)
	return text[min(printed, len(text)):min(printed+shownLog, len(text))]
}

// shownLog is how much of a member's log a failed test shows, in bytes.
const shownLog = 32 << 10
