package ident

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ doc, want string }{
		{`{}`, ""},
		{`[]`, ""},
		{`""`, ""},
		{`0`, ""},
		{`-0`, ""},
		{`null`, ""},
		{`true`, ""},
		{`false`, ""},
		{" {\"a\" : [ 1 , -2.50e+3 , \"x\" , null ] ,\r\n\t\"b\":{\"c\":[[],{}]}} ", ""},
		{`"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀"`, ""},
		{`1e1000`, ""},
		{`1e-1000`, ""},
		{`1E0000001000`, ""},
		{strings.Repeat("9", 1000), ""},
		{nest(1000), ""},
		{`{"a":1,"a":2}`, ""},
		{"\"\u007f\ufffd\uffff\"", ""},

		{``, reasonEmpty},
		{" \n", reasonEmpty},
		{`{`, "is not JSON at byte 1: it ends too early"},
		{`{]`, `is not JSON at byte 1: unexpected ']'`},
		{`[}`, `unexpected '}'`},
		{`[1}`, `unexpected '}'`},
		{`{"a":1]`, `unexpected ']'`},
		{`[1,]`, `unexpected ']'`},
		{`{"a":1,}`, `unexpected '}'`},
		{`{a:1}`, `unexpected 'a'`},
		{`{"a" 1}`, `unexpected '1'`},
		{`{"a":}`, `unexpected '}'`},
		{`[1 2]`, `unexpected '2'`},
		{`1 2`, `unexpected '2'`},
		{`{}{}`, `unexpected '{'`},
		{`nul`, "ends too early"},
		{`nulx`, `unexpected 'x'`},
		{`True`, `unexpected 'T'`},
		{`NaN`, `unexpected 'N'`},
		{`01`, `unexpected '1'`},
		{`-`, "ends too early"},
		{`1.`, "ends too early"},
		{`.5`, `unexpected '.'`},
		{`1e`, "ends too early"},
		{`+1`, `unexpected '+'`},
		{`1e+`, "ends too early"},
		{`--1`, `unexpected '-'`},
		{`"abc`, "ends too early"},
		{`"\x"`, `unexpected 'x'`},
		{`"\u12g4"`, `unexpected 'g'`},
		{"\"a\nb\"", `unexpected '\n'`},
		{"\xef\xbb\xbf{}", `unexpected '\ufeff'`},
		{"\xff", "unexpected byte 0xff"},
		{"\x00", `unexpected '\x00'`},
		{"\"a\xff\"", "is not valid UTF-8 (byte 2)"},
		{"{\"\xc0\x80\":1}", reasonUTF8},
		{"\"\xed\xa0\x80\"", reasonUTF8},
		{`"a\u0000"`, `cannot hold: remove it (byte 2)`},
		{`{"\u0000":1}`, reasonNull},
		{`"\ud83d"`, reasonSurrogate},
		{`"\ude00"`, reasonSurrogate},
		{`"\ud83dx"`, reasonSurrogate},
		{`"\ud83d\n"`, reasonSurrogate},
		{`"\ud83d\ud83d"`, reasonSurrogate},
		{`"\ud83d\u12"`, reasonSurrogate},
		{`1e1001`, reasonExponent},
		{`1e-1001`, reasonExponent},
		{`0e99999999999999999999999`, reasonExponent},
		{strings.Repeat("9", 1001), reasonDigits},
		{"0." + strings.Repeat("0", 1000), reasonDigits},
		{"[" + strings.Repeat("1e1000,", 1100) + "1]", reasonExpanded},
		{"[" + strings.Repeat("1e-1000,", 1000) + "1]", ""},
		{nest(1001), reasonDepth},
		{strings.Repeat("[", 100_000), reasonDepth},
		{strings.Repeat(`{"a":`, 100_000), reasonDepth},
	} {
		wantReason(t, "JSON "+quote(c.doc), JSON("field", []byte(c.doc), MaxJSON), c.want)
	}
}

func TestJSONLength(t *testing.T) {
	t.Parallel()
	doc := []byte(`"` + strings.Repeat("x", 98) + `"`)
	wantReason(t, "at the bound", JSON("field", doc, 100), "")
	wantReason(t, "beyond it", JSON("field", doc, 99), "is too long: 100 bytes, at most 99")
}

func TestJSONAllocatesNothing(t *testing.T) {
	doc := sample(t)
	if n := testing.AllocsPerRun(100, func() {
		if JSON("payload", doc, MaxJSON) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var reasons = []string{
	reasonEmpty, reasonLong, reasonSyntax, reasonUTF8, reasonNull, reasonSurrogate, reasonDigits, reasonExponent, reasonExpanded, reasonDepth,
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e3,"x\u00e9\ud83d\ude00",null,true,false,{}]}`, ``, `"\u0000"`, `"\ud800"`, `1e1001`, `[[[[`, `{"a":{"b":[]}}`, "\"\xff\"",
		`01`, `[1,]`, `{"a":1,}`, ` 1 `, "\ufeff1", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), strings.Repeat("1", 1001), `"\u12`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		err := JSON("f", doc, MaxJSON)
		if err == nil {
			if !json.Valid(doc) || !utf8.Valid(doc) {
				t.Fatalf("accepted %q", doc)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%T", err)
		}
		known := ""
		for _, r := range reasons {
			if strings.HasPrefix(e.Reason, r) {
				known = r
			}
		}
		if known == "" {
			t.Fatalf("reason %q is out of the list", e.Reason)
		}
		if json.Valid(doc) && (known == reasonSyntax || known == reasonEmpty) {
			t.Fatalf("%q is JSON and was refused: %s", doc, e.Reason)
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "a.b", "-", "", "é", "\xff", "a\x00", strings.Repeat("a", 513)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if Token("f", s) == nil && Name("f", s) != nil {
			t.Fatalf("%q is a token and no name", s)
		}
		if Name("f", s) == nil && Key("f", s) != nil {
			t.Fatalf("%q is a name and no key", s)
		}
		if n := utf8.RuneCountInString(s); Key("f", s) == nil && (n < 1 || n > MaxKey || !utf8.ValidString(s)) {
			t.Fatalf("%q is taken as a key", s)
		}
	})
}

func sample(tb testing.TB) []byte {
	tb.Helper()
	items := make([]map[string]any, 10)
	for i := range items {
		items[i] = map[string]any{"sku": fmt.Sprintf("SKU-%04d", i), "quantity": i, "price": 12.5, "note": "größer, with \"quotes\""}
	}
	doc, err := json.Marshal(map[string]any{"id": 12345678901234567, "customer": map[string]any{"name": "Ann", "vip": true}, "items": items})
	if err != nil {
		tb.Fatal(err)
	}
	return doc
}

func BenchmarkJSON(b *testing.B) {
	doc := sample(b)
	b.Run("ident", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			if err := JSON("payload", doc, MaxJSON); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding_json_valid", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		for b.Loop() {
			if !json.Valid(doc) {
				b.Fatal("invalid")
			}
		}
	})
}

func BenchmarkKey(b *testing.B) {
	for b.Loop() {
		if err := Key("correlation_key", "order-12345678901234567"); err != nil {
			b.Fatal(err)
		}
	}
}
