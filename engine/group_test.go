package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// A group of outcomes needs no more key locks than a transaction takes, however the outcomes come together, and leaves none out.
func TestGroupsOfEffects(t *testing.T) {
	t.Parallel()
	w := &Worker{outcomes: make(chan finished, 16)}
	sizes := []int{150, 50, 1, 200, 199, 0, 0, 2}
	all := make([]finished, len(sizes))
	begun := newParty(len(sizes))
	for i, n := range sizes {
		all[i].party = begun
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
	all[0].arrived()
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
			f := (<-w.outcomes).arrived()
			over = &f
		}
	}
	if want := "[200 1 200 199 2]"; fmt.Sprint(groups) != want || at != len(all) {
		t.Errorf("keys of groups %v of %d outcomes, want %s", groups, at, want)
	}
}

// Outcomes of one pick are committed together where the last is there soon after their steps began, and no longer than that waits any.
func TestOutcomesWaitForTheirParty(t *testing.T) {
	t.Parallel()
	one, three := company(2), company(3)
	for _, c := range []struct {
		name string
		left int             // of the party, beside the first
		at   []time.Duration // when they finish
		n    int
		took time.Duration
	}{
		{"alone", 0, nil, 1, 0},
		{"all at once", 2, []time.Duration{0, 0}, 3, 0},
		{"all soon", 2, []time.Duration{three / 4, three / 2}, 3, three / 2},
		{"one late", 2, []time.Duration{three / 4, 2 * three}, 2, three},
		{"one never", 1, nil, 1, one},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, p := &Worker{outcomes: make(chan finished, 8)}, newParty(1+c.left)
				for _, d := range c.at {
					time.AfterFunc(d, func() { w.outcomes <- finished{party: p} })
				}
				synctest.Wait()
				began := time.Now()
				group, _ := w.group(finished{party: p}.arrived())
				if took := time.Since(began); len(group) != c.n || took != c.took {
					t.Errorf("a group of %d after %s, want %d after %s", len(group), took, c.n, c.took)
				}
				time.Sleep(2 * three) // what is late has come
			})
		})
	}
}
