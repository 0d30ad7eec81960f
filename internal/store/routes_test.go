package store

import (
	"context"
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

func TestHoldRoute(t *testing.T) {
	t.Parallel()
	for _, pooler := range []bool{false, true} {
		t.Run(fmt.Sprintf("pooler %v", pooler), func(t *testing.T) {
			t.Parallel()
			holdRoute(t, setupTuned(t, pooler))
		})
	}
}

func holdRoute(t *testing.T, f *fixture) {
	t.Helper()
	hold := func(owner string) string {
		epoch, held, err := f.HoldRoute(t.Context(), "r", owner, time.Minute)
		return fmt.Sprint(epoch, held, err)
	}
	deliver := func(epoch int64, dedup string) error {
		_, err := f.Fenced("r", epoch).Deliver(t.Context(), project, false, []Signal{signal("k", "pay", dedup)})
		return err
	}
	f.started("k")
	equal(t, "first", hold("a"), "1 true <nil>")
	equal(t, "again", hold("a"), "1 true <nil>")
	equal(t, "another", hold("b"), "0 false <nil>")
	must(0, deliver(1, "d1"))(t)
	f.exec(`update pointsman.routes set expires_at = now() - interval '1 s'`)
	must(0, deliver(1, "d2"))(t) // nobody has taken it yet
	equal(t, "taken over", hold("b"), "2 true <nil>")
	if err := deliver(1, "d3"); !IsFenced(err) {
		t.Errorf("got %v", err)
	}
	if err := f.Fenced("r", 1).InScopes(t.Context(), nil, func(*Store) error { t.Error("it ran"); return nil }); !IsFenced(err) {
		t.Errorf("got %v", err)
	}
	must(0, deliver(2, "d4"))(t)
	must(0, f.ReleaseRoute(t.Context(), "r", "a"))(t)
	equal(t, "released by who has lost it", hold("a"), "0 false <nil>")
	must(0, f.ReleaseRoute(t.Context(), "r", "b"))(t)
	equal(t, "released", hold("a"), "3 true <nil>")
	f.want("d1,d2,d4", `select dedup_key from pointsman.signals order by id`)
}

// fences are of bridges that take an ordered route from one another.
func fences() []scenario {
	return []scenario{
		{"fenced deliver / takeover, deliver", expiredRoute + awaiting(1, 1, "signal/pay"), together(fenced(1, pay(1, "old")), takingOver(pay(1, "new"))), outOfOrder},
		{"fenced deliver / takeover / takeover", expiredRoute + awaiting(1, 1, "signal/pay"), together(fenced(1, pay(1, "old")), takingOver(pay(1, "new")), takingOver(pay(1, "new"))), outOfOrder},
	}
}

// fenced delivers under an epoch; that it came too late is no error.
func fenced(epoch int64, sigs ...Signal) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Fenced("r", epoch).Deliver(ctx, project, false, sigs)
		if IsFenced(err) {
			return nil
		}
		return err
	}
}

func takingOver(sigs ...Signal) op {
	return func(ctx context.Context, s *Store) error {
		epoch, held, err := s.HoldRoute(ctx, "r", fmt.Sprintf("%p", s), time.Hour)
		if err != nil || !held {
			return err
		}
		return fenced(epoch, sigs...)(ctx, s)
	}
}
