package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
)

// Each call of event-triggers.md, with another host and the contract's paths.
func testEventTriggers(b *bundle) {
	in := b.start("triggers-1")
	var g api.Trigger
	// SDK: wait for event.
	b.ask(http.StatusCreated, "POST", "/v1/instances/"+in.ID+"/wait-for-event", `{
    "event_key": "approval:order-789",
    "timeout_secs": 7200,
    "notify_url": "https://example.com/webhook"
  }`, &g)
	if g.Status != engine.TriggerWaiting || g.Source != "job_run" || g.JobRunID.String() != in.ID || g.TimeoutSecs != 7200 || *g.NotifyURL != "https://example.com/webhook" {
		b.Errorf("%+v", g)
	}
	b.refused(api.CodeConflict, "POST", "/v1/triggers", `{"event_key": "approval:order-789"}`)
	// By exact key.
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "aml-check:user-123", "request_payload": {"n": 12345678901234567}}`, &g)
	equal(b, "default timeout", g.TimeoutSecs, 3600)
	send := func(status int, payload string) {
		b.Helper()
		b.ask(status, "POST", "/v1/events/aml-check:user-123/send", `{"payload": `+payload+`}`, &g)
	}
	send(http.StatusOK, `{"result": "approved", "risk_score": 0.12}`)
	if g.Status != engine.TriggerReceived || string(g.ResponsePayload) != `{"result":"approved","risk_score":0.12}` || string(g.RequestPayload) != `{"n":12345678901234567}` {
		b.Errorf("%s: %s, %s", g.Status, g.ResponsePayload, g.RequestPayload)
	}
	send(http.StatusOK, `{"risk_score": 0.120, "result": "approved"}`)
	b.refused(api.CodeConflict, "POST", "/v1/events/aml-check:user-123/send", `{"payload": {"result": "refused"}}`)
	// By prefix.
	for i := range 3 {
		b.ask(http.StatusCreated, "POST", "/v1/triggers", fmt.Sprintf(`{"event_key": "batch-job:run-42:%d"}`, i), nil)
	}
	var sent api.SentToPrefix
	b.ask(http.StatusOK, "POST", "/v1/events/prefix/batch-job:run-42:/send", `{"payload": {"status": "done"}}`, &sent)
	equal(b, "received", sent.Count, 3)
	// Cancel.
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "aml-check:user-123"}`, nil)
	b.ask(http.StatusOK, "DELETE", "/v1/events/aml-check:user-123", "", &g)
	equal(b, "status", g.Status, engine.TriggerCanceled)
	b.refused(api.CodeConflict, "POST", "/v1/events/aml-check:user-123/send", `{"payload": 1}`)
	// Monitoring.
	var stats map[string]int
	b.ask(http.StatusOK, "GET", "/v1/events/stats", "", &stats)
	for _, status := range []string{"waiting", "received", "timed_out", "canceled"} {
		if _, there := stats[status]; !there || len(stats) != 4 {
			b.Errorf("stats: %v", stats)
		}
	}
	var page api.Page[api.Trigger]
	b.ask(http.StatusOK, "GET", "/v1/events?status=waiting&workflow_run_id="+in.ID, "", &page)
	if len(page.Items) != 1 || page.Items[0].EventKey != "approval:order-789" {
		b.Errorf("list: %+v", page)
	}
	b.ask(http.StatusOK, "GET", "/v1/events?source_type=api&limit=1", "", &page)
	if len(page.Items) != 1 || page.NextCursor == nil {
		b.Errorf("page: %+v", page)
	}
	b.ask(http.StatusOK, "GET", "/v1/events/approval:order-789", "", &g)
	// Data retention and purge.
	var purged api.Purged
	b.ask(http.StatusOK, "POST", "/v1/events/purge", `{"older_than_days": 30, "dry_run": false}`, &purged)
	equal(b, "purged", purged, api.Purged{})
	b.ask(http.StatusOK, "POST", "/v1/events/purge", `{"older_than_days": 0, "dry_run": true}`, &purged)
	if purged.Count < 4 || !purged.DryRun {
		b.Errorf("dry run: %+v", purged)
	}
}

func testEventRefusals(b *bundle) {
	for _, key := range []string{"stats", "purge", "prefix", "a%0Ab", "a%00", "%FF", strings.Repeat("x", 513)} {
		for _, c := range [][2]string{{"POST", "/send"}, {"GET", ""}, {"DELETE", ""}, {"GET", "/stream"}} {
			if key == "stats" && c[0] == "GET" && c[1] == "" || key == "prefix" && c[1] == "/send" {
				continue
			}
			b.refused(api.CodeInvalid, c[0], "/v1/events/"+key+c[1], "")
		}
	}
	for _, body := range []string{
		`{"event_key": "stats"}`, `{}`, `{"event_key": "k", "timeout_secs": 0}`, `{"event_key": "k", "timeout_secs": 1.5}`, `{"event_key": "k", "timeout_secs": 99999999999999}`,
		`{"event_key": "k", "notify_url": "example.com"}`, `{"event_key": "k", "timeout": 5}`,
	} {
		b.refused(api.CodeInvalid, "POST", "/v1/triggers", body)
	}
	b.refused(api.CodeInvalid, "POST", "/v1/events/purge", `{}`)
	b.refused(api.CodeInvalid, "POST", "/v1/events/purge", `{"older_than_days": -1}`)
	b.refused(api.CodeInvalid, "GET", "/v1/events?status=done", "")
	for _, c := range [][3]string{{"POST", "/send", `{"payload": 1}`}, {"GET", "", ""}, {"DELETE", "", ""}, {"GET", "/stream", ""}} {
		b.refused(api.CodeNotFound, c[0], "/v1/events/refusals:unknown"+c[1], c[2])
	}
	b.refused(api.CodeInvalid, "POST", "/v1/events/refusals:unknown/send?hold=soon", `{"payload": 1}`)
	var held api.HeldEvent
	b.ask(http.StatusAccepted, "POST", "/v1/events/refusals:early/send?hold=1h", `{"payload": 1}`, &held)
	equal(b, "result", held.Result, "held")
	b.ask(http.StatusAccepted, "POST", "/v1/events/refusals:early/send?hold=1h", `{"payload": 1.0}`, &held)
	b.refused(api.CodeConflict, "POST", "/v1/events/refusals:early/send?hold=1h", `{"payload": 2}`)
	var g api.Trigger
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "refusals:early"}`, &g)
	equal(b, "status", g.Status, engine.TriggerReceived)
	odd := "refusals:a%2Fb%20%25%3F"
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "refusals:a/b %?"}`, nil)
	b.ask(http.StatusOK, "POST", "/v1/events/"+odd+"/send", `{"payload": 1}`, &g)
	equal(b, "key", g.EventKey, "refusals:a/b %?")
}

func testEventStream(b *bundle) {
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "stream:1"}`, nil)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", b.url+"/v1/events/stream:1/stream", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var statuses []engine.TriggerStatus
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, is := strings.CutPrefix(lines.Text(), "event: "); is {
			equal(b, "name", name, "status")
		}
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var g api.Trigger
		if err := json.Unmarshal([]byte(data), &g); err != nil {
			b.Fatal(err)
		}
		if statuses = append(statuses, g.Status); len(statuses) == 1 {
			b.ask(http.StatusOK, "POST", "/v1/events/stream:1/send", `{"payload": 1}`, nil)
		}
	}
	equal(b, "statuses", fmt.Sprint(statuses), "[waiting received]")
}

// A message of a route is an event: sent to who waits, held for who will, and known again when it is delivered again.
func testEventRoute(b *bundle) {
	get := func(key string) (g api.Trigger) {
		b.Helper()
		apptest.Eventually(b, key+" is received", func() (bool, error) {
			a := b.call("GET", "/v1/events/"+key, "")
			if a.StatusCode != http.StatusOK {
				return false, fmt.Errorf("%s", a.body)
			}
			err := json.Unmarshal(a.body, &g)
			return g.Status == engine.TriggerReceived, err
		})
		return g
	}
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "order:r1"}`, nil)
	b.stack.Publish(b, "orders.r1.news", `{"n": 1}`, "Nats-Msg-Id", "r1")
	g := get("order:r1")
	if string(g.ResponsePayload) != `{"n":1}` || *g.SentBy != "news" {
		b.Errorf("%+v", g)
	}
	b.stack.Publish(b, "orders.r2.news", `{"n": 2}`, "Nats-Msg-Id", "r2")
	b.becomesHeld("order:r2")
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "order:r2"}`, &g)
	equal(b, "adopted", g.Status, engine.TriggerReceived)
	b.stack.Publish(b, "orders.r1.news", `{"n": 3}`, "Nats-Msg-Id", "r3")
	apptest.Eventually(b, "another payload is a dead letter", func() (bool, error) {
		a := b.call("GET", "/v1/dead-letters?route=news", "")
		return strings.Contains(string(a.body), "has received another payload"), fmt.Errorf("%s", a.body)
	})
}

// A message that comes again, because its ack was lost or its route is rewound, has no second effect: a later trigger of the key still waits.
func testEventRouteAgain(b *bundle) {
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "order:again"}`, nil)
	sent := b.stack.Publish(b, "orders.again.news", `{"n": 1}`)
	received := func(key string) (yes bool) {
		var g api.Trigger
		b.ask(http.StatusOK, "GET", "/v1/events/"+key, "", &g)
		return g.Status == engine.TriggerReceived
	}
	apptest.Eventually(b, "it is received", func() (bool, error) { return received("order:again"), nil })
	for _, key := range []string{"order:again", "order:after"} {
		b.ask(http.StatusCreated, "POST", "/v1/triggers", fmt.Sprintf(`{"event_key": %q}`, key), nil)
	}
	b.ask(http.StatusOK, "POST", "/v1/routes/news/rewind", fmt.Sprintf(`{"to_seq": %d}`, sent.Sequence), nil)
	b.stack.Publish(b, "orders.after.news", `{"n": 2}`) // comes after it
	apptest.Eventually(b, "the next is received", func() (bool, error) { return received("order:after"), nil })
	equal(b, "received again", received("order:again"), false)
	var letters api.Page[api.DeadLetter]
	b.ask(http.StatusOK, "GET", "/v1/dead-letters?route=news&limit=100", "", &letters)
	for _, l := range letters.Items {
		if l.Subject != nil && *l.Subject == "orders.again.news" {
			b.Errorf("a dead letter: %+v", l)
		}
	}
}

// What a step emits to a trigger that has ended is a dead letter; replayed it is received by the next trigger of the key, once.
func testEmittedLetter(b *bundle) {
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "emitted:1"}`, nil)
	b.ask(http.StatusOK, "DELETE", "/v1/events/emitted:1", "", nil)
	b.ask(http.StatusCreated, "POST", "/v1/instances", `{"machine": "teller", "state": {"emits": "emitted:1"}}`, nil)
	var letter api.DeadLetter
	apptest.Eventually(b, "a dead letter", func() (bool, error) {
		var page api.Page[api.DeadLetter]
		b.ask(http.StatusOK, "GET", "/v1/dead-letters?route=effects&limit=100", "", &page)
		for _, l := range page.Items {
			if strings.Contains(l.Reason, "emitted:1") {
				letter = l
			}
		}
		return letter.Seq != 0, nil
	})
	at := fmt.Sprintf("/v1/dead-letters/%d", letter.Seq)
	var r api.LetterResult
	b.ask(http.StatusOK, "POST", at+"/replay", "", &r)
	equal(b, "with nobody waiting", fmt.Sprintln(r.Result, r.Stays), "dead-lettered true\n")
	b.ask(http.StatusCreated, "POST", "/v1/triggers", `{"event_key": "emitted:1"}`, nil)
	b.ask(http.StatusOK, "POST", at+"/replay?dry_run=true", "", &r)
	equal(b, "dry run", fmt.Sprintln(r.Result, r.Stays), "delivered false\n")
	b.ask(http.StatusOK, "POST", at+"/replay", "", &r)
	equal(b, "replayed", fmt.Sprintln(r.Result, r.Stays), "delivered false\n")
	var g api.Trigger
	b.ask(http.StatusOK, "GET", "/v1/events/emitted:1", "", &g)
	equal(b, "received", fmt.Sprintln(g.Status, string(g.ResponsePayload)), `received {"n":12345678901234567}`+"\n")
	b.refused(api.CodeNotFound, "POST", at+"/replay", "")
}

// becomesHeld waits until an event is held: the same one sent by hand is then a conflict, and not unknown.
func (b *bundle) becomesHeld(key string) {
	b.Helper()
	apptest.Eventually(b, key+" is held", func() (bool, error) {
		a := b.call("POST", "/v1/events/"+key+"/send", `{"payload": "another"}`)
		return a.StatusCode == http.StatusConflict, fmt.Errorf("%s", a.body)
	})
}
