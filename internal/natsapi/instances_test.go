package natsapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natsapi"
	"github.com/pointsman/pointsman/subjects"
)

// An order from its start to its end, seen from all sides.
func testOrder(b *bundle) {
	started := b.start("first")
	equal(b, "key", text(started.CorrelationKey), "first")
	waiting := b.becomes(started.ID, engine.StatusAwaiting)
	equal(b, "awaits", fmt.Sprint(waiting.Awaits, waiting.Deadline != nil), "[item payment] true")

	var delivered api.Signaled
	b.ask(natsapi.VerbSignal, api.NewSignal{CorrelationKey: "first", Name: "item", Payload: json.RawMessage(`{"sku": "cup"}`), DedupKey: "i1"}, &delivered)
	equal(b, "delivered", delivered.Result+" "+delivered.InstanceID, "delivered "+started.ID)
	var again api.Signaled
	b.ask(natsapi.VerbSignal, api.NewSignal{InstanceID: started.ID, Name: "item", Payload: json.RawMessage(`{"sku": "cup"}`), DedupKey: "i1"}, &again)
	equal(b, "again", again.Result, "duplicate")
	_ = b.refused(api.CodeConflict, natsapi.VerbSignal, api.NewSignal{CorrelationKey: "first", Name: "item", Payload: json.RawMessage(`{"sku": "pot"}`), DedupKey: "i1"})
	b.ask(natsapi.VerbSignal, api.NewSignal{CorrelationKey: "first", Name: "payment", Payload: json.RawMessage(`{"amount": 1}`)}, nil)
	done := b.becomes("key:first", engine.StatusDone)
	equal(b, "result", string(done.Result), `{"paid":1,"packed":["cup"]}`)
	equal(b, "finished", done.FinishedAt != nil && done.Deadline == nil, true)

	var progress progressed
	b.ask(natsapi.VerbEvents, api.EventsRequest{Ref: "key:first", Key: "progress"}, &progress)
	equal(b, "progress", progress.Paid, 1)
	var all map[string]progressed
	b.ask(natsapi.VerbEvents, api.EventsRequest{Ref: started.ID}, &all)
	equal(b, "all events", fmt.Sprint(all), fmt.Sprint(map[string]progressed{"progress": progress}))
	_ = b.refused(api.CodeNotFound, natsapi.VerbEvents, api.EventsRequest{Ref: started.ID, Key: "never"})

	var history api.Page[engine.Transition]
	b.ask(natsapi.VerbHistory, api.PageRequest{Ref: "key:first"}, &history)
	first, last := history.Items[len(history.Items)-1], history.Items[0]
	equal(b, "history", fmt.Sprint(first.Step, first.Outcome, last.Step, last.Outcome), fmt.Sprint("begin", "await", "ship", "done"))
	var page api.Page[engine.Transition]
	b.ask(natsapi.VerbHistory, api.PageRequest{Ref: "key:first", Limit: 1}, &page)
	b.ask(natsapi.VerbHistory, api.PageRequest{Ref: "key:first", Limit: 1, Cursor: *page.NextCursor}, &page)
	equal(b, "second page", page.Items[0].Rev, history.Items[1].Rev)

	gone := b.refused(api.CodeNoTarget, natsapi.VerbSignal, api.NewSignal{CorrelationKey: "first", Name: "item"})
	equal(b, "details", fmt.Sprint(gone.Details["instance_id"], gone.Details["status"]), fmt.Sprint(started.ID, "done"))
	if at, err := time.Parse(time.RFC3339, fmt.Sprint(gone.Details["finished_at"])); err != nil || time.Since(at) > time.Hour {
		b.Errorf("finished_at: %v", gone.Details)
	}
}

type progressed struct{ Paid int }

// The JSON of an instance has all names of the contract, and no other.
func testInbox(b *bundle) {
	in := b.start("inbox")
	b.becomes(in.ID, engine.StatusAwaiting)
	b.ask(natsapi.VerbSignal, []api.NewSignal{{InstanceID: in.ID, Name: "a", DedupKey: "d"}, {InstanceID: in.ID, Name: "b", Payload: json.RawMessage(`{"n": 12345678901234567890}`)}}, nil)
	var page api.Page[api.Signal]
	b.ask(natsapi.VerbInbox, api.PageRequest{Ref: "key:inbox", Limit: 1}, &page)
	equal(b, "first", fmt.Sprint(len(page.Items), page.Items[0].Name, text(page.Items[0].DedupKey), string(page.Items[0].Payload)), fmt.Sprint(1, "a", "d", "null"))
	b.ask(natsapi.VerbInbox, api.PageRequest{Ref: "key:inbox", Cursor: *page.NextCursor}, &page)
	equal(b, "second", fmt.Sprint(len(page.Items), page.Items[0].Name, text(page.Items[0].DedupKey), string(page.Items[0].Payload), page.NextCursor), fmt.Sprint(1, "b", "null", `{"n":12345678901234567890}`, (*string)(nil)))

	var names map[string]json.RawMessage
	b.ask(natsapi.VerbGet, api.GetRequest{Ref: in.ID}, &names)
	want := strings.Fields(`id project machine version status step attempt correlation_key queue priority partition_key unique_key state awaits deadline result
		last_error paused inbox_count inserted_at updated_at finished_at run_at unique_scope lease parent_id`)
	var got []string
	for name := range names {
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(want)
	equal(b, "names", fmt.Sprint(got), fmt.Sprint(want))
	equal(b, "counted", string(names["inbox_count"]), "2")
	equal(b, "null", string(names["partition_key"])+string(names["last_error"])+string(names["lease"]), "nullnullnull")

	var canceled api.Instance
	for range 2 { // it is idempotent
		b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: in.ID, Reason: "enough"}, &canceled)
		equal(b, "canceled", fmt.Sprint(canceled.Status, text(canceled.LastError), canceled.InboxCount), "canceledenough0")
	}
}

// What came while it was paused counts when it is resumed; what was there when it was canceled is there again when it is retried.
func testRetryPauseResume(b *bundle) {
	in := b.start("operated")
	b.becomes(in.ID, engine.StatusAwaiting)
	var now api.Instance
	for range 2 { // it is idempotent
		b.ask(natsapi.VerbPause, api.RefRequest{Ref: "key:operated"}, &now)
		equal(b, "paused", fmt.Sprint(now.Status, now.Paused), "awaiting_signaltrue")
	}
	b.ask(natsapi.VerbSignal, api.NewSignal{CorrelationKey: "operated", Name: "item", Payload: json.RawMessage(`{"sku": "cup"}`)}, nil)
	b.ask(natsapi.VerbSignal, api.NewSignal{CorrelationKey: "operated", Name: "payment", Payload: json.RawMessage(`{"amount": 1}`)}, nil)
	var page api.Page[api.Instance]
	b.ask(natsapi.VerbList, api.ListRequest{CorrelationKey: "operated"}, &page)
	equal(b, "listed", fmt.Sprint(page.Items[0].Paused, page.Items[0].InboxCount, page.Items[0].Status), "true 2awaiting_signal")

	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: in.ID}, &now)
	equal(b, "canceled", fmt.Sprint(now.Paused, now.InboxCount), "false 0")
	for _, verb := range []string{natsapi.VerbPause, natsapi.VerbResume} {
		e := b.refused(api.CodeConflict, verb, api.RefRequest{Ref: in.ID})
		equal(b, "ended", fmt.Sprint(e.Details["instance_id"]), in.ID)
	}
	other := b.start("operated")
	e := b.refused(api.CodeConflict, natsapi.VerbRetry, api.RefRequest{Ref: in.ID})
	equal(b, "holder", fmt.Sprint(e.Details["instance_id"]), other.ID)
	b.ask(natsapi.VerbPause, api.RefRequest{Ref: other.ID}, nil)
	for range 2 {
		b.ask(natsapi.VerbResume, api.RefRequest{Ref: other.ID}, &now)
		equal(b, "resumed", now.Paused, false)
	}
	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: other.ID}, nil)

	b.ask(natsapi.VerbRetry, api.RefRequest{Ref: in.ID}, &now)
	equal(b, "retried", fmt.Sprint(now.Status.Live(), now.Paused, now.FinishedAt == nil), "true false true")
	done := b.becomes(in.ID, engine.StatusDone)
	equal(b, "result", string(done.Result), `{"paid":1,"packed":["cup"]}`)
	_ = b.refused(api.CodeConflict, natsapi.VerbRetry, api.RefRequest{Ref: "key:operated"})

	var history api.Page[engine.Transition]
	b.ask(natsapi.VerbHistory, api.PageRequest{Ref: in.ID}, &history)
	var operations []string
	for _, h := range history.Items {
		if slices.Contains([]string{"pause", "cancel", "retry"}, h.Outcome) {
			operations = append(operations, h.Outcome)
		}
	}
	equal(b, "history", fmt.Sprint(operations), "[retry cancel pause]")
}

func testWait(b *bundle) {
	b.start("wait")
	var in api.Instance
	b.ask(natsapi.VerbGet, api.GetRequest{Ref: "key:wait", Wait: "20ms"}, &in)
	equal(b, "the time is up", in.Status.Live(), true)
	answers := make(chan error, 1)
	go func() {
		answers <- b.client.Do(b.Context(), natsapi.VerbGet, api.GetRequest{Ref: "key:wait", Wait: "30s"}, &in)
	}()
	b.ask(natsapi.VerbCancel, api.CancelRequest{Ref: "key:wait"}, nil)
	if err := <-answers; err != nil || in.Status != engine.StatusCanceled {
		b.Errorf("%v, %s", err, in.Status)
	}
	for _, wait := range []string{"1h", "-1s", "soon"} {
		_ = b.refused(api.CodeInvalid, natsapi.VerbGet, api.GetRequest{Ref: "key:wait", Wait: wait})
	}
}

func testRefusals(b *bundle) {
	holder := b.start("held-by-one")
	taken := b.refused(api.CodeConflict, natsapi.VerbStart, api.NewInstance{Machine: "order", CorrelationKey: "held-by-one"})
	equal(b, "holder", fmt.Sprint(taken.Details["instance_id"]), holder.ID)
	nobody := uuid.NewString()
	for _, c := range []struct {
		code, verb string
		request    any
	}{
		{api.CodeNotFound, natsapi.VerbGet, api.GetRequest{Ref: nobody}},
		{api.CodeNotFound, natsapi.VerbGet, api.GetRequest{Ref: "key:nobody"}},
		{api.CodeNotFound, natsapi.VerbCancel, api.CancelRequest{Ref: nobody}},
		{api.CodeNotFound, natsapi.VerbRetry, api.RefRequest{Ref: nobody}},
		{api.CodeNotFound, natsapi.VerbPause, api.RefRequest{Ref: "key:nobody"}},
		{api.CodeNotFound, natsapi.VerbResume, api.RefRequest{Ref: nobody}},
		{api.CodeInvalid, natsapi.VerbRetry, api.RefRequest{}},
		{api.CodeInvalid, natsapi.VerbPause, api.RefRequest{Ref: "key:"}},
		{api.CodeInvalid, natsapi.VerbResume, map[string]any{"ref": nobody, "reason": "none"}},
		{api.CodeNotFound, natsapi.VerbInbox, api.PageRequest{Ref: nobody}},
		{api.CodeNotFound, natsapi.VerbHistory, api.PageRequest{Ref: nobody}},
		{api.CodeNotFound, natsapi.VerbEvents, api.EventsRequest{Ref: nobody}},
		{api.CodeNotFound, natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: 1 << 40}},
		{api.CodeNoTarget, natsapi.VerbSignal, api.NewSignal{CorrelationKey: "nobody", Name: "item"}},
		{api.CodeNoTarget, natsapi.VerbSignal, api.NewSignal{InstanceID: nobody, Name: "item"}},
		{api.CodeInvalid, natsapi.VerbGet, api.GetRequest{}},
		{api.CodeInvalid, natsapi.VerbGet, api.GetRequest{Ref: "order-1"}},
		{api.CodeInvalid, natsapi.VerbGet, api.GetRequest{Ref: "key:"}},
		{api.CodeInvalid, natsapi.VerbGet, api.GetRequest{Ref: "key:a\x01"}},
		{api.CodeInvalid, natsapi.VerbGet, api.GetRequest{Ref: "{" + nobody + "}"}},
		{api.CodeInvalid, natsapi.VerbStart, api.NewInstance{}},
		{api.CodeInvalid, natsapi.VerbStart, api.NewInstance{Machine: "a.b"}},
		{api.CodeInvalid, natsapi.VerbStart, api.NewInstance{Machine: "order", Version: -1}},
		{api.CodeInvalid, natsapi.VerbStart, api.NewInstance{Machine: "order", ReplyTo: "a..b"}},
		{api.CodeInvalid, natsapi.VerbStart, api.NewInstance{Machine: "order", State: json.RawMessage(`"\u0000"`)}},
		{api.CodeInvalid, natsapi.VerbStart, []api.NewInstance{}},
		{api.CodeTooLarge, natsapi.VerbStart, make([]api.NewInstance, api.MaxItems+1)},
		{api.CodeInvalid, natsapi.VerbStart, map[string]any{"machine": "order", "color": "red"}},
		{api.CodeInvalid, natsapi.VerbStart, map[string]any{"machine": 7}},
		{api.CodeInvalid, natsapi.VerbStart, map[string]any{"machine": "order", "priority": 70000}},
		{api.CodeInvalid, natsapi.VerbSignal, api.NewSignal{CorrelationKey: "k"}},
		{api.CodeInvalid, natsapi.VerbSignal, api.NewSignal{Name: "item"}},
		{api.CodeInvalid, natsapi.VerbSignal, api.NewSignal{Name: "item", CorrelationKey: "k", InstanceID: nobody}},
		{api.CodeInvalid, natsapi.VerbSignal, api.NewSignal{Name: "item", InstanceID: "k"}},
		{api.CodeInvalid, natsapi.VerbList, api.ListRequest{Status: "asleep"}},
		{api.CodeInvalid, natsapi.VerbList, api.ListRequest{Limit: api.MaxLimit + 1}},
		{api.CodeInvalid, natsapi.VerbList, api.ListRequest{Limit: -1}},
		{api.CodeInvalid, natsapi.VerbList, api.ListRequest{Cursor: "?"}},
		{api.CodeInvalid, natsapi.VerbInbox, api.PageRequest{Ref: nobody, Cursor: "MTIz!"}},
		{api.CodeInvalid, natsapi.VerbMessage, api.MessageRequest{}},
		{api.CodeInvalid, natsapi.VerbMessage, api.MessageRequest{Stream: "ORDERS"}},
		{api.CodeInvalid, natsapi.VerbMessage, api.MessageRequest{MsgID: "a", Seq: 1}},
		{api.CodeInvalid, natsapi.VerbDeadLetters, api.DeadLettersRequest{Route: "a.>"}},
		{api.CodeInvalid, natsapi.VerbRoutesTest, api.TestRequest{Subject: "a..b"}},
	} {
		e := b.refused(c.code, c.verb, c.request)
		if e.Message == "" {
			b.Errorf("%s %+v: no message", c.verb, c.request)
		}
	}
}

func testArrays(b *bundle) {
	in := b.start("array-holder")
	var out api.Results
	b.ask(natsapi.VerbStart, []api.NewInstance{{Machine: "order", CorrelationKey: "array-1", State: json.RawMessage(`{"amount": 1}`)}, {Machine: ""}, {Machine: "order", CorrelationKey: "array-holder"}, {Machine: "order"}}, &out)
	equal(b, "starts", codes(out), "started invalid conflict started")
	equal(b, "holder", text(out.Results[2].InstanceID), "null")
	equal(b, "details", fmt.Sprint(out.Results[2].Error.Details["instance_id"]), in.ID)

	b.ask(natsapi.VerbSignal, []api.NewSignal{
		{CorrelationKey: "array-1", Name: "x", DedupKey: "d"},
		{CorrelationKey: "array-1", Name: "x", DedupKey: "d"},
		{CorrelationKey: "array-1", Name: "y", DedupKey: "d"},
		{CorrelationKey: "array-2", Name: "x"},
		{Name: "x"},
		{InstanceID: in.ID, Name: "x"},
	}, &out)
	equal(b, "signals", codes(out), "delivered duplicate conflict no_target invalid delivered")
	equal(b, "id", text(out.Results[5].InstanceID), in.ID)
	equal(b, "signal", text(out.Results[0].SignalID), text(out.Results[1].SignalID))
}

// One that is refused undoes all.
func testAtomic(b *bundle) {
	b.start("atomic-holder")
	e := b.refused(api.CodeConflict, natsapi.VerbStart, []api.NewInstance{{Machine: "order", CorrelationKey: "atomic-1"}, {Machine: "order", CorrelationKey: "atomic-holder"}}, subjects.HeaderAtomic, "true")
	equal(b, "index", fmt.Sprint(e.Details["index"]), "1")
	_ = b.refused(api.CodeNotFound, natsapi.VerbGet, api.GetRequest{Ref: "key:atomic-1"})
	e = b.refused(api.CodeInvalid, natsapi.VerbStart, []api.NewInstance{{Machine: "order", CorrelationKey: "atomic-1"}, {Machine: ""}}, subjects.HeaderAtomic, "true")
	equal(b, "index", fmt.Sprint(e.Details["index"]), "1")
	_ = b.refused(api.CodeNoTarget, natsapi.VerbSignal, []api.NewSignal{{CorrelationKey: "atomic-holder", Name: "x"}, {CorrelationKey: "atomic-1", Name: "x"}}, subjects.HeaderAtomic, "true")
	_ = b.refused(api.CodeInvalid, natsapi.VerbSignal, []api.NewSignal{{CorrelationKey: "atomic-holder", Name: "x"}, {Name: "x"}}, subjects.HeaderAtomic, "true")
	equal(b, "inbox", b.get("key:atomic-holder").InboxCount, 0)
	_ = b.refused(api.CodeInvalid, natsapi.VerbSignal, make([]api.NewSignal, 201), subjects.HeaderAtomic, "true")
	var out api.Results
	b.ask(natsapi.VerbSignal, []api.NewSignal{{CorrelationKey: "atomic-holder", Name: "x"}, {CorrelationKey: "atomic-holder", Name: "y"}}, &out, subjects.HeaderAtomic, "true")
	equal(b, "signals", codes(out), "delivered delivered")
	b.ask(natsapi.VerbStart, []api.NewInstance{{Machine: "order", CorrelationKey: "atomic-1"}, {Machine: "order", CorrelationKey: "atomic-2"}}, &out, subjects.HeaderAtomic, "true")
	equal(b, "starts", codes(out), "started started")
}

func codes(r api.Results) string {
	var all []string
	for _, item := range r.Results {
		if item.Error != nil {
			all = append(all, item.Error.Code)
		} else {
			all = append(all, item.Result)
		}
	}
	return strings.Join(all, " ")
}

func testIdempotency(b *bundle) {
	var first, second api.Instance
	start := api.NewInstance{Machine: "order", State: json.RawMessage(`{"amount": 5}`)}
	b.ask(natsapi.VerbStart, start, &first, subjects.HeaderIdempotencyKey, "once")
	b.ask(natsapi.VerbStart, start, &second, subjects.HeaderIdempotencyKey, "once")
	equal(b, "the same", second.ID, first.ID)
	start.State = json.RawMessage(`{"amount": 6}`)
	e := b.refused(api.CodeConflict, natsapi.VerbStart, start, subjects.HeaderIdempotencyKey, "once")
	equal(b, "holder", fmt.Sprint(e.Details["instance_id"]), first.ID)
	var signaled api.Signaled
	for _, want := range []string{"delivered", "duplicate"} {
		b.ask(natsapi.VerbSignal, api.NewSignal{InstanceID: first.ID, Name: "x"}, &signaled, subjects.HeaderIdempotencyKey, "s")
		equal(b, "signal", signaled.Result, want)
	}
}

// What is of one project is not found in another.
func testProjects(b *bundle) {
	other := &natsapi.Client{Conn: b.client.Conn, Subjects: b.client.Subjects, Project: "other"}
	own := b.start("project")
	theirs := bundle{b.T, b.stack, other}
	in := theirs.start("project")
	equal(b, "project", in.Project, "other")
	equal(b, "by key", theirs.get("key:project").ID, in.ID)
	_ = theirs.refused(api.CodeNotFound, natsapi.VerbGet, api.GetRequest{Ref: own.ID})
	_ = theirs.refused(api.CodeNotFound, natsapi.VerbCancel, api.CancelRequest{Ref: own.ID})
	_ = theirs.refused(api.CodeNoTarget, natsapi.VerbSignal, api.NewSignal{InstanceID: own.ID, Name: "x"})
	var page api.Page[api.Instance]
	theirs.ask(natsapi.VerbList, api.ListRequest{}, &page)
	equal(b, "listed", fmt.Sprint(len(page.Items), page.Items[0].ID), fmt.Sprint(1, in.ID))
	bad := bundle{b.T, b.stack, &natsapi.Client{Conn: b.client.Conn, Subjects: b.client.Subjects, Project: "a.b"}}
	_ = bad.refused(api.CodeInvalid, natsapi.VerbGet, api.GetRequest{Ref: own.ID})
}

func testList(b *bundle) {
	project := &natsapi.Client{Conn: b.client.Conn, Subjects: b.client.Subjects, Project: "list"}
	p := bundle{b.T, b.stack, project}
	waits := p.start("a-1")
	p.becomes(waits.ID, engine.StatusAwaiting)
	p.start("a-2")
	done := p.complete("a-2")
	p.start("b%1")
	var canceled, elsewhere api.Instance
	p.ask(natsapi.VerbCancel, api.CancelRequest{Ref: "key:b%1"}, &canceled)
	p.ask(natsapi.VerbStart, api.NewInstance{Machine: "unserved", Queue: "nobody", CorrelationKey: "a-1-b"}, &elsewhere)
	all := []string{elsewhere.ID, canceled.ID, done.ID, waits.ID}
	for _, c := range []struct {
		request api.ListRequest
		want    []string
	}{
		{api.ListRequest{}, all},
		{api.ListRequest{Status: engine.StatusDone}, []string{done.ID}},
		{api.ListRequest{Status: engine.StatusCanceled}, []string{canceled.ID}},
		{api.ListRequest{Status: engine.StatusFailed}, nil},
		{api.ListRequest{Status: engine.StatusAwaiting}, []string{waits.ID}},
		{api.ListRequest{Status: engine.StatusRunnable}, []string{elsewhere.ID}},
		{api.ListRequest{Status: engine.StatusExecuting}, nil},
		{api.ListRequest{Queue: "nobody"}, []string{elsewhere.ID}},
		{api.ListRequest{Machine: "order"}, all[1:]},
		{api.ListRequest{CorrelationKey: "a-1"}, []string{waits.ID}},
		{api.ListRequest{CorrelationKey: "a-2"}, []string{done.ID}},
		{api.ListRequest{CorrelationKey: "a-2", Status: engine.StatusAwaiting}, nil},
		{api.ListRequest{CorrelationPrefix: "a-"}, []string{elsewhere.ID, done.ID, waits.ID}},
		{api.ListRequest{CorrelationPrefix: "a-1"}, []string{elsewhere.ID, waits.ID}},
		{api.ListRequest{CorrelationPrefix: "b%"}, []string{canceled.ID}},
		{api.ListRequest{CorrelationPrefix: "%"}, nil},
		{api.ListRequest{CorrelationPrefix: "a-", Machine: "order", Status: engine.StatusDone}, []string{done.ID}},
	} {
		var page api.Page[api.Instance]
		p.ask(natsapi.VerbList, c.request, &page)
		equal(b, fmt.Sprintf("%+v", c.request), fmt.Sprint(listed(page)), fmt.Sprint(c.want))
		equal(b, fmt.Sprintf("%+v: more", c.request), page.NextCursor, nil)
	}
}

// Pages hold what was there when the first one was read, whatever starts meanwhile.
func testListPages(b *bundle) {
	p := bundle{b.T, b.stack, &natsapi.Client{Conn: b.client.Conn, Subjects: b.client.Subjects, Project: "pages"}}
	var want []string
	for i := range 7 {
		want = append(want, p.start(fmt.Sprint("page-", i)).ID)
	}
	slices.Reverse(want)
	for _, request := range []api.ListRequest{{Limit: 3}, {Limit: 3, CorrelationPrefix: "page-"}, {Limit: 7}} {
		var got []string
		for n := 0; ; n++ {
			var page api.Page[api.Instance]
			p.ask(natsapi.VerbList, request, &page)
			got = append(got, listed(page)...)
			if page.NextCursor == nil {
				break
			}
			request.Cursor = *page.NextCursor
			p.start(fmt.Sprintf("page-late-%d-%d-%s", request.Limit, n, request.CorrelationPrefix))
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return slices.Contains(got, id) })
		late := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return slices.Contains(want, id) })
		if len(missing) > 0 || request.Limit == 3 && request.CorrelationPrefix == "" && len(late) > 0 {
			b.Errorf("%+v: missing %v, late %v", request, missing, late)
		}
		if !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
			b.Errorf("%+v: %v is not newest first", request, got)
		}
	}
}

func listed(page api.Page[api.Instance]) (ids []string) {
	for _, in := range page.Items {
		ids = append(ids, in.ID)
	}
	return ids
}

// A start has a partition key and a unique key. Who has the unique key is named to the next one.
func testKeys(b *bundle) {
	request := api.NewInstance{Machine: "once", CorrelationKey: "keys", PartitionKey: "keys-p", UniqueKey: "keys-u", UniqueScope: []engine.Status{"done", "awaiting_signal", "executing", "runnable"}}
	var in api.Instance
	b.ask(natsapi.VerbStart, request, &in)
	scope := "[runnable executing awaiting_signal done]"
	equal(b, "started", fmt.Sprint(text(in.PartitionKey), " ", text(in.UniqueKey), " ", in.UniqueScope), "keys-p keys-u "+scope)
	b.becomes(in.ID, engine.StatusAwaiting)

	request.CorrelationKey = "keys-2"
	holds := b.refused(api.CodeConflict, natsapi.VerbStart, request)
	equal(b, "holder", fmt.Sprint(holds.Details["instance_id"]), in.ID)
	equal(b, "message", holds.Message, `the unique key "keys-u" is held by instance `+in.ID)
	var results api.Results
	b.ask(natsapi.VerbStart, []api.NewInstance{request, {Machine: "once", CorrelationKey: "keys-3", UniqueKey: "keys-v"}}, &results)
	equal(b, "holder", fmt.Sprint(results.Results[0].Error.Code, results.Results[0].Error.Details["instance_id"]), "conflict"+in.ID)
	equal(b, "other", results.Results[1].Result, "started")

	b.ask(natsapi.VerbSignal, api.NewSignal{InstanceID: in.ID, Name: "item"}, nil)
	got := b.becomes(in.ID, engine.StatusDone)
	equal(b, "got", fmt.Sprint(text(got.PartitionKey), " ", text(got.UniqueKey), " ", got.UniqueScope), "keys-p keys-u "+scope)
	_ = b.refused(api.CodeConflict, natsapi.VerbStart, request)
	var page api.Page[api.Instance]
	b.ask(natsapi.VerbList, api.ListRequest{CorrelationKey: "keys"}, &page)
	equal(b, "listed", fmt.Sprint(len(page.Items), text(page.Items[0].PartitionKey), text(page.Items[0].UniqueKey), page.Items[0].UniqueScope), "1keys-pkeys-u"+scope)

	for field, n := range map[string]api.NewInstance{
		"partition_key": {Machine: "once", PartitionKey: "a\nb"}, "unique_key": {Machine: "once", UniqueKey: strings.Repeat("u", 513)},
		"unique_scope": {Machine: "once", UniqueScope: []engine.Status{"done"}}, "queue": {Machine: "once", Queue: engine.OutboxQueue},
	} {
		if e := b.refused(api.CodeInvalid, natsapi.VerbStart, n); !strings.HasPrefix(e.Message, field+": ") {
			b.Errorf("%s: %s", field, e.Message)
		}
	}
}
