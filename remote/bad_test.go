package remote_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
)

var update = flag.Bool("update", false, "write the table of wrong answers into the documentation")

const (
	document = "../docs/remote-steps.md"
	begin    = "<!-- wrong answers: written by go test ./remote -update -->\n"
	end      = "<!-- end of wrong answers -->\n"
)

// wrong is an answer that is none. shown stands for it where it is too long to print or has no text.
type wrong struct {
	shown string
	body  string
	err   string // as the instance shows it
}

var (
	nobody = wrong{shown: "nobody subscribes", err: "no service answers pointsman.step.M.begin"}
	silent = wrong{shown: "none within `timeout`", err: "no answer from pointsman.step.M.begin within 50ms"}
	broken = wrong{shown: "`Nats-Service-Error: out of stock`, `Nats-Service-Error-Code: 503`", err: "service error 503 from pointsman.step.M.begin: out of stock"}
)

// All but these are bad answers: it is said where they came from.
var wrongs = []wrong{
	nobody, silent, broken,
	{body: `{"error": "the card is declined"}`, err: "=the card is declined"},
	{body: `{"error": ""}`, err: "error: is empty: say what is wrong"},
	{body: `{"error": {"code": 7}}`, err: `error: is {"code": 7}, want text`},
	{body: `{"error": "declined", "outcome": "done"}`, err: "outcome: an error has no such field: there are error"},
	{shown: "nothing in the body", err: "the answer: is empty: send a JSON value"},
	{body: `OK`, err: `the answer: is not JSON at byte 0: unexpected 'O'`},
	{body: `{"outcome": "done"} {}`, err: `the answer: is not JSON at byte 20: unexpected '{'`},
	{shown: "text that is not UTF-8", body: "{\"outcome\": \"stop\", \"reason\": \"\xff\"}", err: "the answer: is not valid UTF-8 (byte 31)"},
	{body: `["done"]`, err: `the answer: is ["done"], want an object`},
	{body: `{}`, err: "outcome: is missing: want next, replay, await, done or stop, or an error"},
	{body: `{"outcome": "finished"}`, err: `outcome: is "finished", want next, replay, await, done or stop`},
	{body: `{"outcome": 1}`, err: "outcome: is 1, want text"},
	{body: `{"Outcome": "done"}`, err: "outcome: is missing: want next, replay, await, done or stop, or an error"},
	{body: `{"outcome": "done", "outcome": "stop"}`, err: "outcome: is there twice"},
	{body: `{"outcome": "done", "resutl": {}}`, err: "resutl: outcome done has no such field: there are emit, outcome, publish, result, set_events, signal, start, state"},
	{body: `{"outcome": "next", "delay_ms": 5}`, err: "delay_ms: outcome next has no such field: there are emit, outcome, publish, set_events, signal, start, state, step"},
	{body: `{"outcome": "next", "state": {"n": 8}, "signals": ["s"]}`, err: "signals: outcome next has no such field: there are emit, outcome, publish, set_events, signal, start, state, step"},
	{body: `{"outcome": "next", "step": "-"}`, err: `step: "-" begins with '-': begin with a letter, a digit or _`},
	{body: `{"outcome": "next", "step": "ship it"}`, err: `step: subject "ship it": has a space or a control character`},
	{body: `{"outcome": "next", "step": "ship..it"}`, err: `step: subject "ship..it": has an empty token: no dot at either end, no two in a row`},
	{body: `{"outcome": "replay", "delay_ms": "5s"}`, err: `delay_ms: is "5s", want a whole number from 0 to 2305843009213`},
	{body: `{"outcome": "replay", "delay_ms": 1.5}`, err: "delay_ms: is 1.5, want a whole number from 0 to 2305843009213"},
	{body: `{"outcome": "await"}`, err: "signals: is missing: an await wants signals, updates, an event, children or timeout_ms, or several of them"},
	{body: `{"outcome": "await", "signals": "paid"}`, err: `signals: is "paid", want a list of texts`},
	{body: `{"outcome": "await", "signals": ["paid", "a b"]}`, err: `signals[1]: "a b" has ' ' at byte 1: use letters, digits and _ - : .`},
	{body: `{"outcome": "await", "timeout_ms": 0}`, err: "timeout_ms: is 0, want a whole number from 1 to 2305843009213"},
	{body: `{"outcome": "await", "signals": ["s"], "consume": "yes"}`, err: `consume: is "yes", want true or false`},
	{body: `{"outcome": "await", "updates": "decision"}`, err: `updates: is "decision", want a list of texts`},
	{body: `{"outcome": "await", "signals": ["s"], "updates": ["u", ""]}`, err: "updates[1]: is empty: want 1 to 128 of letters, digits and _ - : ."},
	{body: `{"outcome": "await", "signals": ["a", "b"], "need": 3}`, err: "need: is 3, want a whole number from 1 to 2"},
	{body: `{"outcome": "await", "signals": ["a", "b"], "need": "both"}`, err: `need: is "both", want all, or a whole number from 1 to 2`},
	{body: `{"outcome": "await", "children": "all", "need": "all"}`, err: "need: is there, and signals is not"},
	{body: `{"outcome": "await", "signals": ["a"], "where": {"b": "$ > 1"}}`, err: "where.b: is none of signals"},
	{body: `{"outcome": "await", "signals": ["a"], "where": {"a": "$ >"}}`, err: `=outcome await: the condition for "a": "$ >" is no SQL/JSON path: syntax error at end`},
	{body: `{"outcome": "await", "children": "some"}`, err: `children: is "some", want all or any, or a whole number from 1 to 1000`},
	{body: `{"outcome": "await", "children": 0}`, err: "children: is 0, want a whole number from 1 to 1000"},
	{body: `{"outcome": "await", "event": {"timeout_secs": 5}}`, err: "event.event_key: is missing: want the key that the event is sent by"},
	{body: `{"outcome": "await", "event": {"event_key": "stats"}}`, err: `event.event_key: "stats" is reserved: it is the name of a request; put something before it, as in order:stats`},
	{body: `{"outcome": "await", "event": {"event_key": "k", "timeout_secs": 0}}`, err: "event.timeout_secs: is 0, want a whole number from 1 to 315360000"},
	{body: `{"outcome": "await", "event": {"event_key": "k", "timeout": 5}}`, err: "event.timeout: an event has no such field: there are event_key, notify_url, request_payload, timeout_secs"},
	{body: `{"outcome": "await", "event": {"event_key": "k", "notify_url": "ftp://x"}}`, err: `=outcome await: notify_url: "ftp://x" is no http or https URL`},
	{body: `{"outcome": "done", "emit": [{"payload": 1}]}`, err: "emit[0].event_key: is missing: want the key of the trigger"},
	{body: `{"outcome": "next", "state": {"name": "\u0000"}}`, err: `the answer: has \u0000, which Postgres cannot hold: remove it (byte 39)`},
	{shown: "a state of more than 1 MiB", body: `{"outcome": "next", "state": "` + strings.Repeat("x", 1<<20) + `"}`, err: "state: has 1048578 bytes: at most 1048576"},
	{shown: "an answer of more than 8 MiB", body: `{"outcome": "stop", "reason": "` + strings.Repeat("x", 8<<20) + `"}`, err: "the answer: is too long: 8388641 bytes, at most 8388608 are allowed"},
	{shown: "more than 1,000 effects", body: `{"outcome": "done", "publish": [` + strings.Repeat(`{"subject": "a"},`, 1000) + `{"subject": "a"}]}`, err: "=outcome done: 1001 effects: at most 1000"},
	{body: `{"outcome": "done", "set_events": ["progress"]}`, err: `set_events: is ["progress"], want an object`},
	{body: `{"outcome": "done", "set_events": {"": 1}}`, err: "set_events.: is empty: a key has 1 to 512 characters"},
	{body: `{"outcome": "done", "signal": {"name": "s"}}`, err: `signal: is {"name": "s"}, want a list of objects`},
	{body: `{"outcome": "done", "signal": [{"name": "s"}]}`, err: "signal[0].correlation_key: has to be there, or instance_id instead, and not both"},
	{body: `{"outcome": "done", "signal": [{"instance_id": "7", "name": "s"}]}`, err: `signal[0].instance_id: is "7", want the id of an instance`},
	{body: `{"outcome": "done", "signal": [{"correlation_key": "k"}]}`, err: "signal[0].name: is missing: want the name of the signal"},
	{body: `{"outcome": "done", "signal": [{"correlation_key": "a\nb", "name": "s"}]}`, err: "signal[0].correlation_key: has the control character 0x0a at byte 1: remove it"},
	{body: `{"outcome": "done", "start": [{"key": "k"}]}`, err: "start[0].machine: is missing: want the name of the machine"},
	{body: `{"outcome": "done", "start": [{"machine": "a.b"}]}`, err: `start[0].machine: "a.b" has a '.', which this name cannot have, as it is one token of a subject: use letters, digits and _ - :`},
	{body: `{"outcome": "done", "start": [{"machine": "m", "run_at": "soon"}]}`, err: `start[0].run_at: is "soon", want a time as 2006-01-02T15:04:05Z`},
	{body: `{"outcome": "done", "start": [{"machine": "m", "queue": "_outbox"}]}`, err: `start[0].queue: "_outbox" is pointsman's own: choose another name`},
	{body: `{"outcome": "done", "start": [{"machine": "m", "partition_key": ""}]}`, err: "start[0].partition_key: is empty: a key has 1 to 512 characters"},
	{body: `{"outcome": "done", "start": [{"machine": "m", "unique_key": "k", "unique_scope": "done"}]}`, err: `start[0].unique_scope: is "done", want a list of statuses`},
	{body: `{"outcome": "done", "start": [{"machine": "m", "unique_key": "k", "unique_scope": ["over"]}]}`, err: `=outcome done: unique_scope: holds "over": want statuses of runnable, executing, awaiting_signal, done, failed, canceled`},
	{body: `{"outcome": "done", "publish": [{"data": 1}]}`, err: "publish[0].subject: is missing: want where to publish"},
	{body: `{"outcome": "done", "publish": [{"subject": "orders.*"}]}`, err: `publish[0].subject: subject "orders.*": has a wildcard, and a message needs one exact subject`},
	{body: `{"outcome": "done", "publish": [{"subject": "a", "headers": {"X": 1}}]}`, err: "publish[0].headers.X: is 1, want a list of texts"},
	{body: `{"stream": "ALL", "seq": 12}`, err: `it is the ack of stream "ALL", which stores the requests: no stream may have pointsman.step.M.>`},
}

// wants is the error that an instance of the machine has to show.
func (w *wrong) wants(machine string) string {
	text, plain := strings.CutPrefix(strings.ReplaceAll(w.err, "M", machine), "=")
	if w.err == nobody.err || w.err == silent.err || w.err == broken.err || plain {
		return text
	}
	return "bad answer from pointsman.step." + machine + ".begin: " + text
}

func (w *wrong) message() *nats.Msg {
	switch w.err {
	case silent.err:
		return nil
	case broken.err:
		return &nats.Msg{Header: nats.Header{"Nats-Service-Error": {"out of stock"}, "Nats-Service-Error-Code": {"503"}}}
	}
	return &nats.Msg{Data: []byte(w.body)}
}

// row of the table, with what was seen of the instances.
func (w *wrong) row(after, last engine.Instance) string {
	shown := w.shown
	if shown == "" {
		shown = "`" + w.body + "`"
	}
	err := strings.ReplaceAll(after.LastError, after.Machine, "order")
	if text, bad := strings.CutPrefix(err, "bad answer from pointsman.step.order.begin: "); bad {
		err = "… " + text
	}
	return fmt.Sprintf("| %s | `%s` | %s, attempt %d, state `%s` | %s |\n", shown, err, after.Status, after.Attempt, after.State, last.Status)
}

// Each wrong answer is an error of its step that can be read and is retried, and fails the instance only when the policy says so.
// None of it is used. The table of them is part of the documentation.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), bigServer(t)
	var machines []*engine.Machine
	for i, w := range wrongs {
		for _, name := range []string{fmt.Sprint("retried-", i), fmt.Sprint("last-", i)} {
			cfg := config(t, nc)
			cfg.Name, cfg.Retry = name, engine.RetryPolicy{Initial: time.Hour, Max: time.Hour}
			if strings.HasPrefix(name, "last") {
				cfg.Retry.MaxAttempts = 1
			}
			if w.err == silent.err {
				cfg.Timeout = 50 * time.Millisecond
			}
			machines = append(machines, machine(t, cfg))
			if w.err != nobody.err {
				answer(t, nc, name, func(*nats.Msg) *nats.Msg { return w.message() })
			}
		}
	}
	s.work(machines...)
	var table strings.Builder
	table.WriteString("| answer | `last_error` | the instance, when it is tried again | when that was the last attempt |\n| --- | --- | --- | --- |\n")
	for i, w := range wrongs {
		retried, last := fmt.Sprint("retried-", i), fmt.Sprint("last-", i)
		a := s.begin(engine.NewInstance{Machine: retried, State: json.RawMessage(`{"n": 7}`)})
		b := s.begin(engine.NewInstance{Machine: last, State: json.RawMessage(`{"n": 7}`)})
		after := s.until(a, "tried", func(in engine.Instance) bool { return in.Attempt > 0 || !in.Status.Live() })
		failed := s.ends(b, engine.StatusFailed)
		equal(t, "error", after.LastError, w.wants(retried))
		equal(t, "last error", failed.LastError, w.wants(last))
		equal(t, "instance after "+w.shown+w.body[:min(len(w.body), 80)], fmt.Sprint(after.Status, after.Attempt, after.Step, string(after.State)), fmt.Sprint(engine.StatusRunnable, 1, "begin", `{"n": 7}`))
		equal(t, "state in the end", string(failed.State), `{"n": 7}`)
		table.WriteString(w.row(after, failed))
	}
	inDocument(t, table.String())
}

// inDocument wants the documentation to have this table, or with -update gives it to it.
func inDocument(t *testing.T, table string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(text, []byte(begin))
	old, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", document)
	}
	if string(old) == table {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not what was seen: go test ./remote -run TestWrongAnswers -update\n%s", document, table)
	}
	if err := os.WriteFile(document, bytes.Join([][]byte{before, []byte(begin), []byte(table), []byte(end), after}, nil), 0o644); err != nil {
		t.Fatal(err)
	}
}

// bigServer takes larger messages than NATS does by default.
func bigServer(t *testing.T) *nats.Conn {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, MaxPayload: 16 << 20, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(ns.WaitForShutdown)
	t.Cleanup(ns.Shutdown)
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
