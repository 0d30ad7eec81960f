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
	must(struct{}{}, f.Register(t.Context(), []Machine{{Name: machine, Version: 1, Start: "one", Queue: "default"}, {Name: machine, Version: 2, Start: "two", Queue: "default"}}))(t)
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

// A start by a message that comes again is the same one, whatever its dedup key and content are by now. One that found its key taken
// was a duplicate then, and is one when the key is free again.
func TestStartByMessage(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", ""} {
		f := setup(t)
		first := ofMessage(newInstance(key), 1, "s")
		f.begin(first)
		f.commit(outcome(f.picked(), OutcomeDone))
		changed := ofMessage(newInstance(key), 1, "by now")
		changed.Hash = uuid.New()
		equal(t, "under another dedup", f.begin(changed)[0], Start{Verdict: Duplicate, InstanceID: first.ID})
		same := ofMessage(newInstance(key), 1, "s")
		same.Hash = uuid.New()
		equal(t, "with another content", f.begin(same)[0], Start{Verdict: Duplicate, InstanceID: first.ID})
		equal(t, "another message", f.begin(ofMessage(newInstance(key), 2, "t"))[0].Verdict, Started)
	}
}

func TestStartThatFindsItsKeyTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	holder := f.started("k")[0]
	late := ofMessage(newInstance("k"), 1, "s")
	equal(t, "taken", f.begin(late, deduped(newInstance("k"), "api"))[0], Start{Verdict: Taken, InstanceID: holder})
	f.want(holder.String()+" "+late.Source.String(), `select instance_id::text, source::text from pointsman.ledger`)
	f.commit(outcome(f.picked(), OutcomeDone))
	equal(t, "after the end", f.begin(late)[0], Start{Verdict: Duplicate, InstanceID: holder})
	equal(t, "by the API", f.begin(deduped(newInstance("k"), "api"))[0].Verdict, Started)

	first, second := ofMessage(newInstance("two"), 3, "a"), ofMessage(newInstance("two"), 4, "b")
	equal(t, "the second of a batch", f.begin(first, second)[1], Start{Verdict: Taken, InstanceID: first.ID})
	f.want(first.ID.String(), `select instance_id::text from pointsman.ledger where dedup = $1`, StartDedup("b"))
}

// Who gives a unique key back, because it does not start, makes room for another of the batch; the ledger has nothing of the first turn.
func TestStartSettlesNothingItTriesAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	taken, next := withUnique(ofMessage(newInstance("k"), 1, "a"), "U"), withUnique(ofMessage(newInstance("free"), 2, "b"), "U")
	st := f.begin(taken, next)
	equal(t, "no key", st[0].Verdict, Taken)
	equal(t, "makes room", st[1].Verdict, Started)
	late := withUnique(ofMessage(newInstance("late"), 3, "c"), "U")
	equal(t, "barred", f.begin(late)[0], Start{Verdict: Taken, InstanceID: next.ID, Unique: true})
	f.want(next.ID.String()+","+next.ID.String(), `select instance_id::text from pointsman.ledger where dedup in ($1, $2)`, StartDedup("b"), StartDedup("c"))
}

// A message that a route held as a signal, and that comes again after it was made one that starts, has been taken in.
func TestHeldMessageStartsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.slow(sourced(signal("k", "pay", "d"), 1))
	equal(t, "as a start", f.begin(cameAgain(ofMessage(newInstance("k"), 1, "s")))[0], Start{Verdict: Duplicate})
	f.want("0", `select count(*) from pointsman.instances`)
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
