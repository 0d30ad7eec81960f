package config

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/pointsman/pointsman/internal/dag"
	"github.com/pointsman/pointsman/internal/expr"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/jsonpath"
	"github.com/pointsman/pointsman/subjects"
)

// refPattern is what a ref is: a name of a step of the engine, and something that expressions can name.
var refPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

func (fr *flowReader) readStep(o *object) dag.Step {
	if o.wrong {
		return dag.Step{OnFailure: dag.FailWorkflow}
	}
	return fr.readFields(o, "")
}

// readFields reads a step of a type, unless it says another.
func (fr *flowReader) readFields(o *object, t dag.Type) dag.Step {
	s := dag.Step{OnFailure: dag.FailWorkflow, Type: t}
	o.checked("ref", &s.Ref, func(ref string) string {
		if !refPattern.MatchString(ref) {
			return "is no ref: want a letter or _, then up to 63 of letters, digits, _ and -"
		}
		return ""
	})
	o.require("ref", "the step's name")
	readType(o, &s, dag.Types)
	for _, i := range o.oneOrMore("depends_on") {
		if on, ok := o.r.text(i.node, i.path, "the ref of a step"); ok {
			s.DependsOn = append(s.DependsOn, on)
		}
	}
	fr.condition(o, "when", &s.When)
	o.choice("on_failure", &s.OnFailure, dag.Policies...)
	fr.sees = dag.Sight{Own: true}
	fr.text(o, "event_emit_key", &s.EventEmitKey, named(ident.EventKey))
	fr.compensation(o, &s)
	fr.sees = dag.Sight{}
	if slices.Contains(listed, s.Type) {
		fr.forEach(o, &s)
	}
	if read := stepReaders[s.Type]; read != nil {
		read(fr, o, &s)
		if s.ForEach != nil && s.Type == dag.Start && !s.Wait {
			o.fail("for_each", "waits for the instances that it starts: add wait: true")
		}
		o.close()
	}
	fr.sees = dag.Sight{}
	return s
}

func readType(o *object, s *dag.Step, types []dag.Type) {
	var names []string
	for _, t := range types {
		names = append(names, string(t))
	}
	o.choice("type", (*string)(&s.Type), names...)
	o.require("type", "one of "+strings.Join(names, ", "))
}

// listed are the types of what can be done for each item of a list.
var listed = []dag.Type{dag.Call, dag.HTTP, dag.Start}

// maxConcurrency is how many items of one step run at once at most.
const maxConcurrency = 100

func (fr *flowReader) forEach(o *object, s *dag.Step) {
	before := len(o.r.errs)
	fr.value(o, "for_each", &s.ForEach)
	wrong := len(o.r.errs) > before
	s.Concurrency, s.OnItemFailure = 10, dag.FailStep
	o.integer("concurrency", &s.Concurrency, 1, maxConcurrency)
	o.choice("on_item_failure", &s.OnItemFailure, dag.FailStep, dag.Continue)
	if o.described() != nil {
		return
	}
	if s.ForEach == nil {
		for _, name := range []string{"concurrency", "on_item_failure"} {
			if o.has(name) {
				o.fail(name, "is of a step with for_each, and this one has none")
			}
		}
		return
	}
	switch list := s.ForEach; {
	case wrong:
	case list.List != nil && len(list.List) > dag.MaxItems:
		o.fail("for_each", "has %d items: at most %d", len(list.List), dag.MaxItems)
	case list.List == nil && (list.Template == nil || !list.Template.Single()):
		o.fail("for_each", `is no list: want one, or what gives one, as "{{payload.items}}"`)
	}
	fr.sees.Item = true
}

// undoing are the types that a compensation can be of.
var undoing = []dag.Type{dag.Call, dag.HTTP, dag.Publish, dag.Start, dag.Signal, dag.SetEvent}

// compensation is a step without what makes it one of the graph.
func (fr *flowReader) compensation(o *object, s *dag.Step) {
	if o.described() != nil {
		o.known = append(o.known, "compensate")
		o.describes("compensate", description{Ref: "#/$defs/" + compensationSchema})
		return
	}
	c := o.child("compensate")
	if !o.has("compensate") || c.wrong {
		return
	}
	body := dag.Step{}
	readType(c, &body, undoing)
	if read := stepReaders[body.Type]; read != nil {
		read(fr, c, &body)
		c.close()
	}
	s.Compensate = &body
}

// stepReaders read what only one type of steps has.
var stepReaders = map[dag.Type]func(fr *flowReader, o *object, s *dag.Step){
	dag.Call: func(fr *flowReader, o *object, s *dag.Step) {
		fr.subject(o, s)
		fr.request(o, s, "data")
		if s.Data == nil {
			s.Data = fr.wholePayload()
		}
	},
	dag.HTTP: func(fr *flowReader, o *object, s *dag.Step) {
		o.require("url", "whom to ask")
		fr.url(o, s)
		s.Method = http.MethodPost
		o.choice("method", &s.Method, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)
		fr.request(o, s, "body")
	},
	dag.Publish: func(fr *flowReader, o *object, s *dag.Step) {
		fr.subject(o, s)
		fr.value(o, "data", &s.Data)
		if s.Data == nil {
			s.Data = fr.wholePayload()
		}
		fr.headers(o, s)
	},
	dag.WaitForEvent: func(fr *flowReader, o *object, s *dag.Step) {
		o.require("event_key", "the key that the event is sent by")
		fr.text(o, "event_key", &s.Key, named(ident.EventKey))
		secs := 3600
		o.integer("timeout_secs", &secs, 1, int(dag.MaxSleep/time.Second))
		s.Timeout = time.Duration(secs) * time.Second
		fr.text(o, "notify_url", &s.NotifyURL, named(ident.URL))
		fr.value(o, "request_payload", &s.Data)
	},
	dag.WaitForSignal: func(fr *flowReader, o *object, s *dag.Step) {
		fr.signals(o, s)
		o.duration("timeout", &s.Timeout, shortest, longest)
	},
	dag.OnUpdate: func(_ *flowReader, o *object, s *dag.Step) {
		o.name("update", &s.Name)
		o.require("update", "the name of the update")
		o.duration("timeout", &s.Timeout, shortest, longest)
	},
	dag.Sleep: func(fr *flowReader, o *object, s *dag.Step) {
		o.require("sleep_duration", "how long, as 30m")
		fr.text(o, "sleep_duration", &s.Duration, func(text string) string {
			if d, err := time.ParseDuration(text); err != nil || d <= 0 || d > dag.MaxSleep {
				return "is no duration to sleep: want 1s to 87600h, as 30m"
			}
			return ""
		})
	},
	dag.Start: func(fr *flowReader, o *object, s *dag.Step) {
		o.token("machine", &s.Machine)
		o.require("machine", "the machine or flow to start")
		o.integer("version", &s.MachineVersion, 1, math.MaxInt32)
		o.name("step", &s.FirstStep)
		fr.value(o, "state", &s.Data)
		o.queue("queue", &s.ToQueue)
		o.integer("priority", &s.Priority, math.MinInt16, math.MaxInt16)
		fr.text(o, "correlation_key", &s.CorrelationKey, named(ident.Key))
		fr.text(o, "partition_key", &s.PartitionKey, named(ident.Key))
		fr.text(o, "unique_key", &s.UniqueKey, named(ident.Key))
		o.flag("wait", &s.Wait)
	},
	dag.Signal: func(fr *flowReader, o *object, s *dag.Step) {
		o.require("signal", "the name of the signal")
		fr.text(o, "signal", &s.SignalName, named(ident.Name))
		fr.text(o, "correlation_key", &s.Target, named(ident.Key))
		fr.text(o, "instance_id", &s.TargetID, nil)
		if o.has("correlation_key") == o.has("instance_id") {
			o.fail("correlation_key", "has to be there, or instance_id instead, and not both")
		}
		fr.value(o, "payload", &s.Data)
		fr.text(o, "dedup_key", &s.DedupKey, named(ident.Key))
	},
	dag.SetEvent: func(fr *flowReader, o *object, s *dag.Step) {
		o.require("key", "the key of the value")
		fr.text(o, "key", &s.Key, named(ident.Key))
		if _, there := o.fields["value"]; !there || o.described() != nil {
			o.require("value", "what is published")
		}
		fr.value(o, "value", &s.Data)
	},
}

// maxNames that one step waits for.
const maxNames = 100

// signals reads what a step waits for: one signal, or some of several, each perhaps with a condition.
func (fr *flowReader) signals(o *object, s *dag.Step) {
	o.name("signal", &s.Name)
	for _, i := range o.list("signals") {
		name, ok := o.r.text(i.node, i.path, "the name of a signal")
		if !ok {
			continue
		}
		reason := reasonOf(ident.Name("", name))
		if reason == "" && slices.Contains(s.Names, name) {
			reason = fmt.Sprintf("%q is there twice: remove one", name)
		}
		if reason != "" {
			o.r.fail(i.node, i.path, "%s", reason)
		}
		s.Names = append(s.Names, name)
	}
	s.Need = 1
	o.describes("need", description{AnyOf: []*description{{Enum: []string{"any", "all"}}, {Type: "integer", Minimum: new(float64(1)), Maximum: new(float64(maxNames))}, asText}})
	o.read("need", "any, all or a number", func(text string) string {
		n, err := strconv.Atoi(text)
		switch {
		case text == "any":
			n = 1
		case text == "all":
			n = len(s.Names)
		case err != nil || n < 1 || n > max(1, len(s.Names)):
			return fmt.Sprintf("is %q, want any, all, or how many of the %d signals", text, len(s.Names))
		}
		s.Need = n
		return ""
	})
	fr.where(o, s)
	if o.described() != nil {
		return
	}
	_, several := o.fields["signals"]
	_, list := o.get("signals").(*ast.SequenceNode)
	switch {
	case several && o.has("signal"):
		o.fail("signals", "is there, and signal too: one of them")
	case list && len(s.Names) == 0:
		o.fail("signals", "has no name: want at least one")
	case len(s.Names) > maxNames:
		o.fail("signals", "has %d names: at most %d", len(s.Names), maxNames)
	case !several && o.has("need"):
		o.fail("need", "is how many of signals, and there is signal alone")
	case !several:
		o.require("signal", "the name of the signal, or several in signals")
	}
}

// where reads conditions on payloads, by the names of the signals.
func (fr *flowReader) where(o *object, s *dag.Step) {
	w := o.child("where")
	w.describesOthers(description{Type: "string"})
	for _, name := range w.order {
		w.known = append(w.known, name)
		if name != s.Name && !slices.Contains(s.Names, name) {
			o.r.fail(w.fields[name].key, w.sub(name), "is no signal that the step waits for")
			continue
		}
		text, ok := o.r.text(w.fields[name].value, w.sub(name), "a condition, as $.amount >= 100")
		if !ok {
			continue
		}
		if wrong := jsonpath.Check(text); wrong != nil {
			o.r.failExpression(w.fields[name].value, text, w.sub(name), &expr.CompileError{Line: 1, Column: wrong.Column, Reason: wrong.Reason})
			continue
		}
		if s.Where == nil {
			s.Where = map[string]string{}
		}
		s.Where[name] = text
	}
}

func (fr *flowReader) subject(o *object, s *dag.Step) {
	o.require("subject", "a subject of NATS")
	fr.text(o, "subject", &s.Subject, func(text string) string {
		if err := subjects.ValidSubject(text); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (fr *flowReader) url(o *object, s *dag.Step) {
	fr.text(o, "url", &s.URL, nil)
	if s.URL != nil {
		if reason := dag.CheckURL(s.URL.Source()); reason != "" {
			o.fail("url", "%s", reason)
		}
	}
}

// request reads how somebody is asked.
func (fr *flowReader) request(o *object, s *dag.Step, body string) {
	fr.value(o, body, &s.Data)
	fr.headers(o, s)
	s.Timeout = 30 * time.Second
	o.duration("timeout", &s.Timeout, shortest, 24*time.Hour)
	retry := Retry{MaxAttempts: 5, Initial: time.Second, Max: 5 * time.Minute, Factor: 2}
	retry.read(o.child("retry"))
	s.Retry = dag.Retry(retry)
}

func (fr *flowReader) headers(o *object, s *dag.Step) {
	h := o.child("headers")
	h.describesOthers(description{Type: scalars})
	for _, name := range h.order {
		h.known = append(h.known, name)
		if !headerPattern.MatchString(name) {
			h.fail(name, "is no name of a header")
			continue
		}
		if slices.ContainsFunc([]string{subjects.HeaderIdempotencyKey, subjects.HeaderMsgID}, func(own string) bool { return strings.EqualFold(own, name) }) {
			h.fail(name, "is set by pointsman: leave it out")
			continue
		}
		var t *expr.Template
		fr.template(h.fields[name].value, h.sub(name), &t, nil)
		if t == nil {
			continue
		}
		if s.Headers == nil {
			s.Headers = map[string]*expr.Template{}
		}
		s.Headers[name] = t
	}
}

var headerPattern = regexp.MustCompile("^[!#$%&'*+.^_`|~A-Za-z0-9-]{1,128}$")

// wholePayload is what is sent where a step does not say.
func (fr *flowReader) wholePayload() *dag.Value {
	t, err := dag.Scope.Compile("{{payload}}")
	if err != nil {
		return nil
	}
	return &dag.Value{Template: t}
}
