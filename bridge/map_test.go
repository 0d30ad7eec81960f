package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// mapped compiles a route and maps a message, and prints what came of it: one line for each intake.
func mapped(t testing.TB, r Route, m *message) string {
	t.Helper()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := compile(space, r)
	if err != nil {
		t.Fatal(err)
	}
	return rt.mapMessage(m).String()
}

func (m mapping) String() string {
	switch {
	case m.filtered:
		return "filtered"
	case m.reason != "":
		return "rejected: " + m.reason
	}
	var lines []string
	for _, i := range m.intakes {
		line := fmt.Sprintf("%s to %s/%s dedup %s payload %s", cmp.Or(i.Name, "start"), i.To.Project(), i.To.Key(), i.DedupKey, i.Payload)
		if s := i.Start; s != nil {
			line += fmt.Sprintf(" machine %s/%s/%s state %s queue %q reply to %q", s.Project, s.Machine, s.CorrelationKey, s.State, s.Queue, s.ReplyTo)
			if s.PartitionKey+s.UniqueKey != "" {
				line += fmt.Sprintf(" partition %q unique %q in %s", s.PartitionKey, s.UniqueKey, s.UniqueScope)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

var (
	testCreated = time.Unix(0, 1700000000000000001)
	testStored  = time.Unix(1700000100, 0)
)

// msg is the 42nd message of ORDERS; headers are pairs.
func msg(body string, headers ...string) *message {
	h := nats.Header{}
	for pair := range slices.Chunk(headers, 2) {
		h.Set(pair[0], pair[1])
	}
	return &message{
		subject: "orders.7.paid", headers: h, body: []byte(body), stream: "ORDERS", created: testCreated, sequence: 42,
		stored: testStored, deliveries: 1, origin: engine.Origin{Stream: "ORDERS", Created: testCreated, Sequence: 42},
	}
}

func TestMap(t *testing.T) {
	t.Parallel()
	const place = "ORDERS@1700000000000000001:42"
	base := Route{Name: "r", Stream: "ORDERS", Signal: "paid", CorrelationKeys: []string{"order-{{subject[1]}}"}}
	with := func(change func(*Route)) Route {
		r := base
		change(&r)
		return r
	}
	for _, c := range []struct {
		name  string
		route Route
		msg   *message
		want  string
	}{
		{"whole body", base, msg(`{"a":1}`), `paid to default/order-7 dedup ` + place + ` payload {"a":1}`},
		{"no body is null", base, msg(``), `paid to default/order-7 dedup ` + place + ` payload null`},
		{"message id", base, msg(`1`, "Nats-Msg-Id", "m"), `paid to default/order-7 dedup ORDERS:m payload 1`},
		{"cloudevent, binary", base, msg(`1`, "ce-id", "i", "ce-source", "/s"), `paid to default/order-7 dedup /s#i payload 1`},
		{"cloudevent, as HTTP writes it", base, msg(`1`, "Ce-Id", "i", "Ce-Source", "/s"), `paid to default/order-7 dedup /s#i payload 1`},
		{"cloudevent without source", base, msg(`1`, "ce-id", "i"), `paid to default/order-7 dedup ` + place + ` payload 1`},
		{"message id before cloudevent", base, msg(`1`, "Nats-Msg-Id", "m", "ce-id", "i", "ce-source", "/s"), `paid to default/order-7 dedup ORDERS:m payload 1`},
		{"sourced", base, msg(`1`, "Nats-Msg-Id", "m", "Nats-Stream-Source", "UP 9 > > up.1"), `paid to default/order-7 dedup UP:m payload 1`},
		{
			"big number", with(func(r *Route) { r.CorrelationKeys = []string{"{{payload.id}}"}; r.Payload = "{{payload.id}}" }),
			msg(`{"id":12345678901234567}`), `paid to default/12345678901234567 dedup ` + place + ` payload 12345678901234567`,
		},
		{"own dedup key", with(func(r *Route) { r.DedupKey = "{{payload.id}}" }), msg(`{"id":"x"}`), `paid to default/order-7 dedup x payload {"id":"x"}`},
		{"own project", with(func(r *Route) { r.Project = "acme" }), msg(`1`), `paid to acme/order-7 dedup ` + place + ` payload 1`},
		{"name from subject", with(func(r *Route) { r.Signal = "order_{{subject[2]}}" }), msg(`1`), `order_paid to default/order-7 dedup ` + place + ` payload 1`},
		{"text", with(func(r *Route) { r.Format = FormatText }), msg("a\nb"), `paid to default/order-7 dedup ` + place + ` payload "a\nb"`},
		{"bytes", with(func(r *Route) { r.Format = FormatBytes }), msg("\x00\xff"), `paid to default/order-7 dedup ` + place + ` payload "AP8="`},
		{
			"list of keys", with(func(r *Route) { r.CorrelationKeys = []string{"{{payload.keys}}"} }), msg(`{"keys":["a","b","a"]}`),
			`paid to default/a dedup ` + place + ` payload {"keys":["a","b","a"]}` + "\n" + `paid to default/b dedup ` + place + ` payload {"keys":["a","b","a"]}`,
		},
		{
			"several keys", with(func(r *Route) { r.CorrelationKeys = []string{"{{payload.keys}}", "c"} }), msg(`{"keys":["a"]}`),
			`paid to default/a dedup ` + place + ` payload {"keys":["a"]}` + "\n" + `paid to default/c dedup ` + place + ` payload {"keys":["a"]}`,
		},
		{"filtered", with(func(r *Route) { r.When = "payload.amount > 0" }), msg(`{"amount":0}`), "filtered"},
		{"not filtered", with(func(r *Route) { r.When = "payload.amount > 0" }), msg(`{"amount":1}`), `paid to default/order-7 dedup ` + place + ` payload {"amount":1}`},

		{
			"structured cloudevent", with(func(r *Route) { r.CorrelationKeys = []string{"{{headers['ce-subject']}}"} }),
			msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t","subject":"o-1","n":5,"data":{"big":12345678901234567890}}`, "content-type", "application/cloudevents+json; charset=utf-8"),
			`paid to default/o-1 dedup /s#i payload {"big":12345678901234567890}`,
		},
		{
			"structured cloudevent in base64", with(func(r *Route) { r.Format = FormatText }),
			msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t","data_base64":"aGk="}`, "Content-Type", "application/cloudevents+json"),
			`paid to default/order-7 dedup /s#i payload "hi"`,
		},
		{
			"structured cloudevent with null for base64", base, msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t","data":7,"data_base64":null}`, "content-type", "application/cloudevents+json"),
			`paid to default/order-7 dedup /s#i payload 7`,
		},
		{
			"structured cloudevent without data", base, msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t"}`, "content-type", "application/cloudevents+json"),
			`paid to default/order-7 dedup /s#i payload null`,
		},

		{
			"start alone",
			Route{Name: "r", Stream: "ORDERS", Start: &Start{Machine: "order"}},
			msg(`1`),
			`start to default/ dedup ` + place + ` payload 1 machine default/order/ state  queue "" reply to ""`,
		},
		{
			"start with keys",
			Route{Name: "r", Stream: "ORDERS", Start: &Start{
				Machine: "order", PartitionKey: "shop-{{payload.shop}}", UniqueKey: "{{payload.id}}", UniqueScope: []engine.Status{engine.StatusRunnable, engine.StatusDone},
			}},
			msg(`{"shop":"a","id":12345678901234567}`),
			`start to default/ dedup ` + place + ` payload {"shop":"a","id":12345678901234567} machine default/order/ state  queue "" reply to "" partition "shop-a" unique "12345678901234567" in [runnable done]`,
		},
		{
			"start with signal", with(func(r *Route) {
				r.Project = "acme"
				r.Start = &Start{Machine: "order", State: "{{payload.state}}", Queue: "slow", ReplyTo: "{{headers['reply']}}"}
			}), msg(`{"state":{"n":1}}`, "reply", "answers.1"),
			`paid to acme/order-7 dedup ` + place + ` payload {"state":{"n":1}} machine acme/order/order-7 state {"n":1} queue "slow" reply to "answers.1"`,
		},
	} {
		if got := mapped(t, c.route, c.msg); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestMapRejects(t *testing.T) {
	t.Parallel()
	base := Route{Name: "r", Stream: "ORDERS", Signal: "{{headers[?'name'].orValue('paid')}}", CorrelationKeys: []string{"{{payload.key}}"}}
	with := func(change func(*Route)) Route {
		r := base
		change(&r)
		return r
	}
	many := `{"key":[` + strings.TrimSuffix(strings.Repeat(`"k",`, maxKeys+1), ",") + `]}`
	for _, c := range []struct {
		name  string
		route Route
		msg   *message
		want  string // a part of the reason
	}{
		{"not JSON", base, msg(`{`), "body: is not JSON"},
		{"no unique key", with(func(r *Route) { r.Start = &Start{Machine: "m", UniqueKey: "{{payload.none}}"} }), msg(`{"key":"k"}`), "start.unique_key: "},
		{"unique key is null", with(func(r *Route) { r.Start = &Start{Machine: "m", UniqueKey: "{{payload.none}}"} }), msg(`{"key":"k","none":null}`), "start.unique_key: "},
		{"unique key is empty", with(func(r *Route) { r.Start = &Start{Machine: "m", UniqueKey: "{{payload.none}}"} }), msg(`{"key":"k","none":""}`), "start.unique_key: is empty"},
		{"unique key is a list", with(func(r *Route) { r.Start = &Start{Machine: "m", UniqueKey: "{{payload.none}}"} }), msg(`{"key":"k","none":["a"]}`), "start.unique_key: "},
		{"partition key is too long", with(func(r *Route) { r.Start = &Start{Machine: "m", PartitionKey: "{{payload.p}}"} }), msg(`{"key":"k","p":"` + strings.Repeat("p", 513) + `"}`), "start.partition_key: has 513 characters"},
		{"bad UTF-8", base, msg("\"\xff\""), "body: is not valid UTF-8"},
		{"bad UTF-8 as text", with(func(r *Route) { r.Format = FormatText }), msg("\xff"), "body: is not valid UTF-8"},
		{"NUL as text", with(func(r *Route) { r.Format = FormatText }), msg("a\x00"), `body: has \u0000`},
		{"missing field", base, msg(`{}`), "correlation_key: "},
		{"null key", base, msg(`{"key":null}`), "correlation_key: "},
		{"empty key", base, msg(`{"key":""}`), "correlation_key: is empty"},
		{"long key", base, msg(`{"key":"` + strings.Repeat("k", 513) + `"}`), "correlation_key: has 513 characters"},
		{"no keys", base, msg(`{"key":[]}`), "correlation_key: is an empty list"},
		{"too many keys", base, msg(many), "correlation_key: is a list of 1001 keys, at most 1000 are allowed"},
		{"one bad key of a list", base, msg(`{"key":["a",""]}`), "correlation_key: is empty"},
		{"bad name", base, msg(`{"key":"a"}`, "name", "a b"), `signal: "a b" has ' '`},
		{"control character in message id", base, msg(`{"key":"a"}`, "Nats-Msg-Id", "a\tb"), "dedup_key: has the control character 0x09"},
		{"too large", with(func(r *Route) { r.MaxBody = 5 }), msg(`{"key":"a"}`), "body: has 11 bytes, at most 5 are allowed"},
		{
			"grows too large", with(func(r *Route) {
				r.Format = FormatBytes
				r.CorrelationKeys = []string{"k"}
				r.MaxBody = 2 * ident.MaxJSON
			}),
			msg(strings.Repeat("x", ident.MaxJSON)), "payload: is too long",
		},
		{"condition on a missing field", with(func(r *Route) { r.When = "payload.amount > 0" }), msg(`{"key":"a"}`), "when: "},
		{"reply to a wildcard", with(func(r *Route) { r.Start = &Start{Machine: "m", ReplyTo: "{{payload.to}}"} }), msg(`{"key":"a","to":"x.*"}`), "start.reply_to: "},
		{"cloudevent that is none", base, msg(`{"key":"a"}`, "content-type", "application/cloudevents+json"), "cloudevent: specversion is missing"},
		{"cloudevent that is no object", base, msg(`null`, "content-type", "application/cloudevents+json"), "cloudevent: is not a JSON object"},
		{"cloudevent, another version", base, msg(`{"specversion":"0.3","id":"i","source":"/s","type":"t"}`, "content-type", "application/cloudevents+json"), `cloudevent: specversion is "0.3": want "1.0"`},
		{"cloudevents in a batch", base, msg(`[]`, "content-type", "application/cloudevents-batch+json; charset=utf-8"), "cloudevent: a batch is several messages in one: publish each event"},
		{"cloudevent in another format", base, msg(`<e/>`, "Content-Type", "application/CloudEvents+xml"), "cloudevent: the event format application/cloudevents+xml is not read: want application/cloudevents+json"},
		{"cloudevent, data twice", base, msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t","data":1,"data_base64":"aGk="}`, "content-type", "application/cloudevents+json"), "cloudevent: has both data and data_base64"},
		{"cloudevent, base64 that is no text", base, msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t","data_base64":1234}`, "content-type", "application/cloudevents+json"), "cloudevent: data_base64: is not a string"},
		{"cloudevent, bad base64", base, msg(`{"specversion":"1.0","id":"i","source":"/s","type":"t","data_base64":"*"}`, "content-type", "application/cloudevents+json"), "cloudevent: data_base64: "},
	} {
		if got := mapped(t, c.route, c.msg); !strings.HasPrefix(got, "rejected: ") || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %s\nwant rejected: … %s", c.name, got, c.want)
		}
	}
}

func TestMapCarriesWhatTheEngineNeeds(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := compile(space, Route{Name: "r", Stream: "ORDERS", Signal: "paid", CorrelationKeys: []string{"k"}, HoldFor: time.Minute, OnTerminal: engine.TerminalDrop})
	if err != nil {
		t.Fatal(err)
	}
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m := msg(`{"a": 1}`, "Traceparent", trace, "X", "y")
	m.deliveries, m.seenBefore = 3, true
	i := rt.mapMessage(m).intakes[0]
	if i.OnMissing != engine.MissingHold || i.HoldFor != time.Minute || i.OnTerminal != engine.TerminalDrop || !i.Redelivered || i.Traceparent != trace ||
		string(i.Body) != `{"a": 1}` || i.Origin != (engine.Origin{Route: "r", Stream: m.origin.Stream, Created: m.origin.Created, Sequence: m.origin.Sequence}) || i.Start != nil {
		t.Errorf("got %+v", i)
	}
	if got := i.Message; got == nil || got.Route != "r" || got.Subject != "orders.7.paid" || got.Deliveries != 3 || got.Headers["X"][0] != "y" {
		t.Errorf("message %+v", i.Message)
	}
	m.headers.Set("Traceparent", "nonsense\x00")
	if got := rt.mapMessage(m).intakes[0].Traceparent; got != "" {
		t.Errorf("traceparent %q", got)
	}
}

func TestSignalsRouteTarget(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	rt := signalsRoute(space)
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{[]string{subjects.HeaderCorrelationKey, "k"}, "order.paid to default/k dedup ORDERS@1700000000000000001:42 payload 1"},
		{[]string{subjects.HeaderCorrelationKey, "k", subjects.HeaderProject, "acme"}, "order.paid to acme/k dedup ORDERS@1700000000000000001:42 payload 1"},
		{[]string{subjects.HeaderInstanceID, id}, "order.paid to / dedup ORDERS@1700000000000000001:42 payload 1"},
		{[]string{subjects.HeaderInstanceID, "x"}, "rejected: Pointsman-Instance-Id: invalid UUID length: 1"},
		{[]string{subjects.HeaderInstanceID, id, subjects.HeaderCorrelationKey, "k"}, "rejected: has both Pointsman-Correlation-Key and Pointsman-Instance-Id: send one"},
		{nil, "rejected: Pointsman-Correlation-Key: is empty: a key has 1 to 512 characters"},
	} {
		m := msg(`1`, c.headers...)
		m.subject = space.Signal("order.paid")
		got := rt.mapMessage(m)
		if got.String() != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.headers, got, c.want)
		}
		if len(got.intakes) == 1 && got.intakes[0].To.Key() == "" && (got.intakes[0].To.ID().String() != id || got.intakes[0].OnMissing != engine.MissingReject) {
			t.Errorf("got %+v", got.intakes[0])
		}
	}
}

// Whatever a message holds, it is taken in, filtered or rejected, and what is taken in can be stored.
func FuzzMapMessage(f *testing.F) {
	space, err := subjects.New("")
	if err != nil {
		f.Fatal(err)
	}
	var routes []*route
	for _, r := range []Route{
		{Name: "a", Stream: "S", Signal: "{{payload.name}}", CorrelationKeys: []string{"{{payload.keys}}"}, When: "payload.amount > 0"},
		{Name: "b", Stream: "S", Signal: "paid", CorrelationKeys: []string{"{{headers['ce-subject']}}"}, Payload: "{{payload.a.b}}", DedupKey: "{{payload.id}}"},
		{Name: "c", Stream: "S", Start: &Start{Machine: "m", State: "{{payload}}", ReplyTo: "r.{{subject[0]}}"}, Format: FormatText},
		{Name: "d", Stream: "S", Signal: "paid", CorrelationKeys: []string{"k-{{subject[1]}}"}, Format: FormatBytes},
	} {
		rt, err := compile(space, r)
		if err != nil {
			f.Fatal(err)
		}
		routes = append(routes, rt)
	}
	routes = append(routes, signalsRoute(space))
	f.Add("orders.1", []byte(`{"name":"paid","keys":["a","b"],"amount":1,"id":"x","a":{"b":1e5}}`), "Nats-Msg-Id", "m")
	f.Add("pointsman.signal.x", []byte(`1`), "Pointsman-Correlation-Key", "k")
	f.Add("a", []byte(`{"specversion":"1.0","id":"i","source":"/s","type":"t","subject":"k","data":{"a":{"b":[]}}}`), "content-type", "application/cloudevents+json")
	f.Add("a", []byte(`{"specversion":"1.0","id":1,"source":"/s","type":"t","data_base64":"AA=="}`), "Content-Type", "application/cloudevents+json")
	f.Add("", []byte("\xff\x00"), "Nats-Stream-Source", "UP x")
	f.Fuzz(func(t *testing.T, subject string, body []byte, name, value string) {
		for _, rt := range routes {
			m := msg(string(body), name, value)
			m.subject = subject
			got := rt.mapMessage(m)
			is := 0
			for _, b := range []bool{len(got.intakes) > 0, got.filtered, got.reason != ""} {
				if b {
					is++
				}
			}
			if is != 1 {
				t.Fatalf("%s: %+v", rt.Name, got)
			}
			for _, i := range got.intakes {
				if err := ident.Key("dedup", i.DedupKey); err != nil {
					t.Fatal(err)
				}
				if err := ident.JSON("payload", i.Payload, ident.MaxJSON); err != nil {
					t.Fatal(err)
				}
				if i.Name == "" && i.Start == nil {
					t.Fatalf("neither signal nor start: %+v", i)
				}
			}
		}
	})
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	good := Route{Name: "r", Stream: "S", Subjects: []string{"s.>"}, Signal: "paid", CorrelationKeys: []string{"k"}}
	if _, err := compile(space, good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Route){
		"name: is empty":                      func(r *Route) { r.Name = "" },
		"'.'":                                 func(r *Route) { r.Name = "a.b" },
		`"signals" is the built-in route's`:   func(r *Route) { r.Name = "signals" },
		"stream: is empty":                    func(r *Route) { r.Stream = "" },
		`stream: "S.x" has`:                   func(r *Route) { r.Stream = "S.x" },
		`consumer.existing: "a b" has`:        func(r *Route) { r.Existing = "a b" },
		`project: "a.b" has a '.'`:            func(r *Route) { r.Project = "a.b" },
		`subject "a..b"`:                      func(r *Route) { r.Subjects = []string{"a..b"} },
		`subject "s.1" overlaps with "s.>"`:   func(r *Route) { r.Subjects = []string{"s.>", "s.1"} },
		"has neither signal, event nor start": func(r *Route) { r.Signal = "" },
		"correlation_key: is empty":           func(r *Route) { r.CorrelationKeys = nil },
		"correlation_key[1]: is empty":        func(r *Route) { r.CorrelationKeys = []string{"k", ""} },
		"start.machine: is empty":             func(r *Route) { r.Start = &Start{} },
		"start.version: -1 is negative":       func(r *Route) { r.Start = &Start{Machine: "m", Version: -1} },
		"start: is missing":                   func(r *Route) { r.OnTerminal = engine.TerminalStart },
		"on_terminal: drop makes no sense for a start": func(r *Route) {
			r.Signal, r.Start, r.OnTerminal = "", &Start{Machine: "m"}, engine.TerminalDrop
		},
		"start.queue: \"_outbox\" is pointsman's own": func(r *Route) { r.Start = &Start{Machine: "m", Queue: "_outbox"} },
		"start.unique_scope: is of no unique_key":     func(r *Route) { r.Start = &Start{Machine: "m", UniqueScope: []engine.Status{"done"}} },
		`start.unique_scope: "over" is none of`: func(r *Route) {
			r.Start = &Start{Machine: "m", UniqueKey: "k", UniqueScope: []engine.Status{"over"}}
		},
		"start.unique_key: ":            func(r *Route) { r.Start = &Start{Machine: "m", UniqueKey: "{{nope}}"} },
		"start.partition_key: ":         func(r *Route) { r.Start = &Start{Machine: "m", PartitionKey: "{{"} },
		`format: "xml" is none of`:      func(r *Route) { r.Format = "xml" },
		`on_missing: "keep" is none of`: func(r *Route) { r.OnMissing = "keep" },
		"batch.size: is too large":      func(r *Route) { r.Batch.Size = 10_001 },
		"batch.wait: is negative":       func(r *Route) { r.Batch.Wait = -1 },
		"hold_for: is negative":         func(r *Route) { r.HoldFor = -1 },
		"when: ":                        func(r *Route) { r.When = "payload." },
		"payload: ":                     func(r *Route) { r.Payload = "{{" },
		"signal: \"a b\" has ' '":       func(r *Route) { r.Signal = "a b" },
		"start.state: ":                 func(r *Route) { r.Start = &Start{Machine: "m", State: "{{nope}}"} },
	} {
		r := good
		change(&r)
		if _, err := compile(space, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want … %s", err, want)
		}
	}
}
