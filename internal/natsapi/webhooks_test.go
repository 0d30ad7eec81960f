package natsapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// hook is what a receiver got.
type hook struct {
	id   string
	bad  error // of the signature
	body struct {
		Type      string
		Timestamp string
		Data      map[string]any
	}
}

// receive webhooks, and answer with a status.
func receive(t testing.TB, status func() int) (url string, hooks chan hook) {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	hooks = make(chan hook, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := hook{id: r.Header.Get("webhook-id"), bad: wh.Verify(body, r.Header)}
		_ = json.Unmarshal(body, &h.body)
		w.WriteHeader(status())
		hooks <- h
	}))
	t.Cleanup(srv.Close)
	return srv.URL, hooks
}

// The ends of instances are told as the API shows them: of what a request starts, of what a route does, and of what a step does.
func testWebhooks(b *bundle) {
	url, hooks := receive(b, func() int { return 200 })
	expect := func(in api.Instance) {
		b.Helper()
		h := <-hooks
		if h.bad != nil || h.body.Type != "instance."+string(in.Status) || h.body.Timestamp == "" {
			b.Errorf("got %+v", h)
		}
		var want map[string]any
		b.ask(natsapi.VerbGet, api.GetRequest{Ref: in.ID}, &want)
		for _, m := range []map[string]any{h.body.Data, want} { // a fraction of a second may end in zeros
			for _, field := range []string{"inserted_at", "updated_at", "finished_at", "run_at"} {
				if s, ok := m[field].(string); ok {
					m[field] = strings.TrimRight(strings.TrimRight(strings.TrimSuffix(s, "Z"), "0"), ".")
				}
			}
		}
		if !reflect.DeepEqual(h.body.Data, want) {
			b.Errorf("got\n%v, want\n%v", h.body.Data, want)
		}
	}
	var in api.Instance
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "once", CorrelationKey: "hook-1", NotifyURL: url, State: json.RawMessage(`{"a": "é", "n": 1.50}`), UniqueKey: "hook-1", PartitionKey: "hook", Priority: 3}, &in)
	b.ask(natsapi.VerbSignal, api.NewSignal{InstanceID: in.ID, Name: "item"}, nil)
	expect(b.becomes(in.ID, engine.StatusDone))
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "once", NotifyURL: url}, &in)
	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: in.ID, Reason: "enough"}, nil)
	expect(b.get(in.ID))
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "once", Step: "nowhere", NotifyURL: url}, &in)
	expect(b.becomes(in.ID, engine.StatusFailed))
	b.stack.Publish(b, "orders.hook-2.told", fmt.Sprintf(`{"notify": %q}`, url))
	apptest.Eventually(b, "the route starts it", func() (bool, error) {
		err := b.client.Do(b.Context(), natsapi.VerbGet, api.GetRequest{Ref: "key:hook-2"}, &in)
		return err == nil, err
	})
	b.ask(natsapi.VerbSignal, api.NewSignal{InstanceID: in.ID, Name: "item"}, nil)
	expect(b.becomes(in.ID, engine.StatusDone))

	for _, bad := range []string{"ftp://x/", "/path", "http://", "https://user:pass@x/", "https://x:99999/", strings.Repeat("x", 3000)} {
		if e := b.refused(api.CodeInvalid, natsapi.VerbStart, api.NewInstance{Machine: "once", NotifyURL: bad}); !strings.Contains(e.Message, "notify_url") || strings.Contains(e.Message, "pass@") {
			b.Errorf("%q: %s", bad, e.Message)
		}
	}
}

func testWebhooksRetry(b *bundle) {
	status := make(chan int, 2)
	url, hooks := receive(b, func() int { return <-status })
	status <- 410
	var in api.Instance
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "once", NotifyURL: url}, &in)
	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: in.ID}, nil)
	id := (<-hooks).id
	var d api.WebhookDelivery
	becomes := func(want string) {
		b.Helper()
		apptest.Eventually(b, "the webhook is "+want, func() (bool, error) {
			b.ask(natsapi.VerbWebhook, api.WebhookRequest{ID: id}, &d)
			return d.Status == want, fmt.Errorf("it is %+v", d)
		})
	}
	becomes("failed")
	if d.SourceID != in.ID || d.URL != url || d.Attempts != 1 || text(d.LastStatus) != "410" || d.NextAt != nil || !strings.Contains(string(d.Body), `"data"`) {
		b.Errorf("got %+v", d)
	}
	var page api.Page[api.WebhookDelivery]
	b.ask(natsapi.VerbWebhooks, api.WebhooksRequest{Status: "failed", Limit: 200}, &page)
	found := 0
	for _, item := range page.Items {
		if item.Status != "failed" || item.Body != nil {
			b.Errorf("a list of failed ones has %+v", item)
		}
		if item.ID == id {
			found++
		}
	}
	equal(b, "in the list", found, 1)
	_ = b.refused(api.CodeInvalid, natsapi.VerbWebhooks, api.WebhooksRequest{Status: "lost"})
	_ = b.refused(api.CodeInvalid, natsapi.VerbWebhook, api.WebhookRequest{ID: "1"})
	_ = b.refused(api.CodeNotFound, natsapi.VerbWebhookRetry, api.WebhookRequest{ID: in.ID})
	status <- 204
	b.ask(natsapi.VerbWebhookRetry, api.WebhookRequest{ID: id}, &d)
	if d.Status != "pending" || d.Attempts != 0 {
		b.Errorf("retried: %+v", d)
	}
	equal(b, "the same id", (<-hooks).id, id)
	becomes("delivered")
	_ = b.refused(api.CodeConflict, natsapi.VerbWebhookRetry, api.WebhookRequest{ID: id})
	var results api.WebhookResults
	b.ask(natsapi.VerbWebhooksRetry, api.RetryWebhooksRequest{IDs: []string{id, in.ID}}, &results)
	if len(results.Results) != 2 || results.Results[0].Error.Code != api.CodeConflict || results.Results[1].Error.Code != api.CodeNotFound {
		b.Errorf("got %+v", results)
	}
}
