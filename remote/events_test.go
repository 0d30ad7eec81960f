package remote_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
)

// A service that answers over NATS waits for an event, and emits the one that another instance waits for.
func TestEvents(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	answer(t, nc, "m", func(m *nats.Msg) *nats.Msg {
		var r struct {
			Step    string
			State   struct{ Waits, Emits string }
			Awaited []struct {
				Kind, Name string
				Payload    json.RawMessage
			}
			TimedOut bool `json:"timed_out"`
			Canceled bool
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Error(err)
		}
		say := func(format string, args ...any) *nats.Msg { return &nats.Msg{Data: fmt.Appendf(nil, format, args...)} }
		switch {
		case r.Step == "begin":
			return say(`{"outcome": "await", "event": {"event_key": %q, "timeout_secs": 7200, "notify_url": "https://example.com/", "request_payload": {"n": 1}}, "step": "decide"}`, r.State.Waits)
		case len(r.Awaited) == 0:
			return say(`{"outcome": "done", "result": {"timed_out": %t, "canceled": %t}}`, r.TimedOut, r.Canceled)
		case r.State.Emits != "":
			return say(`{"outcome": "done", "result": %s, "emit": [{"event_key": %q, "payload": {"from": %q}}]}`, r.Awaited[0].Payload, r.State.Emits, r.Awaited[0].Name)
		}
		return say(`{"outcome": "done", "result": {"kind": %q, "name": %q, "payload": %s}}`, r.Awaited[0].Kind, r.Awaited[0].Name, r.Awaited[0].Payload)
	})
	s.work(machine(t, config(t, nc)))
	begin := func(state string) engine.Instance {
		t.Helper()
		id := s.begin(engine.NewInstance{State: json.RawMessage(state)})
		return s.until(id, "parked", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting })
	}
	last := begin(`{"waits": "second"}`)
	first := begin(`{"waits": "first", "emits": "second"}`)
	canceled := begin(`{"waits": "third"}`)

	g, err := s.Trigger(t.Context(), "", "first")
	s.must(err)
	equal(t, "trigger", fmt.Sprint(g.Status, " ", g.Source, " ", g.TimeoutSecs, " ", *g.NotifyURL, " ", compact(t, g.RequestPayload), " ", *g.InstanceID == first.ID), `waiting job_run 7200 https://example.com/ {"n":1} true`)
	equal(t, "expires", g.ExpiresAt.Sub(g.RequestedAt), 2*time.Hour)
	_, err = s.SendEvent(t.Context(), engine.NewEvent{Key: "first", Payload: json.RawMessage(`{"approved":true}`)})
	s.must(err)
	_, err = s.CancelTrigger(t.Context(), "", "third")
	s.must(err)
	equal(t, "first", compact(t, s.ends(first.ID, engine.StatusDone).Result), `{"approved":true}`)
	equal(t, "last", compact(t, s.ends(last.ID, engine.StatusDone).Result), `{"kind":"event","name":"second","payload":{"from":"first"}}`)
	equal(t, "canceled", compact(t, s.ends(canceled.ID, engine.StatusDone).Result), `{"canceled":true,"timed_out":false}`)
	g, err = s.Trigger(t.Context(), "", "second")
	s.must(err)
	equal(t, "sent by", *g.SentBy, "m/decide")
}

// compact is JSON without spaces.
func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Error(err)
	}
	return b.String()
}
