package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

// What was dropped is known by its place for as long as asked, under the first time and reason.
func TestDroppedLetters(t *testing.T) {
	t.Parallel()
	f := setup(t)
	created := time.Unix(1_700_000_000, 123_456_789)
	at := func(seq uint64) Place { return Place{"r", "S", created, seq} }
	note := func(keep time.Duration, reason string, ps ...Place) {
		t.Helper()
		reasons := make([]string, len(ps))
		for i := range ps {
			reasons[i] = reason
		}
		must(struct{}{}, f.NoteDropped(t.Context(), ps, reasons, keep))(t)
	}
	reasons := func(ps ...Place) (all []string) {
		t.Helper()
		for _, trace := range must(f.Traces(t.Context(), ps))(t) {
			equal(t, "a time and a reason", trace.Dropped.At.IsZero(), trace.Dropped.Reason == "")
			all = append(all, trace.Dropped.Reason)
		}
		return all
	}
	note(time.Hour, "first", at(1), at(2))
	note(time.Hour, "second", at(2), at(3), at(3))
	other := Place{"r", "S", created.Add(time.Second), 1} // the stream was made again
	equal(t, "notes", fmt.Sprintf("%q", reasons(at(4), at(3), at(2), at(1), other, Place{"q", "S", created, 1})), `["" "second" "first" "first" "" ""]`)
	equal(t, "of none", len(reasons()), 0)
	f.exec(`update pointsman.dropped_letters set dropped_at = now() - interval '61 min' where reason = 'first'`)
	note(time.Hour, "third", at(4))
	equal(t, "notes that were kept for long enough", fmt.Sprintf("%q", reasons(at(1), at(2), at(3), at(4))), `["" "" "second" "third"]`)
}

// A start is known by its place, and one that found its key taken from the one that had it.
func TestTracesOfStarts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	created := time.Unix(1_700_000_000, 0)
	id := f.started("k")[0]
	own, taken := Source("r", "S", created, 1), Source("r", "S", created, 2)
	f.exec(fmt.Sprintf(`insert into pointsman.ledger (scope, dedup, instance_id, hash, source, at)
		select scope, gen_random_uuid(), id, id, '%s', inserted_at from pointsman.instances;
		insert into pointsman.ledger (scope, dedup, instance_id, hash, source, at)
		select scope, gen_random_uuid(), id, id, '%s', inserted_at + interval '1 s' from pointsman.instances;
		insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
		select scope, gen_random_uuid(), id, id, '%s', 7 from pointsman.instances`, own, taken, Source("r", "S", created, 3)))
	var got []string
	for _, trace := range must(f.Traces(t.Context(), []Place{{"r", "S", created, 1}, {"r", "S", created, 2}, {"r", "S", created, 3}}))(t) {
		got = append(got, fmt.Sprint(trace.InstanceID == id, trace.Started, trace.InstanceID == uuid.Nil))
	}
	equal(t, "traces", fmt.Sprint(got), "[true true false true false false false false true]")
}
