package devenv

import (
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/bridge"
)

// TestTrafficHasEverything: a hundred orders are enough to see each thing that can happen.
func TestTrafficHasEverything(t *testing.T) {
	t.Parallel()
	tr := newTraffic(100, 1)
	fates, ends := map[string]int{}, map[ending]int{}
	for _, e := range tr.events {
		fates[e.want[0]]++
	}
	for _, o := range tr.orders {
		ends[o.ends]++
	}
	for _, fate := range []string{bridge.FateStarted, bridge.FateDelivered, bridge.FateConflict, bridge.FateHeld, bridge.FateFiltered, bridge.FateDeadLettered} {
		if fates[fate] == 0 {
			t.Errorf("nothing is to be %s", fate)
		}
	}
	for end, want := range map[ending]int{endsTimedOut: 5, endsFailed: 2, endsDone: 93} {
		if ends[end] != want {
			t.Errorf("%d orders are to be %s, want %d", ends[end], end, want)
		}
	}
	if len(tr.first)+len(tr.second) <= len(tr.events) {
		t.Error("nothing is published twice")
	}
}

// TestTrafficCopies: what is published, and how often, is what the events say, and an early event comes before its order.
func TestTrafficCopies(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 7, 50, 1000} {
		tr := newTraffic(n, uint64(n))
		published := map[*event]int{}
		placed := map[string]bool{}
		early := 0
		for _, e := range slices.Concat(tr.first, tr.second) {
			published[e]++
			if e.n >= len(tr.events) || tr.events[e.n] != e {
				t.Fatalf("%d orders: event %s is not number %d", n, e.msgID, e.n)
			}
			if order, ok := strings.CutSuffix(e.subject, ".placed"); ok {
				placed[order] = true
			} else if order, ok := strings.CutSuffix(e.subject, ".item"); ok && !placed[order] && e.want[0] == bridge.FateDelivered {
				early++
			}
		}
		for _, e := range tr.events {
			if published[e] != e.copies {
				t.Errorf("%d orders: %s is published %d times, says %d", n, e.msgID, published[e], e.copies)
			}
		}
		if n >= 50 && early == 0 {
			t.Errorf("%d orders: no item comes before its order", n)
		}
	}
}
