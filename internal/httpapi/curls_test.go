package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/auth"
)

// curls are all of event-triggers.md, as they stand there, in its order.
var curls = []struct {
	command string
	status  int
	before  func(c *curling) // makes what the page takes for granted
	check   func(c *curling, a answer)
}{
	{`curl -X POST https://strait.dev/sdk/v1/runs/{runID}/wait-for-event \
  -H "Authorization: Bearer $RUN_TOKEN" \
  -H "Content-Type: application/json" \
  -d '{
    "event_key": "approval:order-789",
    "timeout_secs": 7200,
    "notify_url": "https://example.com/webhook"
  }'`, http.StatusCreated, nil, func(c *curling, a answer) {
		g := c.trigger(a)
		equal(c, "made", fmt.Sprintln(g.Status, g.Source, g.JobRunID, g.TimeoutSecs, *g.NotifyURL), fmt.Sprintln("waiting", "job_run", c.run, 7200, "https://example.com/webhook"))
	}},
	{`curl -X POST https://strait.dev/v1/events/{eventKey}/send \
  -H "Authorization: Bearer strait_..." \
  -H "Content-Type: application/json" \
  -d '{
    "payload": {"result": "approved", "risk_score": 0.12}
  }'`, http.StatusOK, func(c *curling) { c.waits("aml-check:user-123") }, func(c *curling, a answer) {
		g := c.trigger(a)
		equal(c, "sent", fmt.Sprintln(g.Status, string(g.ResponsePayload), *g.SentBy), `received {"result":"approved","risk_score":0.12} proj_1-admin`+"\n")
	}},
	{`curl -X POST https://strait.dev/v1/events/prefix/batch-job:run-42:/send \
  -H "Authorization: Bearer strait_..." \
  -H "Content-Type: application/json" \
  -d '{
    "payload": {"status": "done"}
  }'`, http.StatusOK, func(c *curling) { c.waits("batch-job:run-42:a", "batch-job:run-42:b", "batch-job:run-43:a") }, func(c *curling, a answer) {
		equal(c, "answer", string(a.body), `{"prefix":"batch-job:run-42:","count":2}`+"\n")
	}},
	{`curl -X DELETE https://strait.dev/v1/events/aml-check:user-123 \
  -H "Authorization: Bearer strait_..."`, http.StatusOK, func(c *curling) { c.waits("aml-check:user-123") }, func(c *curling, a answer) {
		equal(c, "canceled", c.trigger(a).Status, engine.TriggerCanceled)
	}},
	{`curl "https://strait.dev/v1/webhook-deliveries?project_id=proj_1&status=failed" \
  -H "Authorization: Bearer strait_..."`, http.StatusOK, (*curling).failsToTell, func(c *curling, a answer) {
		page := c.webhooks(a)
		equal(c, "failed", fmt.Sprintln(len(page.Items), page.Items[0].Source, page.Items[0].Type, page.Items[0].Status), "1 trigger trigger.received failed\n")
		c.delivery = page.Items[0].ID
	}},
	{`curl -X POST https://strait.dev/v1/webhook-deliveries/{deliveryID}/retry \
  -H "Authorization: Bearer strait_..."`, http.StatusOK, nil, func(c *curling, a answer) {
		var d api.WebhookDelivery
		c.read(a, &d)
		equal(c, "retried", fmt.Sprintln(d.ID, d.Status, d.Attempts), c.delivery+" pending 0\n")
	}},
	{`curl -N https://strait.dev/v1/events/aml-check:user-123/stream \
  -H "Authorization: Bearer strait_..."`, http.StatusOK, nil, func(c *curling, a answer) { // it has ended: the stream closes
		if text := string(a.body); !strings.Contains(text, "event: status\n") || !strings.Contains(text, `"status":"canceled"`) {
			c.Errorf("%s", text)
		}
	}},
	{`curl https://strait.dev/v1/events/stats \
  -H "Authorization: Bearer strait_..."`, http.StatusOK, nil, func(c *curling, a answer) {
		equal(c, "stats", string(a.body), `{"waiting":2,"received":4,"timed_out":0,"canceled":1}`+"\n")
	}},
	{`curl "https://strait.dev/v1/events?status=waiting&workflow_run_id=wfr_123" \
  -H "Authorization: Bearer strait_..."`, http.StatusOK, nil, func(c *curling, a answer) { // no instance has such an id
		equal(c, "none", string(a.body), `{"items":[],"next_cursor":null}`+"\n")
		var page api.Page[api.Trigger]
		c.ask(http.StatusOK, "GET", "/v1/events?status=waiting&workflow_run_id="+c.run, "", &page)
		equal(c, "of the run", fmt.Sprintln(len(page.Items), page.Items[0].EventKey), "1 approval:order-789\n")
		c.ask(http.StatusOK, "GET", "/v1/events?source_type=job_run", "", &page)
		equal(c, "of runs", len(page.Items), 1)
	}},
	{`curl -X POST https://strait.dev/v1/events/purge \
  -H "Authorization: Bearer strait_..." \
  -H "Content-Type: application/json" \
  -d '{"older_than_days": 30, "dry_run": false}'`, http.StatusOK, nil, func(c *curling, a answer) {
		equal(c, "young", string(a.body), `{"count":0,"dry_run":false}`+"\n")
		var p api.Purged
		c.ask(http.StatusOK, "POST", "/v1/events/purge", `{"older_than_days": 0, "dry_run": true}`, &p)
		equal(c, "ended", p, api.Purged{Count: 5, DryRun: true})
	}},
}

// curling is a bundle with what the placeholders of the page stand for.
type curling struct {
	*bundle
	run, delivery string
}

// TestCurls runs every command of event-triggers.md. What changes is the host, the path of a run, the placeholders and the token. The project
// has a quota of 100, as there.
func TestCurls(t *testing.T) {
	t.Parallel()
	stack := apptest.Start(t, routes+"quotas: {max_active_triggers: 100}\n", map[string][]string{"ORDERS": {"orders.>"}}, teller(t))
	c := &curling{bundle: &bundle{T: t, stack: stack, url: stack.HTTPURL}}
	c.token = c.key("proj_1", auth.Admin)
	apptest.Eventually(t, "the API is closed", func() (bool, error) {
		return (&bundle{T: t, url: c.url}).call("GET", "/v1/events", "").StatusCode == http.StatusUnauthorized, nil
	})
	var in api.Instance
	c.ask(http.StatusCreated, "POST", "/v1/instances", `{"machine": "teller"}`, &in)
	c.run = in.ID
	for _, line := range curls {
		if line.before != nil {
			line.before(c)
		}
		method, path, body := c.command(line.command)
		a := c.call(method, path, body)
		if a.StatusCode != line.status {
			t.Fatalf("%s\n%s: %s", line.command, a.Status, a.body)
		}
		line.check(c, a)
	}
	c.resends()
	c.browses()
	c.exceeds()
}

// command reads a curl as a shell would, as far as these need it.
func (c *curling) command(text string) (method, path, body string) {
	c.Helper()
	var words []string
	for rest := strings.ReplaceAll(text, "\\\n", " "); ; {
		if rest = strings.TrimSpace(rest); rest == "" {
			break
		}
		word, quote := "", rest[:1]
		if quote != "'" && quote != `"` {
			quote, rest = " ", " "+rest
		}
		word, rest, _ = strings.Cut(rest[1:], quote)
		words = append(words, word)
	}
	method = http.MethodGet
	for i, w := range words {
		switch {
		case w == "-X":
			method = words[i+1]
		case w == "-d":
			body = words[i+1]
		case strings.HasPrefix(w, "https://strait.dev/"):
			path = strings.TrimPrefix(w, "https://strait.dev")
		}
	}
	path = strings.NewReplacer("/sdk/v1/runs/{runID}", "/v1/instances/"+c.run, "{eventKey}", "aml-check:user-123", "{deliveryID}", c.delivery).Replace(path)
	return method, path, body
}

func (c *curling) read(a answer, into any) {
	c.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		c.Fatalf("%v: %s", err, a.body)
	}
}

func (c *curling) trigger(a answer) (g api.Trigger) {
	c.Helper()
	c.read(a, &g)
	return g
}

func (c *curling) webhooks(a answer) (page api.Page[api.WebhookDelivery]) {
	c.Helper()
	c.read(a, &page)
	if len(page.Items) == 0 {
		c.Fatalf("no webhooks: %s", a.body)
	}
	return page
}

func (c *curling) waits(keys ...string) {
	c.Helper()
	for _, key := range keys {
		c.ask(http.StatusCreated, "POST", "/v1/triggers", fmt.Sprintf(`{"event_key": %q}`, key), nil)
	}
}

// failsToTell has a webhook that goes nowhere: this bridge sends none to addresses of its own network.
func (c *curling) failsToTell() {
	c.Helper()
	c.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "nobody-listens", "notify_url": "http://127.0.0.1:1/"}`, nil)
	c.ask(http.StatusOK, "POST", "/v1/events/nobody-listens/send", `{}`, nil)
	apptest.Eventually(c, "notify_status is failed", func() (bool, error) {
		g := c.trigger(c.call("GET", "/v1/events/nobody-listens", ""))
		return *g.NotifyStatus == "failed", fmt.Errorf("it is %s", *g.NotifyStatus)
	})
}

// resends: the same payload again is 200 with the trigger, another is 409.
func (c *curling) resends() {
	c.waits("resend")
	const send = "/v1/events/resend/send"
	c.ask(http.StatusOK, "POST", send, `{"payload": {"a": 1, "b": 2}}`, nil)
	var g api.Trigger
	c.ask(http.StatusOK, "POST", send, `{"payload": {"b": 2.0, "a": 1}}`, &g)
	equal(c, "resent", g.Status, engine.TriggerReceived)
	c.refused(api.CodeConflict, "POST", send, `{"payload": {"a": 1, "b": 3}}`)
}

// browses as an EventSource does: the token in the query, and no header. The event is sent at another bridge.
func (c *curling) browses() {
	c.waits("aml-check:user-123")
	other := &bundle{T: c.T, url: c.stack.Bridge(c), token: c.token}
	browser := &bundle{T: c.T, url: c.url}
	const path = "/v1/events/aml-check:user-123/stream?token="
	equal(c, "a wrong token", browser.listen(path+"strait_your_api_key", "").StatusCode, http.StatusUnauthorized)
	l := browser.listen(path+c.token, "")
	equal(c, "status", l.StatusCode, http.StatusOK)
	var seen []engine.TriggerStatus
	for fields := l.next(); fields != nil; fields = l.next() {
		if fields["event"] != "status" {
			continue
		}
		var g api.Trigger
		if err := json.Unmarshal([]byte(fields["data"]), &g); err != nil {
			c.Fatal(err)
		}
		if seen = append(seen, g.Status); len(seen) == 1 {
			other.ask(http.StatusOK, "POST", "/v1/events/aml-check:user-123/send", `{"payload": "seen"}`, nil)
		}
	}
	equal(c, "seen", fmt.Sprint(seen), "[waiting received]")
}

// exceeds the quota, which counts those that wait.
func (c *curling) exceeds() {
	var stats engine.TriggerStats
	c.ask(http.StatusOK, "GET", "/v1/events/stats", "", &stats)
	for i := stats.Waiting; i < 100; i++ {
		c.waits(fmt.Sprint("many:", i))
	}
	for _, path := range []string{"/v1/triggers", "/v1/instances/" + c.run + "/wait-for-event"} {
		equal(c, path, c.refused(api.CodeQuota, "POST", path, `{"event_key": "one-more"}`).Message, "project has reached maximum active event triggers (100)")
	}
	c.ask(http.StatusOK, "DELETE", "/v1/events/many:99", "", nil)
	c.waits("one-more")
}
