package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/app"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const routes = `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
routes:
  - {name: placed, stream: ORDERS, subject: orders.*.placed, correlation_key: "{{subject[1]}}", start: {machine: order, state: "{{payload}}"}}
  - {name: payments, stream: ORDERS, subject: orders.*.paid, correlation_key: "{{subject[1]}}", signal: payment, on_missing: reject}
  - {name: items, stream: ORDERS, subject: orders.*.item, correlation_key: "{{subject[1]}}", signal: item}
`

const token = "only-for-this-test"

// world is a bridge and a worker, with something of everything that the dashboard shows.
type world struct {
	*testing.T
	stack *apptest.Stack
	open  string // URL of a bridge that asks nobody who they are
	url   string // of one that takes the token
}

// hostile is a text that does harm where it is taken for markup.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

func newWorld(t *testing.T) *world {
	t.Helper()
	order, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, stack: apptest.Start(t, routes, map[string][]string{"ORDERS": {"orders.>"}}, order, desk(t), brittle(t))}
	secured, cfg := *w.stack, *w.stack.Config
	cfg.HTTP.AdminToken = token
	secured.Config = &cfg
	w.open, w.url = w.stack.HTTPURL, secured.Bridge(t)
	w.seed()
	return w
}

// desk is a machine that has children, publishes values, waits for an event and takes updates.
func desk(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[json.RawMessage]{
		Name: "desk", Start: "open",
		Steps: map[string]engine.Step[json.RawMessage]{
			"open": func(context.Context, *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
				return engine.Await("decide", "note").OrUpdate("decision").Within(2*time.Hour).OrEvent(engine.EventWait{Key: "approval:loan-1", RequestPayload: json.RawMessage(`{"amount": 12345678901234567}`)}).
					StartChild(engine.NewInstance{Machine: "order", CorrelationKey: "child-1", State: json.RawMessage(`{"amount": 5, "items": 1}`)}).
					SetEvent("progress", json.RawMessage(`{"percent": 40}`)), nil
			},
			"decide": func(_ context.Context, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
				return engine.Await("decide", "note").OrUpdate("decision"), nil
			},
		},
		Validators: map[string]engine.Validator{"decision": func(_ context.Context, arg json.RawMessage) error {
			if !bytes.Contains(arg, []byte("approved")) {
				return engine.Refuse("a decision says whether it is approved")
			}
			return nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// brittle is a machine whose step fails.
func brittle(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[json.RawMessage]{
		Name: "brittle", Start: "charge",
		Steps: map[string]engine.Step[json.RawMessage]{
			"charge": func(context.Context, *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
				return engine.Outcome{}, engine.Terminal(errors.New("the card was declined " + hostile))
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// seed is what an on-call person may meet.
func (w *world) seed() {
	w.Helper()
	w.ask("POST", "/v1/instances", `[
		{"machine": "desk", "correlation_key": "loan-1", "state": {"customer": "c-77", "amount": 12345678901234567}},
		{"machine": "brittle", "correlation_key": "charge-1", "notify_url": "http://127.0.0.1:1/hook"},
		{"machine": "brittle", "correlation_key": "charge-2", "notify_url": "http://127.0.0.1:1/hook"},
		{"machine": "unknown", "correlation_key": "stuck-1", "queue": "nightly"},
		{"machine": "order", "correlation_key": "order-paused", "state": {"amount": 1, "items": 1}}
	]`, nil)
	w.ask("POST", "/v1/instances/key:order-paused/pause", "", nil)
	w.ask("POST", "/v1/triggers", `{"event_key": "approval:invoice-9", "request_payload": {"who": "finance"}}`, nil)
	w.ask("POST", "/v1/triggers", `{"event_key": "approval:invoice-10"}`, nil)
	for n := range 40 {
		w.stack.Publish(w, fmt.Sprintf("orders.order-%d.placed", n), `{"amount": 42, "items": 2}`)
		w.stack.Publish(w, fmt.Sprintf("orders.order-%d.item", n), `{"sku": "cup"}`, "Nats-Msg-Id", fmt.Sprintf("item-%d", n))
		w.stack.Publish(w, fmt.Sprintf("orders.order-%d.item", n), `{"sku": "pot"}`, "Nats-Msg-Id", fmt.Sprintf("pot-%d", n))
	}
	w.stack.Publish(w, "orders.nobody-1.paid", `{"amount": 12345678901234567, "note": "`+`<b>bold</b>`+`"}`)
	w.stack.Publish(w, "orders.nobody-2.paid", `{"amount": 2}`)
	w.stack.Publish(w, "orders.nobody-3.paid", `{"amount": 3}`)
	w.stack.Publish(w, "orders.early-1.item", `{"sku": "plate"}`)
	apptest.Eventually(w, "everything is there", func() (bool, error) {
		var letters api.Page[api.DeadLetter]
		var held api.Page[api.HeldSignal]
		var hooks api.Page[api.WebhookDelivery]
		var stats api.Stats
		w.ask("GET", "/v1/dead-letters", "", &letters)
		w.ask("GET", "/v1/held", "", &held)
		w.ask("GET", "/v1/webhook-deliveries?status=failed", "", &hooks)
		w.ask("GET", "/v1/stats", "", &stats)
		waiting := stats.Instances[engine.StatusAwaiting]
		return len(letters.Items) == 3 && len(held.Items) == 1 && len(hooks.Items) == 2 && waiting >= 42, fmt.Errorf("%d letters, %d held, %d webhooks, %d waiting", len(letters.Items), len(held.Items), len(hooks.Items), waiting)
	})
}

func (w *world) consumer(name string) (*jetstream.ConsumerInfo, error) {
	c, err := w.stack.JS.Consumer(w.Context(), "ORDERS", name)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// ask the bridge that takes the token.
func (w *world) ask(method, path, body string, into any) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		w.Fatalf("%s %s: %v, %s: %s", method, path, err, resp.Status, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			w.Fatalf("%s %s: %v", method, path, err)
		}
	}
}

// instance by its key.
func (w *world) instance(key string) (in api.Instance) {
	w.Helper()
	w.ask("GET", "/v1/instances/key:"+key, "", &in)
	return in
}

// key is an API key of a project that may read.
func (w *world) key(project string) (secret string) {
	w.Helper()
	w.keys(func(keys *auth.Keys) error {
		var err error
		secret, _, err = keys.Create(w.Context(), project, "reader", auth.Read)
		return err
	})
	return secret
}

// revoke the key.
func (w *world) revoke() {
	w.Helper()
	w.keys(func(keys *auth.Keys) error {
		_, _, err := keys.Revoke(w.Context(), "default", "reader")
		return err
	})
}

func (w *world) keys(do func(*auth.Keys) error) {
	w.Helper()
	if err := app.WithKeys(w.Context(), w.stack.Config, do); err != nil {
		w.Fatal(err)
	}
}
