package store

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

// keyedAs starts instances with one partition key.
func (f *fixture) keyedAs(partition string, keys ...string) (ids []uuid.UUID) {
	f.t.Helper()
	for _, key := range keys {
		n := newInstance(key)
		n.PartitionKey = partition
		equal(f.t, "start "+key, f.begin(n)[0].Verdict, Started)
		ids = append(ids, n.ID)
	}
	return ids
}

const whoWaits = `select i.correlation_key from pointsman.waiters w join pointsman.instances i on i.id = w.instance_id order by w.priority, w.run_at`

func TestOneOfAPartitionKeyAtATime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.keyedAs("K", "a", "b", "c")
	f.keyedAs("L", "d")
	f.started("e")
	works := f.pick(8)
	equal(t, "picked", fmt.Sprint(keys(works)), "[e a d]")
	equal(t, "keys of the first", works[1].PartitionKey+works[2].PartitionKey, "KL")
	f.want("b,c", whoWaits)
	f.want("K a,L d", `select k.key, i.correlation_key from pointsman.running_keys k join pointsman.instances i on i.id = k.instance_id order by k.key`)
	equal(t, "picked while they run", len(f.pick(8)), 0)

	settled := f.commit(outcome(works[1], OutcomeNext))
	equal(t, "woken", fmt.Sprint(settled.Woken), "[q q]")
	works = f.pick(8)
	equal(t, "the longest ready is next", fmt.Sprint(keys(works)), "[b]")
	f.want("c,a", whoWaits)
	f.commit(outcome(works[0], OutcomeDone))
	equal(t, "and then", fmt.Sprint(keys(f.pick(8))), "[c]")
}

func TestPartitionKeyIsOfAProject(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.keyedAs("K", "a")
	n := newInstance("a")
	n.PartitionKey = "K"
	must(f.Store.Start(t.Context(), "another", []NewInstance{n}))(t)
	equal(t, "picked", fmt.Sprint(keys(f.pick(8))), "[a a]")
}

// A lower priority goes first, whoever was ready before.
func TestPartitionKeyPriority(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.keyedAs("K", "first")
	w := f.picked()
	f.keyedAs("K", "a", "b")
	equal(t, "picked", len(f.pick(8)), 0)
	f.exec(`update pointsman.waiters w set priority = -1 from pointsman.instances i where i.id = w.instance_id and correlation_key = 'b'`)
	f.commit(await(w, "signal/pay"))
	equal(t, "picked", fmt.Sprint(keys(f.pick(8))), "[b]")
}

// Whatever becomes of who holds it, and of those that wait, the key goes on.
func TestPartitionKeyGoesOn(t *testing.T) {
	t.Parallel()
	for name, let := range map[string]func(f *fixture, w Work){
		"released":  func(f *fixture, w Work) { o := outcome(w, OutcomeRelease); o.Ran = ""; f.commit(o) },
		"parked":    func(f *fixture, w Work) { f.commit(await(w, "signal/pay")) },
		"ended":     func(f *fixture, w Work) { f.commit(outcome(w, OutcomeStop)) },
		"lease out": func(f *fixture, w Work) { f.expire(); must(f.SweepLeases(f.t.Context(), 8))(f.t) },
		"canceled": func(f *fixture, w Work) {
			must(f.Cancel(f.t.Context(), []uuid.UUID{w.ID}, "", publish))(f.t)
			equal(f.t, "while the canceled one runs", len(f.pick(8)), 0)
			equal(f.t, "passed", len(must(f.tryCommit(f.t.Context(), outcome(w, OutcomeNext)))(f.t).Passed), 0)
		},
		"canceled, lease out": func(f *fixture, w Work) {
			must(f.Cancel(f.t.Context(), []uuid.UUID{w.ID}, "", publish))(f.t)
			f.expire()
			equal(f.t, "reaped", len(must(f.SweepLeases(f.t.Context(), 8))(f.t)), 0)
		},
		"dropped": func(f *fixture, w Work) {
			f.commit(outcome(w, OutcomeDone)) // b has the next turn,
			f.exec(`update pointsman.instances set paused = true, rev = rev + 1 where correlation_key = 'b'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.keyedAs("K", "a")
			w := f.picked()
			f.keyedAs("K", "b", "c")
			f.exec(`update pointsman.ready r set priority = -1 from pointsman.instances i where i.id = r.instance_id and correlation_key = 'b'`)
			equal(t, "picked", len(f.pick(8)), 0)
			let(f, w)
			want := "[b]"
			if name == "dropped" {
				want = "[c]"
			}
			works := f.pick(8)
			equal(t, "next", fmt.Sprint(keys(works)), want)
			f.want(strconv.Itoa(len(works)), `select count(*) from pointsman.running_keys`)
		})
	}
}

// Who had the next turn is canceled, and the one before is ready again: both rows are in one pick, and who has waited for longer goes first.
func TestPartitionKeyOfACanceledTurn(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.keyedAs("K", "a")
	w := f.picked()
	ids := f.keyedAs("K", "b", "c")
	equal(t, "picked", len(f.pick(8)), 0)
	f.commit(outcome(w, OutcomeNext))
	must(f.Cancel(t.Context(), ids[:1], "", publish))(t)
	works := f.pick(8)
	equal(t, "next", fmt.Sprint(keys(works)), "[c]")
	f.want("a", whoWaits)
	f.commit(outcome(works[0], OutcomeDone))
	equal(t, "and then", fmt.Sprint(keys(f.pick(8))), "[a]")
}

// expire makes every lease run out.
func (f *fixture) expire() {
	f.t.Helper()
	f.exec(`update pointsman.leases set expires_at = now() - interval '1 s'`)
}

// One that is leased alone holds its key under the token of its own lease.
func TestPartitionKeyOfASoloLease(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.keyedAs("K", "a")
	f.picked()
	f.expire()
	must(f.SweepLeases(t.Context(), 8))(t)
	f.keyedAs("K", "b")
	w := f.picked()
	f.want("true", `select k.token = $1 and exists (select from pointsman.leases where token = $1 and ids = array[k.instance_id]) from pointsman.running_keys k`, w.Token)
	f.commit(outcome(w, OutcomeDone))
	equal(t, "next", fmt.Sprint(keys(f.pick(8))), "[b]")
}

// Of a lane that nobody serves, none holds up the others.
func TestPartitionKeyOfTwoQueues(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.keyedAs("K", "a")
	w := f.picked()
	n := newInstance("slow")
	n.PartitionKey, n.Queue = "K", "a-slow"
	f.begin(n)
	equal(t, "picked of the other queue", len(must(f.Pick(t.Context(), "a-slow", "", "w", known, 8, time.Minute))(t)), 0)
	f.keyedAs("K", "b")
	equal(t, "picked", len(f.pick(8)), 0)
	settled := f.commit(outcome(w, OutcomeDone))
	equal(t, "woken", fmt.Sprint(settled.Woken), "[a-slow q]")
	equal(t, "next", fmt.Sprint(keys(f.pick(8))), "[b]")
}

// A backlog of one key is moved aside once, in bounded picks; it does not hold up the others of the queue.
func TestBacklogOfOnePartitionKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state, partition_key)
		select gen_random_uuid(), 'p', 'm', 1, 'q', gen_random_uuid(), 's', '{}', 'K' from generate_series(1, 100)`)
	f.exec(`insert into pointsman.ready (queue, priority, instance_id, rev) select queue, -1, id, rev from pointsman.instances`)
	f.started("other")
	equal(t, "picked with the first of it", len(f.pick(4)), 1)
	equal(t, "picked behind it", fmt.Sprint(keys(f.pick(4))), "[other]")
	f.want("99", `select count(*) from pointsman.waiters`)
}

// A pick that meets no keys any more goes back to the statement that does without.
func TestPickForgetsKeys(t *testing.T) {
	t.Parallel()
	f := setup(t)
	meets := func() bool {
		_, ok := f.shared.keyed.Load(laneName{queue: queue})
		return ok
	}
	f.keyedAs("K", "a")
	f.picked()
	equal(t, "met", meets(), true)
	f.pick(8)
	equal(t, "after an empty pick", meets(), true)
	f.started("b")
	f.picked()
	equal(t, "after one without keys", meets(), false)
}
