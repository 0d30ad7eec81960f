package contracttest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

// waiter is a machine that waits for the event whose key is its state, and ends with what came of it.
func waiter(t *testing.T) *engine.Machine {
	t.Helper()
	return define(t, engine.Definition[json.RawMessage]{Name: "waiter", Start: "wait", Steps: map[string]engine.Step[json.RawMessage]{
		"wait": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			var key string
			if err := json.Unmarshal(v.State, &key); err != nil {
				return engine.Stop(err.Error()), nil
			}
			return engine.Await("end").OrEvent(engine.EventWait{Key: key}), nil
		},
		"end": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			if v.Canceled {
				return engine.Done("canceled"), nil
			}
			return engine.Done(v.Awaited[0].Payload), nil
		},
	}})
}

// become wants a trigger that is as it is.
func (b *bundle) become(what string, t api.Trigger, err error, status engine.TriggerStatus) {
	b.Helper()
	b.is("none", err)
	equal(b, what, t.Status, status)
}

func (b *bundle) send(key, payload string, hold time.Duration) (api.Trigger, error) {
	b.Helper()
	t, held, err := b.sendEvent(b.Context(), b.prefix+key, payload, hold)
	if held {
		b.Errorf("the event for %s is held", key)
	}
	return t, err
}

// A trigger that nobody in particular waits for: made, sent, sent again, canceled, and its key used again.
func testTriggers(b *bundle) {
	secs := int64(60)
	n := api.NewTrigger{EventKey: b.prefix + "k", TimeoutSecs: &secs, RequestPayload: json.RawMessage(`{"n": 1}`)}
	made, err := b.createTrigger(b.Context(), "", n)
	b.become("made", made, err, engine.TriggerWaiting)
	equal(b, "as asked", words(made.EventKey == n.EventKey, made.Source, made.TimeoutSecs, compact(b, made.RequestPayload)), `true api 60 {"n":1}`)
	_, err = b.createTrigger(b.Context(), "", n)
	b.is(api.CodeConflict, err)
	sent, err := b.send("k", `{"yes": true, "n": 1.5}`, 0)
	b.become("sent", sent, err, engine.TriggerReceived)
	again, err := b.send("k", `{"n": 1.50, "yes": true}`, 0)
	b.become("sent again", again, err, engine.TriggerReceived)
	equal(b, "one", words(sent.ID == made.ID, again.ID == made.ID, compact(b, again.ResponsePayload)), `true true {"n":1.5,"yes":true}`)
	_, err = b.send("k", `{"yes": false}`, 0)
	b.is(api.CodeConflict, err)
	_, err = b.cancelTrigger(b.Context(), n.EventKey)
	b.is(api.CodeConflict, err)

	next, err := b.createTrigger(b.Context(), "", n)
	b.become("next", next, err, engine.TriggerWaiting)
	for range 2 {
		canceled, err := b.cancelTrigger(b.Context(), n.EventKey)
		b.become("canceled", canceled, err, engine.TriggerCanceled)
		equal(b, "the next one", canceled.ID, next.ID)
	}
	_, err = b.send("k", `1`, 0)
	b.is(api.CodeConflict, err)
	got, err := b.trigger(b.Context(), n.EventKey)
	b.become("latest", got, err, engine.TriggerCanceled)
	stats, err := b.triggerStats(b.Context())
	b.is("none", err)
	if stats.Received < 1 || stats.Canceled < 1 {
		b.Errorf("%+v", stats)
	}
}

// An instance that awaits an event goes on with it, or with its cancel.
func testAwaited(b *bundle) {
	for _, key := range []string{"a", "b"} {
		state, err := json.Marshal(b.prefix + key)
		if err != nil {
			b.Fatal(err)
		}
		in := b.beginOf("waiter", key, string(state))
		t, err := b.trigger(b.Context(), b.prefix+key)
		b.become("awaited", t, err, engine.TriggerWaiting)
		equal(b, "whose", words(t.Source, t.JobRunID.String() == in.ID), "job_run true")
	}
	_, err := b.send("a", `{"yes": true}`, 0)
	b.is("none", err)
	_, err = b.cancelTrigger(b.Context(), b.prefix+"b")
	b.is("none", err)
	for key, want := range map[string]string{"a": `{"yes":true}`, "b": `"canceled"`} {
		end, err := b.wait(b.Context(), b.ref(key))
		b.is("none", err)
		equal(b, "end of "+key, string(end.Status)+compact(b, end.Result), "done"+want)
	}
}

// Events that are waited for in the name of an instance go into its inbox; its triggers are listed page by page.
func testInboxes(b *bundle) {
	in := b.begin("a", `1`)
	for _, key := range []string{"1", "2", "3"} {
		_, err := b.createTrigger(b.Context(), b.ref("a"), api.NewTrigger{EventKey: b.prefix + key})
		b.is("none", err)
	}
	listed := func(status string) (keys string) {
		for _, t := range pages(b, 2, func(cursor string) (api.Page[api.Trigger], error) {
			return b.triggers(b.Context(), api.TriggersRequest{WorkflowRunID: in.ID, Status: status, Limit: 2, Cursor: cursor})
		}) {
			keys += strings.TrimPrefix(t.EventKey, b.prefix)
		}
		return keys
	}
	equal(b, "waiting", listed("waiting"), "321")
	_, err := b.send("2", `[1]`, 0)
	b.is("none", err)
	equal(b, "waiting", listed("waiting"), "31")
	n, err := b.sendPrefix(b.Context(), b.prefix, `[2]`)
	b.is("none", err)
	equal(b, "sent", n, 2)
	n, err = b.sendPrefix(b.Context(), b.prefix, `[2]`)
	b.is("none", err)
	equal(b, "sent again", n, 0)
	equal(b, "all", listed(""), "321")
	inbox, err := b.inbox(b.Context(), in.ID)
	b.is("none", err)
	equal(b, "inbox", words(len(inbox), inbox[0].Kind, inbox[0].Name == b.prefix+"2", compact(b, inbox[0].Payload), compact(b, inbox[1].Payload)), "3 event true [1] [2]")
	_, err = b.createTrigger(b.Context(), b.ref("nobody"), api.NewTrigger{EventKey: b.prefix + "4"})
	b.is(api.CodeNotFound, err)
	_, err = b.triggers(b.Context(), api.TriggersRequest{Status: "gone"})
	b.is(api.CodeInvalid, err)
}

// An event that comes first is held for the trigger.
func testHeld(b *bundle) {
	for range 2 {
		_, held, err := b.sendEvent(b.Context(), b.prefix+"k", `1`, time.Hour)
		b.is("none", err)
		equal(b, "held", held, true)
	}
	_, _, err := b.sendEvent(b.Context(), b.prefix+"k", `2`, time.Hour)
	b.is(api.CodeConflict, err)
	t, err := b.createTrigger(b.Context(), "", api.NewTrigger{EventKey: b.prefix + "k"})
	b.become("made", t, err, engine.TriggerReceived)
	equal(b, "payload", compact(b, t.ResponsePayload), "1")
}

// What no trigger has is not found, and what no trigger can have is invalid.
func testUnknown(b *bundle) {
	for want, key := range map[string]string{api.CodeNotFound: b.prefix + "unknown", api.CodeInvalid: "prefix"} {
		_, err := b.trigger(b.Context(), key)
		b.is(want, err)
		_, _, err = b.sendEvent(b.Context(), key, `1`, 0)
		b.is(want, err)
		_, err = b.cancelTrigger(b.Context(), key)
		b.is(want, err)
	}
	for _, n := range []api.NewTrigger{{EventKey: "stats"}, {EventKey: "a\nb"}, {EventKey: strings.Repeat("k", 513)}, {EventKey: b.prefix + "k", NotifyURL: "example.com"}} {
		_, err := b.createTrigger(b.Context(), "", n)
		b.is(api.CodeInvalid, err)
	}
	_, _, err := b.sendEvent(b.Context(), b.prefix+"k", `1`, 366*24*time.Hour)
	b.is(api.CodeInvalid, err)
}

// A purge deletes what ended long ago, once it is no dry run, and nothing that waits, or ended since.
func testPurge(b *bundle) {
	for _, key := range []string{"old", "new", "waits"} {
		_, err := b.createTrigger(b.Context(), "", api.NewTrigger{EventKey: b.prefix + key})
		b.is("none", err)
		if key != "waits" {
			_, err = b.cancelTrigger(b.Context(), b.prefix+key)
			b.is("none", err)
		}
	}
	db, err := pgx.Connect(b.Context(), b.stack.DatabaseURL)
	if err == nil {
		_, err = db.Exec(b.Context(), `update pointsman.triggers set ended_at = now() - interval '400 days' where event_key = $1`, b.prefix+"old")
		b.is("none", db.Close(b.Context()))
	}
	b.is("none", err)
	// Other surfaces purge theirs at the same time, so there may be more, or the next one is quicker.
	found, err := b.purge(b.Context(), 10_000, true)
	b.is("none", err)
	equal(b, "nothing is so old", found, 0)
	_, err = b.purge(b.Context(), 365, true)
	b.is("none", err)
	_, err = b.purge(b.Context(), 365, false)
	b.is("none", err)
	_, err = b.trigger(b.Context(), b.prefix+"old")
	b.is(api.CodeNotFound, err)
	for _, key := range []string{"new", "waits"} {
		_, err = b.trigger(b.Context(), b.prefix+key)
		b.is("none", err)
	}
	_, err = b.purge(b.Context(), -1, false)
	b.is(api.CodeInvalid, err)
}
