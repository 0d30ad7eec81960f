package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

func testOrder(b *bundle) {
	in := b.start("order-1")
	equal(b, "step and state", in.Step+string(in.State), `begin{"items":1,"amount":1}`)
	b.becomes("key:order-1", engine.StatusAwaiting)
	var done, again api.Signaled
	b.ask(http.StatusAccepted, "POST", "/v1/instances/key:order-1/signals/item", `{"sku": "cup"}`, &done, "Idempotency-Key", "i-1")
	equal(b, "delivered", done.Result+done.InstanceID, "delivered"+in.ID)
	b.ask(http.StatusAccepted, "POST", "/v1/instances/"+in.ID+"/signals/item", `{"sku": "cup"}`, &again, "Idempotency-Key", "i-1")
	equal(b, "again", again.Result+fmt.Sprint(*again.SignalID), "duplicate"+fmt.Sprint(*done.SignalID))
	e := b.refused(api.CodeConflict, "POST", "/v1/instances/key:order-1/signals/item", `{"sku": "pot"}`, "Idempotency-Key", "i-1")
	equal(b, "conflict", fmt.Sprint(e.Details["instance_id"]), in.ID)
	b.ask(http.StatusAccepted, "POST", "/v1/instances/key:order-1/signals/payment", `{"amount": 1}`, nil)
	in = b.becomes(in.ID, engine.StatusDone)
	e = b.refused(api.CodeNoTarget, "POST", "/v1/instances/key:order-1/signals/payment", `{"amount": 1}`)
	equal(b, "ended", fmt.Sprint(e.Details["instance_id"], e.Details["status"], e.Details["finished_at"] != nil), in.ID+"donetrue")
	var page api.Page[engine.Transition]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:order-1/history", "", &page)
	if len(page.Items) < 2 {
		b.Errorf("history: %+v", page)
	}
}

func testRefusals(b *bundle) {
	in := b.start("refused")
	e := b.refused(api.CodeConflict, "POST", "/v1/instances", `{"machine": "order", "correlation_key": "refused"}`)
	equal(b, "holder", fmt.Sprint(e.Details["instance_id"]), in.ID)
	none := "/v1/instances/" + strings.Repeat("0", 7) + "1-0000-7000-8000-000000000000"
	for path, code := range map[string]string{
		"": api.CodeNotFound, "/inbox": api.CodeNotFound, "/history": api.CodeNotFound, "/events": api.CodeNotFound, "/events/x": api.CodeNotFound, "/stream": api.CodeNotFound,
	} {
		b.refused(code, "GET", none+path, "")
		b.refused(code, "GET", "/v1/instances/key:nobody"+path, "")
		b.refused(api.CodeInvalid, "GET", "/v1/instances/refused"+path, "")
	}
	b.refused(api.CodeNoTarget, "POST", none+"/signals/item", "1")
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/v1/instances", ``, "body"},
		{"POST", "/v1/instances", `{`, "body"},
		{"POST", "/v1/instances", `{"machine": "order"} 1`, "body"},
		{"POST", "/v1/instances", `{"machine": "order", "colour": 1}`, "colour"},
		{"POST", "/v1/instances", `{"machine": "order", "version": "1"}`, "version"},
		{"POST", "/v1/instances", `{"machine": "or.der"}`, "machine"},
		{"POST", "/v1/instances", `{"machine": "order", "correlation_key": "` + strings.Repeat("k", 513) + `"}`, "correlation_key"},
		{"POST", "/v1/instances", `{"machine": "order", "correlation_key": ""}`, "correlation_key"},
		{"POST", "/v1/instances", `{"machine": "order", "partition_key": ""}`, "partition_key"},
		{"POST", "/v1/instances", `{"machine": "order", "unique_key": ""}`, "unique_key"},
		{"POST", "/v1/instances", `{"machine": "order", "dedup_key": ""}`, "dedup_key"},
		{"POST", "/v1/instances?atomic=true", `[{"machine": "order"}, {"machine": "order", "correlation_key": ""}]`, "correlation_key"},
		{"POST", "/v1/signals", `{"correlation_key": "refused", "name": "item", "dedup_key": ""}`, "dedup_key"},
		{"POST", "/v1/instances", `[]`, "body"},
		{"POST", "/v1/instances?atomic=maybe", `[]`, "atomic"},
		{"POST", "/v1/instances/key:refused/signals/item", `{`, "payload"},
		{"POST", "/v1/instances/key:refused/signals/a%20b", `1`, "name"},
		{"POST", "/v1/instances/key:refused/signals/item", `"\u0000"`, "payload"},
		{"GET", "/v1/instances?limit=0x", ``, "limit"},
		{"GET", "/v1/instances?limit=201", ``, "limit"},
		{"GET", "/v1/instances?limit=1&limit=2", ``, "limit"},
		{"GET", "/v1/instances?statuss=done", ``, "statuss"},
		{"GET", "/v1/instances?status=gone", ``, "status"},
		{"GET", "/v1/instances?cursor=!", ``, "cursor"},
		{"GET", "/v1/instances?machine=%zz", ``, "query"},
		{"GET", "/v1/instances/key:refused?wait=soon", ``, "wait"},
		{"GET", "/v1/instances/key:refused?wait=6m", ``, "wait"},
		{"GET", "/v1/instances/key:refused", `{"ref": 1}`, "body"},
		{"POST", "/v1/instances/key:refused/pause", `{"ref": "x"}`, "body"},
		{"POST", "/v1/routes/placed/rewind", `{"name": "x"}`, "name"},
		{"POST", "/v1/routes/placed/rewind", `[]`, "body"},
		{"GET", "/v1/instances?project=a.b", ``, "project"},
	} {
		e := b.refused(api.CodeInvalid, c.method, c.path, c.body)
		equal(b, c.method+" "+c.path+" "+c.body, fmt.Sprint(e.Details["field"]), c.want)
	}
}

func testArrays(b *bundle) {
	b.start("array-0")
	var out api.Results
	b.ask(http.StatusOK, "POST", "/v1/instances", `[{"machine": "order", "correlation_key": "array-1", "state": {"amount": 1, "items": 1}}, {"machine": "order", "correlation_key": "array-0"}, {"machine": ""}]`, &out)
	equal(b, "starts", fmt.Sprint(len(out.Results), out.Results[0].Result, out.Results[1].Error.Code, out.Results[2].Error.Code), "3startedconflictinvalid")
	signals := `[{"correlation_key": "array-0", "name": "note", "payload": 1, "dedup_key": "a"}, {"correlation_key": "nobody", "name": "note"}, {"correlation_key": "array-1", "name": "note"}]`
	b.ask(http.StatusOK, "POST", "/v1/signals", signals, &out)
	equal(b, "signals", fmt.Sprint(len(out.Results), out.Results[0].Result, out.Results[1].Error.Code, out.Results[2].Result), "3deliveredno_targetdelivered")
	e := b.refused(api.CodeNoTarget, "POST", "/v1/signals?atomic=true", `[{"correlation_key": "array-1", "name": "other"}, {"correlation_key": "nobody", "name": "other"}]`)
	equal(b, "index", fmt.Sprint(e.Details["index"]), "1")
	var inbox api.Page[api.Signal]
	b.ask(http.StatusOK, "GET", "/v1/instances/key:array-1/inbox", "", &inbox)
	for _, s := range inbox.Items {
		equal(b, "signal", s.Name, "note")
	}
	var one api.Signaled
	b.ask(http.StatusAccepted, "POST", "/v1/signals", `{"correlation_key": "array-0", "name": "note", "payload": 1}`, &one, "Idempotency-Key", "n")
	equal(b, "one", one.Result, "delivered")
	b.refused(api.CodeTooLarge, "POST", "/v1/signals", "["+strings.Repeat(`{"name": "a"},`, api.MaxItems)+`{"name": "a"}]`)
}

// Keys hold what they hold, in a path too; numbers stay as they are written.
func testKeys(b *bundle) {
	for i, key := range []string{"a/b", "a%2Fb", "50% & more", "schlüssel ✓", "key:key", "..", "a//b/../c", "q?x=1#f", "+ +", `"\`} {
		body, err := json.Marshal(map[string]any{"machine": "order", "correlation_key": "keys " + key, "state": map[string]any{"n": i, "amount": 1, "items": 1}})
		if err != nil {
			b.Fatal(err)
		}
		var in, got api.Instance
		b.ask(http.StatusCreated, "POST", "/v1/instances", string(body), &in)
		ref := "/v1/instances/" + url.PathEscape("key:keys "+key)
		b.ask(http.StatusOK, "GET", ref, "", &got)
		equal(b, key, got.ID+*got.CorrelationKey, in.ID+"keys "+key)
		b.ask(http.StatusAccepted, "POST", ref+"/signals/note", `{"id": 12345678901234567890, "price": 10.50}`, nil)
		var inbox api.Page[api.Signal]
		b.ask(http.StatusOK, "GET", ref+"/inbox", "", &inbox)
		equal(b, key, string(inbox.Items[0].Payload), `{"id":12345678901234567890,"price":10.50}`)
	}
	b.refused(api.CodeInvalid, "GET", "/v1/instances/key:", "")
	b.refused(api.CodeInvalid, "GET", "/v1/instances/key:a%00b", "")
	b.refused(api.CodeInvalid, "GET", "/v1/instances/key:a%0Ab", "")
}

func testText(b *bundle) {
	b.start("text")
	for _, path := range []string{"/v1/instances/key:%ff", "/v1/instances?machine=%c3%28", "/v1/instances?%ff=1", "/%ff"} {
		b.refused(api.CodeInvalid, "GET", path, "")
	}
	b.refused(api.CodeInvalid, "POST", "/v1/instances", "{\"machine\": \"\xff\"}")
	b.refused(api.CodeInvalid, "POST", "/v1/instances/key:text/signals/item", "\"\xc3\x28\"")
	b.refused(api.CodeInvalid, "POST", "/v1/instances/key:text/signals/item", "1", "Idempotency-Key", "\xff")
	b.refused(api.CodeInvalid, "GET", "/v1/instances", "", "X-Request-Id", "\xff")
	b.refused(api.CodeInvalid, "POST", "/v1/instances", "{}", "Content-Encoding", "gzip")
}

func testEvents(b *bundle) {
	var in api.Instance
	b.ask(http.StatusCreated, "POST", "/v1/instances", `{"machine": "teller", "correlation_key": "teller"}`, &in)
	b.becomes("key:teller", engine.StatusAwaiting)
	equal(b, "one", strings.TrimSpace(string(b.ask(http.StatusOK, "GET", "/v1/instances/key:teller/events/progress", "", nil).body)), `{"percent":10.50}`)
	equal(b, "null", strings.TrimSpace(string(b.ask(http.StatusOK, "GET", "/v1/instances/key:teller/events/a%2Fb%20%25", "", nil).body)), `null`)
	equal(b, "all", strings.TrimSpace(string(b.ask(http.StatusOK, "GET", "/v1/instances/key:teller/events", "", nil).body)), `{"a/b %":null,"progress":{"percent":10.50}}`)
	b.refused(api.CodeNotFound, "GET", "/v1/instances/key:teller/events/other", "")
	b.refused(api.CodeInvalid, "GET", "/v1/instances/key:teller/events?key=progress", "")
	b.ask(http.StatusOK, "DELETE", "/v1/instances/key:teller?reason=enough", "", &in)
	equal(b, "canceled", string(in.Status)+*in.LastError, "canceledenough")
	b.ask(http.StatusOK, "GET", "/v1/instances/"+in.ID+"/events/progress", "", nil)
}

func testOperate(b *bundle) {
	b.start("operate")
	b.becomes("key:operate", engine.StatusAwaiting)
	var in api.Instance
	b.ask(http.StatusOK, "POST", "/v1/instances/key:operate/pause", "", &in)
	equal(b, "paused", in.Paused, true)
	b.ask(http.StatusOK, "POST", "/v1/instances/key:operate/resume", "{}", &in)
	equal(b, "paused", in.Paused, false)
	b.refused(api.CodeConflict, "POST", "/v1/instances/key:operate/retry", "")
	for range 2 {
		b.ask(http.StatusOK, "DELETE", "/v1/instances/key:operate", "", &in)
		equal(b, "status", in.Status, engine.StatusCanceled)
	}
	b.refused(api.CodeConflict, "POST", "/v1/instances/key:operate/pause", "")
	b.ask(http.StatusOK, "POST", "/v1/instances/key:operate/retry", "", &in)
	equal(b, "live", in.Status.Live(), true)
}

// Pages stay where they are while others start.
func testPages(b *bundle) {
	for i := range 5 {
		b.start(fmt.Sprintf("page-%d", i))
	}
	var got []string
	cursor := ""
	for {
		var page api.Page[api.Instance]
		b.ask(http.StatusOK, "GET", "/v1/instances?correlation_prefix=page-&limit=2&cursor="+url.QueryEscape(cursor), "", &page)
		for _, in := range page.Items {
			got = append(got, *in.CorrelationKey)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
		b.start("page-9" + cursor[:20])
	}
	equal(b, "pages", strings.Join(got, " "), "page-4 page-3 page-2 page-1 page-0")
}

func testHeld(b *bundle) {
	b.stack.Publish(b, "orders.held-1.item", `{"sku": "cup"}`)
	var page api.Page[api.HeldSignal]
	for len(page.Items) == 0 {
		b.ask(http.StatusOK, "GET", "/v1/held?correlation_key=held-1", "", &page)
	}
	equal(b, "held", page.Items[0].Name, "item")
}

// A key that is there and empty is one that is wrong, of its item alone.
func testEmptyKeys(b *bundle) {
	var out api.Results
	b.ask(http.StatusOK, "POST", "/v1/instances", `[{"machine": "order", "correlation_key": ""}, {"machine": "order", "correlation_key": "empty-1", "state": {"amount": 1, "items": 1, "note": ""}},
		{"machine": "order", "unique_key": ""}]`, &out)
	equal(b, "starts", codes(out), "invalid started invalid")
	b.ask(http.StatusOK, "GET", "/v1/instances/key:empty-1", "", nil)
	b.ask(http.StatusOK, "POST", "/v1/signals", `[{"correlation_key": "empty-1", "name": "note", "dedup_key": ""}, {"correlation_key": "empty-1", "name": "note", "payload": ""}]`, &out)
	equal(b, "signals", codes(out), "invalid delivered")
}

func codes(out api.Results) string {
	var all []string
	for _, r := range out.Results {
		if r.Error != nil {
			r.Result = r.Error.Code
		}
		all = append(all, r.Result)
	}
	return strings.Join(all, " ")
}
