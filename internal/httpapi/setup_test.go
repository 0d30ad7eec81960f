package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const routes = `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: order, state: "{{payload}}"}}
  - {name: paid, stream: ORDERS, subject: orders.*.paid, correlation_key: "{{subject[1]}}", signal: payment, on_missing: reject}
  - {name: items, stream: ORDERS, subject: orders.*.item, correlation_key: "{{subject[1]}}", signal: item}
  - {name: news, stream: ORDERS, subject: orders.*.news, event: "order:{{subject[1]}}"}
`

// TestServer runs all tests that need the whole on one stack; each has keys of its own.
func TestServer(t *testing.T) {
	t.Parallel()
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	stack := apptest.Start(t, routes, map[string][]string{"ORDERS": {"orders.>"}}, machine, teller(t))
	for name, test := range map[string]func(*bundle){
		"Order": testOrder, "Refusals": testRefusals, "EmptyKeys": testEmptyKeys, "Arrays": testArrays, "Keys": testKeys, "Text": testText, "Unknown": testUnknown, "Sizes": testSizes, "Wait": testWait,
		"Conditional": testConditional, "Events": testEvents, "Operate": testOperate, "Pages": testPages, "Held": testHeld, "Shared": testShared, "DeadLetters": testDeadLetters,
		"Stats": testStats, "Headers": testHeaders, "Browsers": testBrowsers, "Stream": testStream, "Readme": testReadme, "Updates": testUpdates, "Children": testChildren,
		"Webhooks":      testWebhooks,
		"Jobs":          testJobs,
		"Metrics":       testMetrics,
		"EventTriggers": testEventTriggers, "EventRefusals": testEventRefusals, "EventStream": testEventStream, "EventRoute": testEventRoute, "EventRouteAgain": testEventRouteAgain, "EmittedLetter": testEmittedLetter,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&bundle{T: t, stack: stack, url: stack.HTTPURL})
		})
	}
}

// told is the state of a teller.
type told struct {
	Emits string `json:"emits"` // key of an event
}

// teller is a machine that publishes a value, and waits for good, or emits an event, and ends.
func teller(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[told]{Name: "teller", Start: "tell", Steps: map[string]engine.Step[told]{
		"tell": func(_ context.Context, v *engine.Visit[told]) (engine.Outcome, error) {
			if v.State.Emits != "" {
				return engine.Done(nil).Emit(v.State.Emits, json.RawMessage(`{"n": 12345678901234567}`)), nil
			}
			return engine.Await("end", "item").SetEvent("progress", json.RawMessage(`{"percent": 10.50}`)).SetEvent("a/b %", json.RawMessage(`null`)), nil
		},
		"end": func(context.Context, *engine.Visit[told]) (engine.Outcome, error) { return engine.Done(nil), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// bundle is one test's share of the stack.
type bundle struct {
	*testing.T
	stack *apptest.Stack
	url   string
	token string
}

// answer of a request.
type answer struct {
	*http.Response
	body []byte
}

// call sends a request. headers are pairs.
func (b *bundle) call(method, path, body string, headers ...string) answer {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 90*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp, text}
}

// ask wants an answer with a status, and reads it.
func (b *bundle) ask(status int, method, path, body string, into any, headers ...string) answer {
	b.Helper()
	a := b.call(method, path, body, headers...)
	if a.StatusCode != status {
		b.Fatalf("%s %s: %s, want %d: %s", method, path, a.Status, status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			b.Fatalf("%s %s: %v: %s", method, path, err, a.body)
		}
	}
	return a
}

// refused wants an error with a code and the status of it.
func (b *bundle) refused(code, method, path, body string, headers ...string) refusal {
	b.Helper()
	return b.call(method, path, body, headers...).refused(b, code)
}

// refusal is what the error of an answer says.
type refusal struct {
	Message string
	Details map[string]any
}

func (a answer) refused(b *bundle, code string) refusal {
	b.Helper()
	var e api.ErrorBody
	d := json.NewDecoder(strings.NewReader(string(a.body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Error == nil || e.Error.Message == "" {
		b.Fatalf("%s %s: %s: no error of the contract: %s", a.Request.Method, a.Request.URL, a.Status, a.body)
	}
	if e.Error.Code != code || a.StatusCode != api.Status(code) && a.StatusCode != http.StatusMethodNotAllowed {
		b.Fatalf("%s %s: %s, want the code %s: %s", a.Request.Method, a.Request.URL, a.Status, code, a.body)
	}
	return refusal{e.Error.Message, e.Error.Details}
}

// start an order that waits.
func (b *bundle) start(key string) (in api.Instance) {
	b.Helper()
	b.ask(http.StatusCreated, "POST", "/v1/instances", fmt.Sprintf(`{"machine": "order", "correlation_key": %q, "state": {"amount": 1, "items": 1}}`, key), &in)
	return in
}

// becomes waits until an instance has a status.
func (b *bundle) becomes(ref string, status engine.Status) (in api.Instance) {
	b.Helper()
	apptest.Eventually(b, fmt.Sprintf("%s is %s", ref, status), func() (bool, error) {
		in = api.Instance{}
		a := b.call("GET", "/v1/instances/"+ref, "")
		if a.StatusCode == http.StatusNotFound {
			return false, errors.New("there is none")
		}
		err := json.Unmarshal(a.body, &in)
		return in.Status == status, errors.Join(err, fmt.Errorf("it is %s", in.Status))
	})
	return in
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
