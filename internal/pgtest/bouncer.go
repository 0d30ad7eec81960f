package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	bouncerTimeout = 90 * time.Second
	bouncerPause   = 5 * time.Millisecond
	bouncerTries   = 5

	bouncerSessions = 3
)

// Bouncer is a PgBouncer in transaction mode before a database. It has fewer sessions than a test has clients, and each transaction gets
// another one than the last.
type Bouncer struct {
	URL  string // of the database, through the bouncer
	t    testing.TB
	port int
	ini  string
	as   *syscall.Credential
	proc *bouncerProcess
}

type bouncerProcess struct {
	cmd  *exec.Cmd
	log  bytes.Buffer // read it after done
	done chan struct{}
}

// NewBouncer starts one that runs until the test ends. Where the program is missing the test is skipped, and fails when CI is "true".
func NewBouncer(t testing.TB, databaseURL string) *Bouncer {
	t.Helper()
	cfg, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	program, err := FindBouncer()
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("pgtest: %v", err)
	case err != nil:
		t.Skipf("pgtest: %v", err)
	}
	b := &Bouncer{t: t, as: serverAccount(cfg.Host)}
	b.makeDir()
	for range bouncerTries { // between the choice of a port and its use somebody else may take it
		b.configure(cfg, freePort(t))
		if err = b.start(program); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("pgtest: start pgbouncer: %v", err)
	}
	t.Cleanup(func() { b.proc.kill() })
	u := url.URL{Scheme: "postgres", User: url.User(cfg.User), Host: b.address(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	b.URL = u.String()
	b.take(bouncerSessions)
	return b
}

// FindBouncer finds the program, also where PATH often does not lead.
func FindBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New(`no pgbouncer found: install it with "apt-get install pgbouncer" or "brew install pgbouncer"`)
}

// serverAccount is who may connect to the server's socket, where that is not this process's own account. PgBouncer does not run as root.
func serverAccount(host string) *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	as := &syscall.Credential{Uid: 65534, Gid: 65534}
	if info, err := os.Stat(host); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			as.Uid, as.Gid = st.Uid, st.Gid
		}
	}
	return as
}

// makeDir makes a directory that the account can reach, as it cannot that of a test.
func (b *Bouncer) makeDir() {
	b.t.Helper()
	dir, err := os.MkdirTemp("", "pointsman-bouncer-*")
	if err == nil {
		b.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		b.ini = filepath.Join(dir, "pgbouncer.ini")
		err = b.give(dir)
	}
	if err != nil {
		b.t.Fatalf("pgtest: %v", err)
	}
}

func (b *Bouncer) give(path string) error {
	if b.as == nil {
		return nil
	}
	return os.Chown(path, int(b.as.Uid), int(b.as.Gid))
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer l.Close() //nolint:errcheck // it was only asked for a port
	return l.Addr().(*net.TCPAddr).Port
}

func (b *Bouncer) configure(server *pgx.ConnConfig, port int) {
	b.t.Helper()
	b.port = port
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	password := ""
	if server.Password != "" { // PgBouncer cannot read an empty one
		password = " password=" + quote(server.Password)
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 1000
server_round_robin = 1
server_login_retry = 1
`, quote(server.Host), server.Port, quote(server.User), password, port, bouncerSessions)
	err := os.WriteFile(b.ini, []byte(text), 0o600)
	if err == nil {
		err = b.give(b.ini)
	}
	if err != nil {
		b.t.Fatalf("pgtest: %v", err)
	}
}

// start runs the program until it takes connections.
func (b *Bouncer) start(program string) error {
	proc := &bouncerProcess{cmd: exec.Command(program, b.ini), done: make(chan struct{})}
	proc.cmd.Dir = filepath.Dir(b.ini)
	proc.cmd.Stdout, proc.cmd.Stderr = &proc.log, &proc.log
	proc.cmd.SysProcAttr = attributes(b.as)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread that started the child ends
		err := proc.cmd.Start()
		started <- err
		if err == nil {
			_ = proc.cmd.Wait()
			close(proc.done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	b.proc = proc
	for deadline := time.Now().Add(bouncerTimeout); ; {
		conn, err := net.Dial("tcp", b.address())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-proc.done:
			return fmt.Errorf("it ended: %s", bytes.TrimSpace(proc.log.Bytes()))
		case <-time.After(bouncerPause):
		}
		if time.Now().After(deadline) {
			proc.kill()
			return err
		}
	}
}

func (p *bouncerProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (b *Bouncer) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// To leads through the bouncer to another database of its server.
func (b *Bouncer) To(databaseURL string) string {
	b.t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		b.t.Fatalf("pgtest: %v", err)
	}
	return inDatabase(b.t, b.URL, strings.TrimPrefix(u.Path, "/"))
}

// Restart kills it, with all its connections on either side, and starts it again on the same port.
func (b *Bouncer) Restart() {
	b.t.Helper()
	b.proc.kill()
	program, err := FindBouncer()
	for range bouncerTries { // as somebody's outgoing connection, the port may be taken for a moment
		if err = b.start(program); err == nil {
			b.take(bouncerSessions)
			return
		}
	}
	b.t.Fatalf("pgtest: start pgbouncer: %v", err)
}

// take has n sessions in transactions at once. The bouncer makes one only where those that it has are taken.
func (b *Bouncer) take(n int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), bouncerTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, b.URL)
	if err != nil {
		b.t.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "begin"); err != nil {
		b.t.Fatalf("pgtest: %v", err)
	}
	if n > 1 {
		b.take(n - 1)
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		b.t.Fatalf("pgtest: %v", err)
	}
}
