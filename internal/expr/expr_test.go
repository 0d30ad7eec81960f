package expr

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

const document = `{
	"user_id": "u1", "id": 12345678901234567, "huge": 123456789012345678901234567890, "price": 1.10, "sci": 1.5e3, "zero": 0, "neg": -7,
	"yes": true, "none": null, "text": "gr\u00fc\u00dfe \"x\"", "n-a": "dash", "e\u0073c": "escaped key",
	"order": {"id": 42, "total": 99.90, "deep": {"er": ["a", {"b": "c"}]}}, "empty": {}, "nothing": [],
	"items": [{"sku": "a", "qty": 1, "price": 0.10}, {"sku": "b", "qty": 20, "price": 2.50}], "ids": [1, 2, 12345678901234567], "keys": ["k1", "k2"],
	"twice": 1, "twice": {"x": 2}, "index": 1
}`

func message() *Input {
	return &Input{
		Payload: json.RawMessage(document),
		Headers: map[string][]string{"Nats-Msg-Id": {"m-1", "m-2"}, "none": {}, "X": {"x"}},
		Subject: "payments.42.confirmed",
		Stream:  "PAYMENTS",
		Seq:     9007199254740993,
		Time:    time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600)),
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want, wantErr string }{
		// literal text
		{"", "", ""},
		{"plain }} { text", "plain }} { text", ""},
		{`{{"{{"}}`, "{{", ""},
		{`{{'}}'}}`, "}}", ""},
		{`{{r'\'}}{{'\'}}'}}`, `\'}}`, ""},
		{`{{"""a"}}"""}}`, `a"}}`, ""},
		{`{{ {'a': {'b': 'c'}}.a.b }}`, "c", ""},
		// paths
		{"order-{{subject[1]}}", "order-42", ""},
		{"{{headers['Nats-Msg-Id']}}/{{headers.X}}", "m-1/x", ""},
		{"{{msg.stream}} {{msg.seq}} {{msg.subject}} {{msg.time}}", "PAYMENTS 9007199254740993 payments.42.confirmed 2026-01-02T02:04:05.0000006Z", ""},
		{"aml-check:{{payload.user_id}}", "aml-check:u1", ""},
		{"{{payload.order.id}}", "42", ""},
		{"{{ payload['order'].deep.er[1].b }}", "c", ""},
		{`{{payload["n-a"]}} {{payload.esc}}`, "dash escaped key", ""},
		{"{{payload.text}}", `grüße "x"`, ""},
		{"{{payload.yes}}", "true", ""},
		{"{{payload.twice.x}}", "2", ""},
		// numbers are what the JSON has
		{"{{payload.id}} {{payload.huge}} {{payload.price}} {{payload.sci}} {{payload.neg}}", "12345678901234567 123456789012345678901234567890 1.10 1.5e3 -7", ""},
		{"{{has(payload.price) ? payload.price : 0}}", "1.10", ""},
		{"{{[payload.huge][0]}}", "123456789012345678901234567890", ""},
		{"{{payload.items.filter(i, i.qty > 5)[0].price}}", "2.50", ""},
		{"{{string(payload.price)}}-{{'id' + string(payload.huge)}}", "1.10-id123456789012345678901234567890", ""},
		{"{{payload.?price.orValue('none')}} {{payload.?nope.orValue('none')}}", "1.10 none", ""},
		// exact arithmetic
		{"{{payload.zero + 1}} {{1 + payload.zero}} {{payload.price + 1.0}} {{payload.price + 1}} {{payload.id * 10}}", "1 1 2.1 2.1 123456789012345670", ""},
		{"{{payload.huge + 1}} {{-payload.huge}}", "123456789012345678901234567891 -123456789012345678901234567890", ""},
		{"{{payload.id / 2}} {{payload.id % 10}} {{payload.neg / 2}} {{payload.neg % 2}}", "6172839450617283 7 -3 -1", ""},
		{"{{payload.price / 4}} {{payload.price / 3.0}} {{1.0 / payload.index}}", "0.275 0.36666666666666667 1", ""},
		{"{{payload.items[1].price - payload.items[0].price}} {{payload.items.map(i, i.qty)[1] * payload.items[1].price}}", "2.4 50", ""},
		{"{{int(payload.price)}} {{double(payload.sci)}} {{uint(payload.index)}} {{int('7') + payload.index}}", "1 1500 1 8", ""},
		{"{{payload.keys[int(payload.index)]}} {{subject[int(payload.index)]}}", "k2 42", ""},
		// functions
		{"{{payload.user_id.upperAscii()}} {{subject[2].split('f')[0]}} {{payload.keys.join('+')}} {{size(payload.items)}}", "U1 con k1+k2 2", ""},
		{"{{base64.decode('aGk=')}} {{base64.encode(b'hi')}} {{duration('90s')}} {{1.5}}", "hi aGk= 1m30s 1.5", ""},
		{"{{type(payload.id) == int}} {{type(payload.price) == double}} {{type(payload.order) == map}}", "true true true", ""},
		// errors name the expression
		{"{{payload.user}}", "", "payload.user: no such field"},
		{"a{{ payload.order.nope }}", "", "payload.order.nope: no such field"},
		{"{{payload.nope.id}}", "", "payload.nope.id: payload.nope: no such field"},
		{"{{payload.user_id.id}}", "", "payload.user_id.id: no such field: what should hold it is no object"},
		{"{{payload.order[0]}}", "", "payload.order[0]: no such element: what should hold it is no list"},
		{"{{payload.items[2].sku}}", "", "payload.items[2].sku: payload.items[2]: no such element"},
		{"{{payload.items[-1]}}", "", "payload.items[-1]: no such element"},
		{"{{payload.none}}", "", "payload.none: is null, and a string, number or boolean is needed here"},
		{"{{payload.order}}", "", "payload.order: is an object, and"},
		{"{{payload.keys}}", "", "payload.keys: is a list, and"},
		{"{{subject}}", "", "subject: is a list, and"},
		{"{{subject[3]}}", "", `subject[3]: the subject "payments.42.confirmed" has no such token`},
		{"{{headers['Y']}}", "", "headers['Y']: no such header"},
		{"{{headers['none']}}", "", "headers['none']: no such header"},
		{"{{headers.Y + ''}}", "", "headers.Y + '': no such key: Y"},
		{"{{payload.user + 'x'}}", "", "payload.user + 'x': no such key: user"},
		{"{{payload.id + 'x'}}", "", "payload.id + 'x': cannot apply + to a number and a string"},
		{"{{'x' + payload.id}}", "", "'x' + payload.id: no such overload"},
		{"{{payload.id / payload.zero}}", "", "division by zero"},
		{"{{payload.price % 2}}", "", "cannot apply % to a number and a number"},
		{"{{payload.user_id < payload.id}}", "", "no such overload"},
		{"{{payload.user_id.substring(payload.index)}}", "", "no such overload"},
		{"{{payload.?nope}}", "", "is absent: say what else with orValue()"},
		{"{{payload.keys[payload.index]}}", "", "is no index by itself: write [int(…)]"},
		{"{{b'\\xff'}}", "", "bytes that are not UTF-8"},
		{"{{1.0 / 0.0}}", "", "is a number, and"},
	} {
		tmpl, err := Compile(c.src)
		if err != nil {
			t.Errorf("Compile(%q): %v", c.src, err)
			continue
		}
		if tmpl.Source() != c.src {
			t.Errorf("Source() = %q", tmpl.Source())
		}
		got, err := tmpl.String(message())
		checkResult(t, c.src, got, err, c.want, c.wantErr)
	}
}

func checkResult(t *testing.T, src, got string, err error, want, wantErr string) {
	t.Helper()
	switch {
	case wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)):
		t.Errorf("%q = %q, error %v, want the error %q", src, got, err, wantErr)
	case wantErr == "" && err != nil:
		t.Errorf("%q: %v", src, err)
	case got != want:
		t.Errorf("%q = %q, want %q", src, got, want)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want, wantErr string }{
		{"{{payload}}", document, ""},
		{"{{payload.order}}", `{"id": 42, "total": 99.90, "deep": {"er": ["a", {"b": "c"}]}}`, ""},
		{"{{payload.items[0]}}", `{"sku": "a", "qty": 1, "price": 0.10}`, ""},
		{"{{payload.ids}}", `[1, 2, 12345678901234567]`, ""},
		{"{{payload.huge}}", "123456789012345678901234567890", ""},
		{"{{payload.price}}", "1.10", ""},
		{"{{payload.user_id}}", `"u1"`, ""},
		{"{{payload.none}}", "null", ""},
		{"{{payload.yes}}", "true", ""},
		{"x{{payload.price}}", `"x1.10"`, ""},
		{"", `""`, ""},
		{"{}", `"{}"`, ""},
		{`a"b`, `"a\"b"`, ""},
		{
			"{{ {'order': payload.order.id, 'all': payload.ids, 'msg': {'seq': msg.seq, 'p': payload.price}} }}",
			`{"all":[1, 2, 12345678901234567],"msg":{"p":1.10,"seq":9007199254740993},"order":42}`, "",
		},
		{"{{payload.items.map(i, i.price)}}", "[0.10,2.50]", ""},
		{"{{payload.ids + [4, 1.5, true, null, 'x', b'hi', duration('1s')]}}", `[1,2,12345678901234567,4,1.5,true,null,"x","aGk=","1s"]`, ""},
		{"{{subject}}", `["payments","42","confirmed"]`, ""},
		{"{{headers}}", `{"Nats-Msg-Id":"m-1","X":"x"}`, ""},
		{"{{ {1: 'a', true: 'b'} }}", `{"1":"a","true":"b"}`, ""},
		{"{{msg.time}}", `"2026-01-02T02:04:05.0000006Z"`, ""},
		{"{{ {'a': payload.?nope} }}", `{"a":null}`, ""},
		{"{{ {1: 'a', '1': 'b'} }}", "", `the key "1" is there twice`},
		{"{{ [1.0 / 0.0] }}", "", "element 0 is not a finite number"},
		{"{{ {'a': [int]} }}", "", `member "a" element 0 is a type, which has no JSON form`},
		{"{{payload.nope}}", "", "payload.nope: no such field"},
	} {
		tmpl, err := Compile(c.src)
		if err != nil {
			t.Errorf("Compile(%q): %v", c.src, err)
			continue
		}
		got, err := tmpl.JSON(message())
		checkResult(t, c.src, string(got), err, c.want, c.wantErr)
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want, wantErr string }{
		{"{{payload.keys}}", "k1|k2", ""},
		{"{{payload.ids}}", "1|2|12345678901234567", ""},
		{"{{payload.items.map(i, 'item-' + i.sku)}}", "item-a|item-b", ""},
		{"{{payload.user_id}}", "u1", ""},
		{"x-{{payload.user_id}}", "x-u1", ""},
		{"{{subject}}", "payments|42|confirmed", ""},
		{"{{payload.nothing}}", "", ""},
		{"{{payload.items}}", "", "payload.items: element 0 is an object"},
		{"{{payload.order}}", "", "payload.order: is an object"},
		{"x-{{payload.keys}}", "", "payload.keys: is a list"},
		{"{{payload.nope}}", "", "no such field"},
	} {
		tmpl, err := Compile(c.src)
		if err != nil {
			t.Errorf("Compile(%q): %v", c.src, err)
			continue
		}
		got, err := tmpl.Strings(message())
		checkResult(t, c.src, strings.Join(got, "|"), err, c.want, c.wantErr)
	}
}

func TestCondition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src     string
		want    bool
		wantErr string
	}{
		{"payload.price > 0", true, ""},
		{"0 < payload.price", true, ""},
		{"payload.price == 1.1", true, ""},
		{"1.1 == payload.price", true, ""},
		{"payload.price != 1.1", false, ""},
		{"payload.sci == 1500", true, ""},
		{"1500u == payload.sci", true, ""},
		{"payload.id == 12345678901234567", true, ""},
		{"payload.id == 12345678901234568", false, ""},
		{"payload.huge == payload.huge + 1", false, ""},
		{"payload.huge > payload.id && payload.id < payload.huge", true, ""},
		{"payload.id >= payload.id && payload.id <= payload.id", true, ""},
		{"payload.neg < -6.5", true, ""},
		{"payload.zero + 1 == 1", true, ""},
		{"payload.price < double('inf') && payload.price != double('nan')", true, ""},
		{"payload.user_id == 1", false, ""},
		{"1 == payload.user_id", false, ""},
		{"payload.none == null && payload.zero != null", true, ""},
		{"payload.index in [1, 2] && 1 in payload.ids && 1.0 in payload.ids && !(3 in payload.ids)", true, ""},
		{"'a' in payload.order", false, ""},
		{"'id' in payload.order && 'X' in headers && '42' in subject && payload.index in {1: 'x'}", true, ""},
		{"payload.ids == [1, 2, 12345678901234567] && [1.0, 2, 12345678901234567] == payload.ids", true, ""},
		{"payload.ids == [1, 2]", false, ""},
		{"payload.twice == {'x': 2} && {'x': 2.0} == payload.twice", true, ""},
		{"payload.twice == {'x': 3} || payload.twice == {'y': 2} || payload.twice == {}", false, ""},
		{"payload.order == 1 || payload.ids == 1 || payload.ids == payload.order", false, ""},
		{"payload.items.exists(i, i.qty > 10) && payload.items.all(i, i.price > 0)", true, ""},
		{"payload.order.exists(k, k == 'total')", true, ""},
		{"has(payload.order.id) && !has(payload.order.nope) && !has(payload.nope)", true, ""},
		{"has(payload.nope) && payload.nope.x > 1", false, ""},
		{"subject[1] == '42' && headers['X'].matches('^x$') && msg.seq > 1 && msg.stream == 'PAYMENTS'", true, ""},
		{"msg.time > timestamp('2026-01-01T00:00:00Z')", true, ""},
		{"payload.yes", true, ""},
		{"payload == payload && size(payload.empty) == 0", true, ""},
		{"true", true, ""},
		{"payload.amount > 0", false, "payload.amount > 0: no such key: amount"},
		{"payload.zero", false, "payload.zero: is a number, and a condition must give a boolean"},
		{"payload.keys < 1", false, "cannot apply comparison to a list and a number"},
		{"1 in payload.zero", false, "cannot apply in to a number and a number"},
		{
			"payload.items.all(a, payload.items.all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, g > 0)))))))",
			false, "takes too long on this message",
		},
	} {
		cond, err := CompileWhen(c.src)
		if err != nil {
			t.Errorf("CompileWhen(%q): %v", c.src, err)
			continue
		}
		got, err := cond.Eval(message())
		switch {
		case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
			t.Errorf("%q = %v, error %v, want the error %q", c.src, got, err, c.wantErr)
		case c.wantErr == "" && err != nil:
			t.Errorf("%q: %v", c.src, err)
		case got != c.want:
			t.Errorf("%q = %v", c.src, got)
		}
	}
}

// A payload that is text, as of a route whose format is text, and one that is not there.
func TestScalarPayload(t *testing.T) {
	t.Parallel()
	tmpl, err := Compile("{{payload}}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ payload, text, doc, wantErr string }{
		{` "caf\u00e9" `, "café", ` "caf\u00e9" `, ""},
		{" 1.10\n", "1.10", " 1.10\n", ""},
		{"", "", "null", "payload: is null"},
		{"null", "", "null", "payload: is null"},
	} {
		in := &Input{Payload: json.RawMessage(c.payload)}
		text, err := tmpl.String(in)
		checkResult(t, c.payload, text, err, c.text, c.wantErr)
		doc, err := tmpl.JSON(in)
		checkResult(t, c.payload, string(doc), err, c.doc, "")
	}
}

func TestArithmeticIsBounded(t *testing.T) {
	t.Parallel()
	src := "payload"
	for range 20 {
		src = "[" + src + "].map(x, x * x)[0]"
	}
	tmpl, err := Compile("{{" + src + "}}")
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{"12345678901234567890", "1e999999999", strings.Repeat("9", 100_000)} {
		_, err := tmpl.String(&Input{Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), "number out of range") {
			t.Errorf("got %v", err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want string }{
		{"a {{", "column 3: {{ is not closed by }}"},
		{"{{'}}", "column 1: {{ is not closed by }}"},
		{"{{a}", "column 1: {{ is not closed by }}"},
		{"{{ }}", "column 3: the expression is empty"},
		{"é{{payloda.id}}", "column 4: undeclared reference to 'payloda'"},
		{"{{payload.a}}{{ payload. }}", "column 26: Syntax error"},
		{"{{subject[1] == 5}}", "column 14: found no matching overload for '_==_' applied to '(string, int)'"},
		{"{{msg.nope}}", "column 3: undeclared reference to 'msg'"},
		{"{{msg}}", "column 3: undeclared reference to 'msg'"},
		{"line\n  {{nope()}}", "line 2, column 9: undeclared reference to 'nope'"},
		{"{{payload.a.matches('(')}}", "error parsing regexp"},
	} {
		_, err := Compile(c.src)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Compile(%q) = %v, want %q", c.src, err, c.want)
		}
	}
	for _, c := range []struct{ src, want string }{
		{"", "column 1: the expression is empty"},
		{"payload.amount >", "column 17: Syntax error"},
		{"payload.a + 1", "column 1: gives int, and a condition must give bool"},
		{"subject[1]", "column 1: gives string, and"},
		{"{{payload.a > 1}}", "column 1: a condition is an expression by itself"},
		{"payload.a &&\n  foo > 1", "line 2, column 3: undeclared reference to 'foo'"},
	} {
		_, err := CompileWhen(c.src)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("CompileWhen(%q) = %v, want %q", c.src, err, c.want)
		}
	}
}

func TestNeedsPayload(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]bool{
		"":                               false,
		"order-{{subject[1]}}":           false,
		"{{headers['payload']}}":         false,
		"{{payload}}":                    true,
		"a{{msg.seq}}{{payload.id}}":     true,
		"{{subject.map(t, payload[t])}}": true,
		"{{subject[0] == 'payload'}}":    false,
		"{{has(payload.x) ? 'a' : 'b'}}": true,
	} {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if tmpl.NeedsPayload() != want {
			t.Errorf("NeedsPayload of %q is not %v", src, want)
		}
	}
	cond, err := CompileWhen("payload.a > 1")
	if err != nil || !cond.NeedsPayload() || cond.Source() != "payload.a > 1" {
		t.Errorf("got %v, %v", cond, err)
	}
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	for src, literal := range map[string]bool{"": true, "abc": true, "a{{msg.seq}}": false, "{{msg.seq}}": false} {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := tmpl.Literal(); ok != literal || ok && text != src {
			t.Errorf("Literal of %q = %q, %v", src, text, ok)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	tmpl, err := Compile("{{payload.id}}-{{payload.items.map(i, i.qty * 2)[1]}}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := tmpl.String(message()); err != nil || got != "12345678901234567-40" {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
