package store

import (
	"context"
	"errors"
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
		must(0, f.SaveCheckpoint(t.Context(), in, Checkpoint{Seq: seq, Consumer: at(consumer), First: at(consumer)}))(t)
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

// A rewind sets back and never forth; who read the checkpoint before it sets nothing forth either, and failures before it stay counted.
func TestRewind(t *testing.T) {
	t.Parallel()
	f := setup(t)
	in := Incarnation{"r", "S", time.Unix(1, 0)}
	made := time.Unix(10, 0)
	rewind := func(after uint64) bool { return must(f.Rewind(t.Context(), in, after))(t) }
	equal(t, "of no checkpoint", rewind(0), false)
	must(0, f.SaveCheckpoint(t.Context(), in, Checkpoint{Seq: 100, Consumer: made, First: made}))(t)
	must(f.CountFailures(t.Context(), in, []Failure{{Seq: 40}, {Seq: 41}, {Seq: 90}}))(t)
	must(f.CountFailures(t.Context(), Incarnation{"other", "S", time.Unix(1, 0)}, []Failure{{Seq: 90}}))(t)
	equal(t, "back", rewind(40), true)
	f.want("40,90", `select seq from pointsman.failures order by seq`)
	cp, _, err := f.Checkpoint(t.Context(), in)
	equal(t, "set back", fmt.Sprint(cp.Seq, cp.Rewinds, cp.Rewound, err), "40 1 true <nil>")

	late := Checkpoint{Seq: 110, Consumer: made, First: made}
	if err := f.SaveCheckpoint(t.Context(), in, late); !errors.Is(err, ErrRewound) {
		t.Errorf("a save of before it: %v", err)
	}
	equal(t, "forth", rewind(41), false)
	cp, _, err = f.Checkpoint(t.Context(), in)
	equal(t, "as it was", fmt.Sprint(cp.Seq, cp.Rewinds, cp.Rewound, err), "40 1 true <nil>")
	must(0, f.SaveCheckpoint(t.Context(), in, Checkpoint{Seq: 40, Consumer: time.Unix(20, 0), First: made, Rewinds: 1}))(t)
	cp, _, err = f.Checkpoint(t.Context(), in)
	equal(t, "made again", fmt.Sprint(cp.Seq, cp.Rewinds, cp.Rewound, cp.Consumer.Unix(), err), "40 1 false 20 <nil>")
}

// A pause and a hold of a route are in one row, and leave each other alone.
func TestPauseRoute(t *testing.T) {
	t.Parallel()
	f := setup(t)
	states := func() string { return fmt.Sprint(must(f.RouteStates(t.Context()))(t)) }
	equal(t, "none", states(), "[]")
	must(0, f.PauseRoute(t.Context(), "r", true))(t)
	epoch, held, err := f.HoldRoute(t.Context(), "r", "a", time.Minute)
	equal(t, "held", fmt.Sprint(epoch, held, err), "1 true <nil>")
	must(0, f.PauseRoute(t.Context(), "q", true))(t)
	equal(t, "both", states(), "[{q true } {r true a}]")
	must(0, f.PauseRoute(t.Context(), "r", false))(t)
	must(0, f.PauseRoute(t.Context(), "r", false))(t)
	f.exec(`update pointsman.routes set expires_at = now() where name = 'r'`)
	equal(t, "resumed", states(), "[{q true } {r false }]")
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

// rewinds are of operators that set a route back while bridges read it.
func rewinds() []scenario {
	setup := `delete from pointsman.checkpoints; insert into pointsman.checkpoints (route, stream, created, seq, consumer, first) values ('r', 'S', to_timestamp(1), 100, now(), now());` + "\n"
	forth := `select seq from pointsman.checkpoints where seq > 20 or not rewound`
	return []scenario{
		{"rewind / rewind", setup, together(rewinding(20), rewinding(40)), forth},
		{"rewind / checkpoint of before", setup, together(rewinding(20), checkpointing(110)), forth},
	}
}

func rewinding(after uint64) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Rewind(ctx, Incarnation{"r", "S", time.Unix(1, 0)}, after)
		return err
	}
}

// checkpointing is of a bridge that knows of no rewind.
func checkpointing(seq uint64) op {
	return func(ctx context.Context, s *Store) error {
		err := s.SaveCheckpoint(ctx, Incarnation{"r", "S", time.Unix(1, 0)}, Checkpoint{Seq: seq, Consumer: time.Unix(2, 0), First: time.Unix(2, 0)})
		if errors.Is(err, ErrRewound) {
			return nil
		}
		return err
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
