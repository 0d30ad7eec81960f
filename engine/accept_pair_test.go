package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// Signals of one batch for one instance stand in its inbox in the order of the batch, whether they name it by id or by key.
func TestAcceptOrderByIDAndByKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.begin("idle", "one"), b.start(engine.NewInstance{Project: "p", Machine: "idle", CorrelationKey: "two"})
	keyless := b.begin("idle", "")
	refs := []engine.Ref{
		engine.ByKey("", "one"), engine.ByID(second.ID), engine.ByID(keyless.ID), engine.ByID(first.ID), engine.ByKey("p", "two"),
		engine.ByKey("default", "one"), engine.ByID(second.ID).In("p"), engine.ByKey("p", "one"), engine.ByID(first.ID).In("p"), engine.ByID(first.ID),
	}
	for _, again := range []bool{false, true} {
		var batch []engine.Intake
		for i := range 60 {
			in := engine.Intake{To: refs[i%len(refs)], Name: "s", DedupKey: fmt.Sprint(again, i)}
			if again && i == 37 { // which takes all for its target to the slow transaction
				in.Redelivered, in.Origin = true, engine.Origin{Stream: "S", Created: time.Unix(1, 0), Sequence: 1}
			}
			batch = append(batch, in)
		}
		for i, r := range b.accept(batch...) {
			want := engine.Delivered
			if n := i % len(refs); n == 7 || n == 8 { // the key, and the instance, are in another project
				want = engine.NoTarget
			}
			equal(t, fmt.Sprint("result ", i), r.Result, want)
		}
	}
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), 2*60*8/10)
	equal(t, "out of order", b.count(`select count(*) from (
		select n - lag(n) over (partition by instance_id, again order by id) as step
		from (select instance_id, id, dedup_key like 'true%' as again, split_part(dedup_key, ' ', 2)::int as n from pointsman.signals) s) x where step <= 0`), 0)
}

// Who was named by id and by key and ends before the signals come has no successor by id, but may have one by key.
func TestAcceptByIDAndByKeyWhileItEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.begin("idle", "k")
	tx := must(b.pool.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // after a commit it does nothing
	must(b.CancelTx(t.Context(), tx, engine.ByID(old.ID), ""))(t)
	next := must(b.StartTx(t.Context(), tx, engine.NewInstance{Machine: "idle", CorrelationKey: "k"}))(t)

	done := make(chan []engine.Receipt, 1)
	go func() {
		rs, err := b.Accept(t.Context(), []engine.Intake{
			{To: engine.ByKey("", "k"), Name: "s", DedupKey: "1"}, {To: engine.ByID(old.ID), Name: "s", DedupKey: "2"}, {To: engine.ByKey("", "k"), Name: "s", DedupKey: "3"},
		})
		if err != nil {
			t.Error(err)
		}
		done <- rs
	}()
	eventually(t, "the delivery waits for the end of the instance", func() bool {
		return b.count(`select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid)) and query like '%/* deliver */%'`, tx.Conn().PgConn().PID()) > 0
	})
	must(0, tx.Commit(t.Context()))(t)
	rs := receive(t, done)
	equal(t, "results", results(rs), "delivered no_target delivered")
	equal(t, "by key", rs[0].InstanceID, next.ID)
	equal(t, "by id", rs[1].Ended.ID, old.ID)
	equal(t, "inbox", b.get(next.ID).InboxCount, 2)
}
