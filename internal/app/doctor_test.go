package app

import (
	"slices"
	"testing"
)

// What a bridge needs is missing where no list allows it, or one denies it.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have *subjectRights
		want string
		ok   bool
	}{
		{nil, "a.b", true},
		{&subjectRights{}, "a.b", true},
		{&subjectRights{Allow: []string{">"}}, "a.>", true},
		{&subjectRights{Allow: []string{"a.>"}}, "a.*", true},
		{&subjectRights{Allow: []string{"a.*"}}, "a.*", true},
		{&subjectRights{Allow: []string{"a.*"}}, "a.>", false},
		{&subjectRights{Allow: []string{"a.b"}}, "a.*", false},
		{&subjectRights{Allow: []string{"a.*.c"}}, "a.b.c", true},
		{&subjectRights{Allow: []string{"b.>"}}, "a.b", false},
		{&subjectRights{Allow: []string{">"}, Deny: []string{"a.>"}}, "a.b", false},
		{&subjectRights{Deny: []string{"b.>"}}, "a.b", true},
	} {
		missing := c.have.missing("publish to", []string{c.want})
		if ok := len(missing) == 0; ok != c.ok {
			t.Errorf("%+v, %s: %v", c.have, c.want, missing)
		}
		if !c.ok && !slices.Equal(missing, []string{"publish to " + c.want}) {
			t.Errorf("%+v, %s: %v", c.have, c.want, missing)
		}
	}
}

func TestNATSVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"2.9.25": false, "2.10.0": true, "2.15.2": true, "3.0.0-beta": true, "": false} {
		if newer(version) != want {
			t.Errorf("%q: want %v", version, want)
		}
	}
}
