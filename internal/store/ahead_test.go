package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
)

// aheads are of commits that lease again at once what they settled.
func aheads() []scenario {
	message := inbox(1, 500, "d0")
	return []scenario{
		{"run ahead, executes / pick / deliver", leased(90, valid, 1) + message, together(ahead(1, 90, time.Hour, nil), picking(2), delivering(pay(1, "d1"))), ""},
		{"run ahead / deliver", leased(90, valid, 1) + message, together(goingOn(1, 90, time.Hour), delivering(pay(1, "d1"))), ""},
		{"run ahead / deliver / work", leased(90, valid, 1) + message, together(goingOn(1, 90, time.Hour), delivering(pay(1, "d1")), working(2)), ""},
		{"run ahead / cancel", leased(90, valid, 1) + message, together(goingOn(1, 90, time.Hour), canceling(1)), ""},
		{"run ahead / lease sweep / work", leased(90, expired, 1) + message, together(goingOn(1, 90, time.Hour), sweepingLeases, working(2)), ""},
		{"run ahead, its lease is lost / lease sweep / work", leased(90, valid, 1) + message, together(goingOn(1, 90, -time.Hour), sweepingLeases, working(2)), ""},
		{"run ahead / the same commit", leased(90, valid, 1) + message, together(goingOn(1, 90, time.Hour), goingOn(1, 90, time.Hour)), `select count(*) from pointsman.history where outcome = 'next' having count(*) <> 1`},
	}
}

// goingOn commits a next of instance n and goes on under a new lease, with an await that consumes the inbox.
func goingOn(n, token int, lease time.Duration) op {
	return ahead(n, token, lease, func(ctx context.Context, s *Store, w Work) error {
		_, err := s.tryCommit(ctx, consuming(await(w, "signal/pay"), w))
		return err
	})
}

// ahead commits a next of instance n, and then does what there is for who goes on.
func ahead(n, token int, lease time.Duration, then func(ctx context.Context, s *Store, w Work) error) op {
	return func(ctx context.Context, s *Store) error {
		o := of(n, token, OutcomeNext)
		o.Step = "second"
		w := Work{ID: o.ID, Project: o.Project, Rev: o.Rev, Token: o.Token, Step: "begin"}
		o.Ahead = w.GoOn(&o)
		settled, err := s.Commit(ctx, []Outcome{o}, Group{Last: []uuid.UUID{o.Token}, Publish: publish, Ahead: Lease{uuid.New(), "w", lease}})
		if err != nil || len(settled.Ahead) == 0 || then == nil {
			return err
		}
		return then(ctx, s, *settled.Ahead[0])
	}
}

// Who goes on is in the new lease and nowhere else, and is shown its inbox: what came meanwhile too.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k1", "k2")
	f.fast(signal("k1", "pay", "d1"), signal("k1", "note", "d2"))
	works := f.pick(8)
	var os []Outcome
	for _, w := range works {
		o := outcome(w, OutcomeNext)
		o.Step, o.State = "second", []byte(`{"n": 1}`)
		o.Ahead = w.GoOn(&o)
		os = append(os, o)
	}
	os[0].Consumed = []int64{works[0].Inbox[0].ID}
	f.exec(`update pointsman.instances set paused = true where correlation_key = 'k2'`)
	f.fast(signal("k1", "late", "d3"))
	settled := must(f.Commit(t.Context(), os, Group{Last: []uuid.UUID{works[0].Token}, Ahead: Lease{u(91), "w", time.Minute}}))(t)
	f.want("[k1] w", `select array(select i.correlation_key from pointsman.instances i where i.id = any(l.ids) and i.rev = any(l.revs)), worker from pointsman.leases l`)
	f.want("k2", `select i.correlation_key from pointsman.ready join pointsman.instances i on i.id = instance_id`) // a pick drops it
	if len(settled.Ahead) != 1 {
		t.Fatalf("%d go on, want 1", len(settled.Ahead))
	}
	w := settled.Ahead[0]
	equal(t, "token", w.Token, u(91))
	equal(t, "step", w.Step, "second")
	equal(t, "state", string(w.State), `{"n": 1}`)
	names := ""
	for _, g := range w.Inbox {
		names += g.Name + " "
	}
	equal(t, "inbox", names, "note late ")
	f.commit(consuming(outcome(*w, OutcomeDone), *w))
	f.want("done 2", `select status, rev from pointsman.instances where correlation_key = 'k1'`)
}

// A commit that fails after it has read the inboxes of those that go on leaves nothing behind in the outcomes, which are committed again.
func TestGoesOnAtTheSecondTry(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("k1", "k2")
	f.fast(signal("k1", "pay", "d1"))
	works := f.pick(8)
	ahead, failing := outcome(works[0], OutcomeNext), outcome(works[1], OutcomeDone)
	ahead.Ahead = works[0].GoOn(&ahead)
	broken := newInstance("k3")
	broken.State = []byte(`{`)
	failing.Starts = []NewInstance{broken}
	g := Group{Ahead: Lease{u(91), "w", time.Minute}}
	if _, err := f.Commit(t.Context(), []Outcome{ahead, failing}, g); Blame(err) != BlameData {
		t.Fatalf("got %v", err)
	}
	settled := must(f.Commit(t.Context(), []Outcome{ahead}, g))(t)
	equal(t, "inbox", len(settled.Ahead[0].Inbox), 1)
}
