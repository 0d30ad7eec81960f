package contracttest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// configuration has two routes for each surface, and the subjects that they read: calls, whose messages nobody has to take, and halt, which is paused.
func configuration() (text string, filters []string) {
	text = "database: {url: \"${POINTSMAN_DATABASE_URL}\"}\nnats: {url: \"${POINTSMAN_NATS_URL}\"}\nroutes:\n"
	for surface := range surfaces {
		for _, kind := range []string{"calls", "halt"} {
			name := routeOf(surface, kind)
			text += fmt.Sprintf("  - {name: %s, stream: CALLS, subject: %s.*, correlation_key: \"{{subject[0]}}-{{subject[1]}}\", signal: note, on_missing: reject}\n", name, name)
			filters = append(filters, name+".*")
		}
	}
	return text, filters
}

func routeOf(surface, kind string) string { return kind + "-" + strings.ToLower(surface) }

// visitor is a machine that publishes a value, waits for a signal "go", and ends with its payload; a payload of false fails it.
func visitor(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[json.RawMessage]{Name: "visitor", Start: "enter", Steps: map[string]engine.Step[json.RawMessage]{
		"enter": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			return engine.Await("leave", "go").SetEvent("seen", v.State), nil
		},
		"leave": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			if payload := v.Awaited[0].Payload; string(payload) != "false" {
				return engine.Done(payload), nil
			}
			return engine.Stop("it was told to"), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// bundle is one test on one surface; its keys are its own.
type bundle struct {
	*testing.T
	driver
	stack   *apptest.Stack
	surface string
	prefix  string
}

// surfaces that the suite asks.
var surfaces = map[string]func(*testing.T, *apptest.Stack) driver{"HTTP": newHTTP, "NATS": newNATS, "Go": newGo, "CLI": newCommandLine, "CLIOverHTTP": newCommandLineOverHTTP}

// tests of the suite. Those of an operator are about routes and dead letters, which are the bridge's and the stream's: package engine knows
// neither, so there they are skipped.
var tests = map[string]struct {
	run      func(*bundle)
	operator bool
}{
	"Life": {run: testLife}, "Numbers": {run: testNumbers}, "Duplicates": {run: testDuplicates}, "Conflicts": {run: testConflicts}, "Nobody": {run: testNobody},
	"Invalid": {run: testInvalid}, "Operate": {run: testOperate}, "List": {run: testList}, "Pages": {run: testPages}, "Values": {run: testValues},
	"Jobs": {run: testJobs}, "Families": {run: testFamilies}, "Broken": {run: testBroken}, "Purge": {run: testPurge},
	"Updates": {run: testUpdates}, "Refusals": {run: testRefusals}, "Children": {run: testChildren},
	"Triggers": {run: testTriggers}, "Awaited": {run: testAwaited}, "Inboxes": {run: testInboxes}, "Held": {run: testHeld}, "Unknown": {run: testUnknown},
	"DeadLetters": {run: testDeadLetters, operator: true}, "Routes": {run: testRoutes, operator: true},
}

func TestContract(t *testing.T) {
	t.Parallel()
	text, filters := configuration()
	stack := apptest.Start(t, text, map[string][]string{"CALLS": filters}, visitor(t), decider(t), parent(t), waiter(t))
	t.Run("HTTP/Client", func(t *testing.T) {
		t.Parallel()
		testClient(t, stack)
	})
	for surface, make := range surfaces {
		for name, test := range tests {
			t.Run(surface+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := make(t, stack)
				if _, operates := d.(operator); test.operator && !operates {
					t.Skip("package engine has no routes and no dead letters: they are package bridge's")
				}
				test.run(&bundle{t, d, stack, surface, strings.ToLower(surface) + "/" + name + " %ü "})
			})
		}
	}
}

// start a visitor with a key of this test, which waits.
func (b *bundle) begin(key, state string) api.Instance {
	b.Helper()
	return b.beginOf("visitor", key, state)
}

func (b *bundle) beginOf(machine, key, state string) api.Instance {
	b.Helper()
	in, err := b.start(b.Context(), api.NewInstance{Machine: machine, CorrelationKey: b.prefix + key, State: json.RawMessage(state)})
	if err != nil {
		b.Fatal(err)
	}
	b.becomes(key, engine.StatusAwaiting)
	return in
}

func (b *bundle) ref(key string) string { return "key:" + b.prefix + key }

func (b *bundle) becomes(key string, status engine.Status) (in api.Instance) {
	b.Helper()
	apptest.Eventually(b, key+" is "+string(status), func() (bool, error) {
		var err error
		in, err = b.get(b.Context(), b.ref(key))
		return in.Status == status, fmt.Errorf("it is %s: %w", in.Status, err)
	})
	return in
}

// is wants an error of a code; "none" is none.
func (b *bundle) is(want string, err error) {
	b.Helper()
	if got := code(err); got != want {
		b.Errorf("got %s (%v), want %s", got, err, want)
	}
}

func equal[T comparable](b *bundle, what string, got, want T) {
	b.Helper()
	if got != want {
		b.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// words are values with a space between each.
func words(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

func compact(b *bundle, text json.RawMessage) string {
	b.Helper()
	var v strings.Builder
	for _, field := range strings.Fields(string(text)) {
		v.WriteString(field)
	}
	return v.String()
}

func testLife(b *bundle) {
	in := b.begin("a", `{"n": 1}`)
	waiting, err := b.get(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "waits", fmt.Sprint(waiting.Step, waiting.Awaits, *waiting.CorrelationKey == b.prefix+"a"), "leave[go] true")
	value, err := b.event(b.Context(), b.ref("a"), "seen")
	b.is("none", err)
	equal(b, "event", compact(b, value), `{"n":1}`)
	_, err = b.event(b.Context(), b.ref("a"), "unseen")
	b.is(api.CodeNotFound, err)
	done, err := b.signal(b.Context(), b.ref("a"), "note", `[1, 2]`, "")
	b.is("none", err)
	equal(b, "delivered", done.Result+done.InstanceID, "delivered"+in.ID)
	inbox, err := b.inbox(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "inbox", fmt.Sprint(len(inbox), inbox[0].ID == *done.SignalID, inbox[0].Kind, inbox[0].Name, compact(b, inbox[0].Payload)), "1 truesignalnote[1,2]")
	_, err = b.signal(b.Context(), in.ID, "go", `"bye"`, "")
	b.is("none", err)
	end, err := b.wait(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "end", string(end.Status)+compact(b, end.Result), `done"bye"`)
	steps, err := b.history(b.Context(), b.ref("a"))
	b.is("none", err)
	equal(b, "history", fmt.Sprint(len(steps), steps[0].Step, steps[0].Outcome, steps[1].Step, steps[1].Outcome), "2leavedoneenterawait")
	_, err = b.signal(b.Context(), b.ref("a"), "go", `1`, "")
	b.is(api.CodeNoTarget, err)
	equal(b, "who has ended", holder(err), in.ID)
}

func testNumbers(b *bundle) {
	const n = `{"id":12345678901234567890,"price":10.50,"big":1e400}`
	b.begin("a", n)
	_, err := b.signal(b.Context(), b.ref("a"), "note", n, "")
	b.is("none", err)
	inbox, err := b.inbox(b.Context(), b.ref("a"))
	b.is("none", err)
	in, err := b.get(b.Context(), b.ref("a"))
	b.is("none", err)
	value, err := b.event(b.Context(), b.ref("a"), "seen")
	b.is("none", err)
	for what, text := range map[string]json.RawMessage{"inbox": inbox[0].Payload, "state": in.State, "event": value} {
		got := compact(b, text)
		if !strings.Contains(got, `"id":12345678901234567890`) || !strings.Contains(got, `"price":10.50`) || !strings.Contains(got, "1"+strings.Repeat("0", 400)) {
			b.Errorf("%s: %.100s", what, got)
		}
	}
}

func testDuplicates(b *bundle) {
	first, err := b.start(b.Context(), api.NewInstance{Machine: "visitor", DedupKey: b.prefix + "d"})
	b.is("none", err)
	again, err := b.start(b.Context(), api.NewInstance{Machine: "visitor", DedupKey: b.prefix + "d"})
	b.is("none", err)
	equal(b, "same", again.ID, first.ID)
	_, err = b.start(b.Context(), api.NewInstance{Machine: "visitor", DedupKey: b.prefix + "d", State: json.RawMessage(`1`)})
	b.is(api.CodeConflict, err)
	one, err := b.signal(b.Context(), first.ID, "note", `{"a": 1}`, "d")
	b.is("none", err)
	two, err := b.signal(b.Context(), first.ID, "note", `{"a": 1}`, "d")
	b.is("none", err)
	equal(b, "signals", one.Result+two.Result+fmt.Sprint(*one.SignalID == *two.SignalID), "deliveredduplicatetrue")
	_, err = b.signal(b.Context(), first.ID, "note", `{"a": 2}`, "d")
	b.is(api.CodeConflict, err)
	_, err = b.signal(b.Context(), first.ID, "other", `{"a": 1}`, "d")
	b.is(api.CodeConflict, err)
}

// A conflict names who holds the key.
func testConflicts(b *bundle) {
	in := b.begin("a", `1`)
	_, err := b.start(b.Context(), api.NewInstance{Machine: "visitor", CorrelationKey: b.prefix + "a"})
	b.is(api.CodeConflict, err)
	equal(b, "holder", holder(err), in.ID)
	in, err = b.start(b.Context(), api.NewInstance{Machine: "visitor", UniqueKey: b.prefix + "u"})
	b.is("none", err)
	_, err = b.start(b.Context(), api.NewInstance{Machine: "visitor", UniqueKey: b.prefix + "u"})
	b.is(api.CodeConflict, err)
	equal(b, "holder", holder(err), in.ID)
}

func testNobody(b *bundle) {
	for _, ref := range []string{b.ref("nobody"), "00000001-0000-7000-8000-000000000000"} {
		_, err := b.get(b.Context(), ref)
		b.is(api.CodeNotFound, err)
		_, err = b.wait(b.Context(), ref)
		b.is(api.CodeNotFound, err)
		_, err = b.inbox(b.Context(), ref)
		b.is(api.CodeNotFound, err)
		_, err = b.history(b.Context(), ref)
		b.is(api.CodeNotFound, err)
		_, err = b.event(b.Context(), ref, "seen")
		b.is(api.CodeNotFound, err)
		_, err = b.cancel(b.Context(), ref, "")
		b.is(api.CodeNotFound, err)
		_, err = b.signal(b.Context(), ref, "go", `1`, "")
		b.is(api.CodeNoTarget, err)
		for _, verb := range []string{"retry", "pause", "resume"} {
			_, err = b.operate(b.Context(), verb, ref)
			b.is(api.CodeNotFound, err)
		}
	}
}

func testInvalid(b *bundle) {
	for _, n := range []api.NewInstance{
		{Machine: ""},
		{Machine: "a.b"},
		{Machine: "visitor", CorrelationKey: strings.Repeat("k", 513)},
		{Machine: "visitor", CorrelationKey: "a\nb"},
		{Machine: "visitor", Queue: "a.b"},
		{Machine: "visitor", State: json.RawMessage(`"\u0000"`)},
		{Machine: "visitor", State: json.RawMessage(`"` + strings.Repeat("x", 1<<20-1) + `"`)},
	} {
		if _, cli := b.driver.(onCommandLine); cli && len(n.State) > 1000 {
			continue // an argument of a program is not so long
		}
		_, err := b.start(b.Context(), n)
		if got := code(err); got != api.CodeInvalid && got != api.CodeTooLarge {
			b.Errorf("%.80v: %s", n, got)
		}
	}
	b.begin("a", `1`)
	for _, s := range [][3]string{{"a b", `1`, ""}, {"note", `"\u0000"`, ""}, {"note", `1`, strings.Repeat("d", 513)}, {"note", `1`, "a\tb"}} {
		_, err := b.signal(b.Context(), b.ref("a"), s[0], s[1], s[2])
		b.is(api.CodeInvalid, err)
	}
	for _, ref := range []string{"x", "key:", "key:" + strings.Repeat("k", 513)} {
		_, err := b.get(b.Context(), ref)
		if ref == "key:" && code(err) == api.CodeNotFound { // in Go that is the zero Ref
			continue
		}
		b.is(api.CodeInvalid, err)
	}
	_, err := b.list(b.Context(), api.ListRequest{Status: "gone"})
	b.is(api.CodeInvalid, err)
}

func testOperate(b *bundle) {
	b.begin("a", `1`)
	in, err := b.operate(b.Context(), "pause", b.ref("a"))
	b.is("none", err)
	equal(b, "paused", in.Paused, true)
	_, err = b.signal(b.Context(), b.ref("a"), "go", `false`, "")
	b.is("none", err)
	in, err = b.operate(b.Context(), "resume", b.ref("a"))
	b.is("none", err)
	equal(b, "paused", in.Paused, false)
	in = b.becomes("a", engine.StatusFailed)
	equal(b, "why", *in.LastError, "it was told to")
	_, err = b.operate(b.Context(), "pause", b.ref("a"))
	b.is(api.CodeConflict, err)
	in, err = b.operate(b.Context(), "retry", in.ID)
	b.is("none", err)
	equal(b, "live", in.Status.Live(), true)
	b.becomes("a", engine.StatusFailed)
	b.begin("b", `1`)
	for range 2 {
		in, err = b.cancel(b.Context(), b.ref("b"), "enough")
		b.is("none", err)
		equal(b, "canceled", string(in.Status)+*in.LastError, "canceledenough")
	}
}

func testList(b *bundle) {
	for _, key := range []string{"1", "2", "3"} {
		b.begin(key, `1`)
	}
	_, err := b.cancel(b.Context(), b.ref("2"), "")
	b.is("none", err)
	for status, want := range map[engine.Status]string{"": "321", engine.StatusAwaiting: "31", engine.StatusCanceled: "2"} {
		page, err := b.list(b.Context(), api.ListRequest{CorrelationPrefix: b.prefix, Status: status, Machine: "visitor"})
		b.is("none", err)
		got := ""
		for _, in := range page.Items {
			got += strings.TrimPrefix(*in.CorrelationKey, b.prefix)
		}
		equal(b, "list "+string(status), got, want)
	}
}

// Pages follow one another without a gap, and the last one has no cursor.
func testPages(b *bundle) {
	for _, key := range []string{"1", "2", "3", "4", "5"} {
		_, err := b.start(b.Context(), api.NewInstance{Machine: "visitor", CorrelationKey: b.prefix + key})
		b.is("none", err)
	}
	got := ""
	for _, in := range pages(b, 2, func(cursor string) (api.Page[api.Instance], error) {
		return b.list(b.Context(), api.ListRequest{CorrelationPrefix: b.prefix, Limit: 2, Cursor: cursor})
	}) {
		got += strings.TrimPrefix(*in.CorrelationKey, b.prefix)
	}
	equal(b, "pages", got, "54321")
}

// pages are the items of all pages, of which none has more than limit.
func pages[T any](b *bundle, limit int, ask func(cursor string) (api.Page[T], error)) (all []T) {
	b.Helper()
	for cursor := ""; ; {
		page, err := ask(cursor)
		if err != nil {
			b.Fatal(err)
		}
		if len(page.Items) > limit {
			b.Errorf("a page has %d items, want at most %d", len(page.Items), limit)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all
		}
		cursor = *page.NextCursor
	}
}
