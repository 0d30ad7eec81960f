package enginetest

import (
	"encoding/json"
	"fmt"

	"github.com/pointsman/pointsman/engine"
)

// An await of all its names wakes when the last one is there, and hands out all.
func awaitAll(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"a", "b"}, Need: "all", Step: "both"}),
		"both":  to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{}`)
	s.parks(id)
	s.send(id, named("a", "1"), named("a", "2"), named("x", "3"))
	s.equal("with one", s.parks(id).InboxCount, 3)
	s.send(id, named("b", "4"))
	s.ends(id, engine.StatusDone)
	s.equal("both", d.tell("both", func(r Request) any { return names(r.Awaited) }), "[a:1 a:2 b:4]")
}

// An await of some of its names does so when as many are there.
func awaitNOf(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"a", "b", "c"}, Need: 2, Step: "two"}),
		"two":   to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{}`)
	s.parks(id)
	s.send(id, named("c", "1"))
	s.equal("with one", s.parks(id).InboxCount, 1)
	s.send(id, named("a", "2"))
	s.ends(id, engine.StatusDone)
	s.equal("two", d.tell("two", func(r Request) any { return names(r.Awaited) }), "[c:1 a:2]")
}

// What does not pass its condition is not awaited, and is there for the next await. A path that is none is an error of the step.
func awaitWhere(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"pay", "stop"}, Where: map[string]string{"pay": "$.amount >= 10"}, Step: "paid"}),
		"paid":  to(Reply{Outcome: "next", Step: "end"}),
		"end":   to(Reply{Outcome: "done"}),
		"wrong": to(Reply{Outcome: "await", Signals: []string{"pay"}, Where: map[string]string{"pay": "$.amount >="}}),
	})
	id := s.begin(`{}`)
	s.parks(id)
	s.send(id, engine.Signal{Name: "pay", DedupKey: "1", Payload: raw(`{"amount": 9}`)})
	s.equal("with too little", s.parks(id).InboxCount, 1)
	s.send(id, engine.Signal{Name: "pay", DedupKey: "2", Payload: raw(`{"amount": 10}`)})
	s.ends(id, engine.StatusDone)
	s.equal("paid", d.tell("paid", func(r Request) any { return names(r.Awaited) + names(r.All) }), "[pay:2][pay:1 pay:2]")
	s.equal("end", d.tell("end", func(r Request) any { return names(r.All) }), "[pay:1]")
	in := s.ends(s.start(engine.NewInstance{Start: "wrong"}), engine.StatusFailed)
	s.equal("a wrong path", in.LastError, `outcome await: the condition for "pay": "$.amount >=" is no SQL/JSON path: syntax error at end`)
}

// The ends of children come as entries of a kind of their own, and wake who awaits them.
func children(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{
			Outcome: "await", Children: "all", Step: "joined",
			Start: []Start{{Machine: "m", CorrelationKey: "one", Step: "well", Child: true}, {Machine: "m", CorrelationKey: "two", Step: "badly", Child: true}, {Machine: "m", CorrelationKey: "other", Step: "waits"}},
		}),
		"joined": to(Reply{Outcome: "done"}),
		"well":   to(Reply{Outcome: "done", Result: raw(`{"n": 1}`)}),
		"badly":  to(Reply{Outcome: "stop", Reason: "badly"}),
		"waits":  to(Reply{Outcome: "await", Signals: []string{"never"}}),
	})
	id := s.begin(`{}`)
	s.ends(id, engine.StatusDone)
	s.equal("executions", len(d.of("joined")), 1)
	told := map[string]string{}
	for _, g := range d.of("joined")[0].Awaited {
		var end struct {
			InstanceID     string          `json:"instance_id"`
			CorrelationKey string          `json:"correlation_key"`
			Status         string          `json:"status"`
			Result         json.RawMessage `json:"result"`
			Reason         string          `json:"reason"`
		}
		s.must(json.Unmarshal(g.Payload, &end))
		in, err := s.Get(s.t.Context(), engine.ByKey("", end.CorrelationKey))
		s.must(err)
		s.equal("parent", in.ParentID, id)
		s.equal("kind, name", g.Kind+" "+g.Name, "child "+in.ID.String())
		s.equal("id", end.InstanceID, in.ID)
		told[end.CorrelationKey] = fmt.Sprint(end.Status, " ", s.normal(string(end.Result)), " ", end.Reason)
	}
	s.equal("told", fmt.Sprint(told), `map[one:done {"n": 1}  two:failed null badly]`)
	other, err := s.Get(s.t.Context(), engine.ByKey("", "other"))
	s.must(err)
	s.equal("no child", other.ParentID, "00000000-0000-0000-0000-000000000000")
}

// One end is enough where any will do; a number of them likewise.
func childrenOne(s *stage) {
	well := Start{Machine: "m", Step: "well", Child: true}
	waits := Start{Machine: "m", Step: "waits", Child: true}
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Children: "any", Signals: []string{"x"}, Step: "one", Start: []Start{waits, well}}),
		"one":   to(Reply{Outcome: "await", Children: 2, Step: "two", Start: []Start{well}}),
		"two":   to(Reply{Outcome: "done"}),
		"well":  to(Reply{Outcome: "done"}),
		"waits": to(Reply{Outcome: "await", Signals: []string{"never"}}),
	})
	s.ends(s.begin(`{}`), engine.StatusDone)
	s.equal("one", d.tell("one", func(r Request) any { return len(r.Awaited) }), "1")
	s.equal("two", d.tell("two", func(r Request) any { return len(r.Awaited) }), "2")
}
