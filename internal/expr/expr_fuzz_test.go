package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/pointsman/pointsman/internal/ident"
)

func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		"", "a", "{{", "}}", "{{}}", "{{payload}}", "order-{{subject[1]}}", "{{headers['Nats-Msg-Id']}}", `{{"}}"}}`, "{{r'\\'}}", "{{'''}}'''}}",
		"{{ {'a': {}} }}", "{{payload.?x.orValue(1)}}", "{{payload.items.map(i, i.q * 2)}}", "{{payload.a / 0}}", "{{b'\\xff'}}", "{{msg.time}}", "\xff{{\xff}}",
		"{{payload.id + 1}}", "{{payload.text.matches('(')}}", "{{'%d'.format([payload.id])}}", "{{[payload.id].join()}}", "{{timestamp(payload.id)}}",
		"{{-payload.price}}", "{{payload.ids[payload.index]}}", "{{!payload.yes}}", "{{size(payload.id)}}", "{{optional.of(payload.id).value()}}", "{{dyn(payload.id) < 'a'}}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 300 {
			return
		}
		if cond, err := CompileWhen(src); err == nil {
			_, _ = cond.Eval(message())
		}
		tmpl, err := Compile(src)
		if err != nil {
			var ce *CompileError
			if !errors.As(err, &ce) || ce.Line < 1 || ce.Column < 1 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		in := message()
		_, _ = tmpl.String(in)
		_, _ = tmpl.Strings(in)
		if doc, err := tmpl.JSON(in); err == nil && !json.Valid(doc) {
			t.Fatalf("%q gives %s", src, doc)
		}
	})
}

// What a path gives without CEL is what CEL gives, and what encoding/json finds.
func FuzzPath(f *testing.F) {
	for _, s := range [][2]string{
		{"payload.a", `{"a":1.10}`},
		{"payload.a.b[1]", `{"a":{"b":[1,"x\u00e9"]}}`},
		{"payload['a-b']", `{"a-b":null}`},
		{"payload[0]", `[1]`},
		{"payload", `"x"`},
		{"payload.a", `{"a":1,"a":2}`},
		{"payload.a.b", `{"a":5}`},
		{"payload.a[0]", `{"a":{"0":1}}`},
		{"payload.a", `{"\u0061":true}`},
		{"payload[-1]", `[1]`},
		{"headers.X", `{}`},
		{"headers['none']", `1`},
		{"subject[1]", `1`},
		{"subject[9]", `1`},
		{"msg.seq", `1`},
		{"msg.time", ""},
		{"payload.a", ` { "a" : [ ] } `},
		{"payload[2]", `[[],{},"]"]`},
		{`payload["a\"b"]`, `{"a\"b":"\\"}`},
		{"payload.a", ""},
		{"payload.order.deep.er[1].b", document},
	} {
		f.Add(s[0], []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, src string, payload []byte) {
		if len(payload) > 0 && ident.JSON("payload", payload, 1<<16) != nil {
			return
		}
		tmpl, err := Compile("{{" + src + "}}")
		if err != nil {
			return
		}
		e := tmpl.single()
		if e == nil || e.path == nil {
			return
		}
		newInput := func() *Input {
			return &Input{Payload: payload, Headers: map[string][]string{"X": {"a", "b"}, "none": nil}, Subject: "a.b", Seq: 7, Time: time.Unix(1, 2)}
		}
		slow := *tmpl
		slow.parts = []part{{expr: &expression{src: e.src, program: e.program}}}

		fastDoc, fastErr := tmpl.JSON(newInput())
		slowDoc, slowErr := slow.JSON(newInput())
		if (fastErr == nil) != (slowErr == nil) || !bytes.Equal(bytes.TrimSpace(fastDoc), bytes.TrimSpace(slowDoc)) {
			t.Fatalf("%s of %q: path %s, %v; CEL %s, %v", src, payload, fastDoc, fastErr, slowDoc, slowErr)
		}
		fastText, fastErr := tmpl.String(newInput())
		slowText, slowErr := slow.String(newInput())
		if (fastErr == nil) != (slowErr == nil) || fastText != slowText {
			t.Fatalf("%s of %q: path %q, %v; CEL %q, %v", src, payload, fastText, fastErr, slowText, slowErr)
		}
		if e.path.root == "payload" && len(payload) > 0 {
			checkDecoded(t, src, e.path, payload, fastDoc)
		}
	})
}

// checkDecoded compares with the whole document decoded, as jsonb would hold it. A nil doc means that the path found nothing.
func checkDecoded(t *testing.T, src string, p *path, payload, doc []byte) {
	t.Helper()
	v, found := decode(t, payload), true
	for _, s := range p.steps {
		switch container := v.(type) {
		case map[string]any:
			v, found = container[s.name]
			found = found && !s.element
		case []any:
			if found = s.element && s.index >= 0 && s.index < int64(len(container)); found {
				v = container[s.index]
			}
		default:
			found = false
		}
		if !found {
			break
		}
	}
	if found != (doc != nil) {
		t.Fatalf("%s of %q: found %v, got %s", src, payload, found, doc)
	}
	if found && !reflect.DeepEqual(v, decode(t, doc)) {
		t.Fatalf("%s of %q = %s, want %v", src, payload, doc, v)
	}
}

func decode(t *testing.T, doc []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	return v
}

// The text that is walked has passed the validator; should it not have, the walk must still end within it.
func FuzzMalformedPayload(f *testing.F) {
	for _, s := range []string{`{`, `{"a`, `{"a":`, `{"a":[`, `{"a":}`, `[,`, `"`, `{"a"1}`, `{"a":1 "b"`, "\xff", `{"\`, `abc`, `{"a":[1,`, `{1:2}`} {
		f.Add([]byte(s))
	}
	var templates []*Template
	for _, src := range []string{"{{payload}}", "{{payload.a}}", "{{payload.a[0]}}", "{{payload[1].a}}", "{{payload == [1]}}", "{{payload.map(x, x)}}", "{{size(payload)}}", "{{payload.a + 1}}"} {
		tmpl, err := Compile(src)
		if err != nil {
			f.Fatal(err)
		}
		templates = append(templates, tmpl)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, tmpl := range templates {
			in := &Input{Payload: payload}
			_, _ = tmpl.String(in)
			_, _ = tmpl.JSON(in)
		}
	})
}
