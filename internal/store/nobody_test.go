package store

import (
	"testing"

	"github.com/google/uuid"
)

// The hold keeps each signal once, and says so.
func TestHold(t *testing.T) {
	t.Parallel()
	f := setup(t)
	wantVerdicts(t, f.slow(signal("k", "pay", "d"), signal("other", "pay", "d")), Held, Held)
	wantVerdicts(t, f.slow(signal("k", "pay", "d"), signal("k", "no", "d"), signal("k", "pay", "e")), Duplicate, Conflict, Held)
	f.want("k d,other d,k e", `select key, dedup_key from pointsman.held order by id`)
}

func TestHoldSameSource(t *testing.T) {
	t.Parallel()
	f := setup(t)
	wantVerdicts(t, f.slow(sourced(signal("k", "pay", "d"), 1)), Held)
	wantVerdicts(t, f.slow(again(sourced(signal("k", "renamed", "d"), 1), "d")), Duplicate)
	wantVerdicts(t, f.slow(again(sourced(signal("k", "pay", "d"), 1), "e")), Duplicate)
	f.want("d", `select dedup_key from pointsman.held`)
}

// What an ended instance was given is known, whatever is new for it is told that it has ended.
func TestNobodyOfTheEnded(t *testing.T) {
	t.Parallel()
	for _, byID := range []bool{false, true} {
		f := setup(t)
		id := f.parked("k", "signal/pay")
		to := func(g Signal) Signal {
			if byID {
				g.Key, g.ID = "", id
			}
			return g
		}
		wantVerdicts(t, f.fast(to(sourced(signal("k", "pay", "d"), 1))), Delivered)
		f.commit(outcome(f.picked(), OutcomeDone))
		ds := f.slow(to(signal("k", "pay", "d")), to(signal("k", "no", "d")), to(again(sourced(signal("k", "pay", "d"), 1), "e")), to(signal("k", "pay", "new")))
		wantVerdicts(t, ds, Duplicate, Conflict, Duplicate, Ended)
		if d := ds[3]; d.InstanceID != id || d.Status != "done" || d.EndedAt.IsZero() {
			t.Errorf("by id %t: the ended is not named: %+v", byID, d)
		}
		if ds[0].InstanceID != id || ds[0].SignalID == 0 {
			t.Errorf("by id %t: the duplicate does not name the first: %+v", byID, ds[0])
		}
	}
	f := setup(t)
	wantVerdicts(t, f.slow(signalID(uuid.New(), "pay", "d")), Missing)
	f.want("", `select id from pointsman.held`)
}

// A key's ledger outlives each of its holders.
func TestNextHolderOfAKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	f.fast(signal("k", "pay", "d"))
	f.commit(outcome(f.picked(), OutcomeDone))
	f.parked("k", "signal/pay")
	wantVerdicts(t, f.fast(signal("k", "pay", "d"), signal("k", "pay", "e")), Duplicate, Delivered)
}
