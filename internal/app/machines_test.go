package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/subjects"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("pointsman.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// What is wrong with a machine in another way than its fields can say is told with its place.
func TestMachineOfTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg := parse(t, "machines:\n  - {name: ok, start: begin}\n  - {name: order, start: a..b}\n")
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	_, err = remoteMachines(&parts{nc: natstest.Start(t).Conn(t), space: space}, cfg, quiet)
	if err == nil || !strings.HasPrefix(err.Error(), "pointsman.yaml:3:") {
		t.Errorf("error %v", err)
	}
}

// A worker that has steps to ask for is not ready while NATS is away.
func TestWorkerIsReadyWithNATS(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	cfg := parse(t, "migrate_on_start: true\nmachines:\n  - {name: order, start: begin}\nworker: {http_addr: \"127.0.0.1:0\"}\n"+
		"database: {url: \""+pgtest.Database(t)+"\"}\nnats: {url: \""+server.URL+"\"}\n")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- RunWorker(ctx, cfg, quiet, nil, func(a string) { addr <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	url := "http://" + <-addr + "/readyz"
	eventually(t, url, "ready")
	server.Down(t)
	eventually(t, url, "nats: RECONNECTING")
	server.Up(t)
	eventually(t, url, "ready")
}

// eventually polls an address for an answer.
func eventually(t *testing.T, url, want string) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		body := ""
		if resp, err := http.Get(url); err == nil {
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			body = strings.TrimSpace(string(b))
		}
		if strings.HasPrefix(body, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s says %q, want %q", url, body, want)
		}
	}
}

// A flow keeps the text that it was first registered with, and says where another one stands; its queue may change.
func TestFlowOfAnotherText(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client, err := engine.NewClient(db.Pool, engine.Config{Schema: db.Schema, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	const flow = "flows:\n  - name: f\n    version: VERSION\n    queue: QUEUE\n    steps:\n      - {ref: a, type: sleep, sleep_duration: LONG}\n"
	for _, c := range []struct{ version, queue, long, err string }{
		{"1", "default", "1h", ""},
		{"1", "other", "1h", ""},
		{"1", "default", "2h", "pointsman.yaml:3:14: flows[0].version: flow f version 1 was registered with another text"},
		{"2", "default", "2h", ""},
		{"1", "default", "1h", ""},
	} {
		cfg := parse(t, strings.NewReplacer("VERSION", c.version, "QUEUE", c.queue, "LONG", c.long).Replace(flow))
		machines, err := flowMachines(t.Context(), &parts{client: client}, cfg, quiet)
		if c.err == "" && (err != nil || len(machines) != 2) || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What flows call is for the worker, what they publish for the bridge.
func TestRightsOfFlows(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
flows:
  - name: f
    steps:
      - {ref: a, type: call, subject: "a.{{payload.b}}.c-{{payload.d}}"}
      - {ref: b, type: publish, subject: mails.out}
      - {ref: c, type: publish, subject: "{{payload.to}}"}
`)
	all, err := Permissions(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int][]string{0: {"mails.out"}, 1: {"a.*.*"}} {
		for _, subject := range want {
			if !slices.Contains(all[i].Publish, subject) {
				t.Errorf("%s may not publish to %s: %v", all[i].Program, subject, all[i].Publish)
			}
		}
	}
}
