package store

import (
	"context"
	"fmt"
	"time"
)

// childOf says that instances, made before, are children of another.
func childOf(parent int, children ...int) string {
	sql := ""
	for _, n := range children {
		sql += fmt.Sprintf("update pointsman.instances set parent_id = '%s' where id = '%s';\n", u(parent), u(n))
	}
	return sql
}

const (
	allChildren = "child/*,child/all children"
	anyChild    = "child/*,child/any child"
	twoChildren = "child/*,child/2 children"
)

// of a child, whose parent the worker knows from the pick.
func ofParent(parent int, o Outcome) Outcome {
	o.ParentID = u(parent)
	return o
}

func endsFor(n, token, parent int) Outcome { return ofParent(parent, of(n, token, OutcomeDone)) }

// joins parks instance n until ends of its children are there.
func joins(n, token int, tags ...string) Outcome {
	o := parks(n, token)
	o.Awaits = append([]string{TagChildren}, tags...)
	return o
}

func withChildren(o Outcome, children ...NewInstance) Outcome {
	for _, n := range children {
		n.ParentID = o.ID
		o.Starts = append(o.Starts, n)
	}
	return o
}

// where gives instance n a condition for a name.
func where(n int, name, path string) string {
	return fmt.Sprintf("update pointsman.instances set await_where = jsonb_build_object('%s', '%s') where id = '%s';\n", name, path, u(n))
}

// toldOnce: each of these children that has ended has told its parent, live at last, exactly once.
func toldOnce(ns ...int) string {
	sql := ""
	for i, n := range ns {
		if i > 0 {
			sql += " union all "
		}
		sql += fmt.Sprintf("select id from pointsman.instances c where id = '%s' and not live and (select count(distinct w.id) from pointsman.witness w where w.instance_id = c.parent_id and w.dedup_key = c.id || ':' || c.rev) <> 1", u(n))
	}
	return sql
}

func joining() []scenario {
	parent := awaiting(1, 1, allChildren)
	two := parent + leased(90, valid, 2) + leased(91, valid, 3) + childOf(1, 2, 3)
	family := leased(90, valid, 1) + leased(91, valid, 2) + leased(92, valid, 3) + childOf(1, 2, 3)
	both := func(tags ...string) Outcome {
		o := joins(1, 90, tags...)
		o.Awaits = append(o.Awaits, "signal/a", "signal/b")
		o.AwaitN = 2
		return o
	}
	awake := `select id from pointsman.instances where id = '` + u(1).String() + `' and live and parked`
	asleep := `select id from pointsman.instances where id = '` + u(1).String() + `' and not parked`
	toItself := withChildren(both("child/all children"), fresh(3, "k3"))
	toItself.Signals = []Signal{signal(key(1), "a", "e1")}
	unstarted := withChildren(joins(1, 90, "child/all children"), fresh(3, key(2)))
	return []scenario{
		{"child: end / end, all", two, together(committing(endsFor(2, 90, 1)), committing(endsFor(3, 91, 1))), awake + " union all " + toldOnce(2, 3)},
		{"child: end / end, two", awaiting(1, 1, twoChildren) + leased(90, valid, 2) + leased(91, valid, 3) + leased(92, valid, 4) + childOf(1, 2, 3, 4), together(committing(endsFor(2, 90, 1)), committing(endsFor(3, 91, 1))), awake + " union all " + toldOnce(2, 3)},
		{"child: end / end of two of three, all", parent + leased(90, valid, 2) + leased(91, valid, 3) + leased(92, valid, 4) + childOf(1, 2, 3, 4), together(committing(endsFor(2, 90, 1)), committing(endsFor(3, 91, 1))), asleep + " union all " + toldOnce(2, 3)},
		{"child: end / park, all", leased(90, valid, 1) + leased(91, valid, 2) + childOf(1, 2), together(committing(joins(1, 90, "child/all children")), committing(endsFor(2, 91, 1))), awake + " union all " + toldOnce(2)},
		{"child: end / park, any", leased(90, valid, 1) + leased(91, valid, 2) + leased(92, valid, 3) + childOf(1, 2, 3), together(committing(joins(1, 90, "child/any child")), committing(endsFor(2, 91, 1))), awake + " union all " + toldOnce(2)},
		{"child: end / end / park, all", family, together(committing(endsFor(2, 91, 1)), committing(endsFor(3, 92, 1)), committing(joins(1, 90, "child/all children"))), awake + " union all " + toldOnce(2, 3)},
		{"child: end / next, work of the parent", family, together(committing(endsFor(2, 91, 1)), inTurn(committing(of(1, 90, OutcomeNext)), working(1))), toldOnce(2)},
		{"child: end / cancel, all", two, together(committing(endsFor(2, 90, 1)), canceling(3)), awake + " union all " + toldOnce(2, 3)},
		{"child: cancel / its commit", parent + leased(90, valid, 2) + childOf(1, 2), together(canceling(2), committing(endsFor(2, 90, 1))), awake + " union all " + toldOnce(2)},
		{"child: end / cancel of the parent", parent + leased(90, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), canceling(1)), `select id from pointsman.instances where live`},
		{"child: end / cancel of the parent, retry", parent + leased(90, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), inTurn(canceling(1), retrying(1))), awake + " union all " + toldOnce(2)},
		{"child: end / end of the parent", leased(90, valid, 1) + leased(91, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 91, 1)), committing(of(1, 90, OutcomeDone))), `select id from pointsman.instances where live`},
		{"child: end, park and end of the parent in one group / end", leased(90, valid, 1, 2) + leased(91, valid, 3) + childOf(1, 2, 3), together(committing(endsFor(2, 90, 1), joins(1, 90, "child/all children")), committing(endsFor(3, 91, 1))), awake + " union all " + toldOnce(2, 3)},
		{"child: ends of crossing parents", awaiting(5, 1, allChildren) + awaiting(6, 1, allChildren) + leased(90, valid, 1, 2) + leased(91, valid, 3, 4) + childOf(5, 1, 4) + childOf(6, 2, 3), together(committing(endsFor(1, 90, 5), endsFor(2, 90, 6)), committing(endsFor(3, 91, 6), endsFor(4, 91, 5))), `select id from pointsman.instances where live and parked union all ` + toldOnce(1, 2, 3, 4)},
		{"child: ends of crossing parents / cancel of the parents", awaiting(5, 1, allChildren) + awaiting(1, 1, allChildren) + leased(90, valid, 2, 3) + leased(91, valid, 4, 6) + childOf(5, 2, 4) + childOf(1, 3, 6), together(committing(endsFor(2, 90, 5), endsFor(3, 90, 1)), committing(endsFor(4, 91, 5), endsFor(6, 91, 1)), canceling(5, 1)), `select id from pointsman.instances where live`},
		{"child: chain of ends", leased(90, valid, 2) + leased(91, valid, 3) + awaiting(1, 1, allChildren) + childOf(1, 2) + childOf(2, 3), together(committing(endsFor(3, 91, 2)), committing(endsFor(2, 90, 1))), awake + " union all " + toldOnce(2)},
		{"child: end / pause, resume", parent + leased(90, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), inTurn(pausing(1), resuming(1))), awake + " union all " + toldOnce(2)},
		{"child: end / timer sweep of the parent", due(1) + fmt.Sprintf("update pointsman.instances set awaits = '{%s}' where id = '%s';\n", allChildren, u(1)) + leased(90, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), sweepingTimers), awake + " union all " + toldOnce(2)},
		{"child: end / deliver to the parent", awaiting(1, 1, allChildren+",signal/pay") + leased(90, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), delivering(pay(1, "d1"))), awake + " union all " + toldOnce(2)},
		{"child: end / lease sweep", parent + leased(90, expired, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), sweepingLeases), toldOnce(2)},
		{"child: end / the same end", parent + leased(90, valid, 2) + childOf(1, 2), together(committingPart(endsFor(2, 90, 1)), committingPart(endsFor(2, 90, 1))), awake + " union all " + toldOnce(2)},
		{"child: retry / end of the other, all", parent + ended(2, "failed", "") + leased(90, valid, 3) + childOf(1, 2, 3), together(retrying(2), committing(endsFor(3, 90, 1))), toldOnce(3)},
		{"child: parks with a start / end of another", leased(90, valid, 1) + leased(91, valid, 2) + childOf(1, 2), together(committing(withChildren(joins(1, 90, "child/all children"), fresh(3, "k3"))), committing(endsFor(2, 91, 1))), asleep + " union all " + toldOnce(2)},
		{"child: parks with a start / end of that", leased(90, valid, 1), together(committing(withChildren(joins(1, 90, "child/all children"), fresh(3, "k3"))), workingTo(3)), toldOnce(3)},
		{"child: parks with a start, and signals itself / deliver", leased(90, valid, 1), together(committing(toItself), delivering(signal(key(1), "x", "d1"))), asleep},
		{"child: parks with a start that is taken / end of the holder", leased(90, valid, 1) + leased(91, valid, 2), together(committing(unstarted), committing(of(2, 91, OutcomeDone))), ""},
		{"child: parks with a start that is taken", leased(90, valid, 1) + leased(91, valid, 2), together(committing(unstarted)), awake},
		{"child: parks for none, any", leased(90, valid, 1), together(committing(joins(1, 90, "child/any child"))), awake},
		{"child: parks for none, all / deliver", leased(90, valid, 1), together(committing(joins(1, 90, "child/all children")), delivering(signal(key(1), "x", "d1"))), awake},
		{"child: parks for names and children / deliver / end", leased(90, valid, 1) + leased(91, valid, 2) + childOf(1, 2), together(committing(both("child/all children")), delivering(signal(key(1), "a", "d1")), committing(endsFor(2, 91, 1))), awake + " union all " + toldOnce(2)},
		{"child: end wakes out of a unique scope / newcomer", awaiting(1, 1, allChildren) + scopedUnique(1, uKey, ScopeAwaiting) + leased(90, valid, 2) + childOf(1, 2), together(committing(endsFor(2, 90, 1)), starting(freshUnique(3, uKey, ScopeRunnable))), awake + " union all " + toldOnce(2)},
	}
}

// workingTo picks whatever is ready, and ends what is instance n as a child of the first.
func workingTo(n int) op {
	return func(ctx context.Context, s *Store) error {
		works, err := s.Pick(ctx, queue, "", "w", known, 2, time.Hour)
		if err != nil || len(works) == 0 {
			return err
		}
		var os []Outcome
		for _, w := range works {
			o := outcome(w, OutcomeDone)
			o.ParentID = w.ParentID
			if w.ID != u(n) {
				o = outcome(w, OutcomeNext)
			}
			os = append(os, o)
		}
		_, err = s.tryCommit(ctx, os...)
		return err
	}
}

func conditions() []scenario {
	awake := `select id from pointsman.instances where live and parked`
	asleep := `select id from pointsman.instances where not parked`
	pack := awaiting(1, 2, "signal/a,signal/b")
	onA := where(1, "a", `$.d == "d1"`)
	onPay := func(o Outcome) Outcome {
		o.Where = []byte(`{"pay": "$.d == \"d1\""}`)
		return o
	}
	a := func(dedup string) op { return delivering(signal(key(1), "a", dedup)) }
	b := func(dedup string) op { return delivering(signal(key(1), "b", dedup)) }
	return []scenario{
		{"condition: deliver / one does not pass", awaiting(1, 1, "signal/pay") + where(1, "pay", `$.d == "d1"`), together(delivering(pay(1, "d8")), delivering(pay(1, "d9"))), asleep},
		{"condition: deliver / deliver a third, 2 of 3", awaiting(1, 2, "signal/a,signal/b,signal/c"), together(a("d1"), a("d2")), asleep},
		{"condition: deliver / deliver, 2 of 2, one passes", pack + onA, together(a("d1"), b("d2")), awake},
		{"condition: deliver / deliver, 2 of 2, one does not", pack + onA, together(a("d9"), b("d2")), asleep},
		{"condition: deliver / deliver / deliver, 2 of 2", pack + onA, together(a("d9"), b("d2"), a("d1")), awake},
		{"condition: deliver / park", leased(90, valid, 1), together(delivering(pay(1, "d1")), committing(onPay(parks(1, 90)))), awake},
		{"condition: deliver / park, does not pass", leased(90, valid, 1), together(delivering(pay(1, "d9")), committing(onPay(parks(1, 90)))), asleep},
		{"condition: deliver / deliver / park", leased(90, valid, 1), together(delivering(pay(1, "d9")), delivering(pay(1, "d1")), committing(onPay(parks(1, 90)))), awake},
		{"condition: deliver / timer sweep", due(1) + where(1, "pay", `$.d == "d1"`), together(delivering(pay(1, "d9")), sweepingTimers), ""},
		{"condition: pause, resume / deliver / deliver, 2 of 2", pack + onA, together(inTurn(pausing(1), resuming(1)), a("d1"), b("d2")), awake},
		{"condition: deliver / deliver / cancel, retry", pack + onA, together(a("d1"), b("d2"), inTurn(canceling(1), retrying(1))), ""},
		{"condition: deliver / work / deliver", awaiting(1, 1, "signal/pay") + where(1, "pay", `$.d == "d1"`), together(delivering(pay(1, "d1")), working(1), delivering(pay(1, "d9"))), ""},
		{"condition: deliver / deliver / pack of a timer", due(1) + fmt.Sprintf("update pointsman.instances set awaits = '{signal/a,signal/b}', await_n = 2 where id = '%s';\n", u(1)), together(a("d1"), b("d2"), sweepingTimers), awake},
	}
}
