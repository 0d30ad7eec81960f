package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func TestGet(t *testing.T) {
	t.Parallel()
	f := setup(t)
	get := func(project string, id uuid.UUID) (Instance, bool) { return must2(f.Get(t.Context(), project, id))(t) }
	id := f.started("k")[0]
	in, found := get(project, id)
	equal(t, "runnable", fmt.Sprint(found, in.Status, in.CorrelationKey, in.Machine, in.Version, in.Step, string(in.State), in.FinishedAt), fmt.Sprint(true, "runnable", "k", machine, 1, "begin", `{"n": 0}`, nil))
	w := f.picked()
	in, _ = get("", id)
	equal(t, "executing", fmt.Sprintln(in.Status, in.LeaseWorker, in.LeaseExpiresAt.After(time.Now())), "executing w true\n")
	hour := time.Hour
	o := await(w, "signal/pay", "update/ship")
	o.Delay = &hour
	f.commit(o)
	f.fast(signal("k", "no", "1"))
	in, _ = get(project, id)
	equal(t, "parked", fmt.Sprintln(in.Status, in.Awaits, in.InboxCount, in.Deadline.After(time.Now())), "awaiting_signal [pay ship] 1 true\n")
	must(f.Cancel(t.Context(), []uuid.UUID{id}, "enough", nil))(t)
	in, _ = get(project, id)
	equal(t, "ended", fmt.Sprint(in.Status, in.Awaits, in.InboxCount, in.LastError, in.FinishedAt != nil, in.Deadline), fmt.Sprint("canceled", []string{}, 0, "enough", true, nil))

	if _, found := get("other", id); found {
		t.Error("found in another project")
	}
	if _, found := get("", uuid.New()); found {
		t.Error("found nobody")
	}
}

// A key is its live holder's, else that of who had it last.
func TestGetByKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	get := func(project string) uuid.UUID {
		in, _ := must2(f.GetByKey(t.Context(), project, "k"))(t)
		return in.ID
	}
	equal(t, "nobody", get(project), uuid.Nil)
	f.ended("k")
	last := f.ended("k")
	equal(t, "the last", get(project), last)
	live := f.started("k")[0]
	equal(t, "the live", get(project), live)
	equal(t, "in another project", get("other"), uuid.Nil)
}

func TestQueueDepths(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("a", "b")
	f.exec(`update pointsman.ready set run_at = now() - interval '1 min' where ctid = (select min(ctid) from pointsman.ready)`)
	depths := must(f.QueueDepths(t.Context(), []string{queue, "empty"}))(t)
	if len(depths) != 2 || depths[0].Ready != 2 || depths[0].Oldest < time.Minute || depths[1] != (QueueDepth{Queue: "empty"}) {
		t.Errorf("%+v", depths)
	}
}

// A store inside a transaction is the caller's to commit, and needs READ COMMITTED.
func TestInTx(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	within := func(level pgx.TxIsoLevel) error {
		tx := must(f.db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level}))(t)
		defer tx.Rollback(t.Context()) //nolint:errcheck // the point of it
		s, err := f.InTx(t.Context(), tx)
		if err != nil {
			return err
		}
		wantVerdicts(t, must(s.Deliver(t.Context(), project, false, []Signal{signal("k", "pay", "1")}))(t), Delivered)
		wantVerdicts(t, must(s.trySlow(t.Context(), nil, signal("k", "pay", "1"), signal("other", "pay", "1")))(t), Duplicate, Held)
		return nil
	}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		if err := within(level); err == nil {
			t.Errorf("%s: no error", level)
		}
	}
	if err := within(pgx.ReadCommitted); err != nil {
		t.Error(err)
	}
	f.want("0 0", `select (select count(*) from pointsman.signals), (select count(*) from pointsman.held)`)
}

// Behind a pooler nothing is prepared, and every statement still goes.
func TestPooler(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(*testing.T) *fixture{
		"told of one": func(t *testing.T) *fixture { return setupTuned(t, true) },
		"PgBouncer":   setupBounced,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyStatement(t, setup(t))
		})
	}
}

func everyStatement(t *testing.T, f *fixture) {
	must(struct{}{}, f.Register(t.Context(), []Machine{{Name: machine, Version: 1, Start: "begin", Queue: "default"}}))(t)
	hour := time.Hour
	f.slow(sourced(signal("k", "pay", "held"), 1))
	id := f.started("k")[0]
	o := await(f.picked(), "signal/a", "signal/b")
	o.AwaitN, o.Delay = 2, &hour
	o.Signals, o.Starts = []Signal{signal("nobody", "pay", "1"), signalID(uuid.New(), "pay", "2")}, []NewInstance{deduped(newInstance(""), "s")}
	o.Events, o.Publish = []Event{{"e", []byte("1")}}, []Publish{{Subject: "s"}}
	f.commit(o)
	wantVerdicts(t, f.fast(signalID(id, "c", "3")), Missing)
	wantVerdicts(t, f.slow(signalID(id, "a", "4"), signalID(id, "b", "5")), Delivered, Delivered)
	w := f.pickedKey("k")
	equal(t, "inbox", fmt.Sprint(names(w)), "[pay/held a/4 b/5]")
	must2(f.Extend(t.Context(), []uuid.UUID{w.Token}, time.Minute))(t)
	f.exec(`update pointsman.leases set expires_at = now()`)
	equal(t, "reaped", len(must(f.SweepLeases(t.Context(), 8))(t)), 2)
	w = f.pickedKey("k")
	f.commit(consuming(outcome(w, OutcomeDone), w))
	must2(f.SweepTimers(t.Context(), 8))(t)
	must(f.ExpireHeld(t.Context(), 8))(t)
	must(f.NextDue(t.Context(), time.Hour))(t)
	must(f.HoldShards(t.Context(), "r", time.Minute))(t)
	rows := must(f.Outbox(t.Context(), allShards(), 0, 10))(t)
	equal(t, "outbox", len(rows), 3)
	must(struct{}{}, f.Postpone(t.Context(), rows[0].ID, time.Minute, "x", true, false))(t)
	must(struct{}{}, f.Published(t.Context(), []int64{rows[1].ID}))(t)
	must(f.OutboxDepth(t.Context()))(t)
	must(f.QueueDepths(t.Context(), []string{queue}))(t)
	must(struct{}{}, f.Seen(t.Context(), "w", Serving{Queues: map[string]int{queue: 1}, Machines: known}))(t)
	must(f.Unserved(t.Context()))(t)
	must(struct{}{}, f.Gone(t.Context(), "w"))(t)
	must(struct{}{}, f.ReleaseShards(t.Context(), "r"))(t)
	must(f.Cancel(t.Context(), []uuid.UUID{id}, "", publish))(t)
	in, _ := must2(f.GetByKey(t.Context(), project, "k"))(t)
	equal(t, "status", in.Status, "done")
}
