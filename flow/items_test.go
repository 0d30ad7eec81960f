package flow_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// live notes how many services of a kind work at once.
type live struct {
	mu        sync.Mutex
	now, most int
}

func (l *live) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now += n
	l.most = max(l.most, l.now)
}

// Items run beside each other, and never more than concurrency says: as many children are live. Their outputs are the list's, in its order.
func TestForEach(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("double", func(data json.RawMessage) (any, error) {
		var q struct{ N, At int }
		err := json.Unmarshal(data, &q)
		return []int{q.At, 2 * q.N}, err
	})
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: f
    steps:
      - {ref: each, type: call, subject: double, for_each: "{{payload.list}}", concurrency: 3, data: {n: "{{item}}", at: "{{index}}"}}
      - {ref: names, type: start, machine: child, for_each: [north, south], state: {name: "{{item}}"}, correlation_key: "{{item}}", wait: true}
      - {ref: none, type: call, subject: nobody, for_each: "{{payload.none}}"}
      - {ref: sum, type: set_event, key: sum, value: ["{{steps.each.output.map(p, p[1])}}", "{{steps.names.output}}", "{{steps.none.output}}"], depends_on: [each, names, none]}
  - name: child
    steps: [{ref: hello, type: set_event, key: k, value: "hello {{payload.name}}"}]
`)...)
	most := 0
	env.Kill = func() bool { // nobody is killed: after each step it is counted
		now := 0
		for _, c := range env.Instances("f:call") {
			if c.Get().Status.Live() {
				now++
			}
		}
		most = max(most, now)
		return false
	}
	in := start(env, "f", `{"list": [1, 2, 3, 4, 5, 6, 7], "none": []}`)
	env.Drain()
	same(t, "result", done(in), `{"sum": [[2, 4, 6, 8, 10, 12, 14], [{"hello": "hello north"}, {"hello": "hello south"}], []]}`)
	equal(t, "most at once", most, 3)
	var keys []string
	for _, c := range s.calls("double") {
		keys = append(keys, strings.TrimPrefix(c.key, in.ID.String()))
	}
	slices.Sort(keys)
	equal(t, "keys", keys, []string{"/each/0", "/each/1", "/each/2", "/each/3", "/each/4", "/each/5", "/each/6"})
}

// With workers that run beside each other there are no more either.
func TestForEachConcurrently(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var l live
	s.answer("work", func(data json.RawMessage) (any, error) {
		l.add(1)
		defer l.add(-1)
		return data, nil
	})
	env := enginetest.New(t)
	t.Cleanup(env.Serve(engine.WorkerConfig{Machines: machines(t, s.conn, `
flows:
  - name: f
    steps: [{ref: each, type: call, subject: work, for_each: "{{payload}}", concurrency: 2, data: "{{item}}"}]
`)}))
	in := start(env, "f", `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]`)
	got := in.Until("ended", func(got engine.Instance) bool { return !got.Status.Live() })
	same(t, "result", got.Result, `{"each": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}`)
	if l.most > 2 {
		t.Errorf("%d at once", l.most)
	}
}

// The first failure begins no more and fails the step; a retry runs what is left. Where failures are passed over, null stands for them.
func TestFailureOfAnItem(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var mu sync.Mutex
	bad := map[string]bool{"3": true}
	s.answer("work", func(data json.RawMessage) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if bad[string(data)] {
			return nil, errDeclined
		}
		return data, nil
	})
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: strict
    steps: [{ref: each, type: call, subject: work, for_each: "{{payload}}", concurrency: 1, data: "{{item}}", retry: {max_attempts: 1}}]
  - name: lenient
    steps:
      - {ref: each, type: call, subject: work, for_each: "{{payload}}", concurrency: 2, on_item_failure: continue, data: "{{item}}", retry: {max_attempts: 1}}
      - {ref: after, type: set_event, key: k, value: ["{{steps.each.output}}", "{{steps.each.status}}: {{steps.each.error}}"], depends_on: [each]}
`)...)
	strict, lenient := start(env, "strict", `[1, 2, 3, 4, 5]`), start(env, "lenient", `[1, 3, 5, 3]`)
	env.Drain()
	strict.ExpectFailed(`step "each": item 2: declined`)
	same(t, "lenient", done(lenient), `{"after": [[1, null, 5, null], "done: 2 of 4 items failed, the first is item 1: declined"]}`)
	asked := func() (n int) {
		for _, c := range s.calls("work") {
			if strings.HasPrefix(c.key, strict.ID.String()) {
				n++
			}
		}
		return n
	}
	equal(t, "asked", asked(), 3)
	mu.Lock()
	bad = nil
	mu.Unlock()
	if _, err := env.Client.Retry(t.Context(), engine.ByID(strict.ID)); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	same(t, "strict", done(strict), `{"each": [1, 2, 3, 4, 5]}`)
	equal(t, "asked in all", asked(), 6)
}

// The failure of another step stops a list where it is, and a retry goes on there.
func TestListThatIsInterrupted(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("work", func(data json.RawMessage) (any, error) { return data, nil })
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: f
    steps:
      - {ref: each, type: start, machine: wait, for_each: "{{payload}}", concurrency: 1, state: "{{item}}", wait: true}
      - {ref: other, type: wait_for_event, event_key: "e-{{instance.id}}"}
  - name: wait
    steps: [{ref: go, type: wait_for_signal, signal: go}]
`)...)
	in := start(env, "f", `[1, 2]`)
	env.Drain()
	if _, err := env.Client.CancelTrigger(t.Context(), "", "e-"+in.ID.String()); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	in.Expect(engine.StatusAwaiting) // for the child that runs
	env.Instances("wait")[0].Signal("go", "a")
	env.Drain()
	in.ExpectFailed(`step "other": its trigger was canceled`)
	equal(t, "instances", len(env.Instances("wait")), 1)
	if _, err := env.Client.Retry(t.Context(), engine.ByID(in.ID)); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	event(t, env, "e-"+in.ID.String(), "1")
	for _, c := range env.Instances("wait") {
		if c.Get().Status.Live() {
			c.Signal("go", "b")
		}
	}
	env.Drain()
	same(t, "result", done(in), `{"each": [{"go": "a"}, {"go": "b"}], "other": 1}`)
}

func TestListsThatAreNone(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps: [{ref: each, type: call, subject: "work.{{item}}", for_each: "{{payload.list}}"}]
  - name: same
    steps: [{ref: each, type: start, machine: wait, for_each: [1, 2], correlation_key: one, wait: true}]
  - name: wait
    steps: [{ref: go, type: wait_for_signal, signal: go}]
`)...)
	many := "[" + strings.Repeat("0,", 1000) + "0]"
	for payload, want := range map[string]string{
		`{"list": {"a": 1}}`:     `step "each": for_each: is {"a": 1}, want a list`,
		`{}`:                     `step "each": for_each: payload.list: no such field`,
		`{"list": ` + many + `}`: `step "each": for_each: has 1001 items: at most 1000; leave some to a flow that a step starts`,
		`{"list": ["a b"]}`:      `step "each": item 0: subject: subject "work.a b": has a space or a control character`,
	} {
		in := start(env, "f", payload)
		env.Drain()
		in.ExpectFailed(want)
	}
	in := start(env, "same", `{}`)
	env.Drain()
	env.Instances("wait")[0].Signal("go", 1)
	env.Drain()
	in.ExpectFailed(`step "each": item 1: correlation_key: "one" is that of item 0 too: give each its own`)
}

// A list of as many items as there may be, whose outputs have no room: the item says so.
func TestOutputsOfItemsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("work", says(strings.Repeat("x", 300<<10)))
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: f
    steps: [{ref: each, type: call, subject: work, for_each: [1, 2, 3, 4], concurrency: 1}]
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	got := in.Expect(engine.StatusFailed)
	if want := `step "each": item 3: its output of 307202 bytes makes payload and outputs of the flow `; !strings.HasPrefix(got.LastError, want) {
		t.Errorf("%s\nwant\n%s…", got.LastError, want)
	}
}

// More children than one commit has room for begin in several.
func TestManyItems(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("work", func(data json.RawMessage) (any, error) { return data, nil })
	var steps strings.Builder
	for i := range 4 {
		fmt.Fprintf(&steps, "      - {ref: s%d, type: call, subject: work, for_each: \"{{payload}}\", concurrency: 100, data: \"{{index}}\"}\n", i)
	}
	env := enginetest.New(t, machines(t, s.conn, "flows:\n  - name: f\n    steps:\n"+steps.String())...)
	env.MaxSteps = 10_000
	list := make([]int, 100)
	in := env.Start(engine.NewInstance{Machine: "f", State: engine.MustJSON(list)})
	env.Drain()
	var result map[string][]int
	if err := json.Unmarshal(done(in), &result); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		equal(t, "items", len(result[fmt.Sprintf("s%d", i)]), 100)
	}
}
