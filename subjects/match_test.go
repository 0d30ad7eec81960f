package subjects

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	if got := Tokens("a.b.c"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q", got)
	}
	if got := Tokens(""); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestValid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s               string
		subject, filter string // part of the error, "" for none
	}{
		{"a", "", ""},
		{"a.b-c_d:e", "", ""},
		{"a.é", "", ""},
		{"", "is empty", "is empty"},
		{".", "empty token", "empty token"},
		{"a..b", "empty token", "empty token"},
		{".a", "empty token", "empty token"},
		{"a.", "empty token", "empty token"},
		{"a b", "space", "space"},
		{"a.\x00", "control", "control"},
		{"a.\xff", "UTF-8", "UTF-8"},
		{"a.*", "wildcard", ""},
		{"*.b", "wildcard", ""},
		{"a.>", "wildcard", ""},
		{">", "wildcard", ""},
		{"a.>.b", "wildcard", "last token"},
		{"a.b*", "wildcard", "of its own"},
		{"a.>>", "wildcard", "of its own"},
	} {
		check := func(what string, err error, want string) {
			if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s(%q) = %v, want %q", what, c.s, err, want)
			}
		}
		check("ValidSubject", ValidSubject(c.s), c.subject)
		check("ValidFilter", ValidFilter(c.s), c.filter)
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"*.b", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a.b", true},
		{"payments.*.confirmed", "payments.42.confirmed", true},
	} {
		if got := Match(c.filter, c.subject); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.filter, c.subject, got)
		}
	}
}

func FuzzMatchAgreesWithServer(f *testing.F) {
	for _, s := range [][2]string{
		{"a.b", "a.b"},
		{"a.*", "a.b"},
		{"a.>", "a.b.c"},
		{">", "a"},
		{"*", "a.b"},
		{"*.*.>", "a.>"},
		{"a.>", "a"},
		{"a.b.c.>", "a.b.*"},
		{"*.b", "a.*"},
		{"a..b", "a b"},
		{"a.b*", "a.>"},
		{"é.*", "é.x"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if ValidFilter(a) != nil {
			return
		}
		if !server.IsValidSubject(a) {
			t.Fatalf("we take the filter %q, the server does not", a)
		}
		if ValidFilter(b) == nil {
			if got, want := Overlap(a, b), server.SubjectsCollide(a, b); got != want {
				t.Fatalf("Overlap(%q, %q) = %v, the server says %v", a, b, got, want)
			}
		}
		if ValidSubject(b) == nil {
			if !server.IsValidPublishSubject(b) {
				t.Fatalf("we take the subject %q, the server does not", b)
			}
			if got, want := Match(a, b), server.SubjectMatchesFilter(b, a); got != want {
				t.Fatalf("Match(%q, %q) = %v, the server says %v", a, b, got, want)
			}
		}
	})
}
