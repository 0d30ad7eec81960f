package flow_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/internal/natstest"
)

// node is a step of a random flow: a call that succeeds or fails, an effect that does, or a call for each item of a list.
type node struct {
	ref, kind, onFailure string
	on                   []int
	when                 string // "", false, done or failed: the status of the first that it depends on
	fails                bool

	items       []bool // of a list: which fail
	concurrency int
	passOver    bool   // the failure of items
	undo        string // "", call or effect
	undoFails   bool
}

func drawGraph(t *rapid.T) (nodes []node) {
	for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
		n := node{
			ref: fmt.Sprintf("s%d", i), kind: rapid.SampledFrom([]string{"call", "call", "call", "effect", "each"}).Draw(t, "kind"),
			onFailure: rapid.SampledFrom([]string{"fail_workflow", "skip_dependents", "continue"}).Draw(t, "on failure"),
			fails:     rapid.IntRange(0, 2).Draw(t, "fails") == 0,
			undo:      rapid.SampledFrom([]string{"", "", "call", "effect"}).Draw(t, "undo"), undoFails: rapid.IntRange(0, 3).Draw(t, "undo fails") == 0,
		}
		if n.kind == "each" {
			for range rapid.IntRange(0, 4).Draw(t, "items") {
				n.items = append(n.items, rapid.IntRange(0, 4).Draw(t, "item fails") == 0)
			}
			n.concurrency, n.passOver = rapid.IntRange(1, 3).Draw(t, "concurrency"), rapid.Bool().Draw(t, "pass over")
		}
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				n.on = append(n.on, k)
			}
		}
		if len(n.on) > 0 {
			n.when = rapid.SampledFrom([]string{"", "", "", "never", "done", "failed"}).Draw(t, "when")
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// yaml of a graph. Who is called depends on the flow, so that each has its own.
func yamlOf(name string, nodes []node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "flows:\n  - name: %s\n    steps:\n", name)
	value := func(fails bool) string {
		return map[bool]string{false: "{{payload.there}}", true: "{{payload.missing}}"}[fails]
	}
	for _, n := range nodes {
		var on []string
		for _, k := range n.on {
			on = append(on, nodes[k].ref)
		}
		call := fmt.Sprintf("type: call, subject: \"%s.%s%%s\", retry: {max_attempts: 1}", name, n.ref)
		what := fmt.Sprintf(call, "")
		switch n.kind {
		case "effect":
			what = fmt.Sprintf("type: set_event, key: %s, value: %q", n.ref, value(n.fails))
		case "each":
			var list []string
			for k := range n.items {
				list = append(list, fmt.Sprint(k))
			}
			policy := map[bool]string{false: "fail_step", true: "continue"}[n.passOver]
			what = fmt.Sprintf(call, ".{{item}}") + fmt.Sprintf(", for_each: [%s], concurrency: %d, on_item_failure: %s", strings.Join(list, ", "), n.concurrency, policy)
		}
		when := ""
		switch n.when {
		case "":
		case "never":
			when = `, when: "payload.there == 0"`
		default:
			when = fmt.Sprintf(`, when: "steps.%s.status == '%s'"`, on[0], n.when)
		}
		switch n.undo {
		case "call":
			when += ", compensate: {" + fmt.Sprintf(call, ".undo") + "}"
		case "effect":
			when += fmt.Sprintf(", compensate: {type: set_event, key: %s, value: %q}", n.ref, value(n.undoFails))
		}
		fmt.Fprintf(&b, "      - {ref: %s, %s, depends_on: [%s], on_failure: %s%s}\n", n.ref, what, strings.Join(on, ", "), n.onFailure, when)
	}
	return b.String()
}

// reference says what has to become of a graph, from the rules alone.
type reference struct {
	nodes  []node
	status []string   // "", called, done, failed, skipped, cut
	items  [][]string // of lists: "", called, done, failed
	undone []string   // "", called, done, failed
	order  []int      // in which steps were done
	fresh  []string   // who is called now, and was not before: a ref, or one with the item or undo
	failed bool
}

func newReference(nodes []node) *reference {
	r := &reference{nodes: nodes, status: make([]string, len(nodes)), items: make([][]string, len(nodes)), undone: make([]string, len(nodes))}
	for i, n := range nodes {
		r.items[i] = make([]string, len(n.items))
	}
	return r
}

// begin lets all begin that may, and returns who is called now.
func (r *reference) begin() (called []string) {
	for moved := true; moved && !r.failed; {
		moved = false
		for i := range r.nodes {
			if !r.failed && r.status[i] == "" {
				moved = r.beginStep(i) || moved
			}
		}
	}
	called, r.fresh = r.fresh, nil
	if !r.failed {
		return called
	}
	for _, name := range called { // nobody has been asked yet
		i, part := r.parse(name)
		if r.nodes[i].kind == "each" {
			r.items[i][part] = ""
		}
		if !slices.Contains(r.items[i], "called") {
			r.status[i] = ""
		}
	}
	return nil
}

func (r *reference) beginStep(i int) bool {
	n := r.nodes[i]
	settled, cut := true, false
	for _, k := range n.on {
		switch s := r.status[k]; {
		case s == "" || s == "called":
			settled = false
		case s == "cut" || s == "failed" && r.nodes[k].onFailure != "continue":
			cut = true
		}
	}
	switch {
	case cut:
		r.status[i] = "cut"
	case !settled:
		return false
	case n.when == "never" || n.when != "" && r.status[n.on[0]] != n.when:
		r.status[i] = "skipped"
	case n.kind == "call":
		r.status[i] = "called"
		r.fresh = append(r.fresh, n.ref)
	case n.kind == "each":
		r.status[i] = "called"
		r.feed(i)
	default:
		r.settle(i, n.fails)
	}
	return true
}

// feed calls as many items as may be, or settles the step.
func (r *reference) feed(i int) {
	n, items := r.nodes[i], r.items[i]
	running := 0
	for _, s := range items {
		if s == "called" {
			running++
		}
	}
	stop := !n.passOver && slices.Contains(items, "failed")
	for k := range items {
		if items[k] == "" && running < n.concurrency && !stop && !r.failed {
			items[k] = "called"
			r.fresh = append(r.fresh, fmt.Sprintf("%s.%d", n.ref, k))
			running++
		}
	}
	switch {
	case running > 0:
	case stop:
		r.settle(i, true)
	case !slices.Contains(items, ""):
		r.settle(i, false)
	default:
		r.status[i] = "" // the flow has failed meanwhile
	}
}

func (r *reference) settle(i int, fails bool) {
	if fails {
		r.status[i] = "failed"
		r.failed = r.failed || r.nodes[i].onFailure == "fail_workflow"
		return
	}
	r.status[i] = "done"
	r.order = append(r.order, i)
}

const undoPart = -2

// parse a name of who is called: the step, and which item or compensation.
func (r *reference) parse(name string) (i, part int) {
	ref, rest, _ := strings.Cut(name, ".")
	i = slices.IndexFunc(r.nodes, func(n node) bool { return n.ref == ref })
	switch rest {
	case "":
		return i, -1
	case "undo":
		return i, undoPart
	}
	part, _ = strconv.Atoi(rest)
	return i, part
}

// fails says how who is called answers.
func (r *reference) fails(name string) bool {
	i, part := r.parse(name)
	switch {
	case part == undoPart:
		return r.nodes[i].undoFails
	case part >= 0:
		return r.nodes[i].items[part]
	}
	return r.nodes[i].fails
}

// answered settles who was called.
func (r *reference) answered(name string) {
	i, part := r.parse(name)
	word := map[bool]string{false: "done", true: "failed"}[r.fails(name)]
	switch {
	case part == undoPart:
		r.undone[i] = word
	case part >= 0:
		r.items[i][part] = word
		r.feed(i)
	default:
		r.settle(i, r.fails(name))
	}
}

// compensate returns whose undoing is called next, of a flow that has failed and of which nothing runs; "": nobody's.
func (r *reference) compensate() string {
	for _, i := range slices.Backward(r.order) {
		switch n := r.nodes[i]; {
		case n.undo == "" || r.undone[i] != "":
		case n.undo == "effect":
			r.undone[i] = map[bool]string{false: "done", true: "failed"}[n.undoFails]
		default:
			r.undone[i] = "called"
			return n.ref + ".undo"
		}
	}
	return ""
}

// world is where the random flows run.
type world struct {
	env  *enginetest.Env
	conn *nats.Conn
	n    int
}

// Random graphs with random failures, whose calls are answered in a random order, come to what the reference says: who is asked, who is done,
// has failed, is skipped, or never begins, and how the flow ends.
func TestRandomGraphs(t *testing.T) {
	someChecks(t)
	w := &world{env: enginetest.New(t), conn: natstest.Start(t).Conn(t)}
	rapid.Check(t, func(r *rapid.T) { w.play(t, r) })
}

// someChecks are few among all tests, and many where there is time.
func someChecks(t *testing.T) {
	t.Helper()
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.Contains(arg, "rapid.checks") }) {
		checks := "12"
		if os.Getenv("POINTSMAN_TEST_LONG") != "" {
			checks = "2000"
		}
		if err := flag.Set("rapid.checks", checks); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) play(t *testing.T, r *rapid.T) {
	w.n++
	name := fmt.Sprintf("f%d", w.n)
	ref := newReference(drawGraph(r))
	text := yamlOf(name, ref.nodes)

	asked := make(chan *nats.Msg, 100)
	sub, err := w.conn.ChanSubscribe(name+".>", asked)
	if err == nil {
		err = w.conn.Flush()
	}
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	stop := w.env.Serve(engine.WorkerConfig{Machines: machines(t, w.conn, text), PollInterval: 20 * time.Millisecond})
	defer stop()
	in := start(w.env, name, `{"there": 1}`)

	waiting := map[string]*nats.Msg{}
	for {
		for _, name := range ref.begin() {
			waiting[name] = nil
		}
		if len(waiting) == 0 && ref.failed {
			if name := ref.compensate(); name != "" {
				waiting[name] = nil
			}
		}
		for slices.Contains(slices.Collect(maps.Values(waiting)), nil) {
			w.ask(r, name, text, waiting, asked)
		}
		if len(waiting) == 0 {
			break
		}
		next := rapid.SampledFrom(slices.Sorted(maps.Keys(waiting))).Draw(r, "answer")
		body := `"ok"`
		if ref.fails(next) {
			body = `{"error": "no"}`
		}
		if err := waiting[next].Respond([]byte(body)); err != nil {
			r.Fatal(err)
		}
		delete(waiting, next)
		ref.answered(next)
		i, part := ref.parse(next)
		in.Until("settled "+next, func(got engine.Instance) bool {
			return !got.Status.Live() || slices.Contains([]string{"done", "failed"}, partOf(got, ref.nodes[i].ref, part))
		})
	}
	got := in.Until("ended", func(got engine.Instance) bool { return !got.Status.Live() })
	w.compare(r, ref, text, got)
	select {
	case m := <-asked:
		r.Fatalf("%s\n%s is asked and should not be", text, m.Subject)
	default:
	}
}

// ask takes a call that should come.
func (w *world) ask(r *rapid.T, flow, text string, waiting map[string]*nats.Msg, asked <-chan *nats.Msg) {
	select {
	case m := <-asked:
		name := strings.TrimPrefix(m.Subject, flow+".")
		if have, wanted := waiting[name]; !wanted || have != nil {
			r.Fatalf("%s\n%s is asked, and %v should be", text, m.Subject, waiting)
		}
		waiting[name] = m
	case <-time.After(patience):
		r.Fatalf("%s\nnobody is asked, and %v should be", text, waiting)
	}
}

func (w *world) compare(r *rapid.T, ref *reference, text string, got engine.Instance) {
	for i, n := range ref.nodes {
		want := ref.status[i]
		if want == "cut" {
			want = "skipped"
		}
		if have := partOf(got, n.ref, -1); have != want {
			r.Errorf("%s\n%s is %q, want %q", text, n.ref, have, want)
		}
		if have := partOf(got, n.ref, undoPart); have != ref.undone[i] {
			r.Errorf("%s\nthe compensation of %s is %q, want %q", text, n.ref, have, ref.undone[i])
		}
	}
	if want := map[bool]engine.Status{true: engine.StatusFailed, false: engine.StatusDone}[ref.failed]; got.Status != want {
		r.Errorf("%s\nis %s, want %s", text, got.Status, want)
	}
}

// partOf is the status of a step, of an item of it, or of its compensation. One whose step is settled counts as it.
func partOf(in engine.Instance, ref string, part int) string {
	var state struct {
		Steps map[string]struct {
			Status       string
			Items        []struct{ Status string }
			Compensation struct{ Status string }
		}
	}
	_ = json.Unmarshal(in.State, &state) // the state before the first step is the payload
	s := state.Steps[ref]
	switch {
	case part == undoPart:
		return s.Compensation.Status
	case part >= 0 && part < len(s.Items):
		return s.Items[part].Status
	}
	return s.Status
}

// statuses of the steps of an instance.
func statuses(in engine.Instance) map[string]string {
	var state struct {
		Steps map[string]struct{ Status string }
	}
	_ = json.Unmarshal(in.State, &state) // the state before the first step is the payload
	all := map[string]string{}
	for ref, s := range state.Steps {
		all[ref] = s.Status
	}
	return all
}
