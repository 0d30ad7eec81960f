package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
)

func verdicts(ds []Delivery) (vs []Verdict) {
	for _, d := range ds {
		vs = append(vs, d.Verdict)
	}
	return vs
}

func wantVerdicts(t testing.TB, ds []Delivery, want ...Verdict) {
	t.Helper()
	if got := verdicts(ds); !slices.Equal(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
}

func TestDeliverWakesWhoAwaits(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "signal/pay")

	d := f.fast(signal("k", "other", "d1"))[0]
	if d.Verdict != Delivered || d.InstanceID != id || d.SignalID == 0 || d.Queue != "" {
		t.Errorf("a signal that nobody awaits: %+v", d)
	}
	f.want("true", `select parked from pointsman.instances where id = $1`, id)

	d = f.fast(signal("k", "pay", "d2"))[0]
	if d.Verdict != Delivered || d.InstanceID != id || d.Queue != queue {
		t.Errorf("the awaited signal: %+v", d)
	}
	if d = f.fast(signal("k", "pay", "d3"))[0]; d.Verdict != Delivered || d.Queue != "" {
		t.Errorf("a second one, with the instance awake: %+v", d)
	}
	w := f.picked()
	equal(t, "inbox", fmt.Sprint(names(w)), "[other/d1 pay/d2 pay/d3]")
	equal(t, "seen to", w.SeenTo, d.SignalID)
}

// An await is for a kind and a name: a signal that is named as an update is awaited wakes nobody.
func TestDeliverTellsKindsApart(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "update/decision")
	f.fast(signal("k", "decision", "1"))
	f.want("true", `select parked from pointsman.instances`)
	g := signal("k", "decision", "2")
	g.Kind = "update"
	equal(t, "woken into", f.fast(g)[0].Queue, queue)
	w := f.picked()
	equal(t, "awaited", fmt.Sprint(w.Awaits, names(w)), "[update/decision] [decision/1 decision/2]")
}

func names(w Work) (all []string) {
	for _, g := range w.Inbox {
		all = append(all, g.Name+"/"+g.DedupKey)
	}
	return all
}

// A batch is in the inbox in its order, and several for one instance are one wake.
func TestDeliverBatch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("a", "signal/pay")
	f.parked("b", "signal/pay")
	ds := f.fast(signal("b", "pay", "1"), signal("a", "pay", "2"), signal("b", "pay", "3"), signal("nobody", "pay", "4"), signal("a", "no", "5"))
	wantVerdicts(t, ds, Delivered, Delivered, Delivered, Missing, Delivered)
	f.want("a 2,a 5,b 1,b 3", `select correlation_key, dedup_key from pointsman.v_inbox order by correlation_key, id`)
	f.want("2", `select count(*) from pointsman.ready`)
}

func TestDeliverByID(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("", "signal/pay")
	for _, c := range []struct {
		project string
		want    Verdict
	}{{"other", Missing}, {"", Delivered}, {project, Duplicate}} {
		ds := must(f.Deliver(t.Context(), c.project, true, []Signal{signalID(id, "pay", "d")}))(t)
		if ds[0].Verdict != c.want {
			t.Errorf("in project %q: %v, want %v", c.project, ds[0].Verdict, c.want)
		}
	}
	wantVerdicts(t, f.fast(signalID(uuid.New(), "pay", "e")), Missing)
	equal(t, "inbox", fmt.Sprint(names(f.picked())), "[pay/d]")
}

func TestDeliverKnowsWhatItTookIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		deliver func(*fixture, ...Signal) []Delivery
	}{{"fast", (*fixture).fast}, {"slow", (*fixture).slow}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			id := f.parked("k", "signal/pay")
			first := f.fast(signal("k", "pay", "d"))[0]
			other := signal("k", "pay", "d")
			other.Hash = SignalHash("signal", "pay", []byte("{}"))
			ds := c.deliver(f, signal("k", "pay", "d"), other, signal("k", "cancel", "d"), signal("k", "pay", "e"))
			wantVerdicts(t, ds, Duplicate, Conflict, Conflict, Delivered)
			if ds[0].InstanceID != id || ds[0].SignalID != first.SignalID || ds[0].Queue != "" {
				t.Errorf("the duplicate does not name the first: %+v, want %+v", ds[0], first)
			}
			// Consumed is not forgotten.
			w := f.picked()
			f.commit(consuming(await(w, "signal/pay"), w))
			wantVerdicts(t, c.deliver(f, signal("k", "pay", "d")), Duplicate)
			f.want("", `select dedup_key from pointsman.v_inbox`)
		})
	}
}

// Of two in one batch the first stands.
func TestDeliverTwiceInABatch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	wantVerdicts(t, f.fast(signal("k", "pay", "a"), signal("k", "pay", "a")), Delivered, Missing)
	wantVerdicts(t, f.slow(signal("k", "pay", "b"), signal("k", "pay", "b"), signal("k", "no", "b")), Delivered, Duplicate, Conflict)
	f.want("a,b", `select dedup_key from pointsman.v_inbox order by id`)
}

// A redelivered message is a duplicate under whatever dedup key, name and body it comes.
func TestDeliverSameSource(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	wantVerdicts(t, f.fast(sourced(signal("k", "pay", "d"), 1), sourced(signal("k", "pay", "taken"), 2)), Delivered, Delivered)
	renamed := again(sourced(signal("k", "renamed", "d"), 1), "d")
	wantVerdicts(t, f.fast(renamed), Missing)
	wantVerdicts(t, f.slow(renamed), Duplicate)
	wantVerdicts(t, f.slow(again(sourced(signal("k", "pay", "d"), 1), "d2")), Duplicate)
	wantVerdicts(t, f.slow(again(sourced(signal("k", "renamed", "d"), 1), "taken")), Duplicate)
	wantVerdicts(t, f.slow(again(sourced(signal("k", "pay", "d3"), 3), "d3")), Delivered)
	f.want("d,taken,d3", `select dedup_key from pointsman.v_inbox order by id`)
}

// Two halves of an "all" wake together and not before.
func TestDeliverSlowWakesOnCount(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k")
	o := await(f.picked(), "signal/a", "signal/b")
	o.AwaitN = 2
	f.commit(o)
	wantVerdicts(t, f.fast(signal("k", "a", "1")), Missing)
	for _, c := range []struct {
		g    Signal
		want string
	}{{signal("k", "a", "1"), ""}, {signal("k", "a", "2"), ""}, {signal("k", "b", "3"), queue}, {signal("k", "b", "3"), ""}} {
		if d := f.slow(c.g)[0]; d.Queue != c.want {
			t.Errorf("%s/%s: %+v, want queue %q", c.g.Name, c.g.DedupKey, d, c.want)
		}
	}
	equal(t, "inbox", fmt.Sprint(names(f.picked())), "[a/1 a/2 b/3]")
}
