package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// newDev is for programs that bring their own servers. Their temporary files are in a directory of their own.
func newDev(t *testing.T) (s *stack, tmp string) {
	t.Helper()
	tmp, err := os.MkdirTemp("", "pmdev-*") // short: a socket is below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return &stack{T: t, dir: t.TempDir()}, tmp
}

func (s *stack) dev(tmp string, args ...string) *process {
	s.Helper()
	path, err := built("pointsman")
	s.must(err)
	return s.launch(&exec.Cmd{Path: path, Args: append([]string{"pointsman", "dev"}, args...), Dir: s.dir, Env: append(os.Environ(), "TMPDIR="+tmp,
		"POINTSMAN_HTTP_ADDR=127.0.0.1:0", "POINTSMAN_WORKER_HTTP_ADDR=127.0.0.1:0")})
}

// launch starts a command whose output is kept.
func (s *stack) launch(cmd *exec.Cmd) *process {
	s.Helper()
	p := &process{name: "dev", cmd: cmd, out: &syncBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	s.must(p.cmd.Start())
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	s.Cleanup(p.kill)
	return p
}

// prints waits for something in what a process prints.
func (s *stack) prints(p *process, pattern string) []string {
	s.Helper()
	want := regexp.MustCompile(pattern)
	var found []string
	s.until(patience, "dev prints "+pattern, func() (bool, string) {
		found = want.FindStringSubmatch(p.out.String())
		return found != nil, p.out.String()
	})
	return found
}

var tableRow = regexp.MustCompile(`(?m)^ +([a-z][a-z/ -]*?) +(\d+)$`)

// addsUp checks the table that a dev has printed, whose status was 0.
func (s *stack) addsUp(p *process, orders int) map[string]int {
	s.Helper()
	table := map[string]int{}
	for _, row := range tableRow.FindAllStringSubmatch(p.out.String(), -1) {
		table[row[1]], _ = strconv.Atoi(row[2])
	}
	sum := 0
	for _, fate := range []string{"started", "delivered", "duplicate", "conflict", "held", "filtered", "dropped", "dead-lettered"} {
		n, ok := table[fate]
		if !ok {
			s.Errorf("no row %q", fate)
		}
		sum += n
	}
	switch {
	case table["published"] < 4*orders || sum != table["published"]:
		s.Errorf("published %d, of which %d are accounted for", table["published"], sum)
	case table["started"] != orders || table["orders"] != orders || table["outcomes"] != orders:
		s.Errorf("%d orders: %v", orders, table)
	case table["done"]+table["failed"]+table["canceled"] != orders || table["by time-out"] != orders/20:
		s.Errorf("%d orders ended: %v", orders, table)
	}
	if s.Failed() {
		s.Log(p.out)
	}
	return table
}

// clean checks that nothing is left of a dev: no file in its temporary directory, no process that was told of it.
func (s *stack) clean(tmp string) {
	s.Helper()
	left, err := os.ReadDir(tmp)
	s.must(err)
	for _, f := range left {
		s.Errorf("%s is left", f.Name())
	}
	if runtime.GOOS != "linux" {
		return
	}
	s.until(patience, "all processes end", func() (bool, string) {
		files, err := filepath.Glob("/proc/[0-9]*/environ")
		s.must(err)
		for _, file := range files {
			env, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(env), "TMPDIR="+tmp) {
				cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
				return false, strings.ReplaceAll(string(cmd), "\x00", " ")
			}
		}
		return true, ""
	})
}

func TestDevTraffic(t *testing.T) {
	t.Parallel()
	s, tmp := newDev(t)
	p := s.dev(tmp, "--traffic", "300", "--exit")
	s.must(p.wait(5 * time.Minute))
	table := s.addsUp(p, 300)
	for _, fate := range []string{"duplicate", "conflict", "held", "filtered", "dead-lettered"} {
		if table[fate] == 0 {
			t.Errorf("nothing is %s", fate)
		}
	}
	if out := p.out.String(); strings.Contains(out, "level=") {
		t.Errorf("it logs, and all is well:\n%s", out)
	}
	s.clean(tmp)
}

func TestDevChaos(t *testing.T) {
	t.Parallel()
	s, tmp := newDev(t)
	p := s.dev(tmp, "--traffic", "300", "--exit", "--chaos")
	s.must(p.wait(5 * time.Minute))
	s.addsUp(p, 300)
	killed := map[string]int{}
	for _, kill := range regexp.MustCompile(`kill +\d+: (\w+) +up again`).FindAllStringSubmatch(p.out.String(), -1) {
		killed[kill[1]]++
	}
	for _, part := range []string{"bridge", "worker", "postgres", "nats"} {
		if killed[part] != 3 {
			t.Errorf("killed %v: want each of four parts three times", killed)
			break
		}
	}
	s.clean(tmp)
}

// TestDevOnOthersServers leaves alone what is not its own, and kills the rest.
func TestDevOnOthersServers(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	tmp := t.TempDir()
	p := s.dev(tmp, "--traffic", "40", "--exit", "--chaos", "--database-url", s.databaseURL, "--nats-url", s.natsURL)
	s.must(p.wait(5 * time.Minute))
	s.addsUp(p, 40)
	if out := p.out.String(); strings.Contains(out, "postgres  up again") || strings.Contains(out, "nats      up again") {
		t.Errorf("it killed what is not its own:\n%s", out)
	}
	if n := s.count(`select count(*) from pointsman.v_instances`); n != 40 {
		t.Errorf("%d instances are in the database that was named, want 40", n)
	}
}

// TestDevKeepsItsData: what one run stores, the next one has.
func TestDevKeepsItsData(t *testing.T) {
	t.Parallel()
	s, tmp := newDev(t)
	data := filepath.Join(tmp, "data")
	for range 2 {
		p := s.dev(tmp, "--data-dir", data, "--traffic", "20", "--exit")
		s.must(p.wait(patience))
		s.addsUp(p, 20)
	}
	p := s.dev(tmp, "--data-dir", data)
	url := s.prints(p, `psql '([^']+)'[^$]*Ctrl-C`)[1]
	db, err := pgx.Connect(t.Context(), url)
	s.must(err)
	var n int
	s.must(db.QueryRow(t.Context(), `select count(*) from pointsman.v_instances where status in ('done', 'failed')`).Scan(&n))
	s.must(db.Close(context.Background()))
	if n != 40 {
		t.Errorf("%d orders are there, want 40 of two runs", n)
	}
	s.must(p.interrupt(patience))
}

func (p *process) interrupt(within time.Duration) error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return p.wait(within)
}

// TestDevInterrupted: Ctrl-C ends it at any time, and leaves nothing behind.
func TestDevInterrupted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		at     string
		status int
	}{
		"while it starts":    {nil, `starting Postgres`, 0},
		"when it is up":      {nil, `Ctrl-C stops everything`, 0},
		"during the traffic": {[]string{"--traffic", "3000"}, `published \d+`, 0},
		"before the end":     {[]string{"--traffic", "3000", "--exit"}, `published \d+`, 1},
		"during the chaos":   {[]string{"--traffic", "3000", "--exit", "--chaos"}, `kill +3:`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, tmp := newDev(t)
			p := s.dev(tmp, test.args...)
			s.prints(p, test.at)
			began := time.Now()
			err := p.interrupt(patience)
			var exit *exec.ExitError
			status := 0
			if errors.As(err, &exit) {
				status = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if status != test.status {
				t.Errorf("status %d, want %d: %v", status, test.status, err)
			}
			t.Logf("ended after %s", time.Since(began))
			s.clean(tmp)
		})
	}
}

// TestDevAsNobody runs it as a user without a home, with an empty environment, from the root folder.
func TestDevAsNobody(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become nobody")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	s, _ := newDev(t)
	path, err := built("pointsman")
	s.must(err)
	uid, err := strconv.Atoi(nobody.Uid)
	s.must(err)
	gid, err := strconv.Atoi(nobody.Gid)
	s.must(err)
	cmd := &exec.Cmd{Path: path, Args: []string{"pointsman", "dev", "--traffic", "40", "--exit"}, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	p := s.launch(cmd)
	s.must(p.wait(patience))
	s.addsUp(p, 40)
}

func TestDevUsage(t *testing.T) {
	t.Parallel()
	s, tmp := newDev(t)
	for _, args := range [][]string{{"--exit"}, {"--chaos"}, {"--traffic", "-1"}, {"--traffic", "many"}, {"--traffic", "1", "--config", "own.yaml"}, {"more"}} {
		p := s.dev(tmp, args...)
		err := p.wait(patience)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("dev %v: %v, want status 2", args, err)
		}
	}
	s.clean(tmp)
}
