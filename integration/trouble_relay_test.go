package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

// ended starts instances and cancels them, so that each has an outcome.
func (s *stack) ended(c *engine.Client, n int) {
	s.Helper()
	for range n {
		i, err := c.Start(s.Context(), engine.NewInstance{Machine: "short"})
		s.must(err)
		_, err = c.Cancel(s.Context(), engine.ByID(i.ID), "that was all")
		s.must(err)
	}
}

// outcomes waits for so many messages, and for an empty outbox, and wants each Nats-Msg-Id and each instance once.
func (s *stack) outcomes(n int) {
	s.Helper()
	s.until(patience, "all is out", func() (bool, string) {
		left := s.count(`select count(*) from pointsman.outbox`)
		return left == 0, fmt.Sprint(left)
	})
	ids, instances := map[string]bool{}, map[string]bool{}
	all := s.messages("POINTSMAN_OUTCOMES")
	for _, m := range all {
		var outcome struct {
			InstanceID string `json:"instance_id"`
		}
		s.must(json.Unmarshal(m.Data(), &outcome))
		ids[m.Headers().Get(nats.MsgIdHdr)], instances[outcome.InstanceID] = true, true
	}
	if len(all) != n || len(ids) != n || len(instances) != n {
		s.Errorf("%d outcomes with %d ids of %d instances, want %d", len(all), len(ids), len(instances), n)
	}
}

// TestOutcomesInTrouble: the stream is full, then missing; the acks of what is published are lost; NATS is away. Each outcome is there
// once in the end, and readiness and the metric have told meanwhile.
func TestOutcomesInTrouble(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	full := jetstream.StreamConfig{Name: "POINTSMAN_OUTCOMES", Subjects: []string{"pointsman.outcome.>"}, MaxMsgs: 5, Discard: jetstream.DiscardNew}
	_, err := s.js.CreateStream(t.Context(), full)
	s.must(err)
	link, through := linkToNATS(t, s.natsURL)
	s.natsURL = through
	c := s.client(s.databaseURL)
	s.waiting(c, "a")
	s.stream("BESIDE")
	yaml := "routes:\n" + route("beside", "BESIDE", "")
	_, addr := s.bridge("bridge", yaml)
	s.ended(c, 20)
	s.numbers("beside.x", "a", 0, 10)
	s.ready(addr, http.StatusServiceUnavailable, "outcomes: publish to POINTSMAN_OUTCOMES: nats: ")
	s.until(patience, "the metric tells", func() (bool, string) {
		n := s.metric(addr, "pointsman_outbox_pending")
		return n == 15, fmt.Sprint(n)
	})
	full.MaxMsgs = 1000
	_, err = s.js.UpdateStream(t.Context(), full)
	s.must(err)
	s.outcomes(20)
	s.ready(addr, http.StatusOK, "ready")

	s.must(s.js.DeleteStream(t.Context(), full.Name))
	s.ended(c, 20)
	s.ready(addr, http.StatusServiceUnavailable, "outcomes: publish to POINTSMAN_OUTCOMES: nats: no response from stream")
	_, err = s.js.CreateStream(t.Context(), full)
	s.must(err)
	s.outcomes(20)
	s.ready(addr, http.StatusOK, "ready")

	link.deaf.Store(true) // what is published arrives, and its ack does not
	s.ended(c, 30)
	s.until(patience, "published", func() (bool, string) {
		stream, err := s.js.Stream(t.Context(), full.Name)
		s.must(err)
		n := stream.CachedInfo().State.Msgs
		return n == 50, fmt.Sprint(n)
	})
	if left := s.count(`select count(*) from pointsman.outbox`); left != 30 {
		t.Errorf("%d are in the outbox, want 30 that nobody has acked", left)
	}
	link.set(true)
	s.ready(addr, http.StatusServiceUnavailable, "relay: nats: ")
	s.ended(c, 10)
	s.numbers("beside.x", "a", 10, 20)
	link.deaf.Store(false)
	link.set(false)
	s.outcomes(60)
	s.ready(addr, http.StatusOK, "ready")
	s.has("a", [2]int{0, 20})
	s.audited(yaml, "beside", "delivered:20")
}

// TestTwoRelays share the outbox, and one is killed: each publication is there once, those of an instance are in their order, and who
// asked for a reply has it.
func TestTwoRelays(t *testing.T) {
	t.Parallel()
	const instances, each = 200, 5
	s := newStack(t)
	s.stream("OUT")
	machine, err := engine.Define(engine.Definition[struct{}]{
		Name: "talker", Start: "talk",
		Steps: map[string]engine.Step[struct{}]{"talk": func(_ context.Context, v *engine.Visit[struct{}]) (engine.Outcome, error) {
			o := engine.Done(nil)
			for n := range each {
				o = o.Publish("out."+v.Instance.ID.String(), n, nil)
			}
			return o, nil
		}},
	})
	s.must(err)
	c := s.client(s.databaseURL)
	var all []engine.NewInstance
	for n := range instances {
		all = append(all, engine.NewInstance{Machine: "talker", ReplyTo: fmt.Sprint("replies.", n)})
	}
	replied := map[string]bool{}
	replies, err := s.nc.SubscribeSync("replies.*")
	s.must(err)
	bridges := []*process{}
	s.waiting(c, "a")
	s.stream("BESIDE")
	yaml := "routes:\n" + route("beside", "BESIDE", "")
	for n := range 2 {
		b, _ := s.bridge(fmt.Sprint("bridge-", n), yaml)
		bridges = append(bridges, b)
	}
	_, err = c.StartAll(t.Context(), all, true)
	s.must(err)
	w, err := engine.NewWorker(c, engine.WorkerConfig{Machines: []*engine.Machine{machine}})
	s.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- w.Run(ctx) }()
	defer func() { cancel(); s.must(<-worked) }()

	s.until(patience, "the first are out", func() (bool, string) {
		stream, err := s.js.Stream(t.Context(), "OUT")
		s.must(err)
		return stream.CachedInfo().State.Msgs > 50, ""
	})
	s.numbers("beside.x", "a", 0, 100)
	bridges[0].kill()
	began := time.Now()
	s.until(patience, "all have ended", func() (bool, string) {
		n := s.count(`select count(*) from pointsman.v_instances where status = 'done'`)
		return n == instances, fmt.Sprint(n)
	})
	s.outcomes(instances)
	t.Logf("all is out %s after one relay was killed", time.Since(began).Round(time.Millisecond))
	next := map[string]int{}
	messages := s.messages("OUT")
	for _, m := range messages {
		var n int
		s.must(json.Unmarshal(m.Data(), &n))
		if n != next[m.Subject()] {
			t.Errorf("%s: %d, want %d", m.Subject(), n, next[m.Subject()])
		}
		next[m.Subject()] = n + 1
	}
	if len(messages) != instances*each {
		t.Errorf("%d messages, want %d", len(messages), instances*each)
	}
	for len(replied) < instances {
		m, err := replies.NextMsg(patience)
		s.must(err)
		replied[m.Subject] = true
	}
	s.has("a", [2]int{0, 100})
	s.audited(yaml, "beside", "delivered:100")
}
