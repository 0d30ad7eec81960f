package remote

import (
	"math"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

// effects adds what an answer wants of the world to its outcome.
func (a *object) effects(o engine.Outcome) engine.Outcome {
	events := a.object("set_events")
	for _, key := range events.names() {
		a.check(ident.Key(events.path+key, key))
		o = o.SetEvent(key, events.value(key))
	}
	for _, s := range a.objects("signal") {
		to, signal := s.signal()
		s.close("a signal")
		if *a.err == nil {
			o = o.Signal(to, signal)
		}
	}
	for _, s := range a.objects("start") {
		if n := s.start(); s.flag("child") {
			o = o.StartChild(n)
		} else {
			o = o.Start(n)
		}
		s.close("a start")
	}
	for _, e := range a.objects("emit") {
		if !e.has("event_key") {
			e.fail("event_key", "is missing: want the key of the trigger")
		}
		key, payload := e.checked("event_key", ident.EventKey), e.value("payload")
		e.close("an event")
		if *a.err == nil {
			o = o.Emit(key, payload)
		}
	}
	for _, p := range a.objects("publish") {
		o = o.Publish(p.subject("subject", true), []byte(p.value("data")), p.headers())
		p.close("a publication")
	}
	return o
}

func (s *object) signal() (engine.Ref, engine.Signal) {
	byID, byKey := s.has("instance_id"), s.has("correlation_key")
	if byID == byKey {
		s.fail("correlation_key", "has to be there, or instance_id instead, and not both")
	}
	to := engine.ByKey("", s.checked("correlation_key", ident.Key))
	if byID {
		to = engine.ByID(s.id("instance_id"))
	}
	if !s.has("name") {
		s.fail("name", "is missing: want the name of the signal")
	}
	return to, engine.Signal{Name: s.checked("name", ident.Name), Payload: s.value("payload"), DedupKey: s.checked("dedup_key", ident.Key)}
}

func (s *object) id(name string) uuid.UUID {
	text := s.text(name)
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 || id == uuid.Nil {
		s.fail(name, "is %q, want the id of an instance", text)
	}
	return id
}

// start is one with the fields of POST /v1/instances.
func (s *object) start() engine.NewInstance {
	if !s.has("machine") {
		s.fail("machine", "is missing: want the name of the machine")
	}
	return engine.NewInstance{
		Machine: s.checked("machine", ident.Token), Version: int(s.integer("version", 1, math.MaxInt32)), Start: s.checked("step", ident.Name),
		CorrelationKey: s.checked("correlation_key", ident.Key), State: s.value("state"), Queue: s.checked("queue", ident.Queue),
		Priority: int16(s.integer("priority", math.MinInt16, math.MaxInt16)), RunAt: s.time("run_at"), ReplyTo: s.subject("reply_to", false), NotifyURL: s.checked("notify_url", ident.URL),
		PartitionKey: s.checked("partition_key", ident.Key), UniqueKey: s.checked("unique_key", ident.Key), UniqueScope: s.statuses("unique_scope"),
	}
}

func (s *object) statuses(name string) (list []engine.Status) {
	s.decode(name, "a list of statuses", &list)
	return list
}

// subject is one that a message can be published to.
func (p *object) subject(name string, required bool) string {
	if !p.has(name) && required {
		p.fail(name, "is missing: want where to publish")
	}
	if !p.has(name) {
		p.take(name)
		return ""
	}
	s := p.text(name)
	if err := subjects.ValidSubject(s); err != nil && *p.err == nil {
		p.fail(name, "%v", err)
	}
	return s
}

// headers are an object; each value is a text or a list of texts.
func (p *object) headers() map[string][]string {
	h := p.object("headers")
	all := map[string][]string{}
	for _, name := range h.names() {
		if h.fields[name][0] == '"' {
			all[name] = []string{h.text(name)}
		} else if values := h.texts(name); len(values) > 0 {
			all[name] = values
		}
	}
	return all
}
