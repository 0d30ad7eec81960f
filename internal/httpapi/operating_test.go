package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
)

func testShared(b *bundle) {
	var all api.Routes
	b.ask(http.StatusOK, "GET", "/v1/routes", "", &all)
	equal(b, "routes", len(all.Items) >= 3, true)
	var p api.RoutePause
	b.ask(http.StatusOK, "POST", "/v1/routes/paid/pause", "", &p)
	equal(b, "paused", p.Name+strings.Join(p.PausedBy, ""), "paidoperator")
	b.ask(http.StatusOK, "POST", "/v1/routes/paid/resume", "", &p)
	equal(b, "paused", p.Paused, false)
	b.refused(api.CodeNotFound, "POST", "/v1/routes/none/pause", "")
	var dry api.RewindDryRun
	b.stack.Publish(b, "orders.shared-1.placed", `{"amount": 1, "items": 1}`)
	b.becomes("key:shared-1", engine.StatusAwaiting)
	b.ask(http.StatusOK, "POST", "/v1/routes/placed/rewind", `{"to_seq": 1, "dry_run": true}`, &dry)
	equal(b, "duplicates", dry.Duplicate > 0, true)
	var test api.RoutesTest
	b.ask(http.StatusOK, "POST", "/v1/routes/test", `{"subject": "orders.shared-9.placed", "data": {"amount": 1}}`, &test)
	equal(b, "would", test.Routes[0].Route+*test.Routes[0].Result, "placedstarted")
	ack := b.stack.Publish(b, "orders.shared-1.item", `{}`)
	var m api.Message
	for m.Fate != "delivered" {
		b.ask(http.StatusOK, "GET", fmt.Sprintf("/v1/messages?stream=ORDERS&seq=%d", ack.Sequence), "", &m)
	}
	b.refused(api.CodeNotFound, "GET", "/v1/messages?stream=ORDERS&seq=999999", "")
	b.refused(api.CodeInvalid, "GET", "/v1/messages", "")
}

func testDeadLetters(b *bundle) {
	b.stack.Publish(b, "orders.dead-1.paid", `{"amount": 1}`)
	b.stack.Publish(b, "orders.dead-2.paid", `{"amount": 1}`)
	var page api.Page[api.DeadLetter]
	for len(page.Items) < 2 {
		b.ask(http.StatusOK, "GET", "/v1/dead-letters?route=paid", "", &page)
	}
	letter := fmt.Sprintf("/v1/dead-letters/%d", page.Items[0].Seq)
	var content api.DeadLetterContent
	b.ask(http.StatusOK, "GET", letter, "", &content)
	equal(b, "data", string(content.Data), `{"amount":1}`)
	var r api.LetterResult
	b.ask(http.StatusOK, "POST", letter+"/replay?dry_run=true", "", &r)
	equal(b, "replay", fmt.Sprint(r.Seq == page.Items[0].Seq, r.Stays, r.Result), "true truedead-lettered")
	b.ask(http.StatusOK, "DELETE", letter, "", &r)
	b.refused(api.CodeNotFound, "GET", letter, "")
	b.refused(api.CodeNotFound, "DELETE", letter, "")
	b.refused(api.CodeInvalid, "GET", "/v1/dead-letters/x", "")
	var done api.Page[api.LetterResult]
	b.refused(api.CodeInvalid, "POST", "/v1/dead-letters/drop", `{}`)
	b.ask(http.StatusOK, "POST", "/v1/dead-letters/replay", `{"route": "paid"}`, &done)
	b.ask(http.StatusOK, "POST", "/v1/dead-letters/drop", `{"route": "paid"}`, &done)
	equal(b, "dropped", done.Items[0].Result, "dropped")
}

func testStats(b *bundle) {
	b.ask(http.StatusCreated, "POST", "/v1/instances?project=stats", `{"machine": "order", "state": {"amount": 1, "items": 1}}`, nil)
	b.ask(http.StatusCreated, "POST", "/v1/instances?project=stats", `{"machine": "nobodys", "queue": "nobodys"}`, nil)
	var s api.Stats
	for s.Instances[engine.StatusAwaiting] == 0 {
		b.ask(http.StatusOK, "GET", "/v1/stats?project=stats", "", &s)
	}
	equal(b, "counts", fmt.Sprint(s.Project, s.Instances, s.Paused, s.AtLeast), "statsmap[awaiting_signal:1 canceled:0 done:0 executing:0 failed:0 runnable:1] 0 false")
	var w api.Page[api.Worker]
	b.ask(http.StatusOK, "GET", "/v1/workers", "", &w)
	equal(b, "worker", fmt.Sprint(len(w.Items), w.Items[0].Alive, w.Items[0].Queues, len(w.Items[0].Machines)), "1 true map[default:64] 2")
	var q api.Page[api.Queue]
	b.ask(http.StatusOK, "GET", "/v1/queues?limit=1", "", &q)
	equal(b, "queue", fmt.Sprint(len(q.Items), q.Items[0].Name, q.Items[0].Slots), "1default64")
	b.ask(http.StatusOK, "GET", "/v1/queues?cursor="+*q.NextCursor, "", &q)
	equal(b, "queue", fmt.Sprint(len(q.Items), q.Items[0].Name, q.Items[0].Depth, q.Items[0].Workers, q.NextCursor == nil), "1nobodys1 0 true")
}
