package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
	"github.com/pointsman/pointsman/subjects"
)

// policy is what a route does where its instance is not there, or has ended.
type policy struct {
	missing  engine.OnMissing
	terminal engine.OnTerminal
}

func policies() (all []policy) {
	for _, m := range []engine.OnMissing{engine.MissingHold, engine.MissingStart, engine.MissingReject, engine.MissingDrop} {
		for _, t := range []engine.OnTerminal{engine.TerminalReject, engine.TerminalDrop, engine.TerminalStart} {
			all = append(all, policy{m, t})
		}
	}
	return all
}

// met is what a message finds under its key. Held is nobody, for whom another message is held.
var met = []string{"missing", "awaiting", "executing", "runnable", "done", "failed", "canceled", "held"}

// fates is what becomes of three messages: a new one, the same again, and another with its dedup key.
type fates struct {
	results     string // of the three
	inbox, held int    // signals there in the end
	reason      string // of the dead letters that no_target is; a conflict has its own
}

// fatesOf says what the contract does of a policy and what its messages meet.
func fatesOf(p policy, target string) fates {
	taken := func(result string, inbox, held int) fates {
		return fates{results: result + " duplicate conflict", inbox: inbox, held: held}
	}
	ofNobody := map[engine.OnMissing]fates{
		engine.MissingHold:   taken("held", 0, 1),
		engine.MissingStart:  taken("started", 1, 0),
		engine.MissingReject: {results: "no_target no_target no_target", reason: "nobody has the key"},
		engine.MissingDrop:   {results: "dropped dropped dropped"},
	}
	ofEnded := map[engine.OnTerminal]fates{
		engine.TerminalReject: {results: "no_target no_target no_target", reason: target},
		engine.TerminalDrop:   {results: "dropped dropped dropped"},
		engine.TerminalStart:  taken("started", 1, 0),
	}
	switch target {
	case "missing":
		return ofNobody[p.missing]
	case "held":
		f := ofNobody[p.missing]
		if p.missing == engine.MissingStart {
			f.inbox++ // the start adopts it
		} else {
			f.held++
		}
		return f
	case "done", "failed", "canceled":
		return ofEnded[p.terminal]
	default:
		return taken("delivered", 1, 0)
	}
}

// kit is an engine on a database of its own, whose instances become what their state says.
type kit struct {
	*testing.T
	*engine.Client
	database string
	release  chan struct{} // of what executes
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{T: t, database: pgtest.Database(t), release: make(chan struct{})}
	if err := migrations.Up(t.Context(), k.database, "pointsman"); err != nil {
		t.Fatal(err)
	}
	pool, err := engine.Connect(t.Context(), k.database, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if k.Client, err = engine.NewClient(pool, engine.Config{Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	machine, err := engine.Define(engine.Definition[string]{Name: "m", Start: "begin", Steps: map[string]engine.Step[string]{
		"begin": func(_ context.Context, v *engine.Visit[string]) (engine.Outcome, error) {
			switch v.State {
			case "executing":
				<-k.release
			case "failed":
				return engine.Stop("told to"), nil
			case "done":
				return engine.Done(nil), nil
			}
			return engine.Await("begin", "never"), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	worker, err := engine.NewWorker(k.Client, engine.WorkerConfig{Machines: []*engine.Machine{machine}, PollInterval: 20 * time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = worker.Run(ctx) }()
	t.Cleanup(func() { close(k.release); stop(); <-done })
	return k
}

func keyOf(p policy, target string) string {
	return fmt.Sprintf("%s-%s-%s", p.missing, p.terminal, target)
}

// prepare what the messages of a policy will meet.
func (k *kit) prepare(p policy) {
	k.Helper()
	for _, target := range met {
		key := keyOf(p, target)
		switch target {
		case "missing":
			continue
		case "held":
			k.accept(engine.Intake{To: engine.ByKey("", key), Name: "early", DedupKey: "early", OnMissing: engine.MissingHold})
			continue
		}
		n := engine.NewInstance{Machine: "m", CorrelationKey: key, State: json.RawMessage(fmt.Sprintf("%q", target))}
		if target == "runnable" {
			n.Queue = "nobodys"
		}
		if _, err := k.Start(k.Context(), n); err != nil {
			k.Fatal(err)
		}
		if target == "canceled" {
			if _, err := k.Cancel(k.Context(), engine.ByKey("", key), ""); err != nil {
				k.Fatal(err)
			}
		}
	}
}

// settled waits until everything is what it was prepared to be.
func (k *kit) settled(ps []policy) {
	k.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		page, _, err := k.List(k.Context(), engine.Filter{Project: "default"}, [16]byte{}, 1000)
		if err != nil {
			k.Fatal(err)
		}
		n := 0
		for _, i := range page {
			target := i.CorrelationKey[strings.LastIndex(i.CorrelationKey, "-")+1:]
			if string(i.Status) == target || i.Status == engine.StatusAwaiting && target == "awaiting" {
				n++
			}
		}
		if n == len(ps)*(len(met)-2) {
			return
		}
		if time.Now().After(deadline) {
			k.Fatalf("%d of %d are ready", n, len(ps)*(len(met)-2))
		}
	}
}

func (k *kit) accept(batch ...engine.Intake) []engine.Receipt {
	k.Helper()
	receipts, err := k.Accept(k.Context(), batch)
	if err != nil {
		k.Fatal(err)
	}
	return receipts
}

func (k *kit) counts(key string) (inbox, held int) {
	k.Helper()
	if i, err := k.Get(k.Context(), engine.ByKey("", key)); err == nil {
		signals, err := k.Inbox(k.Context(), i.ID, 0, 10)
		if err != nil {
			k.Fatal(err)
		}
		inbox = len(signals)
	}
	rows, err := k.Held(k.Context(), "default", key, "", engine.HeldPlace{}, 10)
	if err != nil {
		k.Fatal(err)
	}
	return inbox, len(rows)
}

// Every policy, against everything that a message may meet, through what the bridge makes of a message.
func TestPolicies(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for _, p := range policies() {
		k.prepare(p)
	}
	k.settled(policies())
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies() {
		mapper, err := bridge.NewMapper(space, []bridge.Route{{
			Name: "r", Stream: "S", Subjects: []string{"s"}, Signal: "late", CorrelationKeys: []string{"{{payload.key}}"}, DedupKey: "same",
			OnMissing: p.missing, OnTerminal: p.terminal, Start: &bridge.Start{Machine: "m", Queue: "nobodys"},
		}}, true)
		if err != nil {
			t.Fatal(err)
		}
		results := make([][]string, len(met))
		for seq, n := range []int{1, 1, 2} {
			batch := make([]engine.Intake, len(met))
			for i, target := range met {
				m := mapper.Map(bridge.Message{
					Subject: "s", Data: fmt.Appendf(nil, `{"key": %q, "n": %d}`, keyOf(p, target), n), Stream: "S", Created: time.Unix(1, 0), Sequence: uint64(1 + seq*len(met) + i),
				})[0]
				if len(m.Intakes) != 1 {
					t.Fatalf("%s: %s", keyOf(p, target), m.Reason)
				}
				batch[i] = m.Intakes[0]
			}
			for i, r := range k.accept(batch...) {
				results[i] = append(results[i], string(r.Result))
				if want := fatesOf(p, met[i]); r.Result == engine.NoTarget && !strings.Contains(r.Reason, want.reason) {
					t.Errorf("%s: reason %q, want %q", keyOf(p, met[i]), r.Reason, want.reason)
				}
			}
		}
		for i, target := range met {
			want := fatesOf(p, target)
			got := fates{results: strings.Join(results[i], " "), reason: want.reason}
			if got.inbox, got.held = k.counts(keyOf(p, target)); got != want {
				t.Errorf("%s: got %+v, want %+v", keyOf(p, target), got, want)
			}
		}
	}
}

// Some of them through a server: what is not taken in is a dead letter, with the same reasons.
func TestPoliciesThroughTheBridge(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	some := []policy{
		{engine.MissingHold, engine.TerminalReject},
		{engine.MissingStart, engine.TerminalStart},
		{engine.MissingReject, engine.TerminalDrop},
		{engine.MissingDrop, engine.TerminalReject},
	}
	server := natstest.Start(t)
	server.Stream(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	js := server.JetStream(t)
	yaml := "signals_route: false\nhttp: {addr: \"127.0.0.1:0\"}\ndatabase: {url: \"" + k.database + "\"}\nnats: {url: \"" + server.URL + "\"}\nroutes:\n"
	var want []string
	for _, p := range some {
		k.prepare(p)
		name := fmt.Sprintf("%s-%s", p.missing, p.terminal)
		yaml += fmt.Sprintf("  - {name: %s, stream: ORDERS, subject: \"orders.%s\", signal: late, correlation_key: \"{{payload.key}}\", dedup_key: \"d-{{payload.key}}\", "+
			"on_missing: %s, on_terminal: %s, start: {machine: m, queue: nobodys}}\n", name, name, p.missing, p.terminal)
	}
	k.settled(some)
	for _, p := range some {
		for _, target := range met {
			f := fatesOf(p, target)
			for i, n := range []int{1, 1, 2} {
				if _, err := js.Publish(t.Context(), fmt.Sprintf("orders.%s-%s", p.missing, p.terminal), fmt.Appendf(nil, `{"key": %q, "n": %d}`, keyOf(p, target), n)); err != nil {
					t.Fatal(err)
				}
				switch strings.Fields(f.results)[i] {
				case "no_target":
					want = append(want, keyOf(p, target)+" "+subjects.ReasonNoTarget+f.reason)
				case "conflict":
					want = append(want, keyOf(p, target)+" "+subjects.ReasonConflict)
				}
			}
		}
	}
	stop := runBridge(t, yaml)
	for _, p := range some {
		untilAcked(t, js, fmt.Sprintf("%s-%s", p.missing, p.terminal))
	}
	stop()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	letters, _, err := bridge.NewLetters(js, space).List(t.Context(), "", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(letters) != len(want) {
		t.Errorf("%d dead letters, want %d", len(letters), len(want))
	}
	for _, l := range letters {
		var body struct{ Key string }
		if err := json.Unmarshal(l.Data, &body); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(want, func(w string) bool {
			key, reason, _ := strings.Cut(w, " ")
			prefix, rest, _ := strings.Cut(reason, " ")
			return key == body.Key && strings.HasPrefix(l.Reason, prefix) && strings.Contains(l.Reason, rest)
		})
		if at < 0 {
			t.Errorf("unexpected dead letter of %s: %s", body.Key, l.Reason)
			continue
		}
		want = slices.Delete(want, at, at+1)
	}
	for _, p := range some {
		for _, target := range met {
			f := fatesOf(p, target)
			if inbox, held := k.counts(keyOf(p, target)); inbox != f.inbox || held != f.held {
				t.Errorf("%s: %d in the inbox and %d held, want %d and %d", keyOf(p, target), inbox, held, f.inbox, f.held)
			}
		}
	}
}

// A hold whose time is over is not adopted, also before the sweep has come to it.
func TestExpiredHoldIsNotAdopted(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	for _, hold := range []time.Duration{time.Microsecond, time.Hour} {
		k.accept(engine.Intake{To: engine.ByKey("", "k"), Name: fmt.Sprint("for-", hold), DedupKey: fmt.Sprint(hold), OnMissing: engine.MissingHold, HoldFor: hold})
	}
	k.accept(engine.Intake{To: engine.ByKey("", "k"), Name: "s", DedupKey: "s", OnMissing: engine.MissingStart, Start: &engine.NewInstance{Machine: "m", Queue: "nobodys"}})
	i, err := k.Get(t.Context(), engine.ByKey("", "k"))
	if err != nil {
		t.Fatal(err)
	}
	signals, err := k.Inbox(t.Context(), i.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(signals) != 2 || signals[0].Name != "for-1h0m0s" || signals[1].Name != "s" {
		t.Errorf("inbox %+v", signals)
	}
}

// Two bridges that share a route start each key once, and every message is a signal of the one that was started.
func TestTwoBridgesStartOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	server := natstest.Start(t)
	server.Stream(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	js := server.JetStream(t)
	const keys, each = 10, 20
	for n := range keys * each {
		if _, err := js.Publish(t.Context(), "orders.item", fmt.Appendf(nil, `{"key": "k%d", "n": %d}`, n%keys, n)); err != nil {
			t.Fatal(err)
		}
	}
	yaml := "signals_route: false\nhttp: {addr: \"127.0.0.1:0\"}\ndatabase: {url: \"" + k.database + "\"}\nnats: {url: \"" + server.URL + "\"}\n" +
		"routes:\n  - {name: items, stream: ORDERS, subject: orders.item, signal: item, correlation_key: \"{{payload.key}}\", on_missing: start, start: {machine: m, queue: nobodys}, batch: {size: 7}}\n"
	first, second := runBridge(t, yaml), runBridge(t, yaml)
	untilAcked(t, js, "items")
	first()
	second()
	if n := instances(t, k.database, "m"); n != keys {
		t.Errorf("%d instances, want %d", n, keys)
	}
	for n := range keys {
		i, err := k.Get(t.Context(), engine.ByKey("", fmt.Sprint("k", n)))
		if err != nil {
			t.Fatal(err)
		}
		if signals, err := k.Inbox(t.Context(), i.ID, 0, 100); err != nil || len(signals) != each {
			t.Errorf("k%d: %d signals, want %d, %v", n, len(signals), each, err)
		}
	}
}
