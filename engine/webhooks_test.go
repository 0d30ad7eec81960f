package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// pokes is a waker that keeps what it was poked with.
type pokes struct {
	mu  sync.Mutex
	all []string
}

func (p *pokes) Wake(queues []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, queues...)
}

func (p *pokes) count(queue string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.all {
		if q == queue {
			n++
		}
	}
	return n
}

func (*pokes) Listen([]string, func(string)) (func(), error)      { return func() {}, nil }
func (*pokes) Tell(string, []uuid.UUID)                           {}
func (*pokes) Hear(string, func(ids []uuid.UUID)) (func(), error) { return func() {}, nil }

// Whoever ends an instance that has somebody to be told writes the webhook, and pokes who sends it: also of one that a step has started,
// and of one that goes on without a pick between.
func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	waker := &pokes{}
	b := setupWith(t, engine.Config{Waker: waker})
	const url = "https://receiver.test/hook"
	step := func(_ context.Context, v *engine.Visit[struct{}]) (engine.Outcome, error) {
		switch v.Instance.CorrelationKey {
		case "parent":
			return engine.Done(nil).Start(engine.NewInstance{Machine: "told", CorrelationKey: "child", NotifyURL: url}), nil
		case "fails":
			return engine.Stop("no"), nil
		case "hops":
			if v.Instance.Step == "begin" {
				return engine.Next("second"), nil
			}
		}
		return engine.Done("fine"), nil
	}
	machine := must(engine.Define(engine.Definition[struct{}]{Name: "told", Start: "begin", Steps: map[string]engine.Step[struct{}]{"begin": step, "second": step}}))(t)
	b.work(engine.WorkerConfig{Machines: []*engine.Machine{machine}})
	keys := []string{"parent", "fails", "hops", "quiet"}
	for _, key := range keys {
		n := engine.NewInstance{Machine: "told", CorrelationKey: key, NotifyURL: url}
		if key == "quiet" {
			n.NotifyURL = ""
		}
		must(b.Start(t.Context(), n))(t)
	}
	var told []string
	for deadline := time.Now().Add(patience); len(told) < 4 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		told = told[:0]
		for _, d := range must(b.Deliveries(t.Context(), "", engine.DeliveryPending, uuid.Nil, 10))(t) {
			in := must(b.Get(t.Context(), engine.ByID(d.SourceID)))(t)
			told = append(told, in.CorrelationKey+" "+d.Type+" "+d.URL)
		}
	}
	slices.Sort(told)
	if want := []string{"child instance.done " + url, "fails instance.failed " + url, "hops instance.done " + url, "parent instance.done " + url}; !slices.Equal(told, want) {
		t.Errorf("got %v, want %v", told, want)
	}
	if waker.count(engine.WebhooksQueue) == 0 {
		t.Error("nobody was poked")
	}
}

func TestNotifyURLIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, url := range []string{"receiver.test", "ftp://receiver.test/", "https://", "https://user:secret@receiver.test/", "https://receiver.test:0/", "https://receiver.test/" + strings.Repeat("x", 2100), "https://receiver.test/\x00", "https://receiver.test/\xff"} {
		_, err := b.Start(t.Context(), engine.NewInstance{Machine: "m", NotifyURL: url})
		var invalid *engine.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "notify_url" || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%.40q: %v", url, err)
		}
	}
	for _, url := range []string{"http://127.0.0.1:8080", "https://receiver.test/hook?a=b&c=%20", "https://[::1]:1/", "HTTPS://Receiver.test"} {
		must(b.Start(t.Context(), engine.NewInstance{Machine: "m", NotifyURL: url}))(t)
	}
}

// Webhooks go when their time is over; those that are to be sent stay.
func TestRetentionOfWebhooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []uuid.UUID
	for range 3 {
		in := must(b.Start(t.Context(), engine.NewInstance{Machine: "m", NotifyURL: "https://receiver.test/", State: json.RawMessage(`{}`)}))(t)
		must(b.Cancel(t.Context(), engine.ByID(in.ID), ""))(t)
	}
	for _, d := range must(b.Deliveries(t.Context(), "", "", uuid.Nil, 10))(t) {
		ids = append(ids, d.ID)
	}
	must(struct{}{}, b.RecordDeliveries(t.Context(), []engine.DeliveryResult{{ID: ids[0], Status: engine.DeliveryDelivered}, {ID: ids[1], Status: engine.DeliveryFailed}}))(t)
	b.work(engine.WorkerConfig{ReapInterval: 10 * time.Millisecond, Retention: engine.Retention{Webhooks: 50 * time.Millisecond}})
	var left []engine.Delivery
	for deadline := time.Now().Add(patience); len(left) != 1 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left = must(b.Deliveries(t.Context(), "", "", uuid.Nil, 10))(t)
	}
	if len(left) != 1 || left[0].ID != ids[2] || left[0].Status != engine.DeliveryPending {
		t.Errorf("left: %+v", left)
	}
}
