package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/internal/pgserver"
)

// holdEnv makes this test binary a program that starts a server in the directory it names, prints its URL and keeps it.
const holdEnv = "PGSERVER_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(holdEnv); ok {
		s, err := pgserver.Start(context.Background(), pgserver.Config{Dir: dir})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.URL())
		<-s.Done()
		return
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	cfg.Install = true
	s, err := pgserver.Start(t.Context(), cfg)
	if errors.Is(err, pgserver.ErrNoPrograms) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// tempDir is a temporary directory that other users may pass through.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query(t *testing.T, conn *pgx.Conn, sql string) (value string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func exec1(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestTemporaryServer(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s := start(t, pgserver.Config{Settings: map[string]string{"max_connections": "17"}, Log: &log})
	conn := connect(t, s.URL())
	for sql, want := range map[string]string{
		"show max_connections":         "17",
		"show timezone":                "UTC",
		"show listen_addresses":        "",
		"show server_encoding":         "UTF8",
		"show unix_socket_permissions": "0700",
		"select ('B' < 'a')::text":     "true", // sorted by code point
	} {
		if got := query(t, conn, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error("stop:", err)
	}
	if err := s.Stop(); err != nil {
		t.Error("second stop:", err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("not done after stop")
	}
	if _, err := os.Stat(filepath.Dir(s.DataDir())); !errors.Is(err, os.ErrNotExist) {
		t.Error("temporary directory is left:", err)
	}
	if !strings.Contains(log.String(), "ready to accept connections") {
		t.Errorf("log: %s", log.String())
	}
}

func TestDataIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "deep", "data")
	s := start(t, pgserver.Config{Dir: dir})
	exec1(t, connect(t, s.URL()), "create table kept as select 'yes' as v")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = start(t, pgserver.Config{Dir: dir})
	if got := query(t, connect(t, s.URL()), "select v from kept"); got != "yes" {
		t.Errorf("got %q", got)
	}
}

func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	start(t, pgserver.Config{Dir: dir})
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir})
	if !errors.Is(err, pgserver.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want %v with the directory", err, pgserver.ErrInUse)
	}
}

func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	start(t, pgserver.Config{}) // skips where there is no Postgres
	dir := tempDir(t)
	file := filepath.Join(dir, "mine")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "neither empty nor a data directory") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), strings.Repeat("long-", 30), "data")
	s := start(t, pgserver.Config{Dir: dir})
	connect(t, s.URL())
}

func TestTCP(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{Port: -1})
	cfg, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "127.0.0.1" {
		t.Errorf("host %q", cfg.Host)
	}
	connect(t, s.URL())
	cfg.Password = "wrong"
	if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password is let in")
	}
}

func TestBadSettingIsReported(t *testing.T) {
	t.Parallel()
	start(t, pgserver.Config{})
	_, err := pgserver.Start(t.Context(), pgserver.Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want the server's own words", err)
	}
	if _, err = pgserver.Start(t.Context(), pgserver.Config{Port: 70000}); err == nil {
		t.Error("port 70000 is accepted")
	}
}

func TestCanceledStart(t *testing.T) {
	t.Parallel()
	start(t, pgserver.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgserver.Start(ctx, pgserver.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The server ends by itself after a kill -9 of its owner; who comes next waits for that end and finds the data.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	start(t, pgserver.Config{})
	owner, url := hold(t, dir)
	conn := connect(t, url) // from another process than the owner
	exec1(t, conn, "create table kept as select 'yes' as v")
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()

	s := start(t, pgserver.Config{Dir: dir})
	if got := query(t, connect(t, s.URL()), "select v from kept"); got != "yes" {
		t.Errorf("got %q", got)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the killed owner's server is still there")
	}
}

// As root the server is another user's, who cannot pass a home directory: the wanted directory becomes a link.
func TestUnreachableDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	t.Parallel()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, "data")
	s := start(t, pgserver.Config{Dir: dir})
	exec1(t, connect(t, s.URL()), "create table kept as select 'yes' as v")
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(s.DataDir())) })
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(dir); err != nil || target != s.DataDir() {
		t.Errorf("%s links to %q (%v), want %s", dir, target, err, s.DataDir())
	}
	again := start(t, pgserver.Config{Dir: dir})
	if got := query(t, connect(t, again.URL()), "select v from kept"); got != "yes" {
		t.Errorf("got %q", got)
	}
}

func TestServerEndsByItself(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Config{})
	_, _ = connect(t, s.URL()).Exec(t.Context(), "copy (select 1) to program 'kill -QUIT $(head -1 postmaster.pid)'")
	select {
	case <-s.Done():
	case <-time.After(90 * time.Second):
		t.Fatal("the server did not end")
	}
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("stop: %v", err)
	}
}

// lockedBuffer takes a log that is written by another goroutine.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// hold runs the server in dir from another process, with nothing but PATH in its environment.
func hold(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), holdEnv + "=" + dir}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal("the owner did not start a server:", err)
	}
	return cmd, strings.TrimSpace(url)
}
