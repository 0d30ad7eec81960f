package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

func deduped(n NewInstance, dedup string) NewInstance {
	n.DedupKey, n.Hash = dedup, SignalHash("start", n.Machine, n.State)
	return n
}

func TestStart(t *testing.T) {
	t.Parallel()
	f := setup(t)
	must(struct{}{}, f.Register(t.Context(), []Machine{{machine, 1, "one", "default"}, {machine, 2, "two", "default"}}))(t)
	later := time.Now().Add(time.Hour)
	named, newest, unknown, delayed := newInstance("k1"), newInstance(""), newInstance(""), newInstance("")
	named.ReplyTo, named.Traceparent, named.Priority = "inbox.1", "00-1", 7
	newest.Version, newest.Step = 0, ""
	unknown.Machine, unknown.Version, unknown.Step = "unknown", 0, ""
	delayed.RunAt = &later
	for i, st := range f.begin(named, newest, unknown, delayed) {
		want := Start{Verdict: Started, InstanceID: []uuid.UUID{named.ID, newest.ID, unknown.ID, delayed.ID}[i], Queue: queue}
		if i == 3 {
			want.Queue = ""
		}
		equal(t, fmt.Sprint("start ", i), st, want)
	}
	f.want("m 1 begin k1 7 false,m 2 two  0 false,unknown 1   0 false,m 1 begin  0 true",
		`select machine, version, step, coalesce(correlation_key, ''), priority, delayed from pointsman.instances order by id`)
	f.want("3", `select count(*) from pointsman.ready`)
	f.want(delayed.ID.String(), `select instance_id::text from pointsman.timers where run_at = (select run_at from pointsman.instances where delayed)`)
}

func TestStartTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.started("k")[0]
	st := f.begin(newInstance("k"), deduped(newInstance("k"), "s"))
	equal(t, "a second start", st[0], Start{Verdict: Taken, InstanceID: id})
	equal(t, "with a dedup key", st[1], Start{Verdict: Taken, InstanceID: id})
	f.want("", `select scope from pointsman.ledger`)

	first := newInstance("two")
	st = f.begin(first, newInstance("two"))
	equal(t, "the first of a batch", st[0], Start{Verdict: Started, InstanceID: first.ID, Queue: queue})
	equal(t, "the second of a batch", st[1], Start{Verdict: Taken, InstanceID: first.ID})
	f.want("2", `select count(*) from pointsman.instances`)
}

func TestStartOnce(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", ""} {
		f := setup(t)
		first := deduped(newInstance(key), "s")
		other := deduped(newInstance(key), "s")
		other.Hash = uuid.New()
		st := f.begin(first, deduped(newInstance(key), "s"), other)
		equal(t, "first", st[0], Start{Verdict: Started, InstanceID: first.ID, Queue: queue})
		equal(t, "again in the batch", st[1], Start{Verdict: Duplicate, InstanceID: first.ID})
		equal(t, "another in the batch", st[2], Start{Verdict: Conflict, InstanceID: first.ID})
		f.commit(outcome(f.picked(), OutcomeDone))
		other2 := other
		other2.ID = uuid.New()
		st = f.begin(other, other2, deduped(newInstance(key), "s"))
		equal(t, "another after the end", st[0], Start{Verdict: Conflict, InstanceID: first.ID})
		equal(t, "and again", st[1], Start{Verdict: Conflict, InstanceID: first.ID})
		equal(t, "again after the end", st[2], Start{Verdict: Duplicate, InstanceID: first.ID})
		f.want("1", `select count(*) from pointsman.instances`)
	}
}

// A start and a signal made from one message do not collide.
func TestStartAndSignalOfOneDedupKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.begin(deduped(newInstance("k"), "d"))
	wantVerdicts(t, f.fast(signal("k", "pay", "d")), Delivered)
}

func TestStartAdopts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.slow(signal("k", "b", "1"), signal("k", "a", "2"), signal("other", "a", "3"), signal("k", "a", "late"))
	f.exec(`update pointsman.held set expires_at = now() - interval '1 s' where dedup_key = 'late'`)
	st := f.begin(newInstance("k"))[0]
	equal(t, "adopted", st.Adopted, 2)
	w := f.picked()
	equal(t, "inbox", fmt.Sprint(names(w)), "[b/1 a/2]")
	f.want("3,late", `select dedup_key from pointsman.held order by id`)
	wantVerdicts(t, f.fast(signal("k", "b", "1")), Duplicate)
}

// The signal that starts its instance is in its inbox.
func TestSlowStarts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n := newInstance("k")
	ds := must(f.trySlow(t.Context(), map[string]NewInstance{"k": n}, signal("k", "pay", "d"), signal("other", "pay", "e")))(t)
	wantVerdicts(t, ds, Delivered, Held)
	w := f.picked()
	equal(t, "instance", w.ID, n.ID)
	equal(t, "inbox", fmt.Sprint(names(w)), "[pay/d]")
}
