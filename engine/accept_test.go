package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/engine"
)

// key is a signal "s" to a key of the default project, with a payload that is its dedup key.
func key(k, dedup string) engine.Intake {
	return engine.Intake{To: engine.ByKey("", k), Name: "s", DedupKey: dedup, Payload: engine.MustJSON(dedup)}
}

func results(rs []engine.Receipt) string {
	var all []string
	for _, r := range rs {
		all = append(all, string(r.Result))
	}
	return strings.Join(all, " ")
}

// machine is one that eats the signals "s" one after another until there is an "end".
func (b *bundle) machine() *engine.Machine {
	b.t.Helper()
	return steps(b.t, map[string]step{
		"begin": to(engine.Await("eat", "s", "end")),
		"eat": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if strings.Contains(names(v.Awaited), "end") {
				return engine.Done(nil), nil
			}
			return engine.Next("begin"), nil
		},
	})
}

// finished starts an instance under a key and ends it.
func (b *bundle) finished(k string) uuid.UUID {
	b.t.Helper()
	id := b.begin("m", k).ID
	b.accept(engine.Intake{To: engine.ByID(id), Name: "end"})
	b.ends(id, engine.StatusDone)
	return id
}

// Every result, in one batch.
func TestAcceptResults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	live, ended := b.begin("m", "live").ID, b.finished("ended")
	known := b.accept(key("live", "known"))[0]
	start := &engine.NewInstance{Machine: "m"}
	with := func(in engine.Intake, change func(*engine.Intake)) engine.Intake {
		change(&in)
		return in
	}
	long := engine.MustJSON(strings.Repeat("x", 1<<20))
	batch := []engine.Intake{
		key("live", "new"),
		with(key("", "new by id"), func(in *engine.Intake) { in.To = engine.ByID(live) }),
		key("live", "known"),
		with(key("live", "known"), func(in *engine.Intake) { in.Payload = raw(`"other"`) }),
		with(key("live", "known"), func(in *engine.Intake) { in.Name = "other" }),
		with(key("nobody", "d"), func(in *engine.Intake) { in.OnMissing = engine.MissingHold }),
		with(key("fresh", "d"), func(in *engine.Intake) { in.OnMissing, in.Start = engine.MissingStart, start }),
		with(key("ended", "d"), func(in *engine.Intake) { in.OnTerminal, in.Start = engine.TerminalStart, start }),
		{To: engine.ByKey("", "alone"), DedupKey: "d", Start: start},
		{To: engine.ByKey("", "live"), DedupKey: "d", Start: start},
		{DedupKey: "no key", Start: start},
		key("rejected", "d"),
		with(key("", "to the ended"), func(in *engine.Intake) { in.To = engine.ByID(ended) }),
		with(key("", "d"), func(in *engine.Intake) { in.To = engine.ByID(uuid.New()) }),
		with(key("dropped", "d"), func(in *engine.Intake) { in.OnMissing = engine.MissingDrop }),
		with(key("", "dropped"), func(in *engine.Intake) { in.To, in.OnTerminal = engine.ByID(ended), engine.TerminalDrop }),
		with(key("live", "json"), func(in *engine.Intake) { in.Payload = raw(`{"a":`) }),
		with(key("live", "null"), func(in *engine.Intake) { in.Payload = raw(`"\u0000"`) }),
		with(key("live", "long"), func(in *engine.Intake) { in.Payload = long }),
		with(key("live", "trace"), func(in *engine.Intake) { in.Traceparent = "a\x00b" }), // only Postgres notices
		key("live", "bad\ndedup"),
		key("", "to nobody"),
		with(key("live", "name"), func(in *engine.Intake) { in.Name = "a b" }),
		{To: engine.ByKey("", "live")},
		with(key("live", "start"), func(in *engine.Intake) { in.Start = &engine.NewInstance{} }),
		with(key("", "start by id"), func(in *engine.Intake) { in.To, in.Start = engine.ByID(live), start }),
		{To: engine.ByKey("a.b", "live"), Name: "s"},
		{DedupKey: "no key", Start: start},
		key("live", ""),
		key("live", ""),
	}
	want := "delivered delivered duplicate conflict conflict held started started started duplicate started no_target no_target no_target dropped dropped " +
		"refused refused refused refused refused refused refused refused refused refused refused duplicate delivered delivered"
	rs := b.accept(batch...)
	equal(t, "results", results(rs), want)
	equal(t, "instance", rs[0].InstanceID, live)
	equal(t, "known signal", rs[2].SignalID, known.SignalID)
	contains(t, "conflict", rs[3].Reason, `the dedup key "known" was used before`)
	contains(t, "no target", rs[11].Reason, `nobody has the key "rejected"`)
	contains(t, "ended", rs[12].Reason, "instance "+ended.String()+" is done since")
	contains(t, "no instance", rs[13].Reason, "there is no instance")
	for _, i := range []int{12, 15} {
		if e := rs[i].Ended; e == nil || e.ID != ended || e.Status != engine.StatusDone || e.At.IsZero() {
			t.Errorf("%d: ended %+v", i, rs[i].Ended)
		}
	}
	for i := 16; i <= 26; i++ {
		equal(t, fmt.Sprint(i, " has a reason"), rs[i].Reason != "", true)
	}
	equal(t, "started", b.get(rs[8].InstanceID).CorrelationKey, "alone")
	equal(t, "started before", rs[9].InstanceID, live)
	equal(t, "started once", rs[27].InstanceID, rs[10].InstanceID)

	again := b.accept(batch...)
	equal(t, "results again", results(again), strings.NewReplacer("held", "duplicate", "started", "duplicate").Replace(
		"duplicate duplicate duplicate conflict conflict held started started started duplicate started no_target no_target no_target dropped dropped "+
			"refused refused refused refused refused refused refused refused refused refused refused duplicate delivered delivered"))
	for i := range 11 {
		equal(t, fmt.Sprint(i, " is the same signal"), again[i].SignalID, rs[i].SignalID)
	}
}

// Dedup outlives consumption and the instance.
func TestDuplicateForEver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	id := b.begin("m", "k").ID
	first := b.accept(key("k", "d"))[0]
	b.until(id, "consumed", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting && in.InboxCount == 0 })
	equal(t, "consumed", b.accept(key("k", "d"))[0], engine.Receipt{Result: engine.Duplicate, InstanceID: id, SignalID: first.SignalID})
	b.accept(engine.Intake{To: engine.ByID(id), Name: "end"})
	b.ends(id, engine.StatusDone)
	equal(t, "ended", b.accept(key("k", "d"))[0], engine.Receipt{Result: engine.Duplicate, InstanceID: id, SignalID: first.SignalID})
	other := key("k", "d")
	other.Payload = raw(`1`)
	equal(t, "another after the end", b.accept(other)[0].Result, engine.Conflict)
	b.begin("m", "k")
	equal(t, "with a new holder of the key", b.accept(key("k", "d"))[0].Result, engine.Duplicate)
}

// A message is known by its place in the stream, even under another dedup key.
func TestRedeliveredUnderAnotherDedupKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	b.begin("m", "k")
	from := func(dedup string, seq uint64, again bool, onMissing engine.OnMissing, k string) engine.Intake {
		in := key(k, dedup)
		in.Origin = engine.Origin{Stream: "S", Created: time.Unix(1, 0), Sequence: seq}
		in.Redelivered, in.OnMissing = again, onMissing
		return in
	}
	equal(t, "first", results(b.accept(from("a", 1, false, "", "k"), from("h", 2, false, engine.MissingHold, "nobody"))), "delivered held")
	equal(t, "again", results(b.accept(from("b", 1, true, "", "k"), from("g", 2, true, engine.MissingHold, "nobody"), from("c", 3, true, "", "k"))), "duplicate duplicate delivered")
	other := from("d", 1, true, "", "k")
	other.Origin.Created = time.Unix(2, 0)
	equal(t, "of a stream made again", results(b.accept(other)), "delivered")
}

// Repetitions inside a batch count as if they came one after the other.
func TestAcceptRepetitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	b.begin("m", "k")
	changed := func(k, dedup string) engine.Intake {
		in := key(k, dedup)
		in.Payload = raw(`"changed"`)
		return in
	}
	hold := func(in engine.Intake) engine.Intake {
		in.OnMissing = engine.MissingHold
		return in
	}
	equal(t, "new", results(b.accept(key("k", "d"), key("k", "d"), changed("k", "d"), key("k", "d"), key("k", "e"))), "delivered duplicate conflict duplicate delivered")
	equal(t, "known", results(b.accept(changed("k", "d"), key("k", "d"), changed("k", "d"), key("k", "d"))), "conflict duplicate conflict duplicate")
	equal(t, "held", results(b.accept(hold(key("h", "d")), hold(key("h", "d")), hold(changed("h", "d")))), "held duplicate conflict")
	equal(t, "held before", results(b.accept(hold(changed("h", "d")), hold(key("h", "d")))), "conflict duplicate")
	equal(t, "turned away", results(b.accept(key("n", "d"), key("n", "d"))), "no_target no_target")
	bad := key("k", "bad")
	bad.Traceparent = "\x00"
	equal(t, "refused", results(b.accept(bad, bad, key("k", "good"))), "refused refused delivered")
}

// Signals for one target stand in its inbox in the order of the batch, however they got there; one that starts it comes first, and
// what was held before.
func TestAcceptOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := &engine.NewInstance{Machine: "idle"}
	var batch []engine.Intake
	const n = 450
	for i := range n {
		in := key(fmt.Sprint("k", i%3), fmt.Sprint(i))
		in.OnMissing, in.Start = engine.MissingStart, start
		switch {
		case i < 3:
			in.OnMissing, in.Start = engine.MissingHold, nil
		case i%7 == 6:
			in.OnMissing, in.Start = engine.MissingReject, nil
		case i%11 == 10:
			in.OnMissing, in.Start = engine.MissingHold, nil
		case i%13 == 12:
			in.Redelivered, in.Origin = true, engine.Origin{Stream: "S", Sequence: uint64(i)}
		}
		batch = append(batch, in)
	}
	rs := b.accept(batch...)
	equal(t, "the first", results(rs[:7]), "held held held started started started delivered")
	equal(t, "out of order", b.count(`select count(*) from (select dedup_key::int - lag(dedup_key::int) over (partition by instance_id order by id) as step from pointsman.signals) x where step <> 3`), 0)
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), n)
	equal(t, "instances", b.count(`select count(*) from pointsman.instances`), 3)
	equal(t, "held beside a live instance", b.count(`select count(*) from pointsman.held`), 0)
}

// A start without a signal is for those behind it too; where it comes to nothing, these go the way of their own policies.
func TestAcceptStartThenSignals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	alone := func(k, dedup string) engine.Intake {
		return engine.Intake{To: engine.ByKey("", k), DedupKey: dedup, Start: &engine.NewInstance{Machine: "m"}}
	}
	hold := func(in engine.Intake) engine.Intake {
		in.OnMissing = engine.MissingHold
		return in
	}
	rs := b.accept(hold(key("k", "before")), alone("k", "d"), key("k", "after"), hold(key("k", "later")), alone("k", "second"))
	equal(t, "results", results(rs), "held started delivered delivered duplicate")
	equal(t, "held", b.count(`select count(*) from pointsman.held`), 0)
	id := rs[1].InstanceID
	equal(t, "instance", rs[2].InstanceID, id)
	b.accept(engine.Intake{To: engine.ByID(id), Name: "end"})
	b.ends(id, engine.StatusDone)
	rs = b.accept(alone("k", "d"), key("k", "too late"), hold(key("k", "much too late")))
	equal(t, "results after the end", results(rs), "duplicate no_target no_target")
	equal(t, "ended", rs[1].Ended.ID, id)
}

// Held signals are given to whoever starts with the key, and wake it like others.
func TestHeldIsAdopted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	in := engine.Intake{To: engine.ByKey("", "k"), Name: "end", DedupKey: "d", OnMissing: engine.MissingHold}
	equal(t, "first", b.accept(in)[0].Result, engine.Held)
	b.ends(b.begin("m", "k").ID, engine.StatusDone)
	equal(t, "after", b.accept(in)[0].Result, engine.Duplicate)
}

// A hold that is over becomes a dead letter with the message it was made from.
func TestHeldExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	in := key("k", "d")
	in.OnMissing, in.HoldFor, in.Body = engine.MissingHold, time.Millisecond, []byte("as received")
	in.Origin = engine.Origin{Stream: "S", Created: time.Unix(0, 5), Sequence: 7}
	in.Message = &engine.Message{Route: "r", Subject: "a.b", Headers: map[string][]string{"X": {"1"}}, Deliveries: 2}
	b.accept(in)
	eventually(t, "a dead letter", func() bool { return len(b.published(engine.PublishDeadLetter)) == 1 })
	p := b.published(engine.PublishDeadLetter)[0]
	equal(t, "subject", p.Subject, "r")
	equal(t, "id of route, place, key and hold", strings.HasPrefix(p.MsgID, "r:S@5:7:") && len(p.MsgID) > len("r:S@5:7:")+36, true) // and of the time of the hold
	equal(t, "body", string(p.Body), "as received")
	equal(t, "header", p.Headers["X"][0], "1")
	contains(t, "reason", p.Headers["Pointsman-Reason"][0], `nobody started with the key "k"`)
	equal(t, "adopted later", b.begin("m", "k").InboxCount, 0)
}

// Projects are apart: a key in one says nothing of the other, and an id of one is not reached through another.
func TestProjects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(b.machine())
	in := func(project string) engine.Intake {
		return engine.Intake{To: engine.ByKey(project, "k"), Name: "s", DedupKey: "d"}
	}
	a := b.start(engine.NewInstance{Project: "a", Machine: "m", CorrelationKey: "k"})
	equal(t, "results", results(b.accept(in("a"), in("b"), in(""), in("a"))), "delivered no_target no_target duplicate")
	c := b.start(engine.NewInstance{Project: "b", Machine: "m", CorrelationKey: "k"})
	equal(t, "other instance", a.ID != c.ID, true)
	equal(t, "results", results(b.accept(in("a"), in("b"))), "duplicate delivered")
}

// The transactions of callers: nothing before their commit, nothing after a rollback, and no level but read committed.
func TestTxTwins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	run := func(tx pgx.Tx) (engine.Instance, error) {
		if _, err := b.AcceptTx(ctx, tx, []engine.Intake{{To: engine.ByKey("", "k"), Name: "s", DedupKey: "held", OnMissing: engine.MissingHold}}); err != nil {
			return engine.Instance{}, err
		}
		in, err := b.StartTx(ctx, tx, engine.NewInstance{Machine: "m", CorrelationKey: "k"})
		if err != nil {
			return in, err
		}
		if _, err := b.StartTx(ctx, tx, engine.NewInstance{Machine: "m", CorrelationKey: "k"}); engine.Code(err) != "conflict" {
			t.Errorf("a second start: %v", err)
		}
		if r, err := b.SignalTx(ctx, tx, engine.ByKey("", "k"), engine.Signal{Name: "s"}); err != nil || r.Result != engine.Delivered {
			t.Errorf("signal: %+v, %v", r, err)
		}
		if _, err := b.SignalTx(ctx, tx, engine.ByKey("", "nobody"), engine.Signal{Name: "s"}); !errors.Is(err, engine.ErrNoTarget) {
			t.Errorf("signal to nobody: %v", err)
		}
		return b.GetTx(ctx, tx, engine.ByID(in.ID))
	}
	for _, commit := range []bool{false, true} {
		tx := must(b.pool.Begin(ctx))(t)
		in := must(run(tx))(t)
		equal(t, "inbox inside", in.InboxCount, 2)
		if _, err := b.Get(ctx, engine.ByID(in.ID)); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("seen from outside: %v", err)
		}
		if !commit {
			must(0, tx.Rollback(ctx))(t)
			equal(t, "left by the rollback", b.count(`select (select count(*) from pointsman.instances) + (select count(*) from pointsman.ledger) + (select count(*) from pointsman.held)`), 0)
			continue
		}
		must(0, tx.Commit(ctx))(t)
		equal(t, "inbox", b.get(in.ID).InboxCount, 2)
	}
	tx := must(b.pool.Begin(ctx))(t)
	id := must(b.Get(ctx, engine.ByKey("", "k")))(t).ID
	equal(t, "canceled", must(b.CancelTx(ctx, tx, engine.ByID(id), "over"))(t).Status, engine.StatusCanceled)
	must(0, tx.Rollback(ctx))(t)
	equal(t, "after the rollback", b.get(id).Status, engine.StatusRunnable)
}

func TestTxWantsReadCommitted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx := must(b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level}))(t)
		_, e1 := b.AcceptTx(ctx, tx, nil)
		_, e2 := b.SignalTx(ctx, tx, engine.ByKey("", "k"), engine.Signal{Name: "s"})
		_, e3 := b.StartTx(ctx, tx, engine.NewInstance{Machine: "m"})
		_, e4 := b.CancelTx(ctx, tx, engine.ByKey("", "k"), "")
		for _, err := range []error{e1, e2, e3, e4} {
			if err == nil {
				t.Fatalf("%s: accepted", level)
			}
			contains(t, "error", err.Error(), "begin it with isolation level read committed")
		}
		must(0, tx.Rollback(ctx))(t)
	}
}

// The same messages, given to several clients at once in different orders, are taken in once each, and start each instance once.
func TestAcceptConcurrently(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n, keys, clients = 300, 20, 4
	results := make([]map[engine.Result]int, n)
	var mu sync.Mutex
	var g errgroup.Group
	for c := range clients {
		var batch []engine.Intake
		var which []int
		for i := range n {
			k := (i*7 + c*13) % n
			in := key(fmt.Sprint("k", k%keys), fmt.Sprint(k))
			in.OnMissing, in.Start = engine.MissingStart, &engine.NewInstance{Machine: "idle"}
			batch, which = append(batch, in), append(which, k)
		}
		client := b.another(b.db.URL)
		g.Go(func() error {
			rs, err := client.Accept(t.Context(), batch)
			mu.Lock()
			defer mu.Unlock()
			for i, r := range rs {
				if results[which[i]] == nil {
					results[which[i]] = map[engine.Result]int{}
				}
				results[which[i]][r.Result]++
			}
			return err
		})
	}
	must(0, g.Wait())(t)
	for i, r := range results {
		if r[engine.Delivered]+r[engine.Started] != 1 || r[engine.Duplicate] != clients-1 {
			t.Errorf("message %d: %v", i, r)
		}
	}
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), n)
	equal(t, "instances", b.count(`select count(*) from pointsman.instances`), keys)
}

// A batch whose database is away is an error: nothing is said of any intake.
func TestAcceptWithoutDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.connect("postgres://127.0.0.1:1/none?connect_timeout=1")
	c := must(engine.NewClient(pool, engine.Config{}))(t)
	if rs, err := c.Accept(t.Context(), []engine.Intake{key("k", "d")}); err == nil || rs != nil || engine.Code(err) != "unavailable" {
		t.Errorf("%+v, %v", rs, err)
	}
}

// One message may be held for several keys, and by several routes: each that expires is a dead letter of its own.
func TestEachHoldOfAMessageExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil))}))
	for _, route := range []string{"one", "two"} {
		for _, key := range []string{"a", "b"} {
			b.accept(engine.Intake{
				To: engine.ByKey("", key), Name: "s-" + route, DedupKey: route, OnMissing: engine.MissingHold, HoldFor: time.Millisecond,
				Origin: engine.Origin{Route: route, Stream: "S", Created: time.Unix(0, 5), Sequence: 7}, Message: &engine.Message{Route: route},
			})
		}
	}
	eventually(t, "all expire", func() bool { return len(b.published(engine.PublishDeadLetter)) == 4 })
	ids := map[string]bool{}
	for _, p := range b.published(engine.PublishDeadLetter) {
		ids[p.MsgID] = true
	}
	equal(t, "ids", len(ids), 4)
}

// What two routes make of one message are two signals, also when it is redelivered in between; what one route makes of it is one,
// whatever its dedup key is by now.
func TestRoutesOfOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("", "never"))}))
	b.parked("k")
	intake := func(route, dedup string) engine.Intake {
		return engine.Intake{
			To: engine.ByKey("", "k"), Name: "s-" + route, DedupKey: dedup, Redelivered: true,
			Origin: engine.Origin{Route: route, Stream: "S", Created: time.Unix(0, 5), Sequence: 7},
		}
	}
	for _, c := range []struct {
		in   engine.Intake
		want engine.Result
	}{
		{intake("one", "1"), engine.Delivered},
		{intake("two", "2"), engine.Delivered},
		{intake("one", "1 by now"), engine.Duplicate},
		{intake("two", "1"), engine.Duplicate},
		{intake("three", "1"), engine.Conflict},
	} {
		equal(t, c.in.Origin.Route+" "+c.in.DedupKey, b.accept(c.in)[0].Result, c.want)
	}
}
