package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// fileBridge is a bridge of a file.
type fileBridge struct {
	*testing.T
	file, head, addr string
	log              lockedLog
	database         string
	js               jetstream.JetStream
}

// write the file as editors do: another one, and a rename.
func (b *fileBridge) write(routes string) {
	b.Helper()
	err := os.WriteFile(b.file+"~", []byte(b.head+routes), 0o600)
	if err == nil {
		err = os.Rename(b.file+"~", b.file)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func runFile(t *testing.T, routes string) *fileBridge {
	t.Helper()
	server := natstest.Start(t)
	server.Stream(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	b := &fileBridge{T: t, file: filepath.Join(t.TempDir(), "pointsman.yaml"), database: pgtest.Database(t), js: server.JetStream(t)}
	b.head = "migrate_on_start: true\nhttp: {addr: \"127.0.0.1:0\"}\ndatabase: {url: \"" + b.database + "\"}\nnats: {url: \"" + server.URL + "\"}\n"
	b.write(routes)
	cfg, err := config.Load(b.file, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- RunBridge(ctx, cfg, slog.New(slog.NewTextHandler(&b.log, nil)), func(a string) { addr <- a })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("bridge: %v", err)
		}
	})
	b.addr = <-addr
	eventually(t, "http://"+b.addr+"/readyz", "ready")
	return b
}

// logged waits for a line, and returns it.
func (b *fileBridge) logged(part string) string {
	b.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for line := range strings.Lines(b.log.String()) {
			if strings.Contains(line, part) {
				return line
			}
		}
	}
	b.Fatalf("never logged: %s\n%s", part, b.log.String())
	return ""
}

func (b *fileBridge) metric(want string) {
	b.Helper()
	resp, err := http.Get("http://" + b.addr + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), want) {
		b.Errorf("metrics have no %s", want)
	}
}

func startRoute(name string) string {
	return fmt.Sprintf("  - {name: %s, stream: ORDERS, subject: orders.%s, start: {machine: %s}}\n", name, name, name)
}

type lockedLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestReloadOfTheFile(t *testing.T) {
	t.Parallel()
	b := runFile(t, "routes:\n"+startRoute("first"))
	if _, err := b.js.Publish(t.Context(), "orders.second", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}

	// A bad file changes nothing, and says all that is wrong with it on one line.
	b.write("routes:\n  - {name: first, stream: ORDERS, subject: orders.first, signal: s}\n  - {name: b.c, stream: ORDERS, subject: a, signal: s, correlation_key: k}\n")
	line := b.logged("configuration not reloaded")
	for _, want := range []string{"level=ERROR", b.file + ":6:", b.file + ":7:", "correlation_key", "name"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	// Neither does one whose fields do not go together.
	b.write("routes:\n" + startRoute("first") + "  - {name: e, stream: ORDERS, subject: a, event: e, signal: s}\n")
	if line := b.logged("routes[1].event"); !strings.Contains(line, b.file+":7:") {
		t.Errorf("no place in %s", line)
	}
	eventually(t, "http://"+b.addr+"/readyz", "ready")
	b.metric(`pointsman_config_reloads_total{result="error"} 2`)
	b.metric(`pointsman_config_reloads_total{result="ok"} 0`)
	if n := instances(t, b.database, "second"); n != 0 {
		t.Errorf("%d instances of a route that is not there", n)
	}

	b.write("retention: {dedup: 1h}\nroutes:\n" + startRoute("first") + startRoute("second"))
	if line := b.logged("configuration reloaded"); !strings.Contains(line, "added=[second] changed=[] removed=[]") {
		t.Error(line)
	}
	if line := b.logged("takes effect at the next start"); !strings.Contains(line, "sections=[retention]") {
		t.Error(line)
	}
	untilAcked(t, b.js, "second")
	if n := instances(t, b.database, "second"); n != 1 {
		t.Errorf("%d instances, want 1", n)
	}
	b.metric(`pointsman_config_reloads_total{result="ok"} 1`)
}
