package contracttest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/client"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

// decider is a machine that waits for an update "decide", and ends with its argument.
func decider(t *testing.T) *engine.Machine {
	t.Helper()
	return define(t, engine.Definition[json.RawMessage]{Name: "decider", Start: "ask", Steps: map[string]engine.Step[json.RawMessage]{
		"ask": func(context.Context, *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			return engine.Await("end").OrUpdate("decide"), nil
		},
		"end": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			return engine.Done(v.Awaited[0].Payload), nil
		},
	}, Validators: map[string]engine.Validator{"decide": judge, "broken": broken}})
}

// broken is a validator that cannot decide.
func broken(context.Context, json.RawMessage) error { return errors.New("its service is away") }

// judge refuses "no".
func judge(_ context.Context, arg json.RawMessage) error {
	if string(arg) == `"no"` {
		return engine.Refuse("that is no decision")
	}
	return nil
}

// parent is a machine that starts two deciders, whose keys are its own and a number, and ends when they have.
func parent(t *testing.T) *engine.Machine {
	t.Helper()
	return define(t, engine.Definition[json.RawMessage]{Name: "parent", Start: "bear", Steps: map[string]engine.Step[json.RawMessage]{
		"bear": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			key := v.Instance.CorrelationKey
			return engine.Await("end").OrChildren(engine.AllChildren).
				StartChild(engine.NewInstance{Machine: "decider", CorrelationKey: key + "1"}).
				StartChild(engine.NewInstance{Machine: "decider", CorrelationKey: key + "2"}), nil
		},
		"end": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			return engine.Done(len(v.Awaited)), nil
		},
	}})
}

func define(t *testing.T, d engine.Definition[json.RawMessage]) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(d)
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// Published values are there together, also after the end.
func testValues(b *bundle) {
	in := b.begin("a", `{"n": 1}`)
	_, err := b.signal(b.Context(), in.ID, "go", `1`, "")
	b.is("none", err)
	_, err = b.wait(b.Context(), in.ID)
	b.is("none", err)
	values, err := b.events(b.Context(), b.ref("a"))
	b.is("none", err)
	equal(b, "values", words(len(values), compact(b, values["seen"])), `1 {"n":1}`)
	in, err = b.start(b.Context(), api.NewInstance{Machine: "nobody-runs-it"})
	b.is("none", err)
	values, err = b.events(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "no values", words(len(values), values != nil), "0 true")
	_, err = b.events(b.Context(), b.ref("nobody"))
	b.is(api.CodeNotFound, err)
}

// An update that is accepted is delivered once, however often it is asked for, and its answer has the instance after the step that took it.
func testUpdates(b *bundle) {
	in := b.beginOf("decider", "a", `1`)
	for range 2 {
		done, err := b.update(b.Context(), b.ref("a"), "decide", `{"yes": true}`, "k", time.Minute)
		b.is("none", err)
		if !done.Accepted || done.Run == nil {
			b.Fatalf("%+v", done)
		}
		equal(b, "run", words(done.Run.ID == in.ID, done.Run.Status, compact(b, done.Run.Result)), `true done {"yes":true}`)
	}
	_, err := b.update(b.Context(), b.ref("a"), "decide", `{"yes": false}`, "k", 0)
	b.is(api.CodeConflict, err)
	_, err = b.update(b.Context(), b.ref("a"), "decide", `{"yes": true}`, "another", 0)
	b.is(api.CodeNoTarget, err)
	equal(b, "who has ended", holder(err), in.ID)
	b.begin("early", `1`)
	for range 2 {
		done, err := b.update(b.Context(), b.ref("early"), "later", `1`, "k", 0)
		b.is("none", err)
		equal(b, "accepted, and not taken", words(done.Accepted, done.Run == nil), "true true")
	}
	inbox, err := b.inbox(b.Context(), b.ref("early"))
	b.is("none", err)
	equal(b, "inbox", words(len(inbox), inbox[0].Kind, inbox[0].Name, compact(b, inbox[0].Payload)), "1 update later 1")
}

// A refusal has a reason, is the same again, and leaves the instance as it was.
func testRefusals(b *bundle) {
	in := b.beginOf("decider", "a", `1`)
	before, err := b.get(b.Context(), in.ID)
	b.is("none", err)
	for range 2 {
		done, err := b.update(b.Context(), in.ID, "decide", `"no"`, "k", time.Minute)
		b.is("none", err)
		equal(b, "refused", words(done.Accepted, done.Reason, done.Run == nil), "false that is no decision true")
	}
	after, err := b.get(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "untouched", words(after.Status, after.UpdatedAt, after.InboxCount), words(before.Status, before.UpdatedAt, before.InboxCount))
	_, err = b.update(b.Context(), in.ID, "decide", `"yes"`, "k", 0)
	b.is(api.CodeConflict, err)
	_, err = b.update(b.Context(), in.ID, "a b", `1`, "", 0)
	b.is(api.CodeInvalid, err)
	_, err = b.update(b.Context(), in.ID, "decide", `"\u0000"`, "", 0)
	b.is(api.CodeInvalid, err)
	for _, ref := range []string{b.ref("nobody"), "00000001-0000-7000-8000-000000000000"} {
		_, err = b.update(b.Context(), ref, "decide", `1`, "", 0)
		b.is(api.CodeNotFound, err)
	}
}

// Children are listed in the order of their starts, and still are when they have ended.
func testChildren(b *bundle) {
	in := b.beginOf("parent", "p", `1`)
	want := []string{b.prefix + "p1", b.prefix + "p2"}
	for range 2 {
		children, err := b.children(b.Context(), b.ref("p"))
		b.is("none", err)
		var keys []string
		for _, child := range children {
			keys = append(keys, *child.CorrelationKey)
		}
		if !slices.Equal(keys, want) {
			b.Fatalf("children %q, want %q", keys, want)
		}
		for _, child := range children {
			_, err := b.update(b.Context(), child.ID, "decide", `1`, "k", time.Minute)
			b.is("none", err)
		}
	}
	end, err := b.wait(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "end", string(end.Status)+compact(b, end.Result), "done2")
	children, err := b.children(b.Context(), b.ref("p1"))
	b.is("none", err)
	equal(b, "children of a child", len(children), 0)
	_, err = b.children(b.Context(), b.ref("nobody"))
	b.is(api.CodeNotFound, err)
}

// An update whose validator fails is neither accepted nor refused: it is unavailable, and nothing is delivered.
func testBroken(b *bundle) {
	in := b.beginOf("decider", "a", `1`)
	d := b.driver
	if _, ok := d.(overHTTP); ok { // package client would come again for half a minute
		c, err := client.New(client.Config{URL: b.stack.HTTPURL, RetryFor: -1})
		b.is("none", err)
		d = overHTTP{c}
	}
	for range 2 {
		_, err := d.update(b.Context(), in.ID, "broken", `1`, "k", 0)
		b.is(api.CodeUnavailable, err)
		if err != nil && !strings.Contains(err.Error(), "its service is away") {
			b.Errorf("it does not say why: %v", err)
		}
	}
	inbox, err := b.inbox(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "inbox", len(inbox), 0)
}
