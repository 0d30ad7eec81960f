package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/store"
)

// While a commit takes long a large group does not wait for it, and a small one does until it is large.
func TestLargeGroupsAreCommittedBesideOneAnother(t *testing.T) {
	t.Parallel()
	const large = 128
	b := setup(t)
	locked := b.begin("m", "locked").ID
	cfg := must(pgxpool.ParseConfig(b.db.URL))(t)
	store.Tune(cfg, false)
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = "10min"
	patient := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(patient.Close)
	arrived, leave := make(chan struct{}), make(chan struct{})
	c := must(engine.NewClient(patient, engine.Config{Schema: b.db.Schema, Logger: quiet}))(t)
	b.workAs(c, engine.WorkerConfig{Queues: map[string]int{engine.DefaultQueue: 2 * large}, Machines: []*engine.Machine{steps(t, map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			arrived <- struct{}{}
			if v.Instance.CorrelationKey == "locked" {
				<-leave
			}
			return engine.Done(nil), nil
		},
	})}})
	receive(t, arrived)
	tx := must(b.db.Pool.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // of a test that failed
	must(tx.Exec(t.Context(), fmt.Sprintf("select from %s.instances where id = '%s' for update", b.db.Schema, locked)))(t)
	close(leave)
	waits := func() bool {
		return b.count(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%commit%' || $1 || '%'`, b.db.Schema) == 1
	}
	eventually(t, "its commit waits", waits)
	done := func() int { return b.count(`select count(*) from pointsman.instances where status = 'done'`) }
	another := func() {
		must(c.Start(t.Context(), engine.NewInstance{Machine: "m"}))(t)
		receive(t, arrived)
	}
	for range large - 1 {
		another()
	}
	equal(t, "done of a small group", done(), 0)
	another()
	eventually(t, "a large group is done", func() bool { return done() == large })
	equal(t, "the first commit still waits", waits(), true)
	must(0, tx.Rollback(t.Context()))(t)
	b.ends(locked, engine.StatusDone)
	eventually(t, "no lease is left", func() bool { return b.count(`select count(*) from pointsman.leases`) == 0 })
}
