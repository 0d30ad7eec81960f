package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

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
