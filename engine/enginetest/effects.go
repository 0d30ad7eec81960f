package enginetest

import (
	"fmt"

	"github.com/pointsman/pointsman/engine"
)

// Effects commit with the outcome: to whom is there, to whom is started and to whom is to come.
func effects(s *stage) {
	target := s.machine(Script{Name: "target", Steps: map[string]Step{
		"begin":  to(Reply{Outcome: "await", Signals: []string{"s"}, Step: "end"}),
		"end":    func(r Request) Reply { return Reply{Outcome: "done", Result: r.Awaited[0].Payload} },
		"direct": func(r Request) Reply { return Reply{Outcome: "done", Result: r.State} },
	}})
	byID := s.start(engine.NewInstance{Machine: "target", Start: "begin"})
	byKey := s.start(engine.NewInstance{Machine: "target", Start: "begin", CorrelationKey: "live"})
	sender := s.machine(Script{Steps: map[string]Step{"begin": to(Reply{
		Outcome:   "done",
		SetEvents: map[string]raw{"progress": raw(`{"percent": 12345678901234567890}`), "nothing": raw(`null`)},
		Signal: []Send{
			{CorrelationKey: "live", Name: "s", Payload: raw(`{"to": "key"}`), DedupKey: "d"},
			{CorrelationKey: "live", Name: "s", Payload: raw(`{"to": "key"}`), DedupKey: "d"},
			{InstanceID: byID.String(), Name: "s", Payload: raw(`12345678901234567890`)},
			{CorrelationKey: "child", Name: "s", Payload: raw(`"child"`)},
			{CorrelationKey: "to come", Name: "s"},
		},
		Start: []Start{
			{Machine: "target", CorrelationKey: "child"},
			{Machine: "target", CorrelationKey: "direct", Step: "direct", State: raw(`[1.50]`)},
			{Machine: "target", CorrelationKey: "live"},
		},
		Publish: []Publication{{Subject: "a.b", Data: raw(`{"n":12345678901234567890}`), Headers: map[string]string{"X-Kind": "one"}}, {Subject: "c"}},
	})}})
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{target, sender}})
	id := s.begin(`{}`)
	s.ends(id, engine.StatusDone)

	s.json("by key", s.ends(byKey, engine.StatusDone).Result, `{"to":"key"}`)
	s.json("by id", s.ends(byID, engine.StatusDone).Result, `12345678901234567890`)
	for key, want := range map[string]string{"child": `"child"`, "direct": `[1.50]`} {
		in, err := s.Get(s.t.Context(), engine.ByKey("", key))
		s.must(err)
		s.json(key, s.ends(in.ID, engine.StatusDone).Result, want)
	}
	late := s.start(engine.NewInstance{Machine: "target", CorrelationKey: "to come"})
	s.json("held, then adopted", s.ends(late, engine.StatusDone).Result, `null`)
	event := func(key string) string {
		return s.query(`select value::text from pointsman.events where instance_id = $1 and key = $2`, id, key)
	}
	s.equal("event", event("progress"), `{"percent": 12345678901234567890}`)
	s.equal("event", event("nothing"), `null`)

	published := ""
	for _, p := range s.env.Outbox() {
		if p.Kind == engine.PublishMessage {
			published += fmt.Sprint(p.Subject, " ", string(p.Body), " ", p.Headers, "\n")
		}
	}
	s.equal("published", published, "a.b {\"n\":12345678901234567890} map[X-Kind:[one]]\nc  map[]\n")
}
