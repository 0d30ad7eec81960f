package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/remote"
)

// validates answers for a validator, as a service would.
func validates(t testing.TB, nc *nats.Conn, subject string, with func(*nats.Msg) *nats.Msg) {
	t.Helper()
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		if reply := with(m); reply != nil {
			_ = m.RespondMsg(reply)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A service accepts, refuses or fails; whatever is none of these, and no answer at all, is a failure: nothing is delivered.
func TestRemoteValidator(t *testing.T) {
	t.Parallel()
	nc, space := natstest.Start(t).Conn(t), config(t, nil).Subjects
	for i, c := range []struct{ name, answer, want string }{
		{"accepts", `{}`, "accepted"},
		{"accepts with nulls", `{"reason": null, "error": null}`, "accepted"},
		{"accepts with no reason", `{"reason": ""}`, "accepted"},
		{"refuses", `{"reason": "over the limit"}`, "refused: over the limit"},
		{"fails", `{"error": "the ledger is away"}`, "the ledger is away"},
		{"nothing", ``, "bad answer from SUBJECT: the answer: is empty: send a JSON value"},
		{"text", `OK`, "bad answer from SUBJECT: the answer: is not JSON at byte 0: unexpected 'O'"},
		{"list", `[]`, "bad answer from SUBJECT: the answer: is [], want an object"},
		{"another field", `{"accepted": false}`, "bad answer from SUBJECT: accepted: a verdict has no such field: there are error, reason"},
		{"another type", `{"reason": ["no"]}`, `bad answer from SUBJECT: reason: is ["no"], want text`},
		{"ack", `{"stream": "ALL", "seq": 12}`, `bad answer from SUBJECT: it is the ack of stream "ALL", which stores the requests: no stream may have SUBJECT`},
		{"nobody", "", "no service answers SUBJECT"},
		{"silent", "", "no answer from SUBJECT in time"},
		{"service error", "", "service error 500 from SUBJECT: broken"},
	} {
		update := fmt.Sprint("decide.", i)
		subject := "pointsman.validate.m." + update
		timeout := patience
		var asked []byte
		switch c.name {
		case "nobody":
		case "silent":
			timeout = 20 * time.Millisecond
			validates(t, nc, subject, func(*nats.Msg) *nats.Msg { return nil })
		case "service error":
			validates(t, nc, subject, func(*nats.Msg) *nats.Msg {
				return &nats.Msg{Header: nats.Header{"Nats-Service-Error": {"broken"}, "Nats-Service-Error-Code": {"500"}}}
			})
		default:
			validates(t, nc, subject, func(m *nats.Msg) *nats.Msg { asked = m.Data; return &nats.Msg{Data: []byte(c.answer)} })
		}
		err := remote.Validator(nc, space, "m", update, timeout)(t.Context(), json.RawMessage(`{"bare": [1.0]}`))
		got := "accepted"
		var refused *engine.RefusedError
		if errors.As(err, &refused) {
			got = "refused: " + refused.Reason
		} else if err != nil {
			got = err.Error()
		}
		equal(t, c.name, got, strings.ReplaceAll(c.want, "SUBJECT", subject))
		if asked != nil {
			equal(t, "asked", string(asked), `{"bare": [1.0]}`)
		}
	}
	if err := remote.Validator(nc, space, "m", "a..b", 0)(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "empty token") {
		t.Errorf("a name that makes no subject: %v", err)
	}
}

// Validators that are Go code beside a worker are asked by another program, which has none of its own.
func TestServeValidators(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	m, err := engine.Define(engine.Definition[json.RawMessage]{
		Name: "m", Start: "begin",
		Steps: map[string]engine.Step[json.RawMessage]{"begin": func(context.Context, *engine.Visit[json.RawMessage]) (engine.Outcome, error) {
			return engine.Await("").OrUpdate("decide").Consuming(), nil
		}},
		Validators: map[string]engine.Validator{
			"decide": engine.ValidatorOf(func(_ context.Context, n int) error {
				switch {
				case n == 0:
					panic("zero")
				case n < 0:
					return engine.Refuse("negative")
				}
				return nil
			}),
		},
	})
	s.must(err)
	s.work(m)
	id := s.begin(engine.NewInstance{})
	s.until(id, "parked", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting })
	asking, err := engine.NewClient(s.env.Pool, engine.Config{Schema: s.env.Schema, Logger: quiet, AskValidator: remote.Validators(nc, config(t, nc).Subjects), ValidateTimeout: time.Minute})
	s.must(err)
	says := func(update, arg string) string {
		t.Helper()
		res, err := asking.Update(t.Context(), engine.ByID(id), engine.UpdateRequest{Name: update, Arg: json.RawMessage(arg)})
		switch {
		case err != nil:
			return err.Error()
		case !res.Accepted:
			return "refused: " + res.Reason
		}
		return "accepted"
	}
	const failed = `update "decide" of machine "m" cannot be validated, and was not delivered: `
	equal(t, "before they are served", says("decide", `1`), failed+"no service answers pointsman.validate.m.decide")
	service, err := remote.ServeValidators(remote.ValidatorsConfig{Conn: nc, Subjects: config(t, nc).Subjects, Client: s.Client, Logger: quiet})
	s.must(err)
	equal(t, "accepted", says("decide", `1`), "accepted")
	equal(t, "refused", says("decide", `-1`), "refused: negative")
	equal(t, "does not fit", says("decide", `"x"`), "refused: the argument does not fit: json: cannot unmarshal string into Go value of type int")
	equal(t, "panic", says("decide", `0`), failed+"its validator panicked: the log of the program that has it says where")
	equal(t, "without a validator", says("other", `0`), "accepted")
	reply, err := nc.Request("pointsman.validate.m.decide", []byte(`{`), patience)
	s.must(err)
	if !strings.Contains(string(reply.Data), `"error":"arg: is not JSON`) {
		t.Errorf("no JSON: %s", reply.Data)
	}
	s.must(service.Stop())
	equal(t, "after they were served", says("decide", `1`), failed+"no service answers pointsman.validate.m.decide")
	if _, err := remote.ServeValidators(remote.ValidatorsConfig{}); err == nil {
		t.Error("a configuration with nothing in it is no error")
	}
}
