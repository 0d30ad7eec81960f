package remote_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/remote"
	"github.com/pointsman/pointsman/subjects"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	nc := natstest.Start(t).Conn(t)
	for want, change := range map[string]func(*remote.Config){
		"no Conn":                             func(c *remote.Config) { c.Conn = nil },
		"no Subjects":                         func(c *remote.Config) { c.Subjects = subjects.Space{} },
		"a time-out of -1s":                   func(c *remote.Config) { c.Timeout = -time.Second },
		`start: subject "": is empty`:         func(c *remote.Config) { c.Start = "" },
		`start: subject "a..b": has an empty`: func(c *remote.Config) { c.Start = "a..b" },
		`start: "é" has`:                      func(c *remote.Config) { c.Start = "é" },
		"machine: is empty":                   func(c *remote.Config) { c.Name = "" },
		"version: is not between":             func(c *remote.Config) { c.Version = -1 },
		"queue: ":                             func(c *remote.Config) { c.Queue = "a b" },
		"retry: want":                         func(c *remote.Config) { c.Retry.Factor = 0.5 },
	} {
		cfg := config(t, nc)
		change(&cfg)
		if _, err := remote.Machine(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
}

// The request is what docs/remote-steps.md says, byte for byte, with the trace of what woke the instance and no other header.
func TestRequest(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	asked := make(chan *nats.Msg, 2)
	answer(t, nc, "m", func(m *nats.Msg) *nats.Msg {
		asked <- m
		if strings.HasSuffix(m.Subject, ".begin") {
			return &nats.Msg{Data: []byte(`{"outcome": "await", "signals": ["a", "b"], "step": "go.on"}`)}
		}
		return &nats.Msg{Data: []byte(`{"outcome": "done"}`)}
	})
	s.work(machine(t, config(t, nc)))
	id := s.begin(engine.NewInstance{CorrelationKey: "order-1", State: json.RawMessage(`{"tag": "<&>"}`), Traceparent: "00-start"})
	s.until(id, "parked", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting })
	s.send(id, engine.Intake{Name: "x", Traceparent: "00-x"}, engine.Intake{Name: "a", Payload: []byte(`{"n": 1}`), DedupKey: "d", Traceparent: "00-a"}, engine.Intake{Name: "b"})
	s.ends(id, engine.StatusDone)

	first, second := receive(t, asked), receive(t, asked)
	equal(t, "subjects", first.Subject+" "+second.Subject, "pointsman.step.m.begin pointsman.step.m.go.on")
	equal(t, "headers", fmt.Sprint(first.Header, second.Header), "map[traceparent:[00-start]] map[traceparent:[00-a]]")
	equal(t, "first", string(first.Data), fmt.Sprintf(`{"instance_id":%q,"project":"default","machine":"m","version":1,"step":"begin","attempt":0,"correlation_key":"order-1",`+
		`"state":{"tag":"<&>"},"awaited":[],"all":[],"timed_out":false,"canceled":false,"inbox_more":false,"idempotency_key":"%s-0"}`, id, id))
	var r struct {
		Awaited, All []struct {
			ID         int64
			InsertedAt time.Time `json:"inserted_at"`
		}
	}
	if err := json.Unmarshal(second.Data, &r); err != nil {
		t.Fatal(err)
	}
	signal := func(i int, rest string) string {
		at, _ := r.All[i].InsertedAt.MarshalText()
		return fmt.Sprintf(`{"id":%d,"kind":"signal",%s,"inserted_at":"%s"}`, r.All[i].ID, rest, at)
	}
	x, a, b := signal(0, `"name":"x","payload":null,"dedup_key":null`), signal(1, `"name":"a","payload":{"n":1},"dedup_key":"d"`), signal(2, `"name":"b","payload":null,"dedup_key":null`)
	equal(t, "second", string(second.Data), fmt.Sprintf(`{"instance_id":%q,"project":"default","machine":"m","version":1,"step":"go.on","attempt":0,"correlation_key":"order-1",`+
		`"state":{"tag":"<&>"},"awaited":[%s,%s],"all":[%s,%s,%s],"timed_out":false,"canceled":false,"inbox_more":false,"idempotency_key":"%s-1"}`, id, a, b, x, a, b, id))
}

// An instance without a key says so with null.
func TestRequestWithoutKey(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	asked := make(chan []byte, 1)
	answer(t, nc, "m", func(m *nats.Msg) *nats.Msg { asked <- m.Data; return says(`{"outcome": "done"}`)(m) })
	s.work(machine(t, config(t, nc)))
	s.ends(s.begin(engine.NewInstance{}), engine.StatusDone)
	if body := receive(t, asked); !bytes.Contains(body, []byte(`"correlation_key":null`)) {
		t.Errorf("request %s", body)
	}
}

// A null in an answer is as left out: the state stays, the step is the same one.
func TestNullIsLeftOut(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	answer(t, nc, "m", func(m *nats.Msg) *nats.Msg {
		if bytes.Contains(m.Data, []byte(`"timed_out":true`)) {
			return says(`{"outcome": "done", "result": null, "error": null, "publish": null, "emit": null}`)(m)
		}
		return says(`{"outcome": "await", "signals": null, "updates": null, "event": null, "timeout_ms": 1, "step": null, "state": null, "set_events": null}`)(m)
	})
	s.work(machine(t, config(t, nc)))
	in := s.ends(s.begin(engine.NewInstance{State: json.RawMessage(`{"n": 7}`)}), engine.StatusDone)
	equal(t, "instance", fmt.Sprint(in.Step, " ", string(in.State), " ", string(in.Result)), `begin {"n": 7} null`)
}

// What the micro framework of the NATS clients answers as an error is one.
func TestServiceError(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	service, err := micro.AddService(nc, micro.Config{Name: "orders", Version: "1.0.0"})
	s.must(err)
	t.Cleanup(func() { _ = service.Stop() })
	s.must(service.AddEndpoint("begin", micro.HandlerFunc(func(r micro.Request) {
		_ = r.Error("409", "out of stock", []byte(`{"outcome": "done"}`))
	}), micro.WithEndpointSubject("pointsman.step.m.begin")))
	cfg := config(t, nc)
	cfg.Retry.MaxAttempts = 1
	s.work(machine(t, cfg))
	equal(t, "error", s.ends(s.begin(engine.NewInstance{}), engine.StatusFailed).LastError, "service error 409 from pointsman.step.m.begin: out of stock")
}

// A start may name a step that no subject can be made of. No retry cures that.
func TestStepWithoutSubject(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	s.work(machine(t, config(t, nc)))
	in := s.ends(s.begin(engine.NewInstance{Start: "a..b"}), engine.StatusFailed)
	equal(t, "error", in.LastError, `step: subject "a..b": has an empty token: no dot at either end, no two in a row`)
	equal(t, "attempt", in.Attempt, 0)
}

// A service that comes back is found, and its absence is logged once.
func TestServiceComesBack(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	cfg := config(t, nc)
	cfg.Retry = engine.RetryPolicy{MaxAttempts: math.MaxInt32, Initial: time.Millisecond, Max: 5 * time.Millisecond}
	var log journal
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s.work(machine(t, cfg))
	id := s.begin(engine.NewInstance{})
	in := s.until(id, "tried", func(in engine.Instance) bool { return in.Attempt >= 2 })
	equal(t, "error", in.LastError, "no service answers pointsman.step.m.begin")
	answer(t, nc, "m", says(`{"outcome": "done"}`))
	s.ends(id, engine.StatusDone)
	equal(t, "warnings", strings.Count(log.String(), "no service answers the steps of a machine"), 1)
	equal(t, "end", strings.Count(log.String(), "answered again"), 1)
}

// While NATS is away no attempt counts, however often a step is tried.
func TestNATSIsAway(t *testing.T) {
	t.Parallel()
	s, server := newStage(t), natstest.Start(t)
	var good atomic.Bool
	nc := server.Conn(t)
	answer(t, nc, "m", func(m *nats.Msg) *nats.Msg {
		if good.Load() {
			return says(`{"outcome": "done"}`)(m)
		}
		return nil
	})
	cfg := config(t, nc) // of the service too: a request goes out after its subscription is back
	cfg.Timeout, cfg.Retry.MaxAttempts = 10*time.Second, 1
	server.Down(t)
	s.work(machine(t, cfg))
	id := s.begin(engine.NewInstance{})
	in := s.until(id, "tried", func(in engine.Instance) bool { return in.Attempt >= 1 })
	equal(t, "instance", fmt.Sprint(in.Status, in.LastError), "runnable")
	good.Store(true)
	server.Up(t)
	s.ends(id, engine.StatusDone)
}

// An inbox that no message can hold is sent without what was not awaited. What was awaited has to be sent, or it is an error.
func TestLargeInbox(t *testing.T) {
	t.Parallel()
	s, nc := newStage(t), natstest.Start(t).Conn(t)
	asked := make(chan []byte, 3)
	answer(t, nc, "m", func(m *nats.Msg) *nats.Msg {
		asked <- m.Data
		if strings.HasSuffix(m.Subject, ".begin") {
			return says(`{"outcome": "await", "signals": ["go", "large"], "step": "on"}`)(m)
		}
		return says(`{"outcome": "await", "signals": ["large"], "step": "on", "timeout_ms": 3600000}`)(m)
	})
	cfg := config(t, nc)
	cfg.Retry.MaxAttempts = 1
	s.work(machine(t, cfg))
	id := s.begin(engine.NewInstance{})
	receive(t, asked)
	parked := func(step string) func(engine.Instance) bool {
		return func(in engine.Instance) bool {
			return in.Status == engine.StatusAwaiting && in.Step == step && in.Lease == nil
		}
	}
	s.until(id, "parked", parked("on"))
	large := json.RawMessage(`"` + strings.Repeat("x", 600<<10) + `"`)
	s.send(id, engine.Intake{Name: "other", Payload: large}, engine.Intake{Name: "other", Payload: large})
	s.send(id, engine.Intake{Name: "go"})
	var r struct {
		Awaited, All []struct{ Name string }
		InboxMore    bool `json:"inbox_more"`
	}
	if err := json.Unmarshal(receive(t, asked), &r); err != nil {
		t.Fatal(err)
	}
	equal(t, "request", fmt.Sprint(r), "{[{go}] [{go}] true}")
	s.until(id, "parked again", func(in engine.Instance) bool { return parked("on")(in) && in.Deadline != nil })
	s.send(id, engine.Intake{Name: "large", Payload: large}, engine.Intake{Name: "large", Payload: large})
	in := s.ends(id, engine.StatusFailed)
	if !strings.Contains(in.LastError, "and the NATS server takes 1048576: make state and payloads smaller, or raise max_payload") {
		t.Errorf("error %q", in.LastError)
	}
}
