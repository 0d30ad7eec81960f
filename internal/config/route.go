package config

import (
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/subjects"
)

func (c *Config) readRoutes(o *object) {
	seen := map[string]int{}
	for _, i := range o.list("routes") {
		ro := o.r.object(i.node, i.path)
		if ro.wrong {
			continue
		}
		route := Route{
			Project:    c.Project,
			Format:     FormatJSON,
			HoldFor:    time.Hour,
			OnTerminal: Reject,
			MaxDeliver: 10,
			MaxBody:    ident.MaxJSON,
			Batch:      Batch{Size: 500, Wait: 5 * time.Millisecond},
		}
		route.read(ro)
		if line, double := seen[route.Name]; double && route.Name != "" {
			ro.fail("name", "there is a route %s already, in line %d: a route's name is its consumer's too, give this one another", route.Name, line)
		} else {
			seen[route.Name] = o.r.place(i.node).line
		}
		c.Routes = append(c.Routes, route)
	}
}

func (t *Route) read(o *object) {
	o.token("name", &t.Name)
	o.require("name", "the route's name")
	if t.Name == subjects.SignalsRoute {
		o.fail("name", "%s is the name of the built-in route: choose another", t.Name)
	}
	o.token("project", &t.Project)
	o.checked("stream", &t.Stream, checkStream)
	o.require("stream", "the name of the stream")
	t.readSubjects(o)
	t.readMapping(o)
	t.readFate(o)
	o.flag("ordered", &t.Ordered)
	o.integer("max_deliver", &t.MaxDeliver, 1, 1_000_000)
	o.size("max_body", &t.MaxBody, 1, ident.MaxJSON)
	batch := o.child("batch")
	batch.integer("size", &t.Batch.Size, 1, 5_000)
	batch.duration("wait", &t.Batch.Wait, shortest, time.Minute)
	batch.close()
	consumer := o.child("consumer")
	consumer.checked("existing", &t.Consumer, checkStream)
	consumer.close()
	o.flag("paused", &t.Paused)
	o.close()
	if len(t.Subjects) == 0 && t.Consumer == "" && !o.has("subject") {
		o.fail("subject", "is missing: want a filter or a list of them; '>' takes the whole stream")
	}
	t.check(o)
}

func (t *Route) readSubjects(o *object) {
	for _, i := range o.oneOrMore("subject") {
		filter, ok := o.r.text(i.node, i.path, "a filter")
		if !ok {
			continue
		}
		if err := subjects.ValidFilter(filter); err != nil {
			o.r.fail(i.node, i.path, "%v", err)
			continue
		}
		for _, other := range t.Subjects {
			if subjects.Overlap(filter, other) {
				o.r.fail(i.node, i.path, "%q selects some of what %q selects: the filters of a route must not overlap", filter, other)
				break
			}
		}
		t.Subjects = append(t.Subjects, filter)
	}
}

// readMapping reads what a message becomes.
func (t *Route) readMapping(o *object) {
	if o.get("when") != nil {
		t.When = o.r.condition(o.fields["when"].value, o.sub("when"))
	}
	o.template("signal", &t.Signal)
	o.literal("signal", t.Signal, ident.Name)
	o.template("event", &t.Event)
	o.literal("event", t.Event, ident.EventKey)
	for _, i := range o.oneOrMore("correlation_key") {
		key := o.r.template(i.node, i.path)
		if key == nil {
			continue
		}
		if text, ok := key.Literal(); ok {
			if err := ident.Key("", text); err != nil {
				o.r.fail(i.node, i.path, "%s", reasonOf(err))
			}
		}
		t.CorrelationKeys = append(t.CorrelationKeys, key)
	}
	o.template("dedup_key", &t.DedupKey)
	if text, ok := literal(t.DedupKey); ok {
		o.fail("dedup_key", "%q is the same for every message, so all but the first would be duplicates: want a template as \"{{headers['Nats-Msg-Id']}}\"", text)
	}
	o.template("payload", &t.Payload)
	o.choice("format", &t.Format, FormatJSON, FormatText, FormatBytes)
}

// readFate reads what becomes of a message whose instance is not there, or has ended.
func (t *Route) readFate(o *object) {
	o.choice("on_missing", &t.OnMissing, Hold, Start, Reject, Drop)
	o.duration("hold_for", &t.HoldFor, time.Second, longest)
	o.choice("on_terminal", &t.OnTerminal, Reject, Drop, Start)
	start := o.child("start")
	if !o.has("start") {
		return
	}
	t.Start = &RouteStart{}
	start.token("machine", &t.Start.Machine)
	start.require("machine", "the name of the machine")
	start.integer("version", &t.Start.Version, 1, 1<<31-1)
	start.template("state", &t.Start.State)
	start.queue("queue", &t.Start.Queue)
	start.template("reply_to", &t.Start.ReplyTo)
	start.literal("reply_to", t.Start.ReplyTo, func(_, s string) error {
		if err := subjects.ValidSubject(s); err != nil {
			return &ident.Error{Reason: err.Error()}
		}
		return nil
	})
	start.template("notify_url", &t.Start.NotifyURL)
	start.literal("notify_url", t.Start.NotifyURL, ident.URL)
	start.template("partition_key", &t.Start.PartitionKey)
	start.literal("partition_key", t.Start.PartitionKey, ident.Key)
	start.template("unique_key", &t.Start.UniqueKey)
	start.literal("unique_key", t.Start.UniqueKey, ident.Key)
	t.Start.readUniqueScope(start)
	start.close()
	if t.Start.State == nil {
		t.Start.State = wholePayload
	}
}

func (s *RouteStart) readUniqueScope(o *object) {
	statuses := []string{"runnable", "executing", "awaiting_signal", "done", "failed", "canceled"}
	for _, i := range o.list("unique_scope") {
		status, ok := o.r.text(i.node, i.path, "a status")
		if ok && !slices.Contains(statuses, status) {
			o.r.fail(i.node, i.path, "is %q, want one of %s", status, strings.Join(statuses, ", "))
		}
		s.UniqueScope = append(s.UniqueScope, status)
	}
	if o.has("unique_scope") && !o.has("unique_key") {
		o.fail("unique_scope", "is of no unique_key: add one, or remove it")
	}
}

// check looks at how the fields of a route go together, and fills in the fate that follows from them.
func (t *Route) check(o *object) {
	signal, event, start := o.has("signal"), o.has("event"), o.has("start")
	switch {
	case !signal && !event && !start:
		o.r.fail(o.node, o.path, "leads nowhere: want one of signal, event and start")
	case event && signal:
		o.fail("event", "stands beside signal: a route has one of them")
	case event && start:
		o.fail("event", "stands beside start: a route has one of them")
	case event && o.has("correlation_key"):
		o.fail("correlation_key", "is of no use to an event, which is found by its key: remove it")
	case signal && !o.has("correlation_key"):
		o.fail("correlation_key", "is missing: want the key of the instance that gets the signal")
	}
	if !start {
		for _, name := range []string{"on_missing", "on_terminal"} {
			if (name == "on_missing" && t.OnMissing == Start) || (name == "on_terminal" && t.OnTerminal == Start) {
				o.fail(name, "is start, and there is no start: say which machine, as start: {machine: order}")
			}
		}
	}
	alone := start && !signal && !event
	switch {
	case alone && t.OnMissing != "" && t.OnMissing != Start:
		o.fail("on_missing", "is %s, and a route with start and no signal starts: leave it out, or add a signal", t.OnMissing)
	case t.OnMissing != "":
	case alone:
		t.OnMissing = Start
	default:
		t.OnMissing = Hold
	}
	if alone && o.has("on_terminal") && t.OnTerminal != Start {
		o.fail("on_terminal", "is %s, and a route with start and no signal starts, also when the last instance with the key has ended: leave it out, or add a signal", t.OnTerminal)
	}
	if alone {
		t.OnTerminal = Start
	}
	if o.has("hold_for") && t.OnMissing != Hold {
		o.fail("hold_for", "is set and on_missing is %s, so nothing is held: remove one", t.OnMissing)
	}
}

// wholePayload is the state of an instance whose route does not say otherwise.
var wholePayload = func() *expr.Template {
	t, err := expr.Compile("{{payload}}")
	if err != nil {
		panic(err) // a constant of this program
	}
	return t
}()

// literal checks a template without expressions by the rule that what it renders must pass.
func (o *object) literal(name string, t *expr.Template, check func(field, s string) error) {
	if text, ok := literal(t); ok {
		if reason := reasonOf(check("", text)); reason != "" {
			o.fail(name, "%s", reason)
		}
	}
}

func literal(t *expr.Template) (string, bool) {
	if t == nil {
		return "", false
	}
	return t.Literal()
}
