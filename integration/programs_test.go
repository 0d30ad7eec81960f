package integration

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// run runs a program to its end and returns its exit status and what it printed.
func (s *stack) run(program string, args ...string) (status int, printed string) {
	s.Helper()
	p := s.start(program, program, args...)
	err := p.wait(patience)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), p.out.String()
	case err != nil:
		s.Fatal(err)
	}
	return 0, p.out.String()
}

func (s *stack) file(name, text string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	s.must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// away is a database that cannot be reached.
const away = "postgres://postgres@127.0.0.1:1/none?connect_timeout=1"

var listening = regexp.MustCompile(`msg=listening addr=(\S+)`)

// address is where the program answers health and metrics.
func (p *process) address(s *stack) string {
	s.Helper()
	var addr string
	s.until(patience, p.name+" listens", func() (bool, string) {
		m := listening.FindStringSubmatch(p.out.String())
		if m == nil {
			return false, p.out.String()
		}
		addr = m[1]
		return true, ""
	})
	return addr
}

func (s *stack) get(url string) (status int, body string) {
	s.Helper()
	resp, err := http.Get(url)
	s.must(err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp.StatusCode, string(text)
}

func (s *stack) ready(addr string, want int, says string) {
	s.Helper()
	s.until(patience, addr+" answers as expected", func() (bool, string) {
		status, body := s.get("http://" + addr + "/readyz")
		return status == want && strings.Contains(body, says), body
	})
}

func TestWrongConfigurationIsAllSaidAtOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	file := s.file("wrong.yaml", `nats: {url: 7}
routes:
  - name: pay.ments
    stream: PAYMENTS
    subject: payments.*.confirmed
    signal: "{{payload."
    correlation_key: "order-{{subject[1]}}"
    on_missing: wait
  - {name: items, stream: ORDERS, subject: "orders.*", signal: item, correlation_key: k, batch: {size: many}, retries: 3}
`)
	s.databaseURL, s.natsURL = away, "nats://127.0.0.1:1" // for which a program with a right configuration waits
	for _, program := range []string{"bridge", "worker"} {
		status, printed := s.run(program, "--config", file)
		if status != 2 {
			t.Errorf("%s: exit status %d, want 2:\n%s", program, status, printed)
		}
		for _, want := range []string{"wrong.yaml:3:", "wrong.yaml:6:", "wrong.yaml:8:", "wrong.yaml:9:", "size", "retries"} {
			if !strings.Contains(printed, want) {
				t.Errorf("%s does not say %q:\n%s", program, want, printed)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, call := range [][]string{
		{"bridge", "--no-such-flag"},
		{"worker", "surplus"},
		{"bridge", "--config", "absent.yaml"},
		{"worker", "--log-level", "loud"},
		{"pointsman", "no-such-command"},
		{"pointsman", "publish", "only-a-subject"},
		{"bridge", "--config", s.file("open.yaml", `http: {addr: "0.0.0.0:0"}`)},
	} {
		p := s.start(call[0], call[0], call[1:]...)
		if call[len(call)-1] == filepath.Join(s.dir, "open.yaml") {
			p.kill() // the environment of the stack binds loopback; below without it
			cmd := exec.Command(p.cmd.Path, call[1:]...)
			cmd.Env = []string{"POINTSMAN_DATABASE_URL=" + s.databaseURL, "POINTSMAN_NATS_URL=" + s.natsURL}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "http.addr") {
				t.Errorf("an open address without a token: %v\n%s", err, out)
			}
			continue
		}
		err := p.wait(patience)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || p.out.String() == "" {
			t.Errorf("%v: %v, want exit status 2 and a word", call, err)
		}
	}
	for _, program := range []string{"bridge", "worker", "pointsman"} {
		if status, printed := s.run(program, "--help"); status != 0 || !strings.Contains(printed, "--config") {
			t.Errorf("%s --help: %d\n%s", program, status, printed)
		}
		if status, printed := s.run(program, "--version"); status != 0 || printed == "" {
			t.Errorf("%s --version: %d\n%s", program, status, printed)
		}
	}
}

func TestOldSchemaIsRefusedUnlessToldToMigrate(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	_, err := s.db.Exec(s.Context(), `drop schema pointsman cascade`)
	s.must(err)
	for _, program := range []string{"bridge", "worker"} {
		if status, printed := s.run(program); status != 1 || !strings.Contains(printed, "pointsman migrate up") {
			t.Errorf("%s on an empty database: exit status %d\n%s", program, status, printed)
		}
	}
	bridge := s.start("bridge", "bridge", "--config", s.file("migrate.yaml", "migrate_on_start: true\n"))
	s.ready(bridge.address(s), http.StatusOK, "ready")
	if status, printed := s.run("pointsman", "migrate", "status"); status != 0 || !strings.Contains(printed, "up to date") {
		t.Errorf("migrate status: %d %s", status, printed)
	}
	s.must(bridge.stop(patience))
}

// TestAwayServersAreWaitedFor: neither a Postgres nor a NATS that is not there yet is an exit, and readyz says which it is.
func TestAwayServersAreWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	database, server := s.databaseURL, s.natsURL
	s.databaseURL = away
	bridge, worker := s.start("bridge", "bridge"), s.start("worker", "worker")
	s.ready(bridge.address(s), http.StatusServiceUnavailable, "database")
	s.ready(worker.address(s), http.StatusServiceUnavailable, "database")
	s.must(bridge.stop(patience))
	s.must(worker.stop(patience))

	s.databaseURL, s.natsURL = database, "nats://127.0.0.1:1"
	bridge, worker = s.start("bridge without nats", "bridge"), s.start("worker without nats", "worker")
	s.ready(bridge.address(s), http.StatusServiceUnavailable, "nats")
	s.ready(worker.address(s), http.StatusOK, "ready") // it needs no NATS but for pokes
	s.must(bridge.stop(patience))
	s.must(worker.stop(patience))
	s.natsURL = server
}

func TestBuiltInSignalsRoute(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.must(createStreams(s))
	worker := s.start("orders worker", ordersWorker)
	config, err := filepath.Abs("../examples/orders/pointsman.yaml")
	s.must(err)
	bridge := s.start("bridge", "bridge", "--config", config)
	addr := bridge.address(s)
	s.ready(addr, http.StatusOK, "ready")
	_, err = s.js.Publish(s.Context(), "orders.7.placed", []byte(`{"amount": 5, "items": 0}`))
	s.must(err)
	s.until(patience, "the order waits", func() (bool, string) {
		return s.count(`select count(*) from pointsman.v_instances where status = 'awaiting_signal'`) == 1, ""
	})
	_, err = s.js.PublishMsg(s.Context(), &nats.Msg{
		Subject: "pointsman.signal.payment", Data: []byte(`{"amount": 5}`),
		Header: nats.Header{"Pointsman-Correlation-Key": {"order-7"}, "Nats-Msg-Id": {"p1"}},
	})
	s.must(err)
	s.until(patience, "the order ends", func() (bool, string) {
		return s.count(`select count(*) from pointsman.v_instances where status = 'done' and correlation_key = 'order-7'`) == 1, ""
	})
	_, metrics := s.get("http://" + addr + "/metrics")
	for _, want := range []string{`pointsman_bridge_messages_total{result="started",route="placed"} 1`, `pointsman_bridge_messages_total{result="delivered",route="signals"} 1`, "pointsman_build_info"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	s.must(bridge.stop(patience))
	s.must(worker.stop(patience))
}

func createStreams(s *stack) error {
	for name, subjects := range map[string][]string{ordersStream: {"orders.>"}, paymentsStream: {"payments.>"}} {
		if _, err := s.js.CreateStream(s.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects}); err != nil {
			return err
		}
	}
	return nil
}
