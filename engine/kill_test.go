package engine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/engine"
)

// killerEnv makes TestStepThatKillsItsWorker the process that is killed: it holds the database's URL and the schema.
const killerEnv = "POINTSMAN_TEST_KILLER"

const mates = 4

// killer is a machine of which one instance kills its process: the first time with its mates in the middle of their steps, the second
// time after they have ended.
func killer(t *testing.T, pool *pgxpool.Pool, schema string) *engine.Machine {
	inside := make(chan struct{}, mates)
	alone := func() bool {
		var ended int
		err := pool.QueryRow(t.Context(), "select count(*) from "+schema+".instances where status = 'done'").Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
		return ended == mates
	}
	return define(t, engine.Definition[raw]{Retry: fast(1), Steps: map[string]step{
		"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			key, attempt := v.Instance.CorrelationKey, v.Instance.Attempt
			fmt.Println("ran", key, attempt)
			state := v.State
			v.State = raw(`"lost"`)
			switch {
			case key == "killer" && attempt == 0:
				for range mates {
					receive(t, inside)
				}
				die()
			case key == "killer":
				eventually(t, "its mates have ended", alone)
				die()
			case attempt == 0:
				inside <- struct{}{}
				select {}
			}
			return engine.Done(state).Signal(engine.ByKey("", "witness"), engine.Signal{Name: key}), nil
		},
	}})
}

// die is kill -9: nothing is given back, and no deferred function runs.
func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

// A step that kills its process takes those in its lease with it once, and none of them is blamed: their next execution starts from what
// was committed and counts towards MaxAttempts only if it fails by itself. The killer, leased alone, is found out.
func TestStepThatKillsItsWorker(t *testing.T) {
	if where := os.Getenv(killerEnv); where != "" {
		url, schema, _ := strings.Cut(where, " ")
		pool := must(engine.Connect(t.Context(), url, 6, false))(t)
		c := must(engine.NewClient(pool, engine.Config{Schema: schema, Logger: quiet}))(t)
		w := must(engine.NewWorker(c, engine.WorkerConfig{Machines: []*engine.Machine{killer(t, pool, schema)}}))(t)
		t.Fatalf("the worker survived: %v", w.Run(t.Context()))
	}
	t.Parallel()
	b := setup(t)
	batch := []engine.NewInstance{{Machine: "m", Start: "begin", CorrelationKey: "killer"}}
	for i := range mates {
		batch = append(batch, engine.NewInstance{Machine: "m", Start: "begin", CorrelationKey: fmt.Sprint("mate", i)})
	}
	must(b.StartAll(t.Context(), batch, true))(t)
	witness := b.begin("idle", "witness").ID
	b.exec(`delete from pointsman.ready where instance_id = $1`, witness) // for its inbox only

	executed := map[string]int{}
	for round := range 2 {
		for _, line := range b.killed() {
			executed[line]++
		}
		leases := map[int]int{0: 1 + mates, 1: 1}[round]
		equal(t, "left by the dead", b.count(`select sum(cardinality(ids)) from pointsman.leases`)*10+b.count(`select count(*) from pointsman.leases`), leases*10+1)
		b.exec(`update pointsman.leases set expires_at = now() - interval '1 hour'`)
	}
	want := map[string]int{"ran killer 0": 1, "ran killer 1": 1}
	for i := range mates {
		key := fmt.Sprint("mate", i)
		want["ran "+key+" 0"], want["ran "+key+" 1"] = 1, 1
		in := must(b.Get(t.Context(), engine.ByKey("", key)))(t)
		equal(t, key, fmt.Sprint(in.Status, in.Attempt, string(in.Result), in.LastError), fmt.Sprint(engine.StatusDone, 1, "{}", ""))
	}
	equal(t, "executions", fmt.Sprint(executed), fmt.Sprint(want))
	equal(t, "effects", b.get(witness).InboxCount, mates)

	b.serve(define(t, engine.Definition[raw]{Retry: fast(1), Steps: map[string]step{"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
		t.Error("the killer ran again")
		return engine.Done(nil), nil
	}}}))
	in := b.ends(must(b.Get(t.Context(), engine.ByKey("", "killer")))(t).ID, engine.StatusFailed)
	equal(t, "reason", in.LastError, `step "begin": 1 executions and no outcome`)
	equal(t, "attempt", in.Attempt, 2)
}

// killed runs this test as a process of its own, until it is killed, and returns the executions that it wrote down.
func (b *bundle) killed() (executions []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, must(os.Executable())(b.t), "-test.run=^TestStepThatKillsItsWorker$")
	cmd.Env = append(os.Environ(), killerEnv+"="+b.db.URL+" "+b.db.Schema)
	out, err := cmd.Output()
	if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "killed") {
		b.t.Fatalf("the process was to kill itself, and did not: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "ran ") {
			executions = append(executions, strings.TrimSpace(line))
		}
	}
	return executions
}
