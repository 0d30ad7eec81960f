package guarantees

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/integration/cluster"
	"github.com/pointsman/pointsman/integration/oracle"
	"github.com/pointsman/pointsman/internal/flaw"
)

// TestOracleFindsFlaws: a build in which one rule is broken is found out, by what the rule is for.
func TestOracleFindsFlaws(t *testing.T) {
	if !long {
		t.Skip("the long form: POINTSMAN_TEST_GUARANTEES=1")
	}
	t.Parallel()
	for _, c := range []struct {
		flaw    string
		stories []string
		want    []oracle.Kind // one of them
		trouble func(a *arena)
	}{
		{flaw.DropSignal, []string{"pack"}, []oracle.Kind{oracle.Lost}, nil},
		{flaw.NoRecheck, []string{"ticks", "family"}, []oracle.Kind{oracle.Slept}, nil},
		{flaw.AckFirst, []string{"pack"}, []oracle.Kind{oracle.Lost}, func(a *arena) {
			a.during(a.Kill(a.ctx, a.Bridges()[0]))(func() {})
			a.during(a.Kill(a.ctx, a.Bridges()[0]))(func() {})
		}},
		{flaw.NoFence, []string{"slow"}, []oracle.Kind{oracle.Forked, oracle.Torn}, func(a *arena) {
			for range 2 {
				a.during(a.Pause(a.ctx, a.Workers()[0]))(a.while(4 * time.Second))
			}
		}},
	} {
		t.Run(c.flaw, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, cluster.Config{Workers: 2, Build: cluster.Build{Tags: "sabotage"}, Env: []string{"POINTSMAN_SABOTAGE=" + c.flaw}}, c.stories...)
			a.workload.Players = 24 // whose process is stuck publishes no more
			ctx, cancel := context.WithCancel(a.ctx)
			done := make(chan struct{})
			go func() { defer close(done); _ = a.workload.Run(ctx, ctx) }() // much of it never ends
			a.eventually("traffic", func(context.Context) error { return a.atLeast(30) })
			if c.trouble != nil {
				c.trouble(a)
			}
			a.eventually("more traffic", func(context.Context) error { return a.atLeast(100) })
			cancel()
			<-done
			vs := a.found()
			t.Logf("found %v, of %+v", kinds(vs), a.account.Count())
			for i := 0; i < len(vs) && i < 3; i++ {
				t.Log(vs[i])
			}
			_, err := a.rest.Evidence(a.ctx)
			a.must(err)
			if !slices.ContainsFunc(vs, func(v oracle.Violation) bool { return slices.Contains(c.want, v.Kind) }) {
				t.Errorf("want one of %v, found %v", c.want, vs)
			}
		})
	}
}

// TestOracleFindsWhatLeftTheOutbox: what leaves the outbox unpublished is found out, and is all that is wrong then.
func TestOracleFindsWhatLeftTheOutbox(t *testing.T) {
	if !long {
		t.Skip("the long form: POINTSMAN_TEST_GUARANTEES=1")
	}
	t.Parallel()
	a := newArena(t, cluster.Config{}, "probe")
	worker := a.fault(a.Kill(a.ctx, a.Workers()[0]))
	for range 5 {
		_, err := a.workload.Probe(a.ctx)
		a.must(err)
	}
	a.eventually("all have started", func(ctx context.Context) error {
		return a.rows(ctx, "pointsman.v_instances", 5)
	})
	bridge := a.fault(a.Kill(a.ctx, a.Bridges()[0]))
	worker()
	a.eventually("all is to be published", func(ctx context.Context) error {
		return a.rows(ctx, "pointsman.outbox", 10)
	})
	_, err := a.db.Exec(a.ctx, `delete from pointsman.outbox where id in (select id from pointsman.outbox where kind = 'publish' order by id limit 2)`)
	a.must(err)
	bridge()
	vs := a.found()
	if len(vs) != 2 || !slices.Equal(kinds(vs), []oracle.Kind{oracle.Untold}) {
		t.Errorf("two publications left the outbox, and are nowhere; found %v", vs)
	}
}

// rows says whether a table has so many.
func (a *arena) rows(ctx context.Context, table string, want int) error {
	var n int
	if err := a.db.QueryRow(ctx, "select count(*) from "+table).Scan(&n); err != nil || n != want {
		return fmt.Errorf("%d rows of %d: %w", n, want, err)
	}
	return nil
}
