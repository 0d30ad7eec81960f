package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/integration/programs"
	"github.com/pointsman/pointsman/internal/pgserver"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// processes are members that are children of the test process, and end with it.
type processes struct {
	c    *Cluster
	root string
	as   *syscall.Credential // of what does not run as root

	mu       sync.Mutex
	ports    map[place]int
	claims   []net.Listener    // of ports, as long as there is the cluster
	binaries map[string]string // what a member runs, by its kind and build
	procs    map[*Member]*process
}

type place struct {
	m *Member
	p port
}

func newProcesses(_ context.Context, c *Cluster) (*processes, error) {
	root, err := os.MkdirTemp("", "pointsman-cluster-*")
	if err != nil {
		return nil, err
	}
	ps := &processes{c: c, root: root, ports: map[place]int{}, binaries: map[string]string{}, procs: map[*Member]*process{}}
	if ps.as, err = pgserver.RunAs(); err != nil {
		return nil, err
	}
	return ps, os.Chmod(root, 0o755)
}

func (ps *processes) prepare(ctx context.Context, members []*Member) error {
	for _, m := range members {
		if _, ok := ps.binaries[m.binary()]; ok {
			continue
		}
		path, err := ps.find(ctx, m)
		if err != nil {
			return err
		}
		ps.mu.Lock()
		ps.binaries[m.binary()] = path
		ps.mu.Unlock()
	}
	return nil
}

// binary names what a member runs.
func (m *Member) binary() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.kind) + "/" + m.build.Version + "/" + m.build.Tags
}

func (ps *processes) find(ctx context.Context, m *Member) (string, error) {
	if m.kind == Postgres {
		dir, err := pgserver.Programs(ctx)
		return filepath.Join(dir, "postgres"), err
	}
	if m.kind == Pooler {
		return pgtest.FindBouncer()
	}
	what := m.program()
	dir, err := programs.Build(ctx, programs.Options{Version: m.build.Version, Tags: m.build.Tags}, what)
	return filepath.Join(dir, programs.Name(what)), err
}

// program is the package of what a member runs that is built with Go.
func (m *Member) program() string {
	switch m.kind {
	case NATS:
		return programs.NATSServer
	case Bridge:
		return "./cmd/bridge"
	case Worker:
		if p := m.c.cfg.WorkerProgram; p != "" {
			return p
		}
		return "./cmd/worker"
	}
	return "./integration/cluster/links"
}

func (ps *processes) bind(m *Member, p port) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := ps.ports[place{m, p}]
	if n == 0 {
		var claim net.Listener
		n, claim = freePort()
		ps.ports[place{m, p}] = n
		ps.claims = append(ps.claims, claim)
	}
	return net.JoinHostPort(loopback, strconv.Itoa(n))
}

const (
	loopback = "127.0.0.1"
	claims   = "127.0.0.2" // another address of the same host, on which nobody listens but for the claim
)

// freePort is one that nobody listens on, below those that the system gives to outgoing connections: it is free again when its owner,
// killed, comes back. Until the claim is closed no other cluster is given it, of whatever process; nil: this system has no other loopback address.
func freePort() (port int, claim net.Listener) {
	for {
		port = 10000 + rand.IntN(22000)
		claim, err := net.Listen("tcp", net.JoinHostPort(claims, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port, claim
		}
		if claim != nil {
			_ = claim.Close()
		}
	}
}

func (ps *processes) address(m *Member, p port) string { return ps.bind(m, p) }

func (ps *processes) dir(m *Member) string { return filepath.Join(ps.root, m.name) }

func (ps *processes) control(_ context.Context, proxy *Member) (string, error) {
	return ps.bind(proxy, portControl), nil
}

func (ps *processes) listen(int, bool) string { return net.JoinHostPort(loopback, "0") }

func (ps *processes) reach(_ context.Context, _ int, _ bool, answered string) (string, error) {
	return answered, nil
}

func (ps *processes) launch(ctx context.Context, m *Member, s spec) error {
	if p := ps.proc(m); p != nil && p.runs() {
		return nil
	}
	if err := ps.makeDir(m, s); err != nil {
		return err
	}
	args := s.args
	if m.kind == Postgres {
		data := filepath.Join(ps.dir(m), dataDir)
		if err := ps.makeData(ctx, m, data, s); err != nil {
			return err
		}
		args = append([]string{"-D", data, "-c", "unix_socket_directories="}, args...)
	}
	for {
		p, err := ps.spawn(m, args, s.env)
		if err != nil {
			return err
		}
		ps.mu.Lock()
		ps.procs[m] = p
		ps.mu.Unlock()
		// The last process of a Postgres that was killed may hold its memory for a moment.
		if m.kind != Postgres || !p.refused(ctx) {
			return nil
		}
	}
}

// account is who runs a member.
func (ps *processes) account(m *Member) *syscall.Credential {
	if m.kind == Postgres || m.kind == Pooler {
		return ps.as
	}
	return nil
}

func (ps *processes) makeDir(m *Member, s spec) error {
	dir := ps.dir(m)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	paths := []string{dir}
	for name, text := range s.files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		paths = append(paths, file)
	}
	if as := ps.account(m); as != nil {
		for _, path := range paths {
			if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeData makes the data of a Postgres that has none: a copy of the one that it follows, or new.
func (ps *processes) makeData(ctx context.Context, m *Member, data string, s spec) error {
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		return nil
	}
	fresh := data + ".new" // a copy that is broken off must not be taken for one
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	run := func(program string, args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(ps.binaries[m.binary()]), program), args...)
		cmd.Dir, cmd.Env = ps.dir(m), environment()
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ps.account(m)}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", program, err, out)
		}
		return nil
	}
	var err error
	if s.follow != "" {
		err = run("pg_basebackup", "-d", s.follow, "-D", fresh, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	} else {
		password := filepath.Join(ps.dir(m), "password")
		if err := os.WriteFile(password, []byte(ps.c.secret), 0o644); err != nil {
			return err
		}
		err = run("initdb", "-D", fresh, "-U", superuser, "-E", "UTF8", "--locale=C", "--auth=scram-sha-256", "--pwfile="+password, "--no-sync")
	}
	if err != nil {
		return err
	}
	return os.Rename(fresh, data)
}

// environment is ours without what would change a program's mind.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG") || strings.HasPrefix(kv, "TZ=") ||
			strings.HasPrefix(kv, "POINTSMAN_") || strings.HasPrefix(kv, "NATS_")
	})
	return append(env, "TZ=UTC", "LC_ALL=C")
}

func (ps *processes) spawn(m *Member, args, env []string) (*process, error) {
	ps.mu.Lock()
	program := ps.binaries[m.binary()]
	ps.mu.Unlock()
	return spawn(exec.Command(program, args...), ps.dir(m), append(environment(), env...), ps.logFile(m), ps.account(m))
}

func (ps *processes) logFile(m *Member) string { return path.Join(ps.root, m.name+".log") }

func (ps *processes) proc(m *Member) *process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.procs[m]
}

func (ps *processes) kill(ctx context.Context, m *Member) error { return ps.proc(m).kill(ctx) }

func (ps *processes) terminate(ctx context.Context, m *Member) error {
	signal := syscall.SIGTERM
	if m.kind == Postgres {
		signal = syscall.SIGINT
	}
	return ps.proc(m).end(ctx, signal)
}

func (ps *processes) quit(ctx context.Context, m *Member) error {
	if err := ps.proc(m).cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err
	}
	var exit *exec.ExitError // as it always ends then
	if err := ps.proc(m).wait(ctx); !errors.As(err, &exit) {
		return err
	}
	return nil
}

func (ps *processes) pause(ctx context.Context, m *Member) error { return ps.proc(m).pause(ctx) }

func (ps *processes) resume(_ context.Context, m *Member) error { return ps.proc(m).resume() }

func (ps *processes) forget(_ context.Context, m *Member) error {
	return os.RemoveAll(filepath.Join(ps.dir(m), dataDir))
}

func (ps *processes) exited(m *Member) error {
	p := ps.proc(m)
	if p == nil {
		return errors.New("it was never started")
	}
	if p.runs() {
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("%w: %s", p.err, tail(ps.log(m)))
	}
	return fmt.Errorf("exit status 0: %s", tail(ps.log(m)))
}

// tail is the end of a log, for an error.
func tail(text string) string { return text[max(0, len(text)-2<<10):] }

func (ps *processes) log(m *Member) string {
	text, err := os.ReadFile(ps.logFile(m))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (ps *processes) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var errs []error
	for _, p := range ps.procs {
		errs = append(errs, p.kill(ctx))
	}
	for _, claim := range ps.claims {
		if claim != nil {
			errs = append(errs, claim.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(ps.root))...)
}

const closeTimeout = time.Minute

// lockHeld is what a Postgres says that ends because its predecessor is not quite gone.
var lockHeld = regexp.MustCompile(`lock file .* already exists|is still in use`)
