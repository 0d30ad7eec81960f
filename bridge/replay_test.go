package bridge

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// What cannot be given again as it came is not given at all, and says why.
func TestLettersThatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := NewMapper(space, []Route{ordersRoute()}, true)
	if err != nil {
		t.Fatal(err)
	}
	whole := Letter{Route: "orders", Stream: "ORDERS", StreamSeq: 7, Subject: "orders.paid", Data: []byte(`{"key":"a"}`), Origin: engine.Origin{Route: "orders", Stream: "ORDERS", Sequence: 7}}
	r := NewReplayer(nil, mapper, nil)
	if m := r.mapAgain(whole); m.reason != "" || len(m.intakes) != 1 || m.intakes[0].Origin != whole.Origin || !m.intakes[0].Redelivered {
		t.Errorf("%+v", m)
	}
	for want, change := range map[string]func(l *Letter){
		"its body had to be cut":         func(l *Letter) { l.Cut = []string{"body"} },
		`there is no route "gone"`:       func(l *Letter) { l.Route = "gone" },
		"the route orders now reads":     func(l *Letter) { l.Subject = "other.paid" },
		"does not say where its message": func(l *Letter) { l.Origin = engine.Origin{} },
		"does not say whom it was for":   func(l *Letter) { l.Stream = "" },
		"body: is not JSON":              func(l *Letter) { l.Data = []byte("no") },
	} {
		l := whole
		change(&l)
		if m := r.mapAgain(l); len(m.intakes) > 0 || !strings.Contains(m.reason, want) {
			t.Errorf("%+v, want %q", m, want)
		}
	}
}
