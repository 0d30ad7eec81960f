package bridge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// changes wakes whoever waits for a state.
type changes struct {
	mu sync.Mutex
	ch chan struct{}
}

// do changes the state under the lock, and wakes the waiters.
func (c *changes) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	if c.ch != nil {
		close(c.ch)
	}
	c.ch = make(chan struct{})
}

// until waits for the state.
func (c *changes) until(ctx context.Context, f func() bool) bool {
	for {
		c.mu.Lock()
		if f() {
			c.mu.Unlock()
			return true
		}
		if c.ch == nil {
			c.ch = make(chan struct{})
		}
		ch := c.ch
		c.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return false
		}
	}
}

// memInbox is an inbox in memory with the engine's rules of deduplication. The instance "ended" has ended.
type memInbox struct {
	changes
	live     map[string]bool
	ledger   map[string]string // key + dedup key -> name + body
	origins  map[string]bool
	signals  []engine.Intake
	calls    int
	attempts int
	err      error                   // of Accept
	gate     chan struct{}           // Accept waits for it, when set
	gates    map[int64]chan struct{} // so does AcceptOrdered, by the epoch
	epoch    int64
	fail     map[string]int
}

func newMemInbox(keys ...string) *memInbox {
	in := &memInbox{live: map[string]bool{}, ledger: map[string]string{}, origins: map[string]bool{}, fail: map[string]int{}}
	for _, k := range keys {
		in.live[k] = true
	}
	return in
}

func (in *memInbox) Accept(ctx context.Context, batch []engine.Intake) (receipts []engine.Receipt, err error) {
	in.mu.Lock()
	gate := in.gate
	in.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	in.do(func() {
		in.attempts++
		if err = in.err; err != nil {
			return
		}
		in.calls++
		for _, i := range batch {
			receipts = append(receipts, in.accept(i))
		}
	})
	return receipts, err
}

// AcceptOrdered refuses whoever is not under the epoch.
func (in *memInbox) AcceptOrdered(ctx context.Context, f engine.Fence, batch []engine.Intake) (receipts []engine.Receipt, err error) {
	in.mu.Lock()
	gate := in.gates[f.Epoch]
	in.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	in.do(func() {
		in.attempts++
		if err = in.err; err != nil {
			return
		}
		if f.Epoch != in.epoch {
			err = engine.ErrFenced
			return
		}
		for _, i := range batch {
			receipts = append(receipts, in.accept(i))
		}
	})
	return receipts, err
}

func (in *memInbox) accept(i engine.Intake) engine.Receipt {
	key := i.To.Key()
	if n := in.fail[i.Name]; n > 0 {
		in.fail[i.Name] = n - 1
		return engine.Receipt{Result: engine.Failed, Reason: "row is locked"}
	}
	if i.Name == "refuse" {
		return engine.Receipt{Result: engine.Refused, Reason: "cannot be stored"}
	}
	if key == "ended" {
		return engine.Receipt{Result: engine.NoTarget, Reason: "it has ended", Ended: &engine.Ended{}}
	}
	origin := fmt.Sprint(key, i.Origin.Stream, i.Origin.Created.UnixNano(), i.Origin.Sequence)
	scope, content := key+"|"+i.DedupKey, i.Name+"|"+string(i.Body)
	if before, ok := in.ledger[scope]; ok {
		if before != content {
			return engine.Receipt{Result: engine.Conflict, Reason: "another body"}
		}
		return engine.Receipt{Result: engine.Duplicate}
	}
	if i.Redelivered && in.origins[origin] {
		return engine.Receipt{Result: engine.Duplicate}
	}
	result := engine.Delivered
	if !in.live[key] {
		switch i.OnMissing {
		case engine.MissingHold:
			result = engine.Held
		case engine.MissingStart:
			result, in.live[key] = engine.Started, true
		case engine.MissingDrop:
			return engine.Receipt{Result: engine.Dropped}
		default:
			return engine.Receipt{Result: engine.NoTarget, Reason: "nobody holds the key"}
		}
	}
	in.ledger[scope], in.origins[origin] = content, true
	in.signals = append(in.signals, i)
	return engine.Receipt{Result: result}
}

// payloads of what was taken in, in order.
func (in *memInbox) payloads() (ps []string) {
	for _, s := range in.signals {
		ps = append(ps, string(s.Payload))
	}
	return ps
}

// memOutbox is an outbox in memory; due times are not kept, a postponed row is due again when the test says so.
type memOutbox struct {
	changes
	rows      map[int64]engine.Publication
	postponed map[int64]bool
	dead      map[int64]string
	delays    []time.Duration
	holds     int
	released  bool
	err       error
}

func newMemOutbox(rows ...engine.Publication) *memOutbox {
	o := &memOutbox{rows: map[int64]engine.Publication{}, postponed: map[int64]bool{}, dead: map[int64]string{}}
	for _, p := range rows {
		o.rows[p.ID] = p
	}
	return o
}

func (o *memOutbox) HoldShards(context.Context, string, time.Duration) (shards []int, err error) {
	o.do(func() { shards, err, o.holds = []int{0, 1}, o.err, o.holds+1 })
	return shards, err
}

func (o *memOutbox) ReleaseShards(context.Context, string) (err error) {
	o.do(func() { o.released, err = true, o.err })
	return err
}

func (o *memOutbox) Publications(_ context.Context, _ []int, after int64, n int) (rows []engine.Publication, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	type line struct {
		instance uuid.UUID
		kind     engine.PublicationKind
	}
	blocked := map[line]bool{}
	for _, id := range slices.Sorted(maps.Keys(o.rows)) {
		p := o.rows[id]
		switch {
		case o.dead[id] != "":
		case o.postponed[id]:
			blocked[line{p.InstanceID, p.Kind}] = blocked[line{p.InstanceID, p.Kind}] || p.Refusals == 0
		case !blocked[line{p.InstanceID, p.Kind}] && id > after && len(rows) < n:
			rows = append(rows, p)
		}
	}
	return rows, o.err
}

func (o *memOutbox) Published(_ context.Context, ids []int64) (err error) {
	o.do(func() {
		if err = o.err; err != nil {
			return
		}
		for _, id := range ids {
			delete(o.rows, id)
		}
	})
	return err
}

func (o *memOutbox) Postpone(_ context.Context, id int64, delay time.Duration, reason string, why engine.Postponement) (err error) {
	o.do(func() {
		if err = o.err; err != nil {
			return
		}
		p := o.rows[id]
		p.Attempts++
		if why != engine.PostponedByOutage {
			p.Refusals++
		}
		o.rows[id], o.postponed[id] = p, true
		o.delays = append(o.delays, delay)
		if why == engine.GivenUp {
			o.dead[id] = cmp.Or(reason, "dead")
			delete(o.postponed, id)
		}
	})
	return err
}

func (o *memOutbox) OutboxDepth(context.Context) (n int, err error) {
	o.do(func() { n, err = len(o.rows), o.err })
	return n, err
}

// due makes postponed rows due; without ids all of them.
func (o *memOutbox) due(ids ...int64) {
	o.do(func() {
		for _, id := range ids {
			delete(o.postponed, id)
		}
		if len(ids) == 0 {
			clear(o.postponed)
		}
	})
}
