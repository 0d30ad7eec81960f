package engine

import (
	"bytes"
	"fmt"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// maxScopes is how many key locks one transaction takes; the server's lock table is finite.
const maxScopes = 200

// locks are the ledger scopes that an item needs the locks of in the slow transaction.
func (a *acceptance) locks(i int) []uuid.UUID {
	in := &a.batch[i]
	if in.Event != "" {
		return []uuid.UUID{store.EventScope(in.project(), in.Event)}
	}
	n := store.NewInstance{CorrelationKey: in.To.key}
	if in.Name == "" {
		n.DedupKey, n.Source = in.DedupKey, a.signals[i].Source
	}
	return n.Locks(in.project())
}

// lock takes the locks of the whole batch, for a transaction that is for all of it.
func (a *acceptance) lock() error {
	var all []uuid.UUID
	for i := range a.batch {
		if a.receipts[i].Result == "" {
			all = append(all, a.locks(i)...)
		}
	}
	slices.SortFunc(all, func(x, y uuid.UUID) int { return bytes.Compare(x[:], y[:]) })
	if all = slices.Compact(all); len(all) > maxScopes {
		return &InvalidError{Field: "batch", Reason: fmt.Sprintf("is for %d keys, and a transaction locks at most %d: use several", len(all), maxScopes)}
	}
	a.locked = true
	return a.st.LockScopes(a.ctx, all)
}

// chunks are as many items as a transaction should take locks for.
func (a *acceptance) chunks(items []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for len(items) > 0 {
			n, locks := 0, 0
			for n < min(len(items), maxScopes) {
				if locks += len(a.locks(items[n])); n > 0 && locks > maxScopes {
					break
				}
				n++
			}
			if !yield(items[:n]) {
				return
			}
			items = items[n:]
		}
	}
}
