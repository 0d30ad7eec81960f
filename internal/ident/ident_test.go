package ident

import (
	"errors"
	"strings"
	"testing"
)

func wantReason(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s: got %v, want an *Error with %q", what, err, want)
		return
	}
	if e.Field != "field" || !strings.Contains(e.Reason, want) || e.Error() != "field: "+e.Reason {
		t.Errorf("%s: got %q, want %q", what, e.Error(), want)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, want string }{
		{"order-42", ""},
		{" ", ""},
		{"a/b?c=d ü 😀 \x7f", ""},
		{strings.Repeat("x", 512), ""},
		{strings.Repeat("😀", 512), ""},
		{"", "is empty"},
		{strings.Repeat("x", 513), "has 513 characters"},
		{strings.Repeat("é", 513), "has 513 characters"},
		{"a\x00b", "0x00 at byte 1"},
		{"é\n", "0x0a at byte 2"},
		{"\x1f", "0x1f"},
		{"a\xff", "UTF-8"},
		{"\xed\xa0\x80", "UTF-8"},
	} {
		wantReason(t, "Key "+quote(c.key), Key("field", c.key), c.want)
	}
}

func TestNameAndToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ s, name, token string }{
		{"a", "", ""},
		{"_", "", ""},
		{"0", "", ""},
		{"order:v2-x_Y", "", ""},
		{strings.Repeat("a", 128), "", ""},
		{"payment.confirmed", "", "has a '.'"},
		{"a..", "", "has a '.'"},
		{"", "is empty", "is empty"},
		{strings.Repeat("a", 129), "at most 128", "at most 128"},
		{"-a", "begins with '-'", "begins with '-'"},
		{":a", "begins with ':'", "begins with ':'"},
		{".a", "begins with '.'", "has a '.'"},
		{"a b", `has ' ' at byte 1`, `has ' ' at byte 1`},
		{"a*", `has '*'`, `has '*'`},
		{"aé", `has 'é'`, `has 'é'`},
		{"a\xff", `at byte 1`, `at byte 1`},
		{strings.Repeat("a", 100) + "\n", `…`, `…`},
	} {
		wantReason(t, "Name "+quote(c.s), Name("field", c.s), c.name)
		wantReason(t, "Token "+quote(c.s), Token("field", c.s), c.token)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, want string }{
		{"default", ""},
		{"_other", ""},
		{"_outbox", "is pointsman's own: choose another name"},
		{"a.b", "has a '.'"},
		{"", "is empty"},
	} {
		wantReason(t, c.name, Queue("field", c.name), c.want)
	}
}
