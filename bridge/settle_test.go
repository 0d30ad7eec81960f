package bridge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// Each message that cannot be taken in is a dead letter with its reason, and stops no other.
func TestDeadLetters(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	r.OnMissing = engine.MissingReject
	r.MaxBody = 100
	b.run(b.config(r))
	b.ready()
	for _, c := range []struct{ name, body, id string }{
		{"", `not json`, "m1"},
		{"", `{"no":"key"}`, ""},
		{"", `{"key":"a","n":"\u0000"}`, ""},
		{"refuse", `{"key":"a"}`, ""},
		{"", `{"key":"nobody"}`, ""},
		{"", `{"key":"ended"}`, ""},
		{"bad name", `{"key":"a"}`, ""},
		{"", `{"key":"a","x":"` + strings.Repeat("x", 100) + `"}`, ""},
		{"", `{"key":"a"}`, ""}, // well
	} {
		headers := []string{"X", "kept", "Nats-Expected-Stream", "ORDERS"}
		if c.name != "" {
			headers = append(headers, "name", c.name)
		}
		if c.id != "" {
			headers = append(headers, subjects.HeaderMsgID, c.id)
		}
		b.publish("orders.paid", c.body, headers...)
	}
	letters := b.deadLetters(8)
	b.signals(1)
	b.acked("ORDERS", "pointsman-orders", 9)
	b.counted("orders", fateDeadLettered, 8)
	var reasons []string
	for _, l := range letters {
		reasons = append(reasons, l.Header.Get(subjects.HeaderSeq)+" "+l.Header.Get(subjects.HeaderReason))
	}
	slices.Sort(reasons)
	for i, want := range []string{
		"1 body: is not JSON at byte 1",
		"2 correlation_key: ",
		`3 body: has \u0000, which Postgres cannot hold`,
		"4 refused: cannot be stored",
		"5 no_target: nobody holds the key",
		"6 no_target: it has ended",
		`7 signal: "bad name" has ' '`,
		"8 body: has 118 bytes, at most 100 are allowed",
	} {
		if !strings.HasPrefix(reasons[i], want) {
			t.Errorf("reason %q, want %q…", reasons[i], want)
		}
	}
	first := letters[slices.IndexFunc(letters, func(l *jetstream.RawStreamMsg) bool { return l.Header.Get(subjects.HeaderSeq) == "1" })]
	for name, want := range map[string]string{
		subjects.HeaderStream: "ORDERS", subjects.HeaderSubject: "orders.paid", subjects.HeaderDeliveries: "1",
		subjects.HeaderOriginalMsgID: "m1", "X": "kept", "Pointsman-Original-Expected-Stream": "ORDERS", "Nats-Expected-Stream": "",
	} {
		if got := first.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if first.Subject != "pointsman.dlq.orders" || string(first.Data) != "not json" {
		t.Errorf("got %s %q", first.Subject, first.Data)
	}
}

func TestConflict(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	r.DedupKey = "{{payload.id}}"
	b.run(b.config(r))
	b.publish("orders.paid", `{"key":"a","id":"1","n":1}`)
	b.publish("orders.paid", `{"key":"a","id":"1","n":1}`)
	b.publish("orders.paid", `{"key":"a","id":"1","n":2}`)
	if got := b.deadLetters(1)[0].Header.Get(subjects.HeaderReason); got != "conflict: another body" {
		t.Errorf("reason %q", got)
	}
	b.acked("ORDERS", "pointsman-orders", 3)
	b.counted("orders", fateDelivered, 1)
	b.counted("orders", fateDuplicate, 1)
	b.counted("orders", fateConflict, 1)
	b.counted("orders", fateDeadLettered, 0)
}

// Without a place for dead letters nothing is acked; when there is one, there is one dead letter.
func TestDeadLetterStreamAppearsLater(t *testing.T) {
	b := setup(t, "a")
	cfg := b.config(b.orders())
	cfg.ManageStreams = false
	b.run(cfg)
	b.publish("orders.paid", `poison`)
	b.publish("orders.paid", `{"key":"a"}`)
	b.signals(1)
	b.eventually("trouble with dead letters", func() bool {
		err := b.bridge.Ready()
		return err != nil && strings.Contains(err.Error(), "dead letters of route orders: dead letter: nats: no response from stream")
	})
	b.stream(b.space.DeadLettersStream(), b.space.DeadLetterFilter())
	b.deadLetters(1)
	b.acked("ORDERS", "pointsman-orders", 2)
	b.ready()
}

// A dead letter that could not be stored is another bridge's next time, or nobody's: this one does not stay unready for it.
func TestTroubleWithDeadLettersEndsElsewhere(t *testing.T) {
	b := setup(t)
	cfg := b.config(b.orders())
	cfg.ManageStreams = false
	b.run(cfg)
	b.publish("orders.paid", `poison`)
	b.eventually("trouble with dead letters", func() bool { return strings.Contains(fmt.Sprint(b.bridge.Ready()), partDeadLetters("orders")) })
	orders, err := b.js.Stream(t.Context(), "ORDERS")
	if err == nil {
		err = orders.Purge(t.Context()) // as good as given to another
	}
	if err != nil {
		t.Fatal(err)
	}
	b.ready()
}

// The ack of a dead letter was lost, so it is published again: still one.
func TestDeadLetterTwiceIsOne(t *testing.T) {
	b := setup(t)
	b.stream(b.space.DeadLettersStream(), b.space.DeadLetterFilter())
	d := &deadLetters{conn: b.conn, js: b.js, space: b.space}
	m := &message{stream: "ORDERS", created: time.Unix(1, 0), sequence: 7, subject: "orders.paid", body: []byte("x")}
	for _, letter := range []deadLetter{{"orders", m, "first"}, {"orders", m, "again"}, {"other", m, "another route's"}} {
		for _, err := range d.publish(t.Context(), []deadLetter{letter}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	b.deadLetters(2)
}

func TestFailuresOfOneMessage(t *testing.T) {
	b := setup(t, "a")
	b.inbox.fail = map[string]int{"twice": 2, "once": 1}
	r := b.orders()
	r.MaxDeliver = 2
	b.run(b.config(r))
	b.publish("orders.paid", `{"key":"a"}`, "name", "twice")
	b.publish("orders.paid", `{"key":"a"}`, "name", "once")
	b.publish("orders.paid", `{"key":"a"}`)
	if got := b.deadLetters(1)[0].Header.Get(subjects.HeaderReason); got != "failed 2 times, lastly: row is locked" {
		t.Errorf("reason %q", got)
	}
	b.signals(2)
	b.acked("ORDERS", "pointsman-orders", 3)
	b.counted("orders", fateRetried, 2)
	b.counted("orders", fateDelivered, 2)
	b.counted("orders", fateDeadLettered, 1)
}

func TestDecideOfSeveral(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		results []engine.Result
		want    fate
	}{
		{[]engine.Result{engine.Duplicate, engine.Delivered, engine.Dropped}, fateDelivered},
		{[]engine.Result{engine.Duplicate, engine.Duplicate}, fateDuplicate},
		{[]engine.Result{engine.Delivered, engine.NoTarget}, fateDeadLettered},
		{[]engine.Result{engine.Conflict, engine.Delivered}, fateConflict},
		{[]engine.Result{engine.NoTarget, engine.Failed, engine.Conflict}, fateRetried},
		{[]engine.Result{engine.Started, engine.Held}, fateStarted},
	} {
		var receipts []engine.Receipt
		for _, r := range c.results {
			receipts = append(receipts, engine.Receipt{Result: r})
		}
		if got := decideAll(delivery{message: &message{}}, receipts); got.fate != c.want {
			t.Errorf("%v: %s, want %s", c.results, got.fate, c.want)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		body, header int
		reason       string
	}{
		{"small", 100, 10, "why"},
		{"body too large", 2000, 10, "why; body cut from 2000 to "},
		{"headers too large", 10, 2000, "why; headers left out"},
		{"both", 2000, 2000, "why; headers left out; body cut from 2000 to "},
	} {
		msg := &nats.Msg{Data: make([]byte, c.body), Header: nats.Header{
			"X": {strings.Repeat("x", c.header)}, subjects.HeaderReason: {"why"}, subjects.HeaderSeq: {"7"},
		}}
		fit(msg, 1024)
		if size := headerSize(msg.Header) + len(msg.Data); size > 1024 {
			t.Errorf("%s: %d bytes", c.name, size)
		}
		if got := msg.Header.Get(subjects.HeaderReason); !strings.HasPrefix(got, c.reason) || c.reason == "why" && got != "why" {
			t.Errorf("%s: reason %q", c.name, got)
		}
		if msg.Header.Get(subjects.HeaderSeq) != "7" {
			t.Errorf("%s: lost its sequence: %v", c.name, slices.Collect(maps.Keys(msg.Header)))
		}
	}
}

// The whole of a message of the largest size becomes a dead letter, cut.
func TestDeadLetterOfLargestMessage(t *testing.T) {
	b := setup(t)
	b.run(b.config(b.orders()))
	b.ready()
	b.publish("orders.paid", strings.Repeat("x", int(b.conn.MaxPayload())))
	letter := b.deadLetters(1)[0]
	if got := letter.Header.Get(subjects.HeaderReason); !strings.Contains(got, fmt.Sprintf("; body cut from %d to ", b.conn.MaxPayload())) {
		t.Errorf("reason %q", got)
	}
	b.acked("ORDERS", "pointsman-orders", 1)
}

func TestHeaderText(t *testing.T) {
	t.Parallel()
	if got := headerText("a\r\nb: c\x00"); got != "a  b: c " {
		t.Errorf("got %q", got)
	}
	if got := headerText(strings.Repeat("é", 2000)); len(got) > 1030 {
		t.Errorf("%d bytes", len(got))
	}
}
