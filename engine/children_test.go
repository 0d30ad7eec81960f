package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// ends are what a step was handed of its children, in any order.
func ends(v *engine.Visit[raw]) string {
	all, err := engine.ChildEnds(v.Awaited)
	if err != nil {
		return err.Error()
	}
	var told []string
	for _, e := range all {
		told = append(told, strings.TrimSpace(fmt.Sprint(e.CorrelationKey, " ", e.Status, " ", strings.TrimPrefix(string(e.Result), "null"), e.Reason)))
	}
	slices.Sort(told)
	return strings.Join(told, ", ")
}

func child(key, step string) engine.NewInstance {
	return engine.NewInstance{Machine: "m", CorrelationKey: key, Start: step}
}

// fan is a machine whose step "begin" starts these children and then awaits; "joined" ends with what came.
func fan(t *testing.T, d *diary, await engine.Outcome, children ...engine.NewInstance) *engine.Machine {
	return steps(t, map[string]step{
		"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			o := await
			for _, c := range children {
				o = o.StartChild(c)
			}
			return o, nil
		},
		"joined": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Done(ends(v)), nil
		}),
		"well":   to(engine.Done("well")),
		"badly":  to(engine.Stop("badly")),
		"waits":  to(engine.Await("well", "go")),
		"waits2": to(engine.Await("well", "go")),
	})
}

// Each end wakes as the await says, and is handed out with how the child ended.
func TestJoin(t *testing.T) {
	t.Parallel()
	three := []engine.NewInstance{child("a", "well"), child("b", "badly"), child("c", "well")}
	for name, c := range map[string]struct {
		await    engine.Outcome
		children []engine.NewInstance
		want     string
	}{
		"all":                       {engine.Await("joined").OrChildren(engine.AllChildren), three, `"a done \"well\", b failed badly, c done \"well\""`},
		"any":                       {engine.Await("joined").OrChildren(engine.AnyChild), []engine.NewInstance{child("a", "well"), child("w", "waits")}, `"a done \"well\""`},
		"two":                       {engine.Await("joined").OrChildren(engine.NChildren(2)), append(slices.Clone(three[:2]), child("w", "waits")), `"a done \"well\", b failed badly"`},
		"more than there are":       {engine.Await("joined").OrChildren(engine.NChildren(9)), three[:2], `"a done \"well\", b failed badly"`},
		"all of none":               {engine.Await("joined").OrChildren(engine.AllChildren), nil, `""`},
		"any of none":               {engine.Await("joined", "x").OrChildren(engine.AnyChild), nil, `""`},
		"all, and a name":           {engine.Await("joined", "x").OrChildren(engine.AllChildren), three[:1], `"a done \"well\""`},
		"all, and names of which n": {engine.Await("joined", "x", "y").AllOf().OrChildren(engine.AllChildren), three[:1], `"a done \"well\""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var d diary
			b.serve(fan(t, &d, c.await, c.children...))
			equal(t, "joined", string(b.ends(b.begin("m", "parent").ID, engine.StatusDone).Result), c.want)
			equal(t, "executions", len(d.all()), 1)
		})
	}
}

// An end is an entry of the inbox as any: it is there before anybody awaits it, and says all of the child.
func TestChildEndIsInTheInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(fan(t, &d, engine.Await("joined", "go"), child("a", "badly")))
	parent := b.begin("m", "parent").ID
	b.until(parent, "told", func(in engine.Instance) bool { return in.InboxCount == 1 && in.Status == engine.StatusAwaiting })
	a := must(b.Get(t.Context(), engine.ByKey("", "a")))(t)
	equal(t, "parent", a.ParentID, parent)
	s := must(b.Inbox(t.Context(), parent, 0, 9))(t)[0]
	equal(t, "entry", fmt.Sprint(s.Kind, " ", s.Name), "child "+a.ID.String())
	equal(t, "dedup key", s.DedupKey, fmt.Sprint(a.ID, ":1"))
	var e engine.ChildEnd
	if err := s.Decode(&e); err != nil {
		t.Fatal(err)
	}
	finished := e.FinishedAt
	e.FinishedAt = time.Time{}
	equal(t, "finished", finished.Equal(*a.FinishedAt), true)
	equal(t, "end", fmt.Sprintf("%+v", e), fmt.Sprintf("%+v", engine.ChildEnd{InstanceID: a.ID, Machine: "m", Version: 1, Status: engine.StatusFailed, CorrelationKey: "a", Result: raw("null"), Reason: "badly"}))
	b.send("parent", "go", "1") // what was not awaited is not handed out as awaited
	equal(t, "joined", string(b.ends(parent, engine.StatusDone).Result), `""`)
}

// A child whose key another has says so, and is waited for no longer. One whose key is a sibling's is that sibling.
func TestChildrenThatDoNotStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	unique := engine.NewInstance{Machine: "m", Start: "well", UniqueKey: "U"}
	b.serve(fan(t, &d, engine.Await("joined").OrChildren(engine.AllChildren), child("a", "well"), child("held", "well"), child("a", "badly"), unique))
	held := b.start(child("held", "waits")).ID
	owner := b.start(engine.NewInstance{Machine: "m", Start: "waits2", UniqueKey: "U"}).ID
	in := b.ends(b.begin("m", "parent").ID, engine.StatusDone)
	equal(t, "joined", string(in.Result), string(engine.MustJSON(fmt.Sprintf("a done \"well\", held not_started the correlation key held is held by instance %s, not_started the unique key U is held by instance %s", held, owner))))
	equal(t, "executions", len(d.all()), 1)
	equal(t, "live", b.get(held).Status.Live() && b.get(owner).Status.Live(), true)
}

// A retried child ends once more, and its parent is told once more.
func TestRetriedChild(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("joined").OrChildren(engine.AllChildren).StartChild(child("a", "badly"))),
		"joined": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			return engine.Await("joined").OrChildren(engine.AllChildren), nil
		}),
		"badly": to(engine.Stop("badly")),
	}))
	parent := b.begin("m", "parent").ID
	waits := func(executions int) {
		t.Helper()
		eventually(t, "parked again", func() bool { return len(d.all()) == executions && b.get(parent).Status == engine.StatusAwaiting })
	}
	waits(1)
	must(b.Retry(t.Context(), engine.ByKey("", "a")))(t)
	waits(2)
	inbox := must(b.Inbox(t.Context(), parent, 0, 9))(t)
	equal(t, "ends", len(inbox), 2)
	equal(t, "of one child", inbox[0].Name == inbox[1].Name && inbox[0].DedupKey != inbox[1].DedupKey, true)
}

// What ended while its parent had ended is told to the parent when that is retried, once.
func TestRetriedParent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(fan(t, &d, engine.Await("joined").OrChildren(engine.AllChildren), child("a", "well"), child("b", "waits"), child("c", "waits")))
	parent := b.begin("m", "parent").ID
	b.until(parent, "told of one", func(in engine.Instance) bool { return in.InboxCount == 1 })
	must(b.Cancel(t.Context(), engine.ByID(parent), "gone"))(t)
	b.until(must(b.Get(t.Context(), engine.ByKey("", "b")))(t).ID, "parked", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting })
	b.send("b", "go", "1")
	b.ends(must(b.Get(t.Context(), engine.ByKey("", "b")))(t).ID, engine.StatusDone)
	equal(t, "the dead is told nothing", b.count(`select count(*) from pointsman.signals where instance_id = $1`, parent), 0)
	must(b.Retry(t.Context(), engine.ByID(parent)))(t)
	equal(t, "told", b.get(parent).InboxCount, 2)
	equal(t, "waits for c", b.get(parent).Status, engine.StatusAwaiting)
	b.send("c", "go", "1")
	equal(t, "joined", string(b.ends(parent, engine.StatusDone).Result), `"a done \"well\", b done \"well\", c done \"well\""`)
}

// tree is a machine of which each instance starts two children, so many levels down, and waits.
func tree(t *testing.T) *engine.Machine {
	type state struct{ Depth int }
	return must(engine.Define(engine.Definition[state]{Name: "m", Start: "begin", Steps: map[string]engine.Step[state]{
		"begin": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
			o := engine.Await("begin", "never")
			for i := 0; i < 2 && v.State.Depth > 0; i++ {
				o = o.StartChild(engine.NewInstance{Machine: "m", State: engine.MustJSON(state{v.State.Depth - 1})})
			}
			return o, nil
		},
	}}))(t)
}

// A cancel takes the children along where it is asked to, and goes on where another was cut off.
func TestCancelWithChildren(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(tree(t))
	root := b.start(engine.NewInstance{Machine: "m", State: raw(`{"Depth": 3}`)}).ID
	const parked, live, canceled = `select count(*) from pointsman.instances where parked and live`, `select count(*) from pointsman.instances where live`, `select count(*) from pointsman.instances where status = 'canceled'`
	eventually(t, "all parked", func() bool { return b.count(parked) == 15 })
	top := must(b.Children(t.Context(), root, uuid.Nil, 9))(t)
	equal(t, "children", len(top), 2)
	equal(t, "of the root", top[1].ParentID, root)
	equal(t, "page", len(must(b.Children(t.Context(), root, top[0].ID, 9))(t)), 1)
	must(b.Cancel(t.Context(), engine.ByID(top[0].ID), "alone"))(t)
	equal(t, "live", b.count(live), 14)
	must(b.Cancel(t.Context(), engine.ByID(root), "alone"))(t)
	equal(t, "live", b.count(live), 13)
	in := must(b.Cancel(t.Context(), engine.ByID(root), "with all", engine.WithChildren()))(t)
	equal(t, "reason of the first", in.LastError, "alone")
	equal(t, "live", b.count(live), 0)
	equal(t, "canceled", b.count(canceled), 15)
	equal(t, "with all", b.count(`select count(*) from pointsman.instances where last_error = 'with all'`), 13)
}

// A cancel goes through many children of one parent, and of many.
func TestCancelManyChildren(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state, parked, awaits)
		select '00000000-0000-7000-8000-000000000001', 'default', 'm', 1, 'q', gen_random_uuid(), 's', '{}', true, '{signal/x}'`)
	b.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state, parked, awaits, parent_id)
		select gen_random_uuid(), 'default', 'm', 1, 'q', gen_random_uuid(), 's', '{}', true, '{signal/x}', '00000000-0000-7000-8000-000000000001' from generate_series(1, 450)`)
	b.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state, parked, awaits, parent_id)
		select gen_random_uuid(), 'default', 'm', 1, 'q', gen_random_uuid(), 's', '{}', true, '{signal/x}', id from pointsman.instances where parent_id is not null`)
	must(b.Cancel(t.Context(), engine.ByID(uuid.MustParse("00000000-0000-7000-8000-000000000001")), "", engine.WithChildren()))(t)
	equal(t, "live", b.count(`select count(*) from pointsman.instances where live`), 0)
	equal(t, "told to the dead", b.count(`select count(*) from pointsman.signals`), 0)
}

// More ends than a step is handed come in packs: by awaits that consume, and in the end with nothing, so that none waits for more.
func TestChildrenInPacks(t *testing.T) {
	t.Parallel()
	const n = 2300
	b := setup(t)
	var d diary
	w := b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("pack", "go")),
		"pack": d.around(func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if v.Instance.CorrelationKey == "unbounded" { // what has no end of its own sleeps in the end
				return engine.Await("pack").OrChildren(engine.AllChildren).Consuming(), nil
			}
			if ends, _ := engine.ChildEnds(v.Awaited); len(ends) == 0 && len(v.Awaited) == 0 {
				return engine.Done(nil), nil
			}
			return engine.Await("pack").OrChildren(engine.AllChildren).Consuming(), nil
		}),
	}))
	for _, key := range []string{"bounded", "unbounded"} {
		id := b.parked(key)
		b.exec(`insert into pointsman.signals (instance_id, kind, name, payload) select $1, 'child', gen_random_uuid()::text, '{}' from generate_series(1, $2)`, id, n)
		before := len(d.all())
		b.send(key, "go", "1")
		if key == "bounded" {
			b.ends(id, engine.StatusDone)
		}
		eventually(t, "consumed", func() bool {
			in := b.get(id)
			return in.InboxCount == 0 && in.Status != engine.StatusRunnable && in.Status != engine.StatusExecuting && len(d.all()) == before+5
		})
		var packs []int
		for _, v := range d.all()[before:] {
			packs = append(packs, len(v.Awaited))
		}
		equal(t, "packs", fmt.Sprint(packs), "[1 1000 1000 300 0]")
	}
	w.stop()
	equal(t, "executions", len(d.all()), 10)
}

// What waits for children and was handed all that there are sleeps, whatever else wakes it.
func TestAwaitChildrenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	again := engine.Await("again", "x").OrChildren(engine.AllChildren)
	w := b.serve(steps(t, map[string]step{
		"begin": to(again.StartChild(child("a", "well"))),
		"again": d.around(to(again)),
		"well":  to(engine.Done(nil)),
	}))
	id := b.begin("m", "k").ID
	for i := range 3 {
		eventually(t, "parked again", func() bool { return len(d.all()) == i+1 && b.get(id).Status == engine.StatusAwaiting })
		b.send("k", "x", fmt.Sprint(i))
	}
	eventually(t, "parked again", func() bool { return len(d.all()) == 4 && b.get(id).Status == engine.StatusAwaiting })
	w.stop()
	equal(t, "executions", len(d.all()), 4)
}

// What is wrong with an await of children is an error of its step.
func TestBadChildren(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, o := range map[string]engine.Outcome{
		"OrChildren(all children): wants an await":     engine.Next("begin").OrChildren(engine.AllChildren),
		"waits for 0 ends":                             engine.Await("begin").OrChildren(engine.NChildren(0)),
		"waits for 1001 ends":                          engine.Await("begin").OrChildren(engine.NChildren(1001)),
		"waits for children already":                   engine.Await("begin").OrChildren(engine.AnyChild).OrChildren(engine.AllChildren),
		"AllOf: wants an await of names":               engine.Await("begin").OrChildren(engine.AnyChild).AllOf(),
		"NOf(3): the await has 2 names":                engine.Await("begin", "a", "b", "a").NOf(3),
		"NOf(0): the await has 2 names":                engine.Await("begin", "a", "b").NOf(0),
		`Where("c"): the await does not name it`:       engine.Await("begin", "a", "b").Where("c", "$.x == 1"),
		"the path has 1025 bytes":                      engine.Await("begin", "a").Where("a", strings.Repeat("$", 1025)),
		"the path is empty":                            engine.Await("begin", "a").Where("a", ""),
		`"$.x >" is no SQL/JSON path`:                  engine.Await("begin", "a").Where("a", "$.x >"),
		`is no SQL/JSON path: invalid regular express`: engine.Await("begin", "a").Where("a", `$.x like_regex "("`),
	} {
		m := define(t, engine.Definition[raw]{Name: "m", Steps: map[string]step{"begin": to(o)}, Retry: engine.RetryPolicy{MaxAttempts: 1}})
		w := b.serve(m)
		contains(t, "last error", b.ends(b.begin("m", "").ID, engine.StatusFailed).LastError, want)
		w.stop()
	}
}
