package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/subjects"
)

// memJournal is a journal in memory.
type memJournal struct {
	changes
	checkpoints map[string]engine.Checkpoint
	failures    map[string]int
	owner       string // of the only ordered route
	epoch       int64
	paused      map[string]bool
	err         error
}

func newMemJournal() *memJournal {
	return &memJournal{checkpoints: map[string]engine.Checkpoint{}, failures: map[string]int{}, paused: map[string]bool{}}
}

func incarnation(in engine.Incarnation) string {
	return fmt.Sprintf("%s %s %d", in.Route, in.Stream, in.Created.UnixNano())
}

func (j *memJournal) Checkpoint(_ context.Context, in engine.Incarnation) (cp engine.Checkpoint, known bool, err error) {
	j.do(func() {
		cp, known = j.checkpoints[incarnation(in)]
		err = j.err
	})
	return cp, known, err
}

func (j *memJournal) SaveCheckpoint(_ context.Context, in engine.Incarnation, cp engine.Checkpoint) (err error) {
	j.do(func() {
		if err = j.err; err != nil {
			return
		}
		if before, known := j.checkpoints[incarnation(in)]; known {
			if cp.Rewinds != before.Rewinds {
				err = engine.ErrRewound
				return
			}
			cp.Seq, cp.First = max(cp.Seq, before.Seq), before.First
		}
		cp.Rewound = false
		j.checkpoints[incarnation(in)] = cp
	})
	return err
}

func (j *memJournal) Rewind(_ context.Context, in engine.Incarnation, after uint64) (done bool, err error) {
	j.do(func() {
		cp, known := j.checkpoints[incarnation(in)]
		if err = j.err; err != nil || !known || cp.Seq < after {
			return
		}
		cp.Seq, cp.Rewinds, cp.Rewound, done = after, cp.Rewinds+1, true, true
		j.checkpoints[incarnation(in)] = cp
		clear(j.failures)
	})
	return done, err
}

func (j *memJournal) RouteStates(context.Context) (states []engine.RouteState, err error) {
	j.do(func() {
		for name, paused := range j.paused {
			states = append(states, engine.RouteState{Name: name, Paused: paused})
		}
		err = j.err
	})
	return states, err
}

// HoldRoute knows no time: a route is held until it is released or taken away.
func (j *memJournal) HoldRoute(_ context.Context, route, owner string, _ time.Duration) (f engine.Fence, held bool, err error) {
	j.do(func() {
		if err = j.err; err != nil || j.owner != "" && j.owner != owner {
			return
		}
		if j.owner == "" {
			j.owner, j.epoch = owner, j.epoch+1
		}
		f, held = engine.Fence{Route: route, Epoch: j.epoch}, true
	})
	return f, held, err
}

func (j *memJournal) ReleaseRoute(_ context.Context, _, owner string) (err error) {
	j.do(func() {
		if err = j.err; err == nil && j.owner == owner {
			j.owner = ""
		}
	})
	return err
}

func (j *memJournal) CountFailures(_ context.Context, in engine.Incarnation, fs []engine.Failure) (counts []int, err error) {
	j.do(func() {
		for _, f := range fs {
			message := fmt.Sprintf("%s %d", incarnation(in), f.Seq)
			j.failures[message]++
			counts = append(counts, j.failures[message])
		}
		err = j.err
	})
	return counts, err
}

// checkpointed waits until the only checkpoint is at seq.
func (b *bundle) checkpointed(seq uint64) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	ok := b.journal.until(ctx, func() bool {
		for _, cp := range b.journal.checkpoints {
			if cp.Seq == seq {
				return true
			}
		}
		return false
	})
	if !ok {
		b.Fatalf("no checkpoint at %d: %v", seq, b.journal.checkpoints)
	}
}

// watchful is a configuration that looks at its consumers all the time.
func (b *bundle) watchful(r Route) Config {
	cfg := b.config(r)
	cfg.pace.every = 5 * time.Millisecond
	return cfg
}

func (b *bundle) publishN(n int) {
	b.Helper()
	for i := range n {
		b.publish("orders.paid", fmt.Sprintf(`{"key":"a","n":%d}`, i))
	}
}

// A consumer that was deleted begins where the route had come to, not at the first message.
func TestDeletedConsumerResumes(t *testing.T) {
	b := setup(t, "a")
	stop := b.run(b.watchful(b.orders()))
	b.publishN(10)
	b.signals(10)
	b.checkpointed(10)
	stop()
	if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
		t.Fatal(err)
	}
	b.publishN(2)
	b.run(b.watchful(ordersRoute()))
	b.signals(12)
	b.acked("ORDERS", "pointsman-orders", 12)
	b.counted("orders", fateDelivered, 2)
	b.counted("orders", fateDuplicate, 0)
}

// It is deleted while the route reads.
func TestConsumerDeletedUnderTheRoute(t *testing.T) {
	b := setup(t, "a")
	b.run(b.watchful(b.orders()))
	b.publishN(10)
	b.signals(10)
	b.checkpointed(10)
	if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
		t.Fatal(err)
	}
	b.publishN(2)
	b.signals(12)
	b.acked("ORDERS", "pointsman-orders", 12)
	b.counted("orders", fateDuplicate, 0)
	b.ready()
}

// A stream that was made again is another: it is read from its beginning, whatever the old one's checkpoint says.
func TestStreamMadeAgainIsReadFromItsBeginning(t *testing.T) {
	b := setup(t, "a")
	stop := b.run(b.watchful(b.orders()))
	b.publishN(10)
	b.checkpointed(10)
	stop()
	if err := b.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	b.run(b.watchful(b.orders()))
	b.publishN(3)
	b.signals(13)
	b.acked("ORDERS", "pointsman-orders", 3)
}

// Others made the consumer again, so that it would skip what came before.
func TestConsumerThatSkips(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.InterestPolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			b := setup(t, "a")
			stream, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: retention})
			if err != nil {
				t.Fatal(err)
			}
			stop := b.run(b.watchful(ordersRoute()))
			b.publishN(10)
			b.checkpointed(10)
			stop()
			if err := stream.DeleteConsumer(t.Context(), "pointsman-orders"); err != nil {
				t.Fatal(err)
			}
			b.publishN(5)
			skipping := jetstream.ConsumerConfig{Durable: "pointsman-orders", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverNewPolicy}
			if _, err := stream.CreateConsumer(t.Context(), skipping); err != nil {
				t.Fatal(err)
			}
			b.run(b.watchful(ordersRoute()))
			b.publishN(1)
			if retention == jetstream.LimitsPolicy {
				b.signals(16)
				b.counted("orders", fateDuplicate, 0)
				return
			}
			b.signals(11) // the five were gone with the consumer
			b.eventually("said", func() bool { return strings.Contains(b.log.String(), "a consumer is left as it is") })
			c, err := stream.Consumer(t.Context(), "pointsman-orders")
			if err != nil || c.CachedInfo().Config.DeliverPolicy != jetstream.DeliverNewPolicy {
				t.Errorf("the consumer was made again: %v", err)
			}
		})
	}
}

// A consumer that never answers with a message, here because it refuses requests for more than one, is made again.
func TestStalledConsumerIsMadeAgain(t *testing.T) {
	b := setup(t, "a")
	stream := b.stream("ORDERS", "orders.>")
	mute := jetstream.ConsumerConfig{Durable: "pointsman-orders", AckPolicy: jetstream.AckExplicitPolicy, MaxRequestBatch: 1}
	if _, err := stream.CreateConsumer(t.Context(), mute); err != nil {
		t.Fatal(err)
	}
	cfg := b.watchful(ordersRoute())
	cfg.pace.stall = 3 * time.Second // what is made again has to deliver within it
	b.run(cfg)
	b.publishN(3)
	b.signals(3)
	b.ready()
	if log := b.log.String(); !strings.Contains(log, "a consumer is made again") {
		t.Errorf("log:\n%s", log)
	}
}

// A first consumer's backlog has been read by nobody, so none of it is looked for in the ledger; that of a later one has.
func TestBacklogOfAFirstConsumer(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	b.publishN(2)
	stop := b.run(b.config(r))
	b.signals(2)
	stop()
	if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
		t.Fatal(err)
	}
	for _, in := range b.inbox.signals {
		if in.Redelivered {
			t.Errorf("%s is taken for redelivered", in.DedupKey)
		}
	}
	r.DedupKey = "again-{{msg.seq}}"
	b.run(b.config(r))
	b.counted("orders", fateDuplicate, 2)
	b.signals(2)
}

// How often a message failed is known to the bridge that takes over.
func TestFailuresOutliveTheBridge(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	r.MaxDeliver = 3
	ack := b.publish("orders.paid", `{"key":"a"}`)
	s, err := b.js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	in := engine.Incarnation{Route: "orders", Stream: "ORDERS", Created: s.CachedInfo().Created}
	for range 2 { // as another bridge did
		if _, err := b.journal.CountFailures(t.Context(), in, []engine.Failure{{Seq: ack.Sequence, Reason: "r"}}); err != nil {
			t.Fatal(err)
		}
	}
	b.inbox.fail["paid"] = 1
	b.run(b.config(r))
	letter := b.deadLetters(1)[0]
	if got := letter.Header.Get(subjects.HeaderReason); got != "failed 3 times, lastly: row is locked" {
		t.Errorf("reason %q", got)
	}
}

// Without its journal a route reads nothing, and says why.
func TestJournalOutage(t *testing.T) {
	b := setup(t, "a")
	b.journal.err = errors.New("connection refused")
	b.run(b.config(b.orders()))
	b.publishN(1)
	b.eventually("said", func() bool { return strings.Contains(fmt.Sprint(b.bridge.Ready()), "checkpoint: connection refused") })
	b.journal.do(func() { b.journal.err = nil })
	b.signals(1)
	b.ready()
}
