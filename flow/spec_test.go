package flow_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// The pipeline of event-triggers.md, with its fields as they are named here.
const kyc = `
flows:
  - name: kyc-pipeline
    steps:
      - {ref: extract, type: call, subject: jobs.extract}
      - ref: aml-check
        type: wait_for_event
        event_key: "aml-check:{{payload.user_id}}"
        timeout_secs: 86400
        depends_on: [extract]
        on_failure: %s
      - ref: onboard
        type: call
        subject: jobs.onboard
        data: {user: "{{payload.user_id}}", document: "{{steps.extract.output.document}}", verdict: "{{steps['aml-check'].output}}"}
        depends_on: [aml-check]
`

func kycEnv(t *testing.T, onFailure string) (*services, *enginetest.Env, *enginetest.Instance) {
	t.Helper()
	s := newServices(t)
	s.answer("jobs.extract", says(map[string]any{"document": 12345678901234567}))
	s.answer("jobs.onboard", says("welcome"))
	env := enginetest.New(t, machines(t, s.conn, replace(kyc, "%s", onFailure))...)
	in := start(env, "kyc-pipeline", `{"user_id": "user-123"}`)
	env.Drain()
	return s, env, in
}

func TestEventResumesTheWorkflow(t *testing.T) {
	t.Parallel()
	s, env, in := kycEnv(t, "fail_workflow")
	equal(t, "step", in.Expect(engine.StatusAwaiting).Step, "aml-check")
	g, err := env.Client.Trigger(t.Context(), "", "aml-check:user-123")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "trigger", []any{g.Source, g.Type, *g.WorkflowStepRunID, g.TimeoutSecs, *g.WorkflowRunID == in.ID, g.JobRunID == nil}, []any{"workflow_step", "event", "aml-check", 86400, true, true})
	event(t, env, "aml-check:user-123", `{"result": "approved", "risk_score": 0.12}`)
	env.Drain()
	same(t, "result", done(in), `{"onboard": "welcome"}`)
	made := s.calls("jobs.onboard")
	equal(t, "calls", len(made), 1)
	same(t, "data", json.RawMessage(made[0].data), `{"user": "user-123", "document": 12345678901234567, "verdict": {"result": "approved", "risk_score": 0.12}}`)
	equal(t, "key", made[0].key, in.ID.String()+"/onboard")
	equal(t, "transitions", in.Steps(), "flow:begin aml-check aml-check onboard")
}

func TestTimeoutFollowsThePolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"fail_workflow": "", "skip_dependents": `{"onboard": null}`, "continue": `{"onboard": "welcome"}`} {
		_, env, in := kycEnv(t, policy)
		env.Advance(25 * time.Hour)
		if want == "" {
			in.ExpectFailed(`step "aml-check": no event within 24h0m0s`)
		} else {
			same(t, policy, done(in), want)
		}
		g, err := env.Client.Trigger(t.Context(), "", "aml-check:user-123")
		equal(t, policy, []any{g.Status, err}, []any{"timed_out", nil})
	}
}

func TestCancelOfTheTriggerFollowsThePolicy(t *testing.T) {
	t.Parallel()
	_, env, in := kycEnv(t, "fail_workflow")
	if _, err := env.Client.CancelTrigger(t.Context(), "", "aml-check:user-123"); err != nil {
		t.Fatal(err)
	}
	env.Drain()
	in.ExpectFailed(`step "aml-check": its trigger was canceled`)
}

func TestSleep(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: notify, type: set_event, key: notified, value: true}
      - {ref: cooldown, type: sleep, sleep_duration: 30m, depends_on: [notify]}
`)...)
	in := start(env, "f", `{}`)
	env.Drain()
	all, _, err := env.Client.Triggers(t.Context(), engine.TriggerFilter{InstanceID: in.ID}, [16]byte{}, 10)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	equal(t, "sleep", []any{all[0].Type, all[0].Status, all[0].TimeoutSecs, *all[0].Step}, []any{"sleep", "waiting", 1800, "cooldown"})
	env.Advance(29 * time.Minute)
	in.Expect(engine.StatusAwaiting)
	env.Advance(2 * time.Minute)
	same(t, "result", done(in), `{"cooldown": null}`)
	g, err := env.Client.Trigger(t.Context(), "", all[0].EventKey)
	equal(t, "sleep", []any{g.Status, err}, []any{"received", nil})
}

// event_emit_key: both in one flow, as in event-triggers.md, and from one flow to another.
func TestEventChaining(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("jobs.process", says(map[string]int{"rows": 7}))
	env := enginetest.New(t, machines(t, s.conn, `
flows:
  - name: one
    steps:
      - {ref: process, type: call, subject: jobs.process, event_emit_key: "process-done:{{payload.batch_id}}"}
      - {ref: wait-for-process, type: wait_for_event, event_key: "process-done:{{payload.batch_id}}"}
  - name: here
    steps: [{ref: process, type: call, subject: jobs.process, event_emit_key: "done:{{payload.batch_id}}:{{steps.process.output.rows}}"}]
  - name: there
    steps: [{ref: wait, type: wait_for_event, event_key: "done:{{payload.batch_id}}:7"}]
  - name: at-once
    steps:
      - {ref: say, type: set_event, key: k, value: 1, event_emit_key: "said:{{payload.batch_id}}"}
      - {ref: hear, type: wait_for_event, event_key: "said:{{payload.batch_id}}"}
`)...)
	one := start(env, "one", `{"batch_id": "b1"}`)
	env.Drain()
	same(t, "one", done(one), `{"process": {"rows": 7}, "wait-for-process": {"rows": 7}}`)
	there := start(env, "there", `{"batch_id": "b2"}`)
	env.Drain()
	here := start(env, "here", `{"batch_id": "b2"}`)
	env.Drain()
	same(t, "here", done(here), `{"process": {"rows": 7}}`)
	same(t, "there", done(there), `{"wait": {"rows": 7}}`)
	atOnce := start(env, "at-once", `{"batch_id": "b3"}`)
	env.Drain()
	same(t, "at once", done(atOnce), `{"hear": 1, "say": 1}`)
}

// A trigger shows what its step will send when the event has come, where that is known before.
func TestTriggerShowsTheEmitKey(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: a, type: wait_for_event, event_key: "a:{{payload.id}}", event_emit_key: "done:{{payload.id}}"}
      - {ref: b, type: wait_for_event, event_key: "b:{{payload.id}}", event_emit_key: "done:{{steps.b.output}}"}
      - {ref: c, type: wait_for_event, event_key: "c:{{payload.id}}"}
`)...)
	start(env, "f", `{"id": 7}`)
	env.Drain()
	for key, want := range map[string]string{"a:7": `"done:7"`, "b:7": "null", "c:7": "null"} {
		g, err := env.Client.Trigger(t.Context(), "", key)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, key, string(engine.MustJSON(g.EventEmitKey)), want)
	}
}

func TestKeyThatIsTaken(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t, machines(t, nil, `
flows:
  - name: f
    steps:
      - {ref: before, type: wait_for_signal, signal: go}
      - {ref: a, type: wait_for_event, event_key: "{{payload.key}}", on_failure: continue, depends_on: [before]}
      - {ref: b, type: wait_for_event, event_key: "b-{{payload.key}}", depends_on: [before]}
      - {ref: after, type: set_event, key: error, value: "{{steps.a.error}}", depends_on: [a]}
  - name: at-once
    steps:
      - {ref: a, type: wait_for_event, event_key: "{{payload.key}}", on_failure: continue}
`)...)
	if _, err := env.Client.CreateTrigger(t.Context(), "", engine.EventWait{Key: "taken"}); err != nil {
		t.Fatal(err)
	}
	in := start(env, "f", `{"key": "taken"}`)
	atOnce := start(env, "at-once", `{"key": "taken"}`)
	env.Drain()
	in.Signal("go", 1)
	in.Signal("go", 2)
	env.Drain()
	same(t, "at once", done(atOnce), `{"a": null}`)
	in.Expect(engine.StatusAwaiting)
	equal(t, "inbox", len(in.Inbox()), 1) // nobody waits for the second
	event(t, env, "b-taken", `"B"`)
	env.Drain()
	same(t, "result", done(in), `{"b": "B", "after": "a trigger waits with the key \"taken\": a key can be used again when its trigger has ended"}`)
}

func event(t *testing.T, env *enginetest.Env, key, payload string) {
	t.Helper()
	if _, err := env.Client.SendEvent(t.Context(), engine.NewEvent{Key: key, Payload: json.RawMessage(payload)}); err != nil {
		t.Fatal(key, err)
	}
}

var errDeclined = errors.New("declined")
