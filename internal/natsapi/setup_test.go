package natsapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// routes that a message can meet every fate on.
const routes = `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
webhooks: {secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, allow_private: true}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: order, state: "{{payload}}"}}
  - {name: items, stream: ORDERS, subject: orders.*.item, correlation_key: "{{subject[1]}}", signal: item}
  - {name: paid, stream: ORDERS, subject: orders.*.paid, when: payload.amount > 0, correlation_key: "{{subject[1]}}", signal: payment, on_missing: reject}
  - {name: notes, stream: ORDERS, subject: orders.*.note, correlation_key: "{{subject[1]}}", signal: note, on_missing: drop, on_terminal: drop}
  - {name: both, stream: ORDERS, subject: orders.*.both, correlation_key: "{{subject[1]}}", signal: item, on_missing: start, start: {machine: order}}
  - {name: imports, stream: ORDERS, subject: orders.*.import, start: {machine: once, partition_key: "{{payload.tenant}}", unique_key: "import-{{subject[1]}}", unique_scope: [runnable, executing, awaiting_signal, done]}}
  - {name: told, stream: ORDERS, subject: orders.*.told, correlation_key: "{{subject[1]}}", start: {machine: once, notify_url: "{{payload.notify}}"}}
  - {name: audits, stream: AUDITS, subject: audits.>, when: payload.amount > 0, correlation_key: "{{subject[1]}}", signal: audit, on_missing: reject}
  - {name: idle, stream: ORDERS, subject: orders.*.idle, correlation_key: "{{subject[1]}}", signal: item, paused: true}
machines:
  - name: claim
    start: begin
    remote: {timeout: 10s}
    updates:
      - name: decision
        schema: {type: object, required: [approver], properties: {approver: {type: string}, amount: {type: integer}}}
        when: "!has(payload.amount) || payload.amount <= 100"
        reason: more than 100 need the board
      - {name: review, remote: true, timeout: 5s}
`

// TestService runs all tests that need the whole on one stack; each has keys of its own.
func TestService(t *testing.T) {
	t.Parallel()
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	stack := apptest.Start(t, routes, map[string][]string{"ORDERS": {"orders.>"}, "AUDITS": {"audits.>"}}, machine, once(t), herald(t), approval(t), family(t))
	for name, test := range map[string]func(*bundle){
		"Order": testOrder, "Refusals": testRefusals, "Arrays": testArrays, "Atomic": testAtomic, "List": testList, "ListPages": testListPages, "Projects": testProjects,
		"Wait": testWait, "Idempotency": testIdempotency, "Inbox": testInbox, "Keys": testKeys, "KeysOfRoute": testKeysOfRoute, "RetryPauseResume": testRetryPauseResume, "Held": testHeld, "DeadLetters": testDeadLetters, "Fates": testFates, "Gone": testGone,
		"OperateRoutes": testOperateRoutes,
		"Children":      testChildren,
		"Webhooks":      testWebhooks, "WebhooksRetry": testWebhooksRetry,
		"Updates": testUpdates, "UpdateWaits": testUpdateWaits, "UpdateIsRefused": testUpdateIsRefused, "RemoteValidator": testRemoteValidator, "ValidatorOfWorker": testValidatorOfWorker,

		"Replay": testReplay, "ReplayEffect": testReplayEffect,
		"MessageByID": testMessageByID, "NoSuchMessage": testNoSuchMessage, "RoutesTest": testRoutesTest, "BadBodies": testBadBodies, "Discovery": testDiscovery, "LargeAnswers": testLargeAnswers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&bundle{T: t, stack: stack, client: &natsapi.Client{Conn: stack.NATS.Conn(t), Subjects: stack.Space}})
		})
	}
}

// once is a machine that ends with the signal it waits for.
func once(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[struct{}]{Name: "once", Start: "begin", Steps: map[string]engine.Step[struct{}]{
		"begin": func(context.Context, *engine.Visit[struct{}]) (engine.Outcome, error) {
			return engine.Await("end", "item"), nil
		},
		"end": func(context.Context, *engine.Visit[struct{}]) (engine.Outcome, error) { return engine.Done(nil), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// bundle is one test's share of the stack.
type bundle struct {
	*testing.T
	stack  *apptest.Stack
	client *natsapi.Client
}

// ask wants an answer.
func (b *bundle) ask(verb string, request, response any, headers ...string) {
	b.Helper()
	if err := b.client.Do(b.Context(), verb, request, response, headers...); err != nil {
		b.Fatalf("%s: %v", verb, err)
	}
}

// refused wants an error with a code.
func (b *bundle) refused(code, verb string, request any, headers ...string) *api.Error {
	b.Helper()
	var answer json.RawMessage
	err := b.client.Do(b.Context(), verb, request, &answer, headers...)
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		b.Fatalf("%s %+v: got %v (%s), want the code %s", verb, request, err, answer, code)
	}
	return e
}

// start an order that waits.
func (b *bundle) start(key string) api.Instance {
	b.Helper()
	var in api.Instance
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "order", CorrelationKey: key, State: json.RawMessage(`{"amount": 1, "items": 1}`)}, &in)
	return in
}

func (b *bundle) get(ref string) (in api.Instance) {
	b.Helper()
	b.ask(natsapi.VerbGet, api.GetRequest{Ref: ref}, &in)
	return in
}

// becomes waits until an instance has a status.
func (b *bundle) becomes(ref string, status engine.Status) (in api.Instance) {
	b.Helper()
	apptest.Eventually(b, fmt.Sprintf("%s is %s", ref, status), func() (bool, error) {
		in = b.get(ref)
		return in.Status == status, fmt.Errorf("it is %s", in.Status)
	})
	return in
}

// complete an order that waits.
func (b *bundle) complete(key string) api.Instance {
	b.Helper()
	b.ask(natsapi.VerbSignal, []api.NewSignal{
		{CorrelationKey: key, Name: "item", Payload: json.RawMessage(`{"sku": "cup"}`)}, {CorrelationKey: key, Name: "payment", Payload: json.RawMessage(`{"amount": 1}`)},
	}, nil)
	return b.becomes("key:"+key, engine.StatusDone)
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func text[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// raw sends bytes as they are.
func (b *bundle) raw(verb string, body []byte, headers ...string) *nats.Msg {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 90*time.Second)
	defer cancel()
	msg := nats.NewMsg(b.stack.Space.API(verb))
	msg.Data = body
	for i := 0; i+1 < len(headers); i += 2 {
		msg.Header.Set(headers[i], headers[i+1])
	}
	reply, err := b.client.Conn.RequestMsgWithContext(ctx, msg)
	if err != nil {
		b.Fatal(err)
	}
	return reply
}
