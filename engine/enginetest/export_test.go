package enginetest

import "testing"

// On is the same Env in another test.
func (e *Env) On(t testing.TB) *Env {
	other := *e
	other.t = t
	return &other
}

// Expire lets the lease of a crashed worker run out, and runs nothing.
func (e *Env) Expire() {
	e.t.Helper()
	e.must(e.store.Age(e.t.Context(), Lease))
	e.must(e.worker.Sweep(e.t.Context()))
}
