package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/config"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/subjects"
)

const guarded = `
migrate_on_start: true
http: {addr: "127.0.0.1:0"}
worker: {http_addr: "127.0.0.1:0", poll_interval: 50ms}
machines:
  - {name: order, start: begin}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: order}}
  - {name: paid, stream: ORDERS, subject: [orders.*.paid, orders.*.settled], correlation_key: "{{subject[1]}}", signal: paid}
  - {name: theirs, stream: OTHER, consumer: {existing: others}, correlation_key: "{{subject[1]}}", signal: noted}
`

// fort is a server on which each program has the rights that are printed for it, and no other.
type fort struct {
	*testing.T
	url, database string
	log           *lockedBuffer
}

func newFort(t *testing.T, change func(program string, publish []string) []string) *fort {
	t.Helper()
	dir := t.TempDir()
	rights, err := Permissions(parse(t, guarded), nil)
	if err != nil {
		t.Fatal(err)
	}
	conf := "listen: 127.0.0.1:-1\njetstream: {store_dir: \"" + dir + "\"}\nauthorization: {users: [\n  {user: admin, password: x}\n"
	for _, r := range rights {
		r.Publish = change(r.Program, r.Publish)
		conf += "  {user: " + r.Program + ", password: x, " + r.Conf() + "}\n"
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(conf+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := natsserver.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("%v in\n%s", err, conf)
	}
	opts.NoSigs = true
	ns, err := natsserver.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(30 * time.Second) {
		t.Fatal("not ready")
	}
	return &fort{T: t, url: ns.ClientURL(), database: pgtest.Database(t), log: &lockedBuffer{}}
}

func (f *fort) config(user string) *config.Config {
	return parse(f.T, guarded+"database: {url: \""+f.database+"\"}\nnats: {url: \""+f.url+"\", user: "+user+", password: x}\n")
}

func (f *fort) connect(user string) *nats.Conn {
	f.Helper()
	nc, err := nats.Connect(f.url, nats.UserInfo(user, "x"), nats.CustomInboxPrefix("_INBOX."+user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { f.log.add(user + ": " + err.Error()) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(nc.Close)
	return nc
}

func (f *fort) run(program func(ctx context.Context, log *slog.Logger) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	done := make(chan error, 1)
	go func() { done <- program(ctx, slog.New(slog.NewTextHandler(f.log, nil))) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})
}

// An order from its start to its outcome, and all that an operator asks, on exactly the rights that are printed.
func TestPermissionsSuffice(t *testing.T) {
	t.Parallel()
	f := newFort(t, func(_ string, publish []string) []string { return publish })
	js := f.streams()
	f.serve()
	asked := f.listen("cli")
	f.run(func(ctx context.Context, log *slog.Logger) error { return RunBridge(ctx, f.config("bridge"), log, nil) })
	f.run(func(ctx context.Context, log *slog.Logger) error {
		return RunWorker(ctx, f.config("worker"), log, nil, nil)
	})
	for _, m := range []struct{ subject, body string }{{"orders.7.placed", "{}"}, {"orders.7.paid", "{}"}, {"orders.8.paid", "not JSON"}, {"other.7", "{}"}} {
		f.publish(js, m.subject, m.body)
	}
	conn := f.connect("cli")
	own, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"orders.9.placed", "orders.9.paid", "orders.9.settled", "pointsman.signal.noted"} {
		f.publish(own, subject, "{}")
	}
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	client := &natsapi.Client{Conn: conn, Subjects: space}
	f.eventually("done", func() bool {
		var in api.Instance
		return f.ask(client, natsapi.VerbGet, api.GetRequest{Ref: "key:7", Wait: "5s"}, &in) == nil && in.Status == "done"
	})
	f.eventually("its outcome", func() bool {
		s, err := js.Stream(t.Context(), space.OutcomesStream())
		if err == nil {
			_, err = s.GetLastMsgForSubject(t.Context(), space.Outcome("default", "order", "done"))
		}
		return err == nil
	})
	var letters api.Page[api.DeadLetter]
	f.eventually("dead letters", func() bool {
		return f.ask(client, natsapi.VerbDeadLetters, api.DeadLettersRequest{}, &letters) == nil && len(letters.Items) >= 2
	})
	audit := func(route string) {
		f.eventually("audit of "+route, func() bool {
			a, err := Audit(t.Context(), f.config("cli"), conn, bridge.AuditRequest{Route: route})
			if err != nil || !a.OK() {
				t.Fatalf("audit of %s: %+v, %v", route, a, err)
			}
			return a.Messages > 0 && a.Pending == 0
		})
	}
	for _, route := range []string{"placed", "paid", "theirs", subjects.SignalsRoute} {
		audit(route)
	}
	for _, r := range []struct {
		verb    string
		request any
	}{
		{natsapi.VerbMessage, api.MessageRequest{Stream: "ORDERS", Seq: 3}},
		{natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: letters.Items[0].Seq}},
		{natsapi.VerbReplay, api.LettersChoice{All: true}},
		{natsapi.VerbDrop, api.LettersChoice{Seq: letters.Items[0].Seq}},
		{natsapi.VerbRoutes, api.RoutesRequest{}},
		{natsapi.VerbRoutesRewind, api.RewindRequest{Name: "paid", ToSeq: 1, DryRun: true}},
		{natsapi.VerbRoutesRewind, api.RewindRequest{Name: "paid", ToSeq: 1}},
	} {
		if err := f.ask(client, r.verb, r.request, nil); err != nil {
			t.Errorf("%s: %v", r.verb, err)
		}
	}
	err = WithOperator(t.Context(), f.config("cli"), conn, func(o *bridge.Operator, space subjects.Space) error {
		changes, err := o.Plan(t.Context(), space)
		if len(changes) > 0 {
			t.Errorf("%+v", changes)
		}
		for _, route := range []string{"placed", "paid", subjects.SignalsRoute} {
			err = errors.Join(err, o.Apply(t.Context(), bridge.Change{Route: route, Action: bridge.ActionRemake}))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := f.ask(client, natsapi.VerbDeadLetters, api.DeadLettersRequest{}, &letters); err != nil || len(letters.Items) == 0 {
		t.Errorf("dead letters after one is dropped: %+v, %v", letters, err)
	}
	audit("paid") // which has lost a dead letter
	// What the command line may, it needs.
	rights, err := Permissions(parse(t, guarded), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range rights[2].Publish {
		f.eventually("the command line uses "+right, func() bool { return asked(right) })
	}
	// The only one: nobody may ask for a consumer made by others.
	for line := range strings.SplitSeq(f.log.String(), "\n") {
		if strings.Contains(strings.ToLower(line), "permissions violation") && !strings.Contains(line, "$JS.API.CONSUMER.INFO.OTHER.others") {
			t.Error(line)
		}
	}
}

// listen to what a user asks of the server, of programs and of streams, and tell whether anything was under a subject.
func (f *fort) listen(user string) (asked func(pattern string) bool) {
	f.Helper()
	var mu sync.Mutex
	heard := map[string]bool{}
	admin := f.connect("admin")
	_, err := admin.Subscribe(">", func(m *nats.Msg) {
		if strings.HasPrefix(m.Reply, "_INBOX."+user+".") {
			mu.Lock()
			defer mu.Unlock()
			heard[m.Subject] = true
		}
	})
	if err := errors.Join(err, admin.Flush()); err != nil { // what is asked from now on is heard
		f.Fatal(err)
	}
	return func(pattern string) bool {
		mu.Lock()
		defer mu.Unlock()
		for subject := range heard {
			if subjects.Match(pattern, subject) {
				return true
			}
		}
		return false
	}
}

// What is not allowed is named in the log of the program that wants it.
func TestPermissionThatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFort(t, func(program string, publish []string) []string {
		return slices.DeleteFunc(publish, func(s string) bool {
			return s == "$JS.API.CONSUMER.CREATE.ORDERS.>" || program == "cli" && s == "$JS.API.STREAM.LIST"
		})
	})
	f.streams()
	f.run(func(ctx context.Context, log *slog.Logger) error { return RunBridge(ctx, f.config("bridge"), log, nil) })
	f.eventually("named", func() bool {
		log := f.log.String()
		return strings.Contains(strings.ToLower(log), "permissions violation") && strings.Contains(log, "$JS.API.CONSUMER.CREATE.ORDERS.pointsman-placed")
	})
	err := WithOperator(t.Context(), f.config("cli"), f.connect("cli"), func(o *bridge.Operator, space subjects.Space) error {
		_, err := o.Plan(t.Context(), space)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "$JS.API.STREAM.LIST") {
		t.Errorf("the plan says %v", err)
	}
}

func (f *fort) streams() jetstream.JetStream {
	f.Helper()
	js, err := jetstream.New(f.connect("admin"))
	if err != nil {
		f.Fatal(err)
	}
	for name, filter := range map[string]string{"ORDERS": "orders.>", "OTHER": "other.>"} {
		if _, err := js.CreateStream(f.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{filter}}); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := js.CreateConsumer(f.Context(), "OTHER", jetstream.ConsumerConfig{Durable: "others", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		f.Fatal(err)
	}
	return js
}

// serve the machine's steps.
func (f *fort) serve() {
	f.Helper()
	_, err := f.connect("admin").Subscribe("pointsman.step.order.*", func(m *nats.Msg) {
		answer := `{"outcome": "done", "result": {}}`
		if strings.HasSuffix(m.Subject, ".begin") {
			answer = `{"outcome": "await", "signals": ["paid"], "step": "end"}`
		}
		_ = m.Respond([]byte(answer))
	})
	if err != nil {
		f.Fatal(err)
	}
}

// publish when the stream is there.
func (f *fort) publish(js jetstream.JetStream, subject, body string) {
	f.Helper()
	f.eventually("published to "+subject, func() bool {
		_, err := js.Publish(f.Context(), subject, []byte(body))
		return err == nil
	})
}

func (f *fort) ask(client *natsapi.Client, verb string, request, response any) error {
	ctx, cancel := context.WithTimeout(f.Context(), 30*time.Second)
	defer cancel()
	if response == nil {
		response = &json.RawMessage{}
	}
	return client.Do(ctx, verb, request, response)
}

func (f *fort) eventually(what string, so func() bool) {
	f.Helper()
	for deadline := time.Now().Add(60 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("never: %s; log:\n%s", what, f.log)
		}
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) add(line string) { _, _ = b.Write([]byte(line + "\n")) }

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
