package bridge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/engine"
)

func (j *memJournal) PauseRoute(_ context.Context, route string) error {
	j.do(func() { j.paused[route] = true })
	return j.err
}

func (j *memJournal) ResumeRoute(_ context.Context, route string) error {
	j.do(func() { j.paused[route] = false })
	return j.err
}

func (b *bundle) operator(routes ...Route) *Operator {
	b.Helper()
	m, err := NewMapper(b.space, routes, true)
	if err != nil {
		b.Fatal(err)
	}
	return NewOperator(b.js, m, b.journal, nil, nil, slog.New(slog.NewTextHandler(b.log, nil)))
}

func (b *bundle) rewind(o *Operator, to Place) Rewound {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	done, err := o.Rewind(ctx, "orders", to)
	if err != nil {
		b.Fatal(err)
	}
	return done
}

// The bridges that run read on from there, what was taken in is a duplicate, and the checkpoint is no further than they are.
func TestRewindWhileItRuns(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	b.run(b.watchful(r))
	b.run(b.watchful(r))
	b.publishN(10)
	b.signals(10)
	b.checkpointed(10)
	for _, fresh := range []int{1, 2} { // once more than a first time
		if done := b.rewind(b.operator(r), Place{Seq: 4}); done.Seq != 4 {
			t.Errorf("%+v", done)
		}
		b.publishN(1)
		b.signals(10 + fresh)
		b.acked("ORDERS", "pointsman-orders", uint64(10+fresh))
		b.checkpointed(uint64(10 + fresh))
	}
	c, err := b.js.Consumer(t.Context(), "ORDERS", "pointsman-orders")
	if err != nil || c.CachedInfo().Config.OptStartSeq != 4 {
		t.Errorf("%+v, %v", c.CachedInfo().Config, err)
	}
	for _, in := range b.inbox.signals[10:] {
		if in.Origin.Sequence <= 10 {
			t.Errorf("taken in again: %+v", in.Origin)
		}
	}
}

// With no bridge there is a consumer too, so that the stream keeps its messages; and the next bridge does not skip.
func TestRewindOfARouteThatStands(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	stop := b.run(b.watchful(r))
	b.publishN(10)
	b.signals(10)
	b.checkpointed(10)
	stop()
	b.inbox.do(func() { clear(b.inbox.ledger); clear(b.inbox.origins) }) // what comes again is seen
	b.rewind(b.operator(r), Place{Seq: 8})
	if err := b.js.DeleteConsumer(t.Context(), "ORDERS", "pointsman-orders"); err != nil {
		t.Fatal(err)
	}
	b.run(b.watchful(r))
	b.signals(13)
}

// The rewinder dies after it has set the checkpoint back: the next bridge makes the consumer again.
func TestRewindThatIsNotCompleted(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	stop := b.run(b.watchful(r))
	b.publishN(10)
	b.signals(10)
	stop()
	stream, err := b.js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	o := b.operator(r)
	if err := o.consumer(o.mapper.routes()[0]).setBack(t.Context(), stream, 5); err != nil {
		t.Fatal(err)
	}
	b.run(b.watchful(r))
	b.acked("ORDERS", "pointsman-orders", 10)
	b.counted("orders", fateDuplicate, 5)
}

// Of two rewinds at once the furthest back holds, whoever is last.
func TestRewindsRace(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	b.run(b.watchful(r))
	b.publishN(10)
	b.signals(10)
	b.acked("ORDERS", "pointsman-orders", 10)
	var racing sync.WaitGroup
	for _, seq := range []uint64{3, 6, 9, 3} {
		racing.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := b.operator(r).Rewind(ctx, "orders", Place{Seq: seq})
			var ahead *engine.InvalidError
			if err != nil && (seq == 3 || !errors.As(err, &ahead)) {
				t.Errorf("to %d: %v", seq, err)
			}
		})
	}
	racing.Wait()
	b.acked("ORDERS", "pointsman-orders", 10)
	b.eventually("the furthest back is read", func() bool {
		c, err := b.js.Consumer(t.Context(), "ORDERS", "pointsman-orders")
		return err == nil && c.CachedInfo().Config.OptStartSeq == 3
	})
	b.eventually("again", func() bool {
		cps := 0
		b.journal.do(func() {
			for _, cp := range b.journal.checkpoints {
				if !cp.Rewound && cp.Seq == 10 {
					cps++
				}
			}
		})
		return cps == 1
	})
	b.signals(10)
}

func TestRewindToATime(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	b.run(b.watchful(r))
	b.publishN(5)
	b.signals(5)
	b.acked("ORDERS", "pointsman-orders", 5)
	stream, err := b.js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	third, err := stream.GetMsg(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if done := b.rewind(b.operator(r), Place{Time: third.Time}); done.Seq != 3 {
		t.Errorf("at its time: %+v", done)
	}
	if done := b.rewind(b.operator(r), Place{Time: third.Time.Add(-time.Hour)}); done.Seq != 1 {
		t.Errorf("before all: %+v", done)
	}
}

func TestRewindRefused(t *testing.T) {
	b := setup(t, "a")
	r := b.orders()
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	jobs, theirs := r, r
	jobs.Name, jobs.Stream, jobs.Subjects = "jobs", "JOBS", []string{"jobs.>"}
	theirs.Name, theirs.Existing = "theirs", "other"
	b.publishN(2)
	o := b.operator(r, jobs, theirs)
	for _, c := range []struct {
		route string
		to    Place
		want  string
	}{
		{"nobody", Place{Seq: 1}, `there is no such route: "nobody"`},
		{"orders", Place{}, "to_seq: or to_time is required"},
		{"orders", Place{Seq: 1, Time: time.Now()}, "one of them"},
		{"orders", Place{Seq: 2}, "the route has come to 0: a rewind does not skip messages"},
		{"orders", Place{Time: time.Now().Add(time.Hour)}, "is sequence 3 of ORDERS, and the route has come to 0"},
		{"jobs", Place{Seq: 1}, "whose retention is WorkQueue"},
		{"theirs", Place{Seq: 1}, "reads the consumer other, which others made"},
	} {
		if _, err := o.Rewind(t.Context(), c.route, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %+v: %v, want %q", c.route, c.to, err, c.want)
		}
	}
	if _, err := b.js.Consumer(t.Context(), "ORDERS", "pointsman-orders"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("a consumer was made: %v", err)
	}
}
