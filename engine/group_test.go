package engine

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// A group of outcomes needs no more key locks than a transaction takes, however the outcomes come together, and leaves none out.
func TestGroupsOfEffects(t *testing.T) {
	t.Parallel()
	w := &Worker{outcomes: make(chan finished, 16)}
	sizes := []int{150, 50, 1, 200, 199, 0, 0, 2}
	all := make([]finished, len(sizes))
	for i, n := range sizes {
		all[i].outcome = store.Outcome{ID: uuid.New(), Project: "p"}
		for k := range n {
			all[i].outcome.Signals = append(all[i].outcome.Signals, store.Signal{Key: fmt.Sprint(i, k)})
		}
	}
	for _, f := range all[1:] {
		w.outcomes <- f
	}
	var groups []int
	var at int
	for over := &all[0]; over != nil; {
		var group []finished
		group, over = w.group(*over)
		keys := 0
		for _, f := range group {
			if f.outcome.ID != all[at].outcome.ID {
				t.Errorf("outcome %d is out of its order", at)
			}
			at, keys = at+1, keys+len(f.outcome.Signals)
		}
		groups = append(groups, keys)
		if over == nil && len(w.outcomes) > 0 {
			f := <-w.outcomes
			over = &f
		}
	}
	if want := "[200 1 200 199 2]"; fmt.Sprint(groups) != want || at != len(all) {
		t.Errorf("keys of groups %v of %d outcomes, want %s", groups, at, want)
	}
}
