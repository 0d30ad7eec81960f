package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// Two events, a sleep, a signal with a time limit, an update and two calls are waited for at once, and each goes on as soon as it has come.
const waits = `
flows:
  - name: f
    steps:
      - {ref: a, type: wait_for_event, event_key: "a:{{payload.id}}", timeout_secs: 7200}
      - {ref: b, type: wait_for_event, event_key: "b:{{payload.id}}", on_failure: continue}
      - {ref: nap, type: sleep, sleep_duration: 30m}
      - {ref: sig, type: wait_for_signal, signal: go, timeout: 10m, on_failure: skip_dependents}
      - {ref: upd, type: on_update, update: decision, timeout: 24h}
      - {ref: fast, type: call, subject: fast}
      - {ref: slow, type: call, subject: slow, retry: {max_attempts: 3, initial: 40m, max: 40m}}
      - {ref: after_a, type: set_event, key: a, value: "{{steps.a.output}}", depends_on: [a]}
      - {ref: after_b, type: set_event, key: b, value: "{{steps.b.status}}: {{steps.b.error}}", depends_on: [b]}
      - {ref: after_nap, type: set_event, key: nap, value: 1, depends_on: [nap]}
      - {ref: after_sig, type: set_event, key: sig, value: 1, depends_on: [sig]}
      - {ref: after_upd, type: set_event, key: upd, value: "{{steps.upd.output.ok}}", depends_on: upd}
      - {ref: after_fast, type: set_event, key: fast, value: 1, depends_on: [fast]}
`

func TestSeveralWaitsAtOnce(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var tries atomic.Int32
	s.answer("fast", says("fast"))
	s.answer("slow", func(json.RawMessage) (any, error) {
		if tries.Add(1) < 3 {
			return nil, errors.New("busy")
		}
		return "slow", nil
	})
	env := enginetest.New(t, machines(t, s.conn, waits)...)
	in := start(env, "f", `{"id": 1}`)
	env.Drain()
	published := func(want ...string) {
		t.Helper()
		values, err := env.Client.Events(t.Context(), in.ID)
		if err != nil || len(values) != len(want) {
			t.Fatalf("%s, %v, want %v", values, err, want)
		}
		for _, key := range want {
			if _, there := values[key]; !there {
				t.Errorf("no %s in %s", key, values)
			}
		}
	}
	published("fast") // the slow one keeps nobody waiting
	event(t, env, "a:1", `{"n": 1}`)
	env.Drain()
	published("fast", "a")
	env.Advance(11 * time.Minute) // the signal is late
	env.Advance(20 * time.Minute)
	published("fast", "a", "nap")
	res, err := env.Client.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "decision", Arg: json.RawMessage(`{"ok": true}`)})
	if err != nil || !res.Accepted {
		t.Fatal(res, err)
	}
	env.Drain()
	published("fast", "a", "nap", "upd")
	env.Advance(30 * time.Minute) // b's hour is over
	published("fast", "a", "nap", "upd", "b")
	equal(t, "tries", tries.Load(), 2)
	in.Expect(engine.StatusAwaiting)
	env.Advance(60 * time.Minute)
	same(t, "result", done(in), `{"after_a": {"n": 1}, "after_b": "failed: no event within 1h0m0s", "after_nap": 1, "after_sig": null, "after_upd": true, "after_fast": 1, "slow": "slow"}`)
	keys := map[string]bool{}
	for _, c := range s.calls("slow") {
		keys[c.key] = true
	}
	equal(t, "keys", keys, map[string]bool{in.ID.String() + "/slow": true})
}

// Signals that come together go to the steps that wait, one each, in order; what nobody waits for yet stays for later.
func TestSignals(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: first, type: wait_for_signal, signal: item}
      - {ref: second, type: wait_for_signal, signal: item}
      - {ref: other, type: wait_for_signal, signal: other, depends_on: [first]}
      - {ref: third, type: wait_for_signal, signal: item, depends_on: [other]}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	for i := range 4 {
		in.Signal("item", i)
	}
	env.Drain()
	in.ExpectAwaiting("other")
	equal(t, "left", len(in.Inbox()), 2)
	in.Signal("other", "x")
	env.Drain()
	same(t, "result", done(in), `{"second": 1, "third": 2}`)
}

func TestSignalInTime(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: paid, type: wait_for_signal, signal: paid, timeout: 1h, on_failure: continue}
      - {ref: ship, type: publish, subject: ship, data: {order: "{{payload.id}}", amount: "{{steps.paid.output.amount}}", fixed: [1, true, null, "a"]}, headers: {X-Order: "{{payload.id}}"}, when: "steps.paid.status == 'done'", depends_on: [paid]}
      - {ref: release, type: publish, subject: release, when: "steps.paid.status == 'failed'", depends_on: [paid]}
`)...)
	paid, late := start(env, "f", `{"id": 12345678901234567}`), start(env, "f", `{"id": "B"}`)
	env.Drain()
	paid.Signal("paid", json.RawMessage(`{"amount": 1.10}`))
	env.Drain()
	same(t, "paid", done(paid), `{"ship": {"order": 12345678901234567, "amount": 1.1, "fixed": [1, true, null, "a"]}, "release": null}`)
	env.Advance(59 * time.Minute)
	late.Expect(engine.StatusAwaiting)
	env.Advance(2 * time.Minute)
	same(t, "late", done(late), `{"ship": null, "release": {"id": "B"}}`)
	sent := env.Published()
	equal(t, "sent", len(sent), 2)
	equal(t, "subject and body", sent[0].Subject+" "+string(sent[0].Body), `ship {"amount":1.10,"fixed":[1,true,null,"a"],"order":12345678901234567}`)
	equal(t, "header", fmt.Sprint(sent[0].Headers["X-Order"]), "[12345678901234567]")
}

func TestCalls(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var tries atomic.Int32
	s.answer("flaky", func(json.RawMessage) (any, error) {
		if tries.Add(1) < 3 {
			return nil, errDeclined
		}
		return 7, nil
	})
	s.answer("bad", func(json.RawMessage) (any, error) { return nil, errDeclined })
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: flaky
    steps: [{ref: a, type: call, subject: flaky, data: null, retry: {max_attempts: 3, initial: 1m}}]
  - name: bad
    steps: [{ref: a, type: call, subject: bad, retry: {max_attempts: 2, initial: 1m}}]
  - name: nobody
    steps: [{ref: a, type: call, subject: nobody, retry: {max_attempts: 1}}]
  - name: "missing"
    steps: [{ref: a, type: call, subject: "bad.{{payload.none}}", on_failure: continue}, {ref: b, type: set_event, key: e, value: "{{steps.a.error}}", depends_on: [a]}]
`)...)
	flaky, bad, nobody, missing := start(env, "flaky", `{}`), start(env, "bad", `{}`), start(env, "nobody", `{}`), start(env, "missing", `{}`)
	env.Drain()
	flaky.Expect(engine.StatusAwaiting)
	nobody.ExpectFailed(`step "a": no service answers nobody`)
	env.Advance(10 * time.Minute)
	same(t, "flaky", done(flaky), `{"a": 7}`)
	bad.ExpectFailed(`step "a": declined`)
	equal(t, "calls", len(s.calls("bad")), 2)
	same(t, "missing", done(missing), `{"b": "subject: payload.none: no such field"}`)
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	var seen atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/flaky" && tries.Add(1) < 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusGone)
		default:
			seen.Store(strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Idempotency-Key"), r.Header.Get("X-A"), string(body)}, " "))
			_, _ = w.Write([]byte(`{"ok": true}`))
		}
	}))
	t.Cleanup(srv.Close)
	env := enginetest.New(t, machines(t, nil, replace(`
flows:
  - name: f
    steps:
      - {ref: a, type: http, url: "URL/flaky?id={{payload.id}}", headers: {X-A: "{{payload.id}}"}, body: {id: "{{payload.id}}"}, retry: {initial: 1m}}
      - {ref: b, type: http, method: GET, url: URL/gone, depends_on: [a], on_failure: continue}
      - {ref: c, type: set_event, key: k, value: ["{{steps.a.output}}", "{{steps.b.error.startsWith('410 Gone from ')}}"], depends_on: [a, b]}
`, "URL", srv.URL))...)
	in := start(env, "f", `{"id": 5}`)
	env.Advance(2 * time.Minute)
	same(t, "result", done(in), `{"c": [{"status": 200, "body": {"ok": true}}, true]}`)
	equal(t, "request", seen.Load(), "POST /flaky?id=5 "+in.ID.String()+"/a 5 {\"id\":5}")
}

func TestStartAndSignal(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: parent
    steps:
      - {ref: child, type: start, machine: child, state: {n: "{{payload.n}}"}, correlation_key: "child-{{payload.n}}", wait: true}
      - {ref: tell, type: signal, signal: go, correlation_key: "child-{{payload.n}}", payload: "{{payload.word}}"}
      - {ref: failing, type: start, machine: child, state: {}, wait: true, on_failure: continue}
      - {ref: free, type: start, machine: other, state: {by: "{{instance.id}}"}, depends_on: [child, failing]}
  - name: child
    steps:
      - {ref: go, type: wait_for_signal, signal: go, when: "has(payload.n)"}
      - {ref: n, type: set_event, key: n, value: "{{payload.n}}", depends_on: [go]}
  - name: other
    steps: [{ref: by, type: set_event, key: by, value: "{{payload.by}}"}]
`)...)
	in := start(env, "parent", `{"n": 3, "word": "now"}`)
	env.Drain()
	same(t, "result", done(in), `{"free": {"by": "`+in.ID.String()+`"}, "tell": "now"}`)
	var state struct {
		Steps map[string]struct {
			Output json.RawMessage
			Error  string
		}
	}
	if err := json.Unmarshal(in.Get().State, &state); err != nil {
		t.Fatal(err)
	}
	same(t, "child", state.Steps["child"].Output, `{"n": 3}`)
	equal(t, "failing", state.Steps["failing"].Error, `step "n": value: payload.n: no such field`)
	equal(t, "others", len(env.Instances("other")), 1)
	for _, c := range env.Instances("child") {
		equal(t, "parent", c.Get().ParentID, in.ID)
	}
}

func TestTimeLimitOfTheFlow(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("a", says(1))
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: f
    timeout: 2h
    steps:
      - {ref: a, type: call, subject: a}
      - {ref: b, type: wait_for_event, event_key: "b:{{instance.id}}", timeout_secs: 86400, depends_on: [a]}
`)...)
	in := start(env, "f", `{}`)
	env.Advance(119 * time.Minute)
	in.Expect(engine.StatusAwaiting)
	env.Advance(2 * time.Minute)
	in.ExpectFailed("the time limit of the flow, 2h0m0s, is over")
}

// A flow that has failed is retried from the step that failed it: what is done stays done, and what was absorbed is not absorbed twice.
func TestRetryOfAFlow(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var broken atomic.Bool
	broken.Store(true)
	s.answer("first", says("first"))
	s.answer("second", func(json.RawMessage) (any, error) {
		if broken.Load() {
			return nil, errDeclined
		}
		return "second", nil
	})
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: f
    steps:
      - {ref: word, type: wait_for_signal, signal: word}
      - {ref: first, type: call, subject: first, retry: {max_attempts: 1}, depends_on: [word]}
      - {ref: second, type: call, subject: second, retry: {max_attempts: 1}, depends_on: [word]}
      - {ref: last, type: wait_for_signal, signal: word, depends_on: [first, second]}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	in.Signal("word", 1)
	env.Drain()
	in.ExpectFailed(`step "second": declined`)
	broken.Store(false)
	if _, err := env.Client.Retry(t.Context(), engine.ByID(in.ID)); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	in.ExpectAwaiting("word")
	in.Signal("word", 2)
	env.Drain()
	same(t, "result", done(in), `{"last": 2}`)
	equal(t, "calls", []int{len(s.calls("first")), len(s.calls("second"))}, []int{1, 2})
}

// A flow that was canceled learns when it is retried how its calls ended; of those that are gone meanwhile it learns that.
func TestCanceledFlow(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("work", says("done"))
	ms := machines(t, s.conn, `
flows:
  - name: f
    steps:
      - {ref: a, type: call, subject: work, on_failure: continue}
      - {ref: b, type: call, subject: work, on_failure: continue}
      - {ref: c, type: set_event, key: k, value: ["{{steps.a.output}}", "{{steps.b.error}}"], depends_on: [a, b]}
`)
	for gone, want := range map[bool]string{false: `{"c": ["done", ""]}`, true: `{"c": [null, "the instance that it ran as is gone"]}`} {
		served := ms
		if gone {
			served = ms[:1] // nobody makes the calls
		}
		env := enginetest.New(t, served...)
		in := start(env, "f", `{}`)
		cancel := func() {
			if _, err := env.Client.Cancel(t.Context(), engine.ByID(in.ID), "a test"); err != nil {
				t.Error(err)
			}
		}
		if gone {
			env.Drain()
			cancel()
			if _, err := env.Pool.Exec(t.Context(), `delete from instances where machine = 'f:call'`); err != nil {
				t.Fatal(err)
			}
		} else {
			env.Kill = func() bool { // nobody is killed: once the calls are there the flow is canceled
				if len(env.Instances("f:call")) == 2 && in.Get().Status.Live() {
					cancel()
				}
				return false
			}
			env.Drain()
			env.Kill = nil
		}
		in.Expect(engine.StatusCanceled)
		if _, err := env.Client.Retry(t.Context(), engine.ByID(in.ID)); err != nil {
			t.Fatal(err)
		}
		env.Drain()
		same(t, fmt.Sprint("gone ", gone), done(in), want)
	}
}

// A start may not hand over the state of a flow.
func TestStateThatIsNone(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps: [{ref: a, type: wait_for_signal, signal: go}]
`)...)
	in := env.Start(engine.NewInstance{Machine: "f", Start: "a", State: json.RawMessage(`{"a": 1}`)})
	env.Drain()
	in.ExpectFailed("the state is none of a flow")
	posing := start(env, "f", `{"payload": 1, "steps": {"a": {"status": "done"}}}`)
	env.Drain()
	posing.ExpectAwaiting("go")
}
