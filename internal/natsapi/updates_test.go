package natsapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
)

type decision struct {
	Approved bool   `json:"approved"`
	Approver string `json:"approver"`
}

// approval is a machine that awaits the update "decision", whose validator is Go code beside its worker, and "note", which has none.
func approval(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[json.RawMessage]{
		Name: "approval", Start: "begin",
		Steps: map[string]engine.Step[json.RawMessage]{
			"begin": func(context.Context, *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
				return engine.Await("decided").OrUpdate("decision", "note").SetEvent("status", "awaiting-approval"), nil
			},
			"decided": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
				if v.Awaited[0].Name == "note" {
					return engine.Await("decided").OrUpdate("decision", "note").Consuming(), nil
				}
				return engine.Done(v.Awaited[0].Payload).SetEvent("status", "decided"), nil
			},
		},
		Validators: map[string]engine.Validator{"decision": engine.ValidatorOf(func(_ context.Context, d decision) error {
			switch d.Approver {
			case "":
				return engine.Refuse("who approves it?")
			case "crash":
				panic("crash")
			}
			return nil
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

func (b *bundle) approval(key string) api.Instance {
	b.Helper()
	var in api.Instance
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "approval", CorrelationKey: key}, &in)
	return b.becomes(in.ID, engine.StatusAwaiting)
}

// The bare answers of updates, as other programs see them.
func testUpdates(b *bundle) {
	in := b.approval("upd-1")
	msg := b.raw(natsapi.VerbUpdate, []byte(`{"ref": "key:upd-1", "name": "decision", "arg": {"approved": true}}`))
	equal(b, "a refusal", string(msg.Data), `{"accepted":false,"reason":"who approves it?"}`)
	equal(b, "is no error", msg.Header.Get(subjects.HeaderServiceErrorCode), "")
	msg = b.raw(natsapi.VerbUpdate, []byte(`{"ref": "key:upd-1", "name": "early", "wait": "10ms"}`))
	equal(b, "what no step takes", string(msg.Data), `{"accepted":true,"run":null}`)
	var inbox api.Page[api.Signal]
	b.ask(natsapi.VerbInbox, api.PageRequest{Ref: in.ID}, &inbox)
	equal(b, "is in the inbox", fmt.Sprintf("%d %s %s", len(inbox.Items), inbox.Items[0].Kind, inbox.Items[0].Name), "1 update early")

	request := map[string]any{"ref": "key:upd-1", "name": "decision", "arg": decision{true, "ann"}, "wait": "60s"}
	var done, again api.Updated
	b.ask(natsapi.VerbUpdate, request, &done, subjects.HeaderIdempotencyKey, "i")
	if !done.Accepted || done.Run == nil || done.Run.Status != engine.StatusDone || string(done.Run.Result) != `{"approved":true,"approver":"ann"}` {
		b.Errorf("accepted: %+v", done)
	}
	b.ask(natsapi.VerbUpdate, request, &again, subjects.HeaderIdempotencyKey, "i")
	equal(b, "again, after the end", again.Accepted && again.Run != nil && again.Run.ID == in.ID, true)
	request["arg"] = decision{false, "ann"}
	conflict := b.refused(api.CodeConflict, natsapi.VerbUpdate, request, subjects.HeaderIdempotencyKey, "i")
	equal(b, "of whom", fmt.Sprint(conflict.Details["instance_id"]), in.ID)
	delete(request, "wait")
	gone := b.refused(api.CodeNoTarget, natsapi.VerbUpdate, request)
	equal(b, "it has ended", fmt.Sprint(gone.Details["status"]), "done")
	_ = b.refused(api.CodeNotFound, natsapi.VerbUpdate, map[string]any{"ref": "key:upd-nobody", "name": "decision"})
	_ = b.refused(api.CodeNotFound, natsapi.VerbUpdate, request, subjects.HeaderProject, "other")
	for field, bad := range map[string]map[string]any{
		"ref": {"ref": "x", "name": "n"}, "name": {"ref": in.ID}, "wait": {"ref": in.ID, "name": "n", "wait": "soon"}, "idempotency_key": {"ref": in.ID, "name": "n", "idempotency_key": "a\nb"},
		"dedup_key": {"ref": in.ID, "name": "n", "dedup_key": "d"},
	} {
		e := b.refused(api.CodeInvalid, natsapi.VerbUpdate, bad)
		equal(b, field, fmt.Sprint(e.Details["field"]), field)
	}
	var status json.RawMessage
	b.ask(natsapi.VerbEvents, api.EventsRequest{Ref: "key:upd-1", Key: "status"}, &status)
	equal(b, "the bare value of a key", string(status), `"decided"`)
	never := b.refused(api.CodeNotFound, natsapi.VerbEvents, api.EventsRequest{Ref: "key:upd-1", Key: "never"})
	contains(b, "never published", never.Message, `"never"`)
}

// A request that waits is answered when the step has committed, and takes no slot of the others.
func testUpdateWaits(b *bundle) {
	in := b.approval("upd-wait")
	var paused api.Instance
	b.ask(natsapi.VerbPause, api.RefRequest{Ref: in.ID}, &paused)
	var early, done api.Updated
	note := map[string]any{"ref": in.ID, "name": "note", "arg": "x", "wait": "20ms", "idempotency_key": "i"}
	b.ask(natsapi.VerbUpdate, note, &early)
	equal(b, "while it is paused", early.Accepted && early.Run == nil, true)
	b.ask(natsapi.VerbResume, api.RefRequest{Ref: in.ID}, &paused)
	note["wait"] = "60s"
	b.ask(natsapi.VerbUpdate, note, &done)
	if done.Run == nil || done.Run.Step != "decided" || done.Run.InboxCount != 0 {
		b.Errorf("resumed: %+v", done.Run)
	}
}

// A validator that fails is unavailable, with the reason, and nothing is delivered.
func testUpdateIsRefused(b *bundle) {
	in := b.approval("upd-crash")
	e := b.refused(api.CodeUnavailable, natsapi.VerbUpdate, map[string]any{"ref": in.ID, "name": "decision", "arg": decision{true, "crash"}})
	contains(b, "message", e.Message, `update "decision" of machine "approval" cannot be validated, and was not delivered: its validator panicked`)
	equal(b, "inbox", b.get(in.ID).InboxCount, 0)
}

// The configuration's schema and condition, and then a service, decide on the updates of a remote machine.
func testRemoteValidator(b *bundle) {
	nc := b.stack.NATS.Conn(b)
	b.answers(nc, "pointsman.step.claim.>", `{"outcome": "await", "updates": ["decision", "review"], "set_events": {"status": {"state": "waiting"}}}`)
	var in api.Instance
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "claim"}, &in)
	b.becomes(in.ID, engine.StatusAwaiting)
	says := func(name, arg string) string {
		b.Helper()
		var done api.Updated
		err := b.client.Do(b.Context(), natsapi.VerbUpdate, map[string]any{"ref": in.ID, "name": name, "arg": json.RawMessage(arg)}, &done)
		switch {
		case err != nil:
			return err.Error()
		case done.Accepted:
			return "accepted"
		}
		return done.Reason
	}
	equal(b, "schema", says("decision", `{"amount": 7}`), "missing property 'approver'")
	equal(b, "condition", says("decision", `{"approver": "ann", "amount": 101}`), "more than 100 need the board")
	equal(b, "both", says("decision", `{"approver": "ann", "amount": 100}`), "accepted")
	contains(b, "no service", says("review", `1`), "no service answers pointsman.validate.claim.review")
	equal(b, "inbox", b.get(in.ID).InboxCount, 1)
	sub := b.answers(nc, "pointsman.validate.claim.review", `{"reason": "not by you"}`)
	equal(b, "the service refuses", says("review", `1`), "not by you")
	if err := sub.Unsubscribe(); err != nil {
		b.Fatal(err)
	}
	b.answers(nc, "pointsman.validate.claim.review", `{}`)
	equal(b, "the service accepts", says("review", `1`), "accepted")
	equal(b, "inbox", b.get(in.ID).InboxCount, 2)
	var status json.RawMessage
	b.ask(natsapi.VerbEvents, api.EventsRequest{Ref: in.ID, Key: "status"}, &status)
	equal(b, "published", strings.ReplaceAll(string(status), " ", ""), `{"state":"waiting"}`)
}

func (b *bundle) answers(nc *nats.Conn, subject, body string) *nats.Subscription {
	b.Helper()
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(body)) })
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		b.Fatal(err)
	}
	return sub
}

// The bridge asks the validator that a worker has, over NATS, as would any program.
func testValidatorOfWorker(b *bundle) {
	msg, err := b.stack.NATS.Conn(b).Request("pointsman.validate.approval.decision", []byte(`{"approved": true}`), time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	equal(b, "verdict", string(msg.Data), `{"reason":"who approves it?"}`)
}

func contains(t testing.TB, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want it to say %q", what, got, want)
	}
}
