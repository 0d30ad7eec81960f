package natsapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// fate waits until a message has a fate, and returns what is said of it.
func (b *bundle) fate(seq uint64, want string) (m api.Message) {
	b.Helper()
	apptest.Eventually(b, fmt.Sprintf("message %d is %s", seq, want), func() (bool, error) {
		m = api.Message{}
		b.ask(natsapi.VerbMessage, api.MessageRequest{Stream: "ORDERS", Seq: seq}, &m)
		return m.Fate == want, fmt.Errorf("it is %s: %s", m.Fate, text(m.Reason))
	})
	return m
}

func (b *bundle) publish(subject, body string, headers ...string) uint64 {
	b.Helper()
	return b.stack.Publish(b, subject, body, headers...).Sequence
}

// A message meets each fate, and what is said of it is that.
func testFates(b *bundle) {
	placed := b.publish("orders.fate.placed", `{"amount": 1, "items": 1}`)
	started := b.fate(placed, "started")
	equal(b, "started", text(started.Route)+text(started.SignalID), "placednull")
	item := b.publish("orders.fate.item", `{"sku": "cup"}`, "Nats-Msg-Id", "fate-item")
	delivered := b.fate(item, "delivered")
	equal(b, "delivered", fmt.Sprint(text(delivered.Route), text(delivered.MsgID), delivered.Subject, text(delivered.InstanceID), delivered.SignalID != nil, delivered.At != nil),
		fmt.Sprint("items", "fate-item", "orders.fate.item", text(started.InstanceID), true, true))
	apptest.Eventually(b, "consumed", func() (bool, error) {
		m := b.fate(item, "delivered")
		return m.ConsumedBy != nil && m.ConsumedBy.Step == "collect" && !m.ConsumedBy.At.IsZero(), fmt.Errorf("%+v", m.ConsumedBy)
	})

	equal(b, "an empty body", text(b.fate(b.publish("orders.fate.item", ""), "delivered").Reason), "null")

	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "once", CorrelationKey: "fate-once"}, nil)
	last := b.publish("orders.fate-once.item", `{}`)
	b.becomes("key:fate-once", engine.StatusDone)
	if by := b.fate(last, "delivered").ConsumedBy; by == nil || by.Step != "end" {
		b.Errorf("the signal that it ended with: consumed by %+v", by)
	}

	b.fate(b.publish("orders.fate.paid", `{"amount": 0}`), "filtered")
	poison := b.fate(b.publish("orders.fate.paid", `{`), "dead-lettered")
	equal(b, "reason", strings.Contains(text(poison.Reason), "body"), true)
	missing := b.fate(b.publish("orders.fate-nobody.paid", `{"amount": 1}`), "dead-lettered")
	equal(b, "reason", strings.HasPrefix(text(missing.Reason), "no_target: "), true)
	b.fate(b.publish("orders.fate-nobody.note", `{}`), "dropped")
	held := b.publish("orders.fate-early.item", `{"sku": "pot"}`)
	b.fate(held, "held")
	b.publish("orders.fate-early.placed", `{"amount": 1, "items": 2}`)
	b.fate(held, "delivered")
	both := b.fate(b.publish("orders.fate-both.both", `{"sku": "pan"}`), "started")
	equal(b, "with its signal", both.SignalID != nil, true)
	b.fate(b.publish("orders.fate.idle", `{}`), "pending")
	unread := b.fate(b.publish("orders.fate.unread", `{}`), "unknown")
	equal(b, "route", text(unread.Route), "null")
}

// The second message with a dedup key is a duplicate, and with another body a conflict. Its Nats-Msg-Id would be dropped by the stream,
// so these are CloudEvents.
func testMessageByID(b *bundle) {
	b.start("by-id")
	event := []string{"ce-specversion", "1.0", "ce-type", "t", "ce-source", "shop", "ce-id", "77"}
	b.fate(b.publish("orders.by-id.item", `{"sku": "a"}`, event...), "delivered")
	b.fate(b.publish("orders.by-id.item", `{"sku": "a"}`, event...), "duplicate")
	conflict := b.fate(b.publish("orders.by-id.item", `{"sku": "b"}`, event...), "conflict")
	equal(b, "reason", strings.Contains(text(conflict.Reason), "shop#77"), true)

	seq := b.publish("orders.by-id.item", `{"sku": "c"}`, "Nats-Msg-Id", "by-id-1")
	b.fate(seq, "delivered")
	for _, stream := range []string{"", "ORDERS"} {
		var m api.Message
		b.ask(natsapi.VerbMessage, api.MessageRequest{MsgID: "by-id-1", Stream: stream}, &m)
		equal(b, "found", fmt.Sprint(m.Stream, m.Seq, m.Fate), fmt.Sprint("ORDERS", seq, "delivered"))
	}
}

func testNoSuchMessage(b *bundle) {
	for _, r := range []api.MessageRequest{
		{Stream: "ORDERS", Seq: 1 << 40}, {Stream: "NONE", Seq: 1}, {Stream: "a b", Seq: 1}, {MsgID: "never-sent"}, {MsgID: "never-sent", Stream: "NONE"}, {MsgID: "x", Stream: "a b"},
	} {
		_ = b.refused(api.CodeNotFound, natsapi.VerbMessage, r)
	}
}

// A message that its stream has no longer is not guessed at: what its place leads to is said, else that it is gone.
func testGone(b *bundle) {
	stream, err := b.stack.JS.Stream(b.Context(), "ORDERS")
	if err != nil {
		b.Fatal(err)
	}
	fates := map[uint64]string{}
	publish := func(subject, body, before, after string) uint64 {
		b.Helper()
		seq := b.publish(subject, body)
		b.fate(seq, before)
		fates[seq] = after
		return seq
	}
	started := publish("orders.gone.placed", `{"amount": 1, "items": 1}`, "started", "started")
	publish("orders.gone.placed", `{"amount": 1, "items": 1}`, "duplicate", "duplicate")
	in := b.fate(started, "started").InstanceID
	publish("orders.gone.item", `{"sku": "cup"}`, "delivered", "unknown")
	refused := publish("orders.gone.paid", `{`, "dead-lettered", "dead-lettered")
	dropped := publish("orders.gone.paid", `[`, "dead-lettered", "dropped")
	var page api.Page[api.DeadLetter]
	b.ask(natsapi.VerbDeadLetters, api.DeadLettersRequest{Route: "paid", Limit: 1}, &page)
	equal(b, "the latest dead letter", page.Items[0].StreamSeq, dropped)
	b.ask(natsapi.VerbDrop, api.LettersChoice{Seq: page.Items[0].Seq}, nil)
	b.fate(dropped, "dropped")
	for seq, want := range fates {
		if err := stream.DeleteMsg(b.Context(), seq); err != nil {
			b.Fatal(err)
		}
		m := b.fate(seq, want)
		switch want {
		case "started", "duplicate":
			equal(b, "instance", text(m.InstanceID), text(in))
		case "unknown":
			equal(b, "reason", strings.Contains(text(m.Reason), fmt.Sprintf("ORDERS no longer has message %d", seq)), true)
			equal(b, "routes that may have read it", len(m.Others) > 1, true)
		}
	}
	equal(b, "subject of a dead letter", b.fate(refused, "dead-lettered").Subject, "orders.gone.paid")
}

func testHeld(b *bundle) {
	p := bundle{b.T, b.stack, b.client}
	for _, key := range []string{"hold-b", "hold-a", "hold-c"} {
		p.publish("orders."+key+".item", `{"sku": "cup"}`, "Nats-Msg-Id", "m-"+key)
	}
	var page api.Page[api.HeldSignal]
	apptest.Eventually(b, "three are held", func() (bool, error) {
		page = api.Page[api.HeldSignal]{}
		b.ask(natsapi.VerbHeld, api.HeldRequest{CorrelationPrefix: "hold-"}, &page)
		return len(page.Items) == 3, fmt.Errorf("%d are", len(page.Items))
	})
	h := page.Items[0]
	equal(b, "first", fmt.Sprint(h.CorrelationKey, h.Name, string(h.Payload), text(h.DedupKey), text(h.Route), text(h.Stream), text(h.Subject), h.Seq > 0),
		fmt.Sprint("hold-a", "item", `{"sku":"cup"}`, "ORDERS:m-hold-a", "items", "ORDERS", "orders.hold-a.item", true))
	equal(b, "for an hour", h.ExpiresAt.Sub(h.InsertedAt), time.Hour)
	b.ask(natsapi.VerbHeld, api.HeldRequest{CorrelationPrefix: "hold-", Limit: 2}, &page)
	b.ask(natsapi.VerbHeld, api.HeldRequest{CorrelationPrefix: "hold-", Limit: 2, Cursor: *page.NextCursor}, &page)
	equal(b, "last page", fmt.Sprint(len(page.Items), page.Items[0].CorrelationKey), fmt.Sprint(1, "hold-c"))
	b.ask(natsapi.VerbHeld, api.HeldRequest{CorrelationKey: "hold-b"}, &page)
	equal(b, "of one key", fmt.Sprint(len(page.Items), page.Items[0].CorrelationKey), fmt.Sprint(1, "hold-b"))
	b.ask(natsapi.VerbHeld, api.HeldRequest{CorrelationKey: "hold-"}, &page)
	equal(b, "of nobody", len(page.Items), 0)
}

func testDeadLetters(b *bundle) {
	bodies := []string{"\xff\xfe", "not json", `"\u0000"`}
	for i, body := range bodies {
		b.publish("orders.dead.both", body, "Nats-Msg-Id", fmt.Sprint("dead-", i), "X-Trace", "7")
	}
	var page api.Page[api.DeadLetter]
	apptest.Eventually(b, "three dead letters", func() (bool, error) {
		page = api.Page[api.DeadLetter]{}
		b.ask(natsapi.VerbDeadLetters, api.DeadLettersRequest{Route: "both"}, &page)
		return len(page.Items) == 3, fmt.Errorf("there are %d", len(page.Items))
	})
	bySeq := map[string]uint64{}
	for i, l := range page.Items {
		if i > 0 && l.Seq >= page.Items[i-1].Seq {
			b.Error("not the latest first")
		}
		equal(b, "letter", fmt.Sprint(l.Route, text(l.Stream), text(l.Subject), l.Reason != "", l.StreamSeq > 0, l.Deliveries), fmt.Sprint("both", "ORDERS", "orders.dead.both", true, true, 1))
		bySeq[text(l.MsgID)] = l.Seq
	}
	var content api.DeadLetterContent
	b.ask(natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: bySeq["dead-0"]}, &content)
	equal(b, "bytes", string(content.Base64)+content.Headers["X-Trace"][0], bodies[0]+"7")
	b.ask(natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: bySeq["dead-1"]}, &content)
	equal(b, "text", text(content.Text), bodies[1])
	b.ask(natsapi.VerbDeadLetter, api.DeadLetterRequest{Seq: bySeq["dead-2"]}, &content)
	equal(b, "JSON", string(content.Data), bodies[2])

	var all []uint64
	for r := (api.DeadLettersRequest{Route: "both", Limit: 1}); ; r.Cursor = *page.NextCursor {
		page = api.Page[api.DeadLetter]{}
		b.ask(natsapi.VerbDeadLetters, r, &page)
		for _, l := range page.Items {
			all = append(all, l.Seq)
		}
		if page.NextCursor == nil {
			break
		}
	}
	equal(b, "page by page", len(all), 3)
	b.ask(natsapi.VerbDeadLetters, api.DeadLettersRequest{Route: "nothing-of-it"}, &page)
	equal(b, "of a route without", len(page.Items), 0)
}

func testRoutesTest(b *bundle) {
	in := b.start("dry")
	b.start("dry-done")
	b.complete("dry-done")
	item := json.RawMessage(`{"sku": "cup"}`)
	for _, c := range []struct {
		subject string
		data    json.RawMessage
		want    string
	}{
		{"orders.dry.item", item, "items delivered"},
		{"orders.dry-nobody.item", item, "items held"},
		{"orders.dry-done.item", item, "items dead-lettered"},
		{"orders.dry-nobody.note", item, "notes dropped"},
		{"orders.dry-done.note", item, "notes dropped"},
		{"orders.dry-nobody.paid", json.RawMessage(`{"amount": 1}`), "paid dead-lettered"},
		{"orders.dry.paid", json.RawMessage(`{"amount": 0}`), "paid filtered"},
		{"orders.dry.paid", json.RawMessage(`{}`), "paid dead-lettered"},
		{"orders.dry.placed", item, "placed duplicate"},
		{"orders.dry-nobody.placed", item, "placed started"},
		{"orders.dry-nobody.both", item, "both started"},
	} {
		var out api.RoutesTest
		b.ask(natsapi.VerbRoutesTest, api.TestRequest{Subject: c.subject, Data: c.data}, &out)
		equal(b, c.subject, fmt.Sprint(len(out.Routes), out.Routes[0].Route, " ", text(out.Routes[0].Result), out.Routes[0].Reason != ""), fmt.Sprint(1, c.want, true))
	}
	equal(b, "a dry run changes nothing", b.get(in.ID).InboxCount, 0)
	var out api.RoutesTest
	b.ask(natsapi.VerbRoutesTest, api.TestRequest{Subject: "orders.dry.item", Data: item, Headers: map[string]api.HeaderValue{"Nats-Msg-Id": {"d1"}}}, &out)
	r := out.Routes[0]
	equal(b, "details", fmt.Sprint(text(r.Signal), text(r.DedupKey), string(r.Payload), text(r.Targets[0].CorrelationKey), text(r.Targets[0].InstanceID)), fmt.Sprint("item", "ORDERS:d1", `{"sku":"cup"}`, "dry", in.ID))
	b.ask(natsapi.VerbRoutesTest, api.TestRequest{Subject: "orders.dry.nothing"}, &out)
	equal(b, "nobody reads it", fmt.Sprint(len(out.Routes), out.Routes[0].Matched), fmt.Sprint(10, false))
}

// A route gives what it starts its keys. A message whose unique key is held is a duplicate, one without it a dead letter.
func testKeysOfRoute(b *bundle) {
	started := b.fate(b.publish("orders.nightly.import", `{"tenant": "t1"}`), "started")
	in := b.becomes(text(started.InstanceID), engine.StatusAwaiting)
	equal(b, "keys", fmt.Sprint(text(in.PartitionKey), " ", text(in.UniqueKey), " ", in.UniqueScope), "t1 import-nightly [runnable executing awaiting_signal done]")
	second := b.fate(b.publish("orders.nightly.import", `{"tenant": "t2"}`), "duplicate")
	equal(b, "holder", text(second.InstanceID), in.ID)
	poison := b.fate(b.publish("orders.weekly.import", `{"tenant": ""}`), "dead-lettered")
	equal(b, "reason", strings.HasPrefix(text(poison.Reason), "start.partition_key: is empty"), true)
}
