package engine_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// fanVar sets how many children [TestFanOut] has; it then prints what they cost.
const fanVar = "POINTSMAN_FAN_CHILDREN"

// A parent of many children starts them in several steps and takes their ends in packs. Its row is written by its own steps and its wakes
// only, and not by each end.
func TestFanOut(t *testing.T) {
	t.Parallel()
	n, show := 1200, os.Getenv(fanVar)
	if show != "" {
		n = must(strconv.Atoi(show))(t)
	}
	const most = 1000
	type state struct{ Started, Ended, Packs int }
	b := setup(t)
	w := b.workAs(b.Client, engine.WorkerConfig{Machines: []*engine.Machine{
		must(engine.Define(engine.Definition[state]{Name: "parent", Start: "begin", Steps: map[string]engine.Step[state]{
			"begin": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
				o := engine.Next("begin")
				if left := n - v.State.Started; left <= most {
					o = engine.Await("collect").OrChildren(engine.AllChildren)
				}
				for i := 0; i < most && v.State.Started < n; i++ {
					o = o.StartChild(engine.NewInstance{Machine: "child", State: engine.MustJSON(v.State.Started)})
					v.State.Started++
				}
				return o, nil
			},
			"collect": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
				v.State.Ended += len(v.Awaited)
				v.State.Packs++
				if v.InboxMore {
					return engine.Await("collect").OrChildren(engine.AllChildren).Consuming(), nil
				}
				return engine.Done(v.State), nil
			},
		}}))(t),
		must(engine.Define(engine.Definition[int]{Name: "child", Start: "begin", Steps: map[string]engine.Step[int]{
			"begin": func(_ context.Context, v *engine.Visit[int]) (engine.Outcome, error) {
				return engine.Done(v.State), nil
			},
		}}))(t),
	}, Queues: map[string]int{engine.DefaultQueue: 256}})
	b.exec(`create sequence pointsman.touched`)
	b.exec(`create function pointsman.touch() returns trigger language plpgsql as $$ begin perform nextval('` + b.db.Schema + `.touched'); return null; end $$`)
	b.exec(`create trigger touched after update on pointsman.instances for each row when (old.machine = 'parent') execute function pointsman.touch()`)
	var wal int64
	lsn := func() (at int64) {
		if err := b.db.Pool.QueryRow(t.Context(), `select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	wal = lsn()
	begin := time.Now()
	in := b.ends(b.begin("parent", "").ID, engine.StatusDone)
	took := time.Since(begin)
	wal = lsn() - wal
	packs := (n + most - 1) / most
	equal(t, "result", string(in.Result), fmt.Sprintf(`{"Ended": %d, "Packs": %d, "Started": %d}`, n, packs, n))
	// A commit for each step that starts, and a wake and a commit for each pack.
	touched := b.count(`select last_value::int from pointsman.touched`)
	if most := 3*packs + 1; touched > most {
		t.Errorf("%d children, and the parent's row was written %d times: want at most %d", n, touched, most)
	}
	w.stop()
	if show != "" {
		fmt.Printf("%d children, from the start to the end of their parent: %s, %d bytes of WAL a child, the parent's row written %d times\n", n, took.Round(time.Millisecond), wal/int64(n), touched)
	}
}
