package engine

import (
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/internal/store"
)

// scopeBits are the statuses in the order of the bits of a unique scope.
var scopeBits = []Status{StatusRunnable, StatusExecuting, StatusAwaiting, StatusDone, StatusFailed, StatusCanceled}

// liveScope is the scope of a unique key that names none.
const liveScope = store.ScopeRunnable | store.ScopeExecuting | store.ScopeAwaiting

// uniqueScope is the scope of the unique key as the store has it; 0 where there is no key.
func (n NewInstance) uniqueScope() (bits int16) {
	if n.UniqueKey == "" {
		return 0
	}
	for _, status := range n.UniqueScope {
		bits |= 1 << slices.Index(scopeBits, status)
	}
	if bits == 0 {
		return liveScope
	}
	return bits
}

func (n NewInstance) checkUniqueScope() error {
	if len(n.UniqueScope) > 0 && n.UniqueKey == "" {
		return &InvalidError{Field: "unique_scope", Reason: "is of no unique_key"}
	}
	for _, status := range n.UniqueScope {
		if !slices.Contains(scopeBits, status) {
			return &InvalidError{Field: "unique_scope", Reason: fmt.Sprintf("holds %q: want statuses of runnable, executing, awaiting_signal, done, failed, canceled", status)}
		}
	}
	return nil
}

// statuses are those of a scope; nil where there is no key.
func statuses(key string, bits int16) (scope []Status) {
	for i, status := range scopeBits {
		if key != "" && bits&(1<<i) != 0 {
			scope = append(scope, status)
		}
	}
	return scope
}
