package store

import (
	"fmt"
	"testing"
	"time"
)

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	f := setup(t)
	at := func(s int64) time.Time { return time.Unix(s, 1) }
	in := Incarnation{"r", "S", at(1)}
	got := func(in Incarnation) string {
		cp, known, err := f.Checkpoint(t.Context(), in)
		return fmt.Sprint(cp.Seq, cp.Consumer.Unix(), cp.First.Unix(), known, err)
	}
	save := func(in Incarnation, seq uint64, consumer int64) {
		must(0, f.SaveCheckpoint(t.Context(), in, Checkpoint{seq, at(consumer), at(consumer)}))(t)
	}
	if _, known, err := f.Checkpoint(t.Context(), in); known || err != nil {
		t.Errorf("%v %v", known, err)
	}
	save(in, 7, 10)
	save(in, 5, 20) // made again, and further back
	equal(t, "checkpoint", got(in), "7 20 10 true <nil>")
	save(in, 9, 20)
	equal(t, "checkpoint", got(in), "9 20 10 true <nil>")
	save(Incarnation{"r", "S", at(2)}, 1, 30)
	equal(t, "of the stream made again", got(Incarnation{"r", "S", at(2)}), "1 30 30 true <nil>")
	equal(t, "of the old one", got(in), "9 20 10 true <nil>")
}

func TestCountFailures(t *testing.T) {
	t.Parallel()
	f := setup(t)
	in := Incarnation{"r", "S", time.Unix(1, 0)}
	count := func(in Incarnation, seqs ...uint64) string {
		var fs []Failure
		for _, seq := range seqs {
			fs = append(fs, Failure{seq, "why"})
		}
		return fmt.Sprint(must(f.CountFailures(t.Context(), in, fs))(t))
	}
	equal(t, "first", count(in, 9, 4), "[1 1]")
	equal(t, "again", count(in, 5, 9), "[1 2]")
	equal(t, "another route", count(Incarnation{"other", "S", time.Unix(1, 0)}, 9), "[1]")
	f.exec(`update pointsman.failures set updated_at = now() - interval '8 days' where seq = 9`)
	equal(t, "forgotten", count(in, 9), "[1]")
}
