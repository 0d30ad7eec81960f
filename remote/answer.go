package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/ident"
)

// maxAnswer is the most bytes of an answer; NATS itself is not meant for more.
const maxAnswer = 8 << 20

// outcome is what an answer says. The state of the visit changes only where all of the answer is good.
func (s *service) outcome(msg *nats.Msg, v *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
	subject := s.space.Step(s.machine, v.Instance.Step)
	if err := serviceError(subject, msg); err != nil {
		return engine.Outcome{}, err
	}
	if err := ident.JSON("the answer", msg.Data, maxAnswer); err != nil {
		return engine.Outcome{}, bad(subject, err)
	}
	var err error
	a := newObject("", msg.Data, &err)
	if a.has("error") {
		return engine.Outcome{}, a.failure(subject)
	}
	if a.isAck() {
		return engine.Outcome{}, bad(subject, fmt.Errorf("it is the ack of stream %s, which stores the requests: no stream may have %s", show(a.fields["stream"]), s.space.Step(s.machine, ">")))
	}
	kind := a.text("outcome")
	state := a.value("state")
	o := a.effects(a.outcome(kind, v.Instance.Step))
	a.close("outcome " + kind)
	if err != nil {
		return engine.Outcome{}, bad(subject, err)
	}
	if state != nil {
		v.State = state
	}
	return o, nil
}

// badAnswer is one that does not follow the protocol.
type badAnswer struct {
	subject string
	err     error
}

func (b *badAnswer) Error() string { return fmt.Sprintf("bad answer from %s: %v", b.subject, b.err) }

func (b *badAnswer) Unwrap() error { return b.err }

func bad(subject string, err error) error { return &badAnswer{subject, err} }

// failure is the error that a service answers with.
func (a *object) failure(subject string) error {
	text := a.text("error")
	a.close("an error")
	switch {
	case *a.err != nil:
		return bad(subject, *a.err)
	case text == "":
		return bad(subject, errors.New("error: is empty: say what is wrong"))
	default:
		return errors.New(text)
	}
}

// isAck: a stream that covers the subjects of steps answers too, and first.
func (a *object) isAck() bool { return a.has("stream") && a.has("seq") && !a.has("outcome") }

// outcome reads the fields of one kind of outcome. A step that is left out is the same one again.
func (a *object) outcome(kind, step string) engine.Outcome {
	switch kind {
	case "next":
		return engine.Next(a.step(step))
	case "replay":
		return engine.Replay(a.millis("delay_ms", 0))
	case "await":
		return a.await(step)
	case "done":
		return engine.Done(a.value("result"))
	case "stop":
		return engine.Stop(a.text("reason"))
	case "":
		a.fail("outcome", "is missing: want next, replay, await, done or stop, or an error")
	default:
		a.fail("outcome", "is %q, want next, replay, await, done or stop", kind)
	}
	return engine.Outcome{}
}

func (a *object) await(step string) engine.Outcome {
	event := a.has("event")
	wait := a.object("event").eventWait(event)
	signals, updates := a.awaited("signals"), a.awaited("updates")
	within := a.millis("timeout_ms", 1)
	if len(signals)+len(updates) == 0 && within == 0 && !event && !a.has("children") {
		a.fail("signals", "is missing: an await wants signals, updates, an event, children or timeout_ms, or several of them")
	}
	o := a.conditions(engine.Await(a.step(step), signals...), signals).OrUpdate(updates...)
	if within > 0 {
		o = o.Within(within)
	}
	if event && *a.err == nil {
		o = o.OrEvent(wait)
	}
	if a.flag("consume") {
		o = o.Consuming()
	}
	return o
}

// awaited is a list of the names that an await is for.
func (a *object) awaited(field string) []string {
	names := a.texts(field)
	for i, name := range names {
		a.check(ident.Name(fmt.Sprintf("%s[%d]", field, i), name))
	}
	return names
}

// conditions are how many of the names an await is for and what their payloads have to pass, and how many children.
func (a *object) conditions(o engine.Outcome, names []string) engine.Outcome {
	if n, all := a.count("need", len(names)); all {
		o = o.AllOf()
	} else if n > 0 {
		o = o.NOf(n)
	}
	where := a.object("where")
	for _, name := range where.names() {
		if !slices.Contains(names, name) {
			where.fail(name, "is none of signals")
		}
		path := where.text(name)
		if *a.err == nil {
			o = o.Where(name, path)
		}
	}
	switch n, all := a.count("children", engine.MaxAwaited, "any"); {
	case all:
		return o.OrChildren(engine.AllChildren)
	case n > 0:
		return o.OrChildren(engine.NChildren(n))
	}
	return o
}

// count is "all", or a number from 1 to most, which one may be written as a word; 0 where it is left out.
func (a *object) count(name string, most int, one ...string) (n int, all bool) {
	if !a.has(name) {
		a.take(name)
		return 0, false
	}
	words := append([]string{"all"}, one...)
	var text string
	switch raw := a.fields[name]; {
	case most < 1:
		a.fail(name, "is there, and signals is not")
	case raw[0] != '"':
		return int(a.integer(name, 1, int64(most))), false
	default:
		if text = a.text(name); !slices.Contains(words, text) {
			a.fail(name, "is %q, want %s, or a whole number from 1 to %d", text, strings.Join(words, " or "), most)
		}
	}
	a.take(name)
	if text == "all" {
		return 0, true
	}
	return 1, false
}

func (a *object) step(same string) string {
	if !a.has("step") {
		a.take("step")
		return same
	}
	return a.checked("step", checkStep)
}

// eventWait is the event of an await, where there is one.
func (a *object) eventWait(there bool) (w engine.EventWait) {
	if !there {
		return w
	}
	if !a.has("event_key") {
		a.fail("event_key", "is missing: want the key that the event is sent by")
	}
	w = engine.EventWait{
		Key: a.checked("event_key", ident.EventKey), Timeout: time.Duration(a.integer("timeout_secs", 1, int64(engine.MaxEventTimeout/time.Second))) * time.Second,
		NotifyURL: a.text("notify_url"), RequestPayload: a.value("request_payload"),
	}
	a.close("an event")
	return w
}
