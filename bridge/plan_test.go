package bridge

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func (b *bundle) plan(o *Operator) []Change {
	b.Helper()
	changes, err := o.Plan(b.Context(), b.space)
	if err != nil {
		b.Fatal(err)
	}
	return changes
}

// planned wants one change, applies it, and wants none then.
func (b *bundle) planned(o *Operator, want Action, meaning string, fields ...string) {
	b.Helper()
	changes := b.plan(o)
	var differs []string
	for _, c := range changes {
		for _, d := range c.Differs {
			differs = append(differs, d.Field)
		}
	}
	if len(changes) != 1 || changes[0].Action != want || !strings.Contains(changes[0].Meaning, meaning) || fmt.Sprint(differs) != fmt.Sprint(fields) {
		b.Fatalf("%+v, want %s of %v, for %q", changes, want, fields, meaning)
	}
	if err := o.Apply(b.Context(), changes[0]); err != nil {
		b.Fatal(err)
	}
	left := b.plan(o)
	if want == ActionNone {
		if len(left) != 1 {
			b.Errorf("%+v is left, want it untouched", left)
		}
	} else if len(left) > 0 {
		b.Errorf("%+v is left after %s", left, want)
	}
}

func TestPlanOfWhatIsAbsent(t *testing.T) {
	b := setup(t, "a")
	r := ordersRoute()
	b.planned(b.operator(r), ActionNone, "the stream is absent")
	r = b.orders()
	b.planned(b.operator(r), ActionCreate, "it will begin at the first message")
	stop := b.run(b.watchful(r))
	b.publishN(3)
	b.checkpointed(3)
	stop()
	if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
		t.Fatal(err)
	}
	b.planned(b.operator(r), ActionCreate, "it will begin after sequence 3")
}

// What others set, and what the route sets now, is changed where it is.
func TestPlanOfWhatCanBeChanged(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	theirs := jetstream.ConsumerConfig{
		Durable: "pointsman-orders", Description: "mine", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "orders.old", AckWait: time.Second, MaxDeliver: 3, MaxAckPending: 7,
		BackOff: []time.Duration{time.Second}, HeadersOnly: true, InactiveThreshold: time.Hour, MaxRequestBatch: 1, MaxRequestMaxBytes: 1000, MaxRequestExpires: time.Second,
	}
	if _, err := b.js.CreateConsumer(t.Context(), "ORDERS", theirs); err != nil {
		t.Fatal(err)
	}
	o := b.operator(r)
	b.planned(o, ActionUpdate, "can be changed where it is", "description", "filter_subjects", "ack_wait", "backoff", "max_deliver", "max_ack_pending", "headers_only", "inactive_threshold", "max_batch", "max_bytes", "max_expires")
	b.run(b.watchful(r))
	b.publishN(3)
	b.signals(3)
	if changes := b.plan(o); len(changes) > 0 {
		t.Errorf("the bridge leaves %+v", changes)
	}
}

// What cannot be changed is made again from the checkpoint, not from where a consumer that acks by itself says that it is.
func TestPlanOfWhatCannotBeChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(cfg *jetstream.ConsumerConfig)
		fields []string
	}{
		"acks":   {func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy, cfg.MaxAckPending = jetstream.AckNonePolicy, 0 }, []string{"ack_policy"}},
		"begins": {func(cfg *jetstream.ConsumerConfig) { cfg.DeliverPolicy = jetstream.DeliverNewPolicy }, []string{"deliver_policy"}},
		"replay": {func(cfg *jetstream.ConsumerConfig) { cfg.ReplayPolicy = jetstream.ReplayOriginalPolicy }, []string{"replay_policy"}},
		"push":   {func(cfg *jetstream.ConsumerConfig) { cfg.DeliverSubject = "to.me" }, []string{"deliver_subject"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, "a")
			r := b.orders()
			stop := b.run(b.watchful(r))
			b.publishN(3)
			b.checkpointed(3)
			stop()
			if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
				t.Fatal(err)
			}
			b.publishN(2)
			o := b.operator(r)
			cfg := o.mapper.routes()[0].consumerConfig()
			c.change(&cfg)
			if cfg.DeliverSubject != "" {
				b.push(cfg)
			} else if _, err := b.js.CreateConsumer(t.Context(), "ORDERS", cfg); err != nil {
				t.Fatal(err)
			}
			b.planned(o, ActionRemake, "from after sequence 3", c.fields...)
			b.run(b.watchful(r))
			b.signals(5)
			b.counted("orders", fateDuplicate, 0)
		})
	}
}

// push makes a push consumer, which the client library does not make of such a configuration.
func (b *bundle) push(cfg jetstream.ConsumerConfig) {
	b.Helper()
	if _, err := b.js.CreatePushConsumer(b.Context(), "ORDERS", cfg); err != nil {
		b.Fatal(err)
	}
}

// A stream that drops what no consumer wants is not touched.
func TestPlanOfAWorkQueue(t *testing.T) {
	b := setup(t, "a")
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	o := b.operator(ordersRoute())
	cfg := o.mapper.routes()[0].consumerConfig()
	cfg.ReplayPolicy = jetstream.ReplayOriginalPolicy
	if _, err := b.js.CreateConsumer(t.Context(), "ORDERS", cfg); err != nil {
		t.Fatal(err)
	}
	b.planned(o, ActionNone, "whose retention is WorkQueue, drops messages", "replay_policy")
	if err := o.Apply(context.WithoutCancel(t.Context()), Change{Route: "orders", Action: ActionRemake}); err == nil || !strings.Contains(err.Error(), "without its consumer it drops messages") {
		t.Errorf("a remake is %v", err)
	}
}

func TestPlanOfOrphans(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	b.stream("OLD", "old.>")
	o := b.operator(r)
	b.planned(o, ActionCreate, "absent")
	for _, name := range []string{"pointsman-gone", "theirs"} {
		if _, err := b.js.CreateConsumer(t.Context(), "OLD", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	b.planned(o, ActionDelete, "of no route of this configuration")
	if _, err := b.js.Consumer(t.Context(), "OLD", "theirs"); err != nil {
		t.Errorf("another's consumer: %v", err)
	}
}
