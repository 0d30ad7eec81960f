package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pointsman/pointsman/internal/expr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

var noEnvironment = environment(nil)

// Every file of testdata/broken and testdata/flows is wrong, and the .txt beside it has what is said about it, line by line.
func TestBroken(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"broken", "flows"} {
		files, err := filepath.Glob("testdata/" + dir + "/*.yaml")
		if err != nil || len(files) < 40 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		broken(t, files)
	}
}

func broken(t *testing.T, files []string) {
	t.Helper()
	env := environment(map[string]string{"BAD_ADDR": "nowhere"})
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(filepath.Base(file), data, env)
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Errorf("%s: got %v, want Errors", file, err)
			continue
		}
		golden := strings.TrimSuffix(file, ".yaml") + ".txt"
		got := err.Error() + "\n"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%swant\n%s", file, got, want)
		}
	}
}

func parse(t *testing.T, text string, env func(string) (string, bool)) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The sample of the contract, word by word.
func TestContractSample(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/contract.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, string(data), environment(map[string]string{"POINTSMAN_DATABASE_URL": "postgres://a@b/c"}))

	want := Default()
	want.Database.URL = "postgres://a@b/c"
	want.Machines = []Machine{{
		Name: "order", Version: 1, Start: "begin", Remote: Remote{30 * time.Second}, Queue: "default",
		Retry: Retry{MaxAttempts: 5, Initial: time.Second, Max: 5 * time.Minute, Factor: 2},
	}}
	route := c.Routes[0]
	want.Routes = []Route{{
		Name: "payments", Project: "default", Stream: "PAYMENTS", Subjects: []string{"payments.*.confirmed"}, Format: FormatJSON,
		OnMissing: Hold, HoldFor: time.Hour, OnTerminal: Reject, MaxDeliver: 10, MaxBody: 1 << 20, Batch: Batch{500, 5 * time.Millisecond},
		When: route.When, Signal: route.Signal, CorrelationKeys: route.CorrelationKeys, DedupKey: route.DedupKey, Payload: route.Payload,
		Start: &RouteStart{Machine: "order", State: route.Start.State, Queue: "default"},
	}}
	want.file, want.where = c.file, c.where
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
	for _, e := range []struct {
		got  interface{ Source() string }
		want string
	}{
		{route.When, "payload.amount > 0"},
		{route.Signal, "payment_confirmed"},
		{route.CorrelationKeys[0], "order-{{subject[1]}}"},
		{route.DedupKey, "{{headers['Nats-Msg-Id']}}"},
		{route.Payload, "{{payload}}"},
		{route.Start.State, "{{payload}}"},
	} {
		if e.got.Source() != e.want {
			t.Errorf("got %q, want %q", e.got.Source(), e.want)
		}
	}
}

func TestEverythingSet(t *testing.T) {
	t.Parallel()
	c := parse(t, everything, environment(map[string]string{"DB": "db", "PW": "p: w", "EMPTY": ""}))
	state, err := expr.Compile("{{payload.state}}")
	if err != nil {
		t.Fatal(err)
	}
	routes, flows := c.Routes, c.Flows
	c.Routes, c.Flows, c.file, c.where = nil, nil, "", nil
	want := &Config{
		Project:  "acme",
		Database: Database{URL: "postgres://db/x", MaxConns: 4, Schema: "pm_1", Pooler: PoolerTransaction},
		NATS: NATS{
			URL: "nats://a:4222, tls://b", User: "u", Password: "p: w", TLS: TLS{"ca", "cert", "key"}, Domain: "hub", SubjectPrefix: "acme.pm", Replicas: 3,
		},
		HTTP:     HTTP{Addr: "0.0.0.0:80", MaxBody: 2 << 20, ShutdownTimeout: time.Second, AdminToken: "0123"},
		Outcomes: Outcomes{Publish: []string{}},
		Machines: []Machine{{
			Name: "m", Version: 2, Start: "a.b", Remote: Remote{time.Minute}, Queue: "q",
			Retry: Retry{MaxAttempts: 1, Initial: 0, Max: 0, Factor: 1.5},
		}},
		Worker: Worker{
			HTTPAddr: "[::1]:0", Queues: map[string]int{"a": 1, "b:c": 2}, Lease: 10 * time.Second, Heartbeat: 5 * time.Second,
			ReapInterval: 500 * time.Millisecond, PollInterval: 2 * time.Second, ShutdownTimeout: time.Minute,
		},
		Retention:      Retention{time.Millisecond, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour},
		Quotas:         Quotas{10},
		Webhooks:       Webhooks{Secrets: []string{"${literal}", "b", "c"}, AllowPrivate: true, Timeout: 3 * time.Second},
		MigrateOnStart: true,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
	if len(flows) != 1 || flows[0].Name != "db" || flows[0].Version != 3 || flows[0].Hash == "" || len(flows[0].Steps) != 1 || flows[0].Steps[0].Ref != "a" {
		t.Errorf("flows: %+v", flows)
	}
	if len(routes) != 5 {
		t.Fatalf("%d routes", len(routes))
	}
	started := routes[1]
	if started.OnMissing != Start || started.Start.State.Source() != state.Source() || started.Start.ReplyTo.Source() != "reply.{{payload.id}}" ||
		started.Start.Version != 3 || started.Start.Queue != "q" || started.CorrelationKeys != nil || started.Project != "other" {
		t.Errorf("a route that starts: %+v", started)
	}
	if event := routes[2]; event.OnMissing != Drop || event.Event.Source() != "e-{{payload.id}}" || event.Project != "acme" || event.Signal != nil {
		t.Errorf("a route to an event: %+v", event)
	}
	if existing := routes[3]; existing.Consumer != "theirs" || existing.Subjects != nil || len(existing.CorrelationKeys) != 2 || existing.OnTerminal != Start {
		t.Errorf("a route with another's consumer: %+v", existing)
	}
	if merged := routes[4]; merged.Name != "merged" || merged.Stream != "S" || merged.MaxDeliver != 3 || merged.Batch.Size != 7 {
		t.Errorf("a route from an anchor: %+v", merged)
	}
}

const everything = `# every field, in every spelling
project: acme
database: {url: "postgres://${DB}/x", max_conns: "4", schema: pm_1, pooler: transaction}
nats:
  url: nats://a:4222, tls://b
  creds: ${EMPTY}
  user: u
  password: ${PW}
  tls: {ca: ca, cert: cert, key: key}
  domain: hub
  subject_prefix: acme.pm
  manage_streams: false
  replicas: 3
http: {addr: "${NONE:-0.0.0.0:80}", max_body: 2 MiB, shutdown_timeout: 1s, admin_token: 0123}
routes:
  - &first
    name: list
    stream: S
    subject: [a.*, b.>]
    signal: "{{headers['Name']}}"
    correlation_key: "{{payload.keys}}"
    max_deliver: 3
    ordered: true
    paused: true
    format: bytes
    batch: {size: 7, wait: 1s}
  - name: started
    project: other
    stream: S
    subject: c
    start: {machine: m, version: 3, state: "{{payload.state}}", queue: q, reply_to: "reply.{{payload.id}}"}
  - name: event
    stream: S
    subject: d
    event: e-{{payload.id}}
    on_missing: drop
  - name: existing
    stream: S
    consumer: {existing: theirs}
    signal: s
    correlation_key:
      - a
      - >-
        b-{{payload.id}}
    on_terminal: start
    start: {machine: m}
  - <<: *first
    name: merged
signals_route: false
outcomes: {publish: []}
machines:
  - {name: m, version: 2, start: a.b, remote: {timeout: 1m}, queue: q, retry: {max_attempts: 1, initial: 0s, max: 0s, factor: 1.5}}
flows:
  - name: ${DB}
    version: 3
    steps: [{ref: a, type: sleep, sleep_duration: 1s}]
worker:
  http_addr: "[::1]:0"
  queues: {a: 1, "b:c": 2}
  lease: 10s
  heartbeat: 5s
  reap_interval: 500ms
  poll_interval: 2s
  shutdown_timeout: 1m
retention: {instances: 1ms, triggers: 1h, dedup: 2h, webhooks: 3h, jobs: 4h}
quotas: {max_active_triggers: 10}
webhooks: {secret: ["$${literal}", "b, c"], allow_private: true, timeout: 3s}
migrate_on_start: true
`

func TestEmptyIsDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "---\n", "project:\nnats:\nroutes:\nhttp: {addr: }\nworker: {queues: }\nflows: []\n", "database: {url: \"${POINTSMAN_DATABASE_URL}\"}\nhttp: {addr: \"${POINTSMAN_HTTP_ADDR}\"}\n"} {
		c := parse(t, text, noEnvironment)
		c.file, c.where = "", nil
		if !reflect.DeepEqual(c, Default()) {
			t.Errorf("%q: got %+v", text, c)
		}
	}
}

func TestApplyEnv(t *testing.T) {
	t.Parallel()
	c := parse(t, "nats: {token: t}\n", noEnvironment)
	err := c.ApplyEnv(environment(map[string]string{
		"POINTSMAN_DATABASE_URL": "postgres://h/d", "POINTSMAN_NATS_URL": "nats://n", "POINTSMAN_NATS_CREDS": "/c", "POINTSMAN_HTTP_ADDR": ":1",
		"POINTSMAN_WORKER_HTTP_ADDR": ":2", "POINTSMAN_ADMIN_TOKEN": "secret",
	}))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Database.URL, c.NATS.URL, c.NATS.Creds, c.NATS.Token, c.HTTP.Addr, c.Worker.HTTPAddr, c.HTTP.AdminToken}
	if want := []string{"postgres://h/d", "nats://n", "/c", "", ":1", ":2", "secret"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}

	c = Default()
	err = c.ApplyEnv(environment(map[string]string{"POINTSMAN_HTTP_ADDR": "8080", "POINTSMAN_NATS_URL": "ftp://x", "POINTSMAN_DATABASE_URL": ""}))
	want := `environment: POINTSMAN_NATS_URL: has a server with the scheme "ftp": want nats, tls, ws or wss
environment: POINTSMAN_HTTP_ADDR: "8080" is no address: want host:port, as 127.0.0.1:8080`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if !reflect.DeepEqual(c, Default()) {
		t.Errorf("changed to %+v", c)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pointsman.yaml")
	if _, err := Load(file, noEnvironment); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(file, []byte("http: {addr: \":1\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, environment(map[string]string{"POINTSMAN_HTTP_ADDR": ":2"}))
	if err != nil || c.HTTP.Addr != ":2" {
		t.Errorf("got %+v, %v", c, err)
	}
	if err := os.WriteFile(file, []byte("http: {addr: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file, noEnvironment); err == nil || !strings.HasPrefix(err.Error(), file+":1:14: http.addr: ") {
		t.Errorf("got %v", err)
	}
}

func TestCheckBind(t *testing.T) {
	t.Parallel()
	for addr, loopback := range map[string]bool{
		"127.0.0.1:8080": true, "127.1.2.3:0": true, "[::1]:80": true, "localhost:80": true,
		":8080": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false, "example.com:80": false, "localhost.example.com:80": false,
	} {
		c := parse(t, "http:\n  addr: \""+addr+"\"\n", noEnvironment)
		err := c.CheckBind(false)
		if (err == nil) != loopback {
			t.Errorf("%s: %v", addr, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "test.yaml:2:9: http.addr: ") {
			t.Errorf("%s: %v", addr, err)
		}
		if err := c.CheckBind(true); err != nil {
			t.Errorf("%s with a key: %v", addr, err)
		}
		c.HTTP.AdminToken = "t"
		if err := c.CheckBind(false); err != nil {
			t.Errorf("%s with a token: %v", addr, err)
		}
	}
}

func TestCheckDatabase(t *testing.T) {
	t.Parallel()
	c := Default()
	if err := c.CheckDatabase(); err == nil || err.Error() != "configuration: database.url: is empty: set it, or POINTSMAN_DATABASE_URL" {
		t.Errorf("got %v", err)
	}
	c.Database.URL = "host=/run"
	if err := c.CheckDatabase(); err != nil {
		t.Error(err)
	}
}

func TestErrorfFindsThePlace(t *testing.T) {
	t.Parallel()
	c := parse(t, "flows:\n  - name: a\n    steps: [{ref: a, type: sleep, sleep_duration: 1s}]\nwebhooks:\n  secret: x\n", noEnvironment)
	for field, want := range map[string]string{
		"webhooks.secret":    "test.yaml:5:11: webhooks.secret: is wrong",
		"flows[0].steps[1].": "test.yaml:3:12: flows[0].steps[1].: is wrong",
		"retention.dedup":    "test.yaml: retention.dedup: is wrong",
	} {
		if got := c.Errorf(field, "is %s", "wrong").Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{
		"0": 0, "1": 1, "10B": 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "1 MiB": 1 << 20, "2MB": 2e6, "3KB": 3e3, "1GiB": 1 << 30,
		"": -1, "MiB": -1, "-1": -1, "1.5MiB": -1, "1mib": -1, "1KiBKiB": -1, "9999999999999999999": -1, "99999GiB": -1, "0x10": -1,
	} {
		if got, ok := parseSize(s); ok != (want >= 0) || ok && got != want {
			t.Errorf("parseSize(%q) = %d, %v", s, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/contract.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{everything, "a: &a [*a]", "<<: &a {<<: *a}", "? [a]\n: b", "- - -", "routes: [&a {name: x}, *a]", "project: !!str 5", "project: |\n  a\n", "nats: {url: 'x''y'}", "\"", "%YAML", "&", "*"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f.yaml", data, noEnvironment)
		if err == nil {
			if c == nil || c.Project == "" || len(c.Worker.Queues) == 0 {
				t.Fatalf("%+v", c)
			}
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("%T", err)
		}
		lines := strings.Split(string(data), "\n")
		for _, e := range errs {
			if e.Line == 0 && e.Column == 0 {
				continue
			}
			if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > utf8.RuneCountInString(lines[e.Line-1])+1 {
				t.Fatalf("%q: %v", data, e)
			}
		}
	})
}
