package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

const live = ScopeRunnable | ScopeExecuting | ScopeAwaiting

func uniqueInstance(key, unique string, scope int16) NewInstance {
	n := newInstance(key)
	n.UniqueKey, n.UniqueScope = unique, scope
	return n
}

// holds says who holds the unique keys, by correlation key.
func (f *fixture) holds(want string) {
	f.t.Helper()
	f.want(want, `select k.key, i.correlation_key from pointsman.unique_keys k left join pointsman.instances i on i.id = k.instance_id order by k.key`)
}

func (f *fixture) verdicts(ns ...NewInstance) (all string) {
	f.t.Helper()
	for _, st := range f.begin(ns...) {
		switch {
		case st.Unique:
			all += "unique "
		case st.Verdict == Taken:
			all += "taken "
		case st.Verdict == Started:
			all += "started "
		case st.Verdict == Duplicate:
			all += "duplicate "
		}
	}
	return all
}

func TestStartUnique(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := uniqueInstance("a", "U", live)
	f.begin(first)
	equal(t, "second", f.begin(uniqueInstance("b", "U", live))[0], Start{Verdict: Taken, InstanceID: first.ID, Unique: true})
	equal(t, "same correlation key", f.begin(uniqueInstance("a", "U", live))[0], Start{Verdict: Taken, InstanceID: first.ID})
	equal(t, "of another project", must(f.Store.Start(t.Context(), "another", []NewInstance{uniqueInstance("a", "U", live)}))(t)[0].Verdict, Started)
	f.holds("U a,U a")
	in, _ := must2(f.Get(t.Context(), "", first.ID))(t)
	equal(t, "read", fmt.Sprint(in.UniqueKey, in.UniqueScope), "U7")
	f.want("", `select 1 from pointsman.instances where correlation_key = 'b'`)
}

// Repetitions inside of a batch are for the index to decide, and what does not start takes no key from another.
func TestStartUniqueBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ns          []NewInstance
		want, holds string
	}{
		"one key twice":       {[]NewInstance{uniqueInstance("a", "U", live), uniqueInstance("b", "U", live), uniqueInstance("c", "V", live)}, "started unique started ", "U a,V c"},
		"not in its scope":    {[]NewInstance{uniqueInstance("a", "U", ScopeExecuting), uniqueInstance("b", "U", live), uniqueInstance("c", "U", ScopeDone)}, "started started started ", "U b"},
		"refused for another": {[]NewInstance{uniqueInstance("a", "U", live), uniqueInstance("a", "V", live), uniqueInstance("c", "V", live)}, "started taken started ", "U a,V c"},
		"no keys":             {[]NewInstance{newInstance("a"), newInstance("b")}, "started started ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			equal(t, "verdicts", f.verdicts(c.ns...), c.want)
			f.holds(c.holds)
		})
	}
}

// A redelivered start is a duplicate, holds no key for it, and keeps none from others.
func TestStartUniqueAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n := deduped(uniqueInstance("a", "U", live), "d")
	f.begin(n)
	again := deduped(uniqueInstance("a", "U", live), "d")
	again.Hash = n.Hash
	equal(t, "while it lives", f.verdicts(again), "duplicate ")
	f.commit(outcome(f.picked(), OutcomeDone))
	f.holds("")
	equal(t, "after its end, with a newcomer", f.verdicts(again, uniqueInstance("b", "U", live)), "duplicate started ")
	f.holds("U b")
	same := uniqueInstance("c", "V", live)
	same.ID = n.ID
	equal(t, "under an id that is there", f.verdicts(same), "taken ")
	f.holds("U b")
}

// The key is held in the statuses of its scope and in no other.
func TestUniqueScope(t *testing.T) {
	t.Parallel()
	const first, second = "first", "second"
	scopes := []int16{live, live | ScopeDone}
	for bit := ScopeRunnable; bit <= ScopeCanceled; bit <<= 1 {
		scopes = append(scopes, bit, 2*ScopeCanceled-1-bit)
	}
	for _, scope := range scopes {
		t.Run(fmt.Sprint(scope), func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			n, other := uniqueInstance(first, "U", scope), uniqueInstance(second, "V", scope)
			f.begin(n, other)
			check := func(status int16, keys string) {
				t.Helper()
				if scope&status == 0 {
					keys = ""
				}
				f.want(keys, `select string_agg(key, '' order by key) from pointsman.unique_keys having count(*) > 0`)
			}
			check(ScopeRunnable, "UV")
			works := f.pick(2)
			check(ScopeExecuting, "UV")
			f.commit(await(works[0], "signal/pay"), await(works[1], "signal/pay"))
			check(ScopeAwaiting, "UV")
			f.deliverAny(signal(first, "pay", "d"), signal(second, "pay", "d"))
			check(ScopeRunnable, "UV")
			works = f.pick(2)
			f.commit(consuming(outcome(works[0], OutcomeNext), works[0]), consuming(outcome(works[1], OutcomeRelease), works[1]))
			check(ScopeRunnable, "UV")
			f.pick(2)
			check(ScopeExecuting, "UV")
			f.expire()
			must(f.SweepLeases(t.Context(), 8))(t)
			check(ScopeRunnable, "UV")
			works = append(f.pick(2), f.pick(1)...)
			past := -time.Second
			var os []Outcome
			for _, w := range works {
				o := await(w, "signal/pay")
				o.Delay = &past
				os = append(os, o)
			}
			f.commit(os...)
			check(ScopeAwaiting, "UV")
			must2(f.SweepTimers(t.Context(), 8))(t)
			check(ScopeRunnable, "UV")
			must(f.Cancel(t.Context(), []uuid.UUID{other.ID}, "", publish))(t)
			works = f.pick(2)
			f.want(map[bool]string{true: "1", false: "0"}[scope&ScopeCanceled != 0], `select count(*) from pointsman.unique_keys where key = 'V'`)
			f.commit(outcome(works[0], map[bool]string{true: OutcomeDone, false: OutcomeStop}[scope%2 == 0]))
			end := map[bool]int16{true: ScopeDone, false: ScopeFailed}[scope%2 == 0]
			f.want(map[bool]string{true: "1", false: "0"}[scope&end != 0], `select count(*) from pointsman.unique_keys where key = 'U'`)
			equal(t, "unguarded", f.Unguarded(), 0)
		})
	}
}

// deliverAny delivers as an acceptance does: what the fast statement leaves, in the slow transaction.
func (f *fixture) deliverAny(sigs ...Signal) {
	f.t.Helper()
	if missing, _ := missed(sigs, f.fast(sigs...)); len(missing) > 0 {
		f.slow(missing...)
	}
}

// Who comes back into the scope while another holds the key goes on without, and is counted.
func TestUniqueUnguarded(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(f *fixture, w Work){
		"by its outcome":     func(f *fixture, w Work) { f.commit(outcome(w, OutcomeNext)) },
		"by the lease sweep": func(f *fixture, _ Work) { f.expire(); must(f.SweepLeases(f.t.Context(), 8))(f.t) },
		"by the timer sweep": func(f *fixture, w Work) {
			past, o := -time.Second, await(w, "signal/pay")
			o.Delay = &past
			f.commit(o)
			must2(f.SweepTimers(f.t.Context(), 8))(f.t)
		},
		"by a wake": func(f *fixture, w Work) {
			f.commit(await(w, "signal/pay"))
			wantVerdicts(f.t, f.fast(signal("a", "pay", "d")), Missing)
			wantVerdicts(f.t, f.slow(signal("a", "pay", "d")), Delivered)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.begin(uniqueInstance("a", "U", ScopeRunnable))
			w := f.picked()
			f.holds("")
			equal(t, "the key is free", f.verdicts(uniqueInstance("b", "U", live)), "started ")
			back(f, w)
			f.holds("U b")
			equal(t, "unguarded", f.Unguarded(), 1)
			equal(t, "both may run", len(f.pick(2))+len(f.pick(1)), 2)
			f.holds("U b")
		})
	}
}

// An instance that executes only by itself.
func TestUniqueWhileExecuting(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.begin(uniqueInstance("a", "U", ScopeExecuting))
	equal(t, "picked", f.picked().UniqueKey, "U")
	f.holds("U a")
	equal(t, "newcomer of another scope", f.verdicts(uniqueInstance("b", "U", live)), "unique ")
}

// An outcome may start the next instance with the key that it gives up; the start of a key that is held does nothing.
func TestUniqueEffects(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.begin(uniqueInstance("a", "U", live))
	w := f.picked()
	o := outcome(w, OutcomeNext)
	o.Starts, o.Signals = []NewInstance{uniqueInstance("b", "U", live)}, []Signal{signal("b", "pay", "d1")}
	f.commit(o)
	f.holds("U a")
	f.want("b", `select key from pointsman.held`)
	o = outcome(f.picked(), OutcomeDone)
	o.Starts, o.Signals = []NewInstance{uniqueInstance("b", "U", live), uniqueInstance("c", "U", live)}, []Signal{signal("b", "pay", "d2")}
	f.commit(o)
	f.holds("U b")
	f.want("d1,d2", `select dedup_key from pointsman.signals order by id`)
	f.want("a,b", `select correlation_key from pointsman.instances order by 1`)
}
