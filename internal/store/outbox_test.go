package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestShardsAreShared(t *testing.T) {
	t.Parallel()
	f := setup(t)
	owned := map[string][]int{}
	hold := func(relay string) int {
		t.Helper()
		owned[relay] = must(f.HoldShards(t.Context(), relay, time.Minute))(t)
		return len(owned[relay])
	}
	whole := func() {
		t.Helper()
		var all []int
		for _, shards := range owned {
			all = append(all, shards...)
		}
		slices.Sort(all)
		equal(t, "owned", fmt.Sprint(all), fmt.Sprint(allShards()))
	}
	equal(t, "the only relay", hold("a"), 16)
	whole()
	equal(t, "the second, nothing is free", hold("b"), 0)
	equal(t, "the first gives up", hold("a"), 8)
	equal(t, "the second", hold("b"), 8)
	whole()
	equal(t, "the third, nothing is free", hold("c"), 0)
	hold("a")
	hold("b")
	equal(t, "the third", hold("c"), 4)
	whole()
	kept := slices.Clone(owned["a"])
	hold("a")
	equal(t, "kept", fmt.Sprint(owned["a"]), fmt.Sprint(kept))

	must(struct{}{}, f.ReleaseShards(t.Context(), "a"))(t)
	delete(owned, "a")
	hold("b")
	hold("c")
	whole()
	f.exec(`update pointsman.relays set expires_at = now() - interval '1 s' where name = 'b'; update pointsman.outbox_shards set expires_at = now() - interval '1 s' where owner = 'b'`)
	delete(owned, "b")
	equal(t, "after the other is dead", hold("c"), 16)
	whole()
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, key := range []string{"a", "b"} {
		f.started(key)
		o := outcome(f.picked(), OutcomeDone)
		o.Publish = []Publish{{Subject: key + ".1"}, {Subject: key + ".2"}}
		f.commit(o)
	}
	f.exec(`delete from pointsman.outbox where kind = 'outcome'`)
	read := func(after int64, n int) (rows []OutboxRow, subjects string) {
		t.Helper()
		rows = must(f.Outbox(t.Context(), allShards(), after, n))(t)
		for _, r := range rows {
			subjects += r.Subject + " "
		}
		return rows, subjects
	}
	rows, subjects := read(0, 10)
	equal(t, "all", subjects, "a.1 a.2 b.1 b.2 ")
	_, subjects = read(rows[1].ID, 1)
	equal(t, "after the second", subjects, "b.1 ")
	shard := int(rows[0].ID % outboxShards)
	for _, r := range must(f.Outbox(t.Context(), []int{shard}, 0, 10))(t) {
		equal(t, "shard", int(r.ID%outboxShards), shard)
	}
	equal(t, "of no shard", len(must(f.Outbox(t.Context(), nil, 0, 10))(t)), 0)

	must(struct{}{}, f.Postpone(t.Context(), rows[0].ID, time.Hour, "full", false, false))(t)
	_, subjects = read(0, 10)
	equal(t, "behind a postponed one", subjects, "b.1 b.2 ")
	f.exec(`update pointsman.outbox set next_at = now()`)
	again, subjects := read(0, 10)
	equal(t, "due again", subjects, "a.1 b.1 b.2 ")
	equal(t, "attempts", again[0].Attempts, 1)
	must(struct{}{}, f.Postpone(t.Context(), rows[0].ID, time.Hour, "no stream", true, false))(t)
	_, subjects = read(0, 10)
	equal(t, "behind a refused one", subjects, "a.2 b.1 b.2 ")
	must(struct{}{}, f.Postpone(t.Context(), rows[0].ID, 0, "no stream", true, true))(t)
	_, subjects = read(0, 10)
	equal(t, "behind a dead one", subjects, "a.2 b.1 b.2 ")
	equal(t, "depth", must(f.OutboxDepth(t.Context()))(t), 3)
	must(struct{}{}, f.Published(t.Context(), []int64{rows[1].ID, rows[3].ID, 1 << 40}))(t)
	_, subjects = read(0, 10)
	equal(t, "left", subjects, "b.1 ")
}

// The end of an instance is told, whatever becomes of what it published.
func TestOutcomeWaitsForNoPublication(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("a")
	o := outcome(f.picked(), OutcomeDone)
	o.Publish = []Publish{{Subject: "a.1"}}
	f.commit(o)
	rows := must(f.Outbox(t.Context(), allShards(), 0, 10))(t)
	for _, refused := range []bool{false, true} {
		must(struct{}{}, f.Postpone(t.Context(), rows[0].ID, time.Hour, "", refused, false))(t)
		left := must(f.Outbox(t.Context(), allShards(), 0, 10))(t)
		if len(left) != 1 || left[0].Kind != "outcome" {
			t.Errorf("refused %t: %+v", refused, left)
		}
	}
}

// A dead letter is in a shard though it has no instance, and waits for none.
func TestDeadLettersGoOut(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ds := []DeadLetter{{Project: project, Route: "r", MsgID: "1", Headers: map[string][]string{"H": {"v"}}}, {Project: project, Route: "r", MsgID: uuid.NewString(), Body: []byte("b")}}
	must(struct{}{}, f.AddDeadLetters(t.Context(), ds))(t)
	rows := must(f.Outbox(t.Context(), allShards(), 0, 10))(t)
	if len(rows) != 2 || rows[0].Headers["H"][0] != "v" || string(rows[1].Body) != "b" {
		t.Fatalf("%+v", rows)
	}
	must(struct{}{}, f.Postpone(t.Context(), rows[0].ID, time.Hour, "", true, false))(t)
	equal(t, "the other", len(must(f.Outbox(t.Context(), allShards(), 0, 10))(t)), 1)
}
