package bridge

import (
	"fmt"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

func TestMapper(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMapper(space, []Route{
		{Name: "a", Stream: "A", Subjects: []string{"a.*"}, When: "payload.n > 0", Signal: "s", CorrelationKeys: []string{"{{payload.keys}}"}},
		{Name: "all", Stream: "A", Signal: "s", CorrelationKeys: []string{"k"}},
		{Name: "theirs", Stream: "B", Existing: "c", Signal: "s", CorrelationKeys: []string{"k"}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ subject, stream, body, want string }{
		{"a.1", "", `{"n": 1, "keys": ["x", "y"]}`, "a:2 all:1 theirs-"},
		{"a.1", "", `{"n": 0}`, "a:filtered all:1 theirs-"},
		{"a.1", "", `{`, "a:dead all:dead theirs-"},
		{"a.1", "B", `{}`, "a- all- theirs:1"},
		{"b", "A", `{}`, "a- all:1 theirs-"},
		{"b", "C", `{}`, "a- all- theirs-"},
	} {
		got := ""
		for i, r := range m.Map(Message{Subject: c.subject, Stream: c.stream, Data: []byte(c.body)}) {
			if i > 0 {
				got += " "
			}
			got += r.Route.Name
			switch {
			case !r.Taken && r.Reason != "":
				got += "-"
			case r.Filtered:
				got += ":filtered"
			case r.Reason != "":
				got += ":dead"
			default:
				got += fmt.Sprint(":", len(r.Intakes))
			}
		}
		if got != c.want {
			t.Errorf("%s in %q, %s: %s, want %s", c.subject, c.stream, c.body, got, c.want)
		}
	}
	placed := m.Map(Message{Subject: "b", Stream: "A", Data: []byte("1")})[1]
	named := m.Map(Message{Subject: "b", Stream: "A", Data: []byte("1"), Headers: map[string][]string{subjects.HeaderMsgID: {"7"}}})[1]
	if !placed.PlaceDedup || named.PlaceDedup || named.Intakes[0].DedupKey != "A:7" || named.Intakes[0].OnMissing != engine.MissingHold {
		t.Errorf("%+v, %+v", placed, named)
	}
	if _, err := NewMapper(space, []Route{{Name: "a"}}, true); err == nil {
		t.Error("no error of a bad route")
	}
}
