package enginetest

import (
	"fmt"

	"github.com/pointsman/pointsman/engine"
)

// A pack of signals wakes once and is handed out together, in the order of the inbox. What was not awaited stays, and what an await
// does not consume is handed out again; a next consumes what was awaited and nothing else.
func await(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"a", "b"}, Step: "pack"}),
		"pack":  to(Reply{Outcome: "await", Signals: []string{"a", "c"}, Step: "more"}),
		"more":  to(Reply{Outcome: "next", Step: "rest"}),
		"rest":  to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{}`)
	s.equal("awaits", s.parks(id).Awaits, "[a b]")
	s.send(id, named("x", "1"))
	s.send(id, named("b", "2"), named("x", "3"), named("a", "4"))
	s.until(id, "in more", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting && in.Step == "more" })
	s.send(id, named("c", "5"))
	s.ends(id, engine.StatusDone)
	told := func(r Request) any { return names(r.Awaited) + names(r.All) }
	s.equal("pack", d.tell("pack", told), "[b:2 a:4][x:1 b:2 x:3 a:4]")
	s.equal("more", d.tell("more", told), "[a:4 c:5][x:1 b:2 x:3 a:4 c:5]")
	s.equal("rest", d.tell("rest", told), "[][x:1 b:2 x:3]")
	first := d.of("pack")[0].Awaited[0]
	s.equal("signal", fmt.Sprint(first.Kind, string(first.Payload), first.ID > 0, first.InsertedAt.IsZero()), fmt.Sprint("signal", `"2"`, true, false))
}

// An await that consumes is handed nothing twice.
func consume(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"s"}, Step: "got"}),
		"got": func(r Request) Reply {
			if names(r.Awaited) == "[s:3]" {
				return Reply{Outcome: "done"}
			}
			return Reply{Outcome: "await", Signals: []string{"s"}, Consume: true}
		},
	})
	id := s.begin(`{}`)
	for i := range 3 {
		s.until(id, "ready for more", func(in engine.Instance) bool {
			return in.Status == engine.StatusAwaiting && in.InboxCount == 0 && len(d.of("got")) == i
		})
		s.send(id, named("s", fmt.Sprint(i+1)))
	}
	s.ends(id, engine.StatusDone)
	s.equal("inboxes", d.tell("got", func(r Request) any { return names(r.Awaited) + names(r.All) }), "[s:1][s:1] [s:2][s:2] [s:3][s:3]")
}

// Updates are awaited beside signals or alone, by their kind: a signal of the name is none. What comes early stays.
func updates(s *stage) {
	d := s.play(map[string]Step{
		"begin":   to(Reply{Outcome: "await", Signals: []string{"paid"}, Updates: []string{"amend", "decision"}, Step: "amended"}),
		"amended": to(Reply{Outcome: "await", Updates: []string{"decision"}, Step: "decided", Consume: true}),
		"decided": to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{}`)
	s.equal("awaits", s.parks(id).Awaits, "[paid amend decision]")
	s.send(id, named("amend", "1"))
	in := s.update(id, engine.UpdateRequest{Name: "amend", Arg: raw(`[7]`), IdempotencyKey: "i"})
	s.equal("after the step that took it", fmt.Sprint(in.Status, in.Awaits), fmt.Sprint(engine.StatusAwaiting, "[decision]"))
	s.send(id, named("decision", "2"))
	in = s.update(id, engine.UpdateRequest{Name: "decision", Arg: raw(`true`)})
	s.equal("at the end", in.Status, engine.StatusDone)
	told := func(r Request) any {
		return fmt.Sprintf("%s %s %s %q %d", r.Awaited[0].Kind, r.Awaited[0].Name, r.Awaited[0].Payload, r.Awaited[0].DedupKey, len(r.Awaited))
	}
	s.equal("amended", d.tell("amended", told), `update amend [7] "i" 1`)
	s.equal("decided", d.tell("decided", told), `update decision true "" 1`)
}

// After its time an await goes on, and says so once.
func timeout(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"never"}, TimeoutMS: 20, Step: "late"}),
		"late":  to(Reply{Outcome: "next", Step: "end"}),
		"end":   to(Reply{Outcome: "done"}),
	})
	s.ends(s.begin(`{}`), engine.StatusDone)
	told := func(r Request) any { return fmt.Sprintf("%t %s %d", r.TimedOut, names(r.Awaited), r.Attempt) }
	s.equal("late", d.tell("late", told), "true [] 0")
	s.equal("end", d.tell("end", told), "false [] 0")
}

// A time-out may come with what had been handed out before and was not consumed. An await of nothing is a sleep.
func timeoutWithPart(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"a", "b"}, Step: "got"}),
		"got":   to(Reply{Outcome: "await", Signals: []string{"a", "b"}, TimeoutMS: 20, Step: "late"}),
		"late":  to(Reply{Outcome: "await", TimeoutMS: 1, Step: "end"}),
		"end":   to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{}`)
	s.parks(id)
	s.send(id, named("a", "1"))
	s.ends(id, engine.StatusDone)
	told := func(r Request) any { return fmt.Sprintf("%t %s", r.TimedOut, names(r.Awaited)) }
	s.equal("got", d.tell("got", told), "false [a:1]")
	s.equal("late", d.tell("late", told), "true [a:1]")
	s.equal("end", d.tell("end", told), "true []")
}

// One key for all executions of a visit, another one for each other visit: of a next, an await, a time-out.
func keys(s *stage) {
	twice := func(then Reply) Step {
		return func(r Request) Reply {
			if r.Attempt == 0 {
				return Reply{Error: "once more"}
			}
			return then
		}
	}
	d := s.play(map[string]Step{
		"begin": twice(Reply{Outcome: "next", Step: "two"}),
		"two":   twice(Reply{Outcome: "await", Signals: []string{"s"}, Step: "three"}),
		// The attempt is left alone by an await, so this one is not to fail again.
		"three": to(Reply{Outcome: "await", TimeoutMS: 1, Step: "four"}),
		"four":  to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{}`)
	s.parks(id)
	s.send(id, named("s", "1"))
	s.ends(id, engine.StatusDone)
	all := map[string]bool{}
	for step, executions := range map[string]int{"begin": 2, "two": 2, "three": 1, "four": 1} {
		s.equal("executions of "+step, len(d.of(step)), executions)
		s.equal("keys of "+step, d.keys(step), 1)
		all[d.of(step)[0].IdempotencyKey] = true
	}
	s.equal("keys", len(all), 4)
	other := s.begin(`{}`)
	s.parks(other)
	s.equal("another instance's are others", d.keys("begin"), 2)
}
