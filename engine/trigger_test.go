package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/engine"
)

// waiter is a machine that awaits the event whose key is its state, and ends with what it came to.
func waiter(t *testing.T) *engine.Machine {
	t.Helper()
	return must(engine.Define(engine.Definition[engine.EventWait]{Name: "waiter", Start: "begin", Steps: map[string]engine.Step[engine.EventWait]{
		"begin": func(_ context.Context, v *engine.Visit[engine.EventWait]) (engine.Outcome, error) {
			return engine.Await("end", "other").OrEvent(v.State), nil
		},
		"end": func(_ context.Context, v *engine.Visit[engine.EventWait]) (engine.Outcome, error) {
			var got []string
			for _, s := range v.Awaited {
				if s.Name == "other" {
					return engine.Await("end", "none").OrEvent(v.State), nil // goes on with the wait
				}
				got = append(got, s.Kind+" "+s.Name+" "+string(s.Payload))
			}
			return engine.Done(map[string]any{"got": got, "timed_out": v.TimedOut, "canceled": v.Canceled}), nil
		},
	}}))(t)
}

func (b *bundle) waiting(w engine.EventWait) engine.Instance {
	b.t.Helper()
	in := b.start(engine.NewInstance{Machine: "waiter", CorrelationKey: uuid.NewString(), State: engine.MustJSON(w)})
	return b.reaches(in.ID, engine.StatusAwaiting)
}

func (b *bundle) sendEvent(key, payload string) engine.EventReceipt {
	b.t.Helper()
	return must(b.SendEvent(b.t.Context(), engine.NewEvent{Key: key, Payload: json.RawMessage(payload)}))(b.t)
}

func (b *bundle) trigger(key string) engine.Trigger {
	b.t.Helper()
	return must(b.Trigger(b.t.Context(), "", key))(b.t)
}

func (b *bundle) result(id uuid.UUID, want string) {
	b.t.Helper()
	equal(b.t, "result", string(b.ends(id, engine.StatusDone).Result), want)
}

func TestAwaitEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "approval:1", RequestPayload: json.RawMessage(`{"amount": 5}`)})
	equal(t, "awaits", fmt.Sprint(in.Awaits), "[other approval:1]")
	g := b.trigger("approval:1")
	if g.Status != engine.TriggerWaiting || g.Source != engine.SourceRun || *g.JobRunID != in.ID || g.TimeoutSecs != 3600 || g.ExpiresAt.Sub(g.RequestedAt) != time.Hour {
		t.Errorf("%+v", g)
	}
	r := b.sendEvent("approval:1", `{"approved": true}`)
	equal(t, "result", r.Result, engine.Delivered)
	equal(t, "status", r.Trigger.Status, engine.TriggerReceived)
	b.result(in.ID, `{"got": ["event approval:1 {\"approved\": true}"], "canceled": false, "timed_out": false}`)
}

// What ends the wait otherwise.
func TestAwaitEventEndsWithout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	timed := b.waiting(engine.EventWait{Key: "late", Timeout: time.Second})
	canceled := b.waiting(engine.EventWait{Key: "canceled"})
	must(b.CancelTrigger(t.Context(), "", "canceled"))(t)
	must(b.CancelTrigger(t.Context(), "", "canceled"))(t)
	b.result(canceled.ID, `{"got": null, "canceled": true, "timed_out": false}`)
	b.result(timed.ID, `{"got": null, "canceled": false, "timed_out": true}`)
	g := b.trigger("late")
	equal(t, "status", g.Status, engine.TriggerTimedOut)
	contains(t, "error", *g.Error, "no event within 1s")
	for _, key := range []string{"late", "canceled"} {
		var conflict *engine.ConflictError
		if _, err := b.SendEvent(t.Context(), engine.NewEvent{Key: key}); !errors.As(err, &conflict) {
			t.Errorf("an event to one that is %s: %v", b.trigger(key).Status, err)
		}
	}
	if _, err := b.CancelTrigger(t.Context(), "", "late"); engine.Code(err) != "conflict" {
		t.Errorf("cancel of one that timed out: %v", err)
	}
	gone := b.waiting(engine.EventWait{Key: "gone"})
	must(b.Cancel(t.Context(), engine.ByID(gone.ID), ""))(t)
	equal(t, "the trigger of who has ended", b.trigger("gone").Status, engine.TriggerCanceled)
}

// An await of the same key goes on with the same trigger, up to its time.
func TestAwaitEventAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "again"})
	first := b.trigger("again")
	must(b.Signal(t.Context(), engine.ByID(in.ID), engine.Signal{Name: "other"}))(t)
	b.until(in.ID, "awaits again", func(in engine.Instance) bool { return slices.Contains(in.Awaits, "none") })
	equal(t, "the trigger", b.trigger("again").ID, first.ID)
	// The signal is in the inbox, was handed, and is not awaited any more.
	b.sendEvent("again", `1`)
	b.result(in.ID, `{"got": ["event again 1"], "canceled": false, "timed_out": false}`)
}

// A key that is taken, and a quota that is used up, are errors of that step alone.
func TestAwaitEventRefused(t *testing.T) {
	t.Parallel()
	b := setupWith(t, engine.Config{MaxActiveTriggers: 1})
	once := must(engine.Define(engine.Definition[engine.EventWait]{Name: "once", Start: "begin", Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]engine.Step[engine.EventWait]{
		"begin": func(_ context.Context, v *engine.Visit[engine.EventWait]) (engine.Outcome, error) {
			return engine.Await("begin").OrEvent(v.State), nil
		},
	}}))(t)
	handled := must(engine.Define(engine.Definition[engine.EventWait]{
		Name: "handled", Start: "begin", Steps: map[string]engine.Step[engine.EventWait]{
			"begin": func(_ context.Context, v *engine.Visit[engine.EventWait]) (engine.Outcome, error) {
				return engine.Await("begin").OrEvent(v.State), nil
			},
		},
		OnError: func(_ context.Context, v *engine.Visit[engine.EventWait], cause error) engine.Outcome {
			return engine.Done(cause.Error())
		},
	}))(t)
	b.serve(waiter(t), once, handled)
	holder := b.waiting(engine.EventWait{Key: "one"})
	begin := func(machine, key string) uuid.UUID {
		return b.start(engine.NewInstance{Machine: machine, State: engine.MustJSON(engine.EventWait{Key: key})}).ID
	}
	taken := b.ends(begin("once", "one"), engine.StatusFailed)
	contains(t, "why", taken.LastError, fmt.Sprintf("instance %s waits for the event \"one\"", holder.ID))
	over := b.ends(begin("once", "two"), engine.StatusFailed)
	contains(t, "why", over.LastError, "project has reached maximum active event triggers (1)")
	contains(t, "what the handler saw", string(b.ends(begin("handled", "two"), engine.StatusDone).Result), "maximum active event triggers")
	b.sendEvent("one", `1`)
	b.ends(holder.ID, engine.StatusDone)
	b.waiting(engine.EventWait{Key: "two"})
}

func TestWaitForEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "w:1"})
	g := must(b.WaitForEvent(t.Context(), engine.ByID(in.ID), engine.EventWait{Key: "w:2"}))(t)
	equal(t, "source", g.Source, engine.SourceRun)
	b.sendEvent("w:2", `2`)
	equal(t, "does not wake who does not await it", b.get(in.ID).Status, engine.StatusAwaiting)
	inbox := must(b.Inbox(t.Context(), in.ID, 0, 10))(t)
	if len(inbox) != 1 || inbox[0].Kind != engine.KindEvent || inbox[0].Name != "w:2" || inbox[0].DedupKey != g.ID.String() {
		t.Errorf("inbox: %+v", inbox)
	}
	if _, err := b.WaitForEvent(t.Context(), engine.ByID(in.ID), engine.EventWait{Key: "w:1"}); engine.Code(err) != "conflict" {
		t.Errorf("a key that waits: %v", err)
	}
	b.sendEvent("w:1", `1`)
	b.ends(in.ID, engine.StatusDone)
	if _, err := b.WaitForEvent(t.Context(), engine.ByID(in.ID), engine.EventWait{Key: "w:3"}); engine.Code(err) != "no_target" {
		t.Errorf("of one that has ended: %v", err)
	}
	if _, err := b.WaitForEvent(t.Context(), engine.ByID(uuid.New()), engine.EventWait{Key: "w:3"}); engine.Code(err) != "not_found" {
		t.Errorf("of nobody: %v", err)
	}
}

// Payloads are compared as JSON values: numbers by all of their digits, objects whatever the order.
func TestSendEventAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, c := range []struct {
		first, second string
		same          bool
	}{
		{`{"a": 1, "b": [1, 2]}`, `{"b":[1,2],"a":1}`, true},
		{`1`, `1.0`, true},
		{`1`, `1e0`, true},
		{`100`, `1e2`, true},
		{`12345678901234567`, `12345678901234568`, false},
		{`0.1`, `0.10000000000000000001`, false},
		{`"a"`, `"\u0061"`, true},
		{`[1, 2]`, `[2, 1]`, false},
		{``, `null`, true},
		{`null`, `{}`, false},
	} {
		key := fmt.Sprint("pair:", i)
		must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: key}))(t)
		equal(t, c.first, b.sendEvent(key, c.first).Result, engine.Delivered)
		r, err := b.SendEvent(t.Context(), engine.NewEvent{Key: key, Payload: json.RawMessage(c.second)})
		if (err == nil) != c.same || c.same && (r.Result != engine.Duplicate || r.Trigger.EventKey != key) || !c.same && engine.Code(err) != "conflict" {
			t.Errorf("%s, then %s: %+v, %v", c.first, c.second, r, err)
		}
	}
}

// A key can be used again when its trigger has ended; a resend is then of the latest.
func TestEventKeyAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	create := func() (engine.Trigger, error) {
		return b.CreateTrigger(t.Context(), "", engine.EventWait{Key: "k"})
	}
	first := must(create())(t)
	if _, err := create(); engine.Code(err) != "conflict" {
		t.Errorf("while it waits: %v", err)
	}
	b.sendEvent("k", `1`)
	second := must(create())(t)
	if first.ID == second.ID {
		t.Error("one trigger twice")
	}
	r := b.sendEvent("k", `2`)
	equal(t, "who receives", r.Trigger.ID, second.ID)
	if _, err := b.SendEvent(t.Context(), engine.NewEvent{Key: "k", Payload: json.RawMessage(`1`)}); engine.Code(err) != "conflict" {
		t.Errorf("the event of the one before: %v", err)
	}
	other := must(b.CreateTrigger(t.Context(), "elsewhere", engine.EventWait{Key: "k"}))(t)
	equal(t, "of another project", other.Project, "elsewhere")
}

func TestHeldEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	if _, err := b.SendEvent(t.Context(), engine.NewEvent{Key: "unknown"}); !errors.Is(err, engine.ErrNoTrigger) {
		t.Errorf("an unknown key: %v", err)
	}
	hold := func(payload string) (engine.EventReceipt, error) {
		return b.SendEvent(t.Context(), engine.NewEvent{Key: "early", Payload: json.RawMessage(payload), Hold: time.Hour, SentBy: "me"})
	}
	first := must(hold(`1`))(t)
	equal(t, "result", first.Result, engine.Held)
	again := must(hold(`1.0`))(t)
	if again.Result != engine.Held || !again.HeldUntil.Equal(first.HeldUntil) {
		t.Errorf("again: %+v", again)
	}
	if _, err := hold(`2`); engine.Code(err) != "conflict" {
		t.Errorf("another one: %v", err)
	}
	in := b.start(engine.NewInstance{Machine: "waiter", State: engine.MustJSON(engine.EventWait{Key: "early"})})
	b.result(in.ID, `{"got": ["event early 1"], "canceled": false, "timed_out": false}`)
	equal(t, "sent by", *b.trigger("early").SentBy, "me")
	equal(t, "sent again", must(hold(`1`))(t).Result, engine.Duplicate)
	must(b.SendEvent(t.Context(), engine.NewEvent{Key: "over", Hold: time.Millisecond}))(t)
	eventually(t, "the hold is over", func() bool {
		n := 0
		_ = b.pool.QueryRow(t.Context(), `select count(*) from `+b.db.Schema+`.held_events`).Scan(&n)
		return n == 0
	})
}

// Emits commit with their step, and find who waits, or who will.
func TestEmit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	emitter := must(engine.Define(engine.Definition[struct{}]{Name: "emitter", Start: "begin", Steps: map[string]engine.Step[struct{}]{
		"begin": func(context.Context, *engine.Visit[struct{}]) (engine.Outcome, error) {
			return engine.Done(nil).Emit("chain:1", map[string]int{"n": 1}).Emit("chain:2", "early"), nil
		},
	}}))(t)
	b.serve(waiter(t), emitter)
	in := b.waiting(engine.EventWait{Key: "chain:1"})
	b.begin("emitter", "e")
	b.result(in.ID, `{"got": ["event chain:1 {\"n\": 1}"], "canceled": false, "timed_out": false}`)
	equal(t, "sent by", *b.trigger("chain:1").SentBy, "emitter/begin")
	late := b.start(engine.NewInstance{Machine: "waiter", State: engine.MustJSON(engine.EventWait{Key: "chain:2"})})
	b.result(late.ID, `{"got": ["event chain:2 \"early\""], "canceled": false, "timed_out": false}`)
	must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: "chain:3"}))(t)
}

func TestSleepTrigger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "cooldown", Timeout: time.Second, Sleep: true})
	if _, err := b.SendEvent(t.Context(), engine.NewEvent{Key: "cooldown"}); engine.Code(err) != "conflict" {
		t.Errorf("an event to a sleep: %v", err)
	}
	equal(t, "of a prefix", must(b.SendEventPrefix(t.Context(), "", "cool", nil, ""))(t), 0)
	b.result(in.ID, `{"got": ["event cooldown null"], "canceled": false, "timed_out": false}`)
	g := b.trigger("cooldown")
	if g.Status != engine.TriggerReceived || g.Type != engine.TypeSleep {
		t.Errorf("%+v", g)
	}
}

// A retry goes on with the waits that the end has canceled.
func TestRetryWaitsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in, other := b.waiting(engine.EventWait{Key: "r:1"}), b.waiting(engine.EventWait{Key: "r:2"})
	for _, id := range []uuid.UUID{in.ID, other.ID} {
		must(b.Cancel(t.Context(), engine.ByID(id), ""))(t)
	}
	equal(t, "while canceled", b.trigger("r:1").Status, engine.TriggerCanceled)
	must(b.Retry(t.Context(), engine.ByID(in.ID)))(t)
	equal(t, "after the retry", b.trigger("r:1").Status, engine.TriggerWaiting)
	b.sendEvent("r:1", `1`)
	b.result(in.ID, `{"got": ["event r:1 1"], "canceled": false, "timed_out": false}`)
	must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: "r:2"}))(t)
	must(b.Retry(t.Context(), engine.ByID(other.ID)))(t)
	b.result(other.ID, `{"got": null, "canceled": true, "timed_out": false}`)
}

// Who is paused is told when it resumes.
func TestPausedWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "p:1"})
	must(b.Pause(t.Context(), engine.ByID(in.ID)))(t)
	must(b.CancelTrigger(t.Context(), "", "p:1"))(t)
	equal(t, "while paused", b.get(in.ID).Status, engine.StatusAwaiting)
	must(b.Resume(t.Context(), engine.ByID(in.ID)))(t)
	b.result(in.ID, `{"got": null, "canceled": true, "timed_out": false}`)
}

// Fifty creators at once fill a quota of a hundred, and not one more. What has ended makes room.
func TestTriggerQuota(t *testing.T) {
	t.Parallel()
	const limit = 100
	b := setupWith(t, engine.Config{MaxActiveTriggers: limit})
	var created, refused atomic.Int64
	create := func(key string) {
		_, err := b.CreateTrigger(t.Context(), "", engine.EventWait{Key: key})
		var quota *engine.QuotaError
		switch {
		case err == nil:
			created.Add(1)
		case errors.As(err, &quota) && engine.Code(err) == "quota" && quota.Error() == "project has reached maximum active event triggers (100)":
			refused.Add(1)
		default:
			t.Errorf("create: %v", err)
		}
	}
	var all sync.WaitGroup
	for c := range 50 {
		all.Go(func() {
			for i := range 4 {
				create(fmt.Sprintf("q:%d:%d", c, i))
			}
		})
	}
	all.Wait()
	equal(t, "created", created.Load(), limit)
	equal(t, "refused", refused.Load(), limit)
	equal(t, "waiting", must(b.TriggerStats(t.Context(), ""))(t).Waiting, limit)
	waiting, _, err := b.Triggers(t.Context(), engine.TriggerFilter{Status: engine.TriggerWaiting}, uuid.Nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	b.sendEvent(waiting[0].EventKey, `1`)
	must(b.CancelTrigger(t.Context(), "", waiting[1].EventKey))(t)
	for i := range 3 {
		create(fmt.Sprint("more:", i))
	}
	equal(t, "created", created.Load(), limit+2)
	must(b.CreateTrigger(t.Context(), "elsewhere", engine.EventWait{Key: "q"}))(t)
	held := must(b.SendEvent(t.Context(), engine.NewEvent{Key: "held", Hold: time.Hour}))(t)
	equal(t, "held", held.Result, engine.Held)
	equal(t, "one that never waits", must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: "held"}))(t).Status, engine.TriggerReceived)
}

// One call reaches ten thousand; cut off in the middle and called again, each has the event once.
func TestSendEventPrefix(t *testing.T) {
	t.Parallel()
	const n = 10_000
	b := setup(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := b.pool.Exec(t.Context(), strings.ReplaceAll(sql, "pointsman.", b.db.Schema+".")); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into pointsman.triggers (id, project, event_key, source_type, timeout_secs, requested_at, expires_at)
		select gen_random_uuid(), 'default', 'batch_%:' || g, 'api', 3600, now(), now() + interval '1 h' from generate_series(1, 10000) g`)
	for _, key := range []string{"batchX%:1", "batch_x", "batch", "Batch_%:1", "batch_&:"} {
		must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: key}))(t)
	}
	cfg, name := b.pool.Config(), "cut off "+b.db.Schema
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	cutOff := must(engine.NewClient(pool, engine.Config{Schema: b.db.Schema}))(t)
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	done := make(chan int, 1)
	go func() {
		got, _ := cutOff.SendEventPrefix(ctx, "", "batch_%:", json.RawMessage(`{"status": "done"}`), "")
		done <- got
	}()
	eventually(t, "begun", func() bool { return must(b.TriggerStats(t.Context(), ""))(t).Received > 0 })
	cut()
	receive(t, done)
	pool.Close()
	eventually(t, "its last commit is made, or is not any more", func() bool {
		return b.count(`select count(*) from pg_stat_activity where application_name = $1`, name) == 0
	})
	first := must(b.TriggerStats(t.Context(), ""))(t).Received
	rest := must(b.SendEventPrefix(t.Context(), "", "batch_%:", json.RawMessage(`{"status": "done"}`), ""))(t)
	equal(t, "both", first+rest, n)
	equal(t, "again", must(b.SendEventPrefix(t.Context(), "", "batch_%:", nil, ""))(t), 0)
	equal(t, "stats", must(b.TriggerStats(t.Context(), ""))(t), engine.TriggerStats{Waiting: 5, Received: n})
	if _, err := b.SendEventPrefix(t.Context(), "", "", nil, ""); engine.Code(err) != "invalid" {
		t.Errorf("no prefix: %v", err)
	}
}

// A send to a prefix whose connection is killed between two of its transactions says how many have the event, and another call goes on with the
// rest: each instance is woken once.
func TestSendEventPrefixWakesOnce(t *testing.T) {
	t.Parallel()
	const n = 500
	b := setup(t)
	var mu sync.Mutex
	woken := map[uuid.UUID]int{}
	b.serve(must(engine.Define(engine.Definition[string]{Name: "waiter", Start: "begin", Steps: map[string]engine.Step[string]{
		"begin": func(_ context.Context, v *engine.Visit[string]) (engine.Outcome, error) {
			return engine.Await("end").OrEvent(engine.EventWait{Key: v.State}), nil
		},
		"end": func(_ context.Context, v *engine.Visit[string]) (engine.Outcome, error) {
			mu.Lock()
			defer mu.Unlock()
			woken[v.Instance.ID]++
			return engine.Done(fmt.Sprintf("%d %t %t %s", len(v.Awaited), v.TimedOut, v.Canceled, v.Awaited[0].Payload)), nil
		},
	}}))(t))
	var ids []uuid.UUID
	for i := range n {
		ids = append(ids, b.start(engine.NewInstance{Machine: "waiter", State: engine.MustJSON(fmt.Sprintf("fan:%03d", i))}).ID)
	}
	eventually(t, "all wait", func() bool { return must(b.TriggerStats(t.Context(), ""))(t).Waiting == n })

	tx := must(b.pool.Begin(t.Context()))(t)
	if _, err := tx.Exec(t.Context(), `select id from `+b.db.Schema+`.triggers where event_key = 'fan:300' for update`); err != nil {
		t.Fatal(err)
	}
	type sent struct {
		n   int
		err error
	}
	done := make(chan sent, 1)
	cut := b.another(b.db.URL)
	go func() {
		n, err := cut.SendEventPrefix(t.Context(), "", "fan:", json.RawMessage(`1`), "")
		done <- sent{n, err}
	}()
	eventually(t, "its second transaction is killed", func() bool {
		return b.count(`select count(pg_terminate_backend(pid)) from pg_stat_activity where wait_event_type = 'Lock' and query like '%/* end triggers */%' and query like '%`+b.db.Schema+`.triggers%'`) == 1
	})
	first := receive(t, done)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.err == nil || first.n == 0 || first.n >= n {
		t.Fatalf("the call that was cut off: %d, %v", first.n, first.err)
	}
	equal(t, "received", must(b.TriggerStats(t.Context(), ""))(t).Received, first.n)
	rest := must(b.SendEventPrefix(t.Context(), "", "fan:", json.RawMessage(`1`), ""))(t)
	equal(t, "both", first.n+rest, n)
	for _, id := range ids {
		b.result(id, `"1 false false 1"`)
	}
	equal(t, "again", must(b.SendEventPrefix(t.Context(), "", "fan:", json.RawMessage(`1`), ""))(t), 0)
	mu.Lock()
	defer mu.Unlock()
	equal(t, "woken", len(woken), n)
	for id, times := range woken {
		if times != 1 {
			t.Errorf("%s was woken %d times", id, times)
		}
	}
}

func TestTriggerBadRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []string{"", "stats", "purge", "prefix", "a\nb", "a\x00", strings.Repeat("x", 513), "\xff"} {
		_, created := b.CreateTrigger(t.Context(), "", engine.EventWait{Key: key})
		_, sent := b.SendEvent(t.Context(), engine.NewEvent{Key: key})
		_, got := b.Trigger(t.Context(), "", key)
		_, canceled := b.CancelTrigger(t.Context(), "", key)
		var watched error
		for _, err := range b.WatchTrigger(t.Context(), "", key) {
			watched = err
		}
		for what, err := range map[string]error{"create": created, "send": sent, "get": got, "cancel": canceled, "watch": watched} {
			if engine.Code(err) != "invalid" {
				t.Errorf("%s %.20q: %v", what, key, err)
			}
		}
	}
	for _, w := range []engine.EventWait{
		{Timeout: -1}, {Timeout: engine.MaxEventTimeout + 1}, {NotifyURL: "ftp://x"}, {NotifyURL: "https://"}, {NotifyURL: "https://u:p@x"}, {RequestPayload: json.RawMessage(`{`)}, {NotifyURL: "https://x/" + strings.Repeat("x", 2048)},
	} {
		w.Key = "k"
		if _, err := b.CreateTrigger(t.Context(), "", w); engine.Code(err) != "invalid" {
			t.Errorf("%.60v: %v", w, err)
		}
	}
	must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: strings.Repeat("ä", 512), Timeout: engine.MaxEventTimeout}))(t)
	for _, e := range []engine.NewEvent{{Payload: json.RawMessage(`{`)}, {Hold: -1}, {Hold: engine.MaxHold + 1}, {Project: "a.b"}} {
		e.Key = "k"
		if _, err := b.SendEvent(t.Context(), e); engine.Code(err) != "invalid" {
			t.Errorf("%.60v: %v", e, err)
		}
	}
	long := engine.NewEvent{Key: "k", Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
	if _, err := b.SendEvent(t.Context(), long); engine.Code(err) != "too_large" {
		t.Errorf("a payload of more than 1 MiB: %v", err)
	}
}

func TestTriggersList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "l:in"})
	var keys []string
	for i := range 5 {
		keys = append(keys, fmt.Sprint("l:", i))
		must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: keys[i]}))(t)
	}
	b.sendEvent("l:1", `1`)
	list := func(f engine.TriggerFilter, limit int) (all []string) {
		t.Helper()
		for before := uuid.Nil; ; {
			page, next, err := b.Triggers(t.Context(), f, before, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range page {
				all = append(all, g.EventKey)
			}
			if before = next; next == uuid.Nil {
				return all
			}
		}
	}
	for limit := range 4 {
		equal(t, "all", fmt.Sprint(list(engine.TriggerFilter{}, limit+1)), "[l:4 l:3 l:2 l:1 l:0 l:in]")
	}
	equal(t, "waiting", fmt.Sprint(list(engine.TriggerFilter{Status: engine.TriggerWaiting, Source: engine.SourceAPI}, 2)), "[l:4 l:3 l:2 l:0]")
	equal(t, "of an instance", fmt.Sprint(list(engine.TriggerFilter{InstanceID: in.ID}, 2)), "[l:in]")
	equal(t, "of a source", fmt.Sprint(list(engine.TriggerFilter{Source: engine.SourceRun}, 1)), "[l:in]")
	equal(t, "of another project", fmt.Sprint(list(engine.TriggerFilter{Project: "elsewhere"}, 1)), "[]")
	for _, f := range []engine.TriggerFilter{{Status: "done"}, {Source: "me"}} {
		if _, _, err := b.Triggers(t.Context(), f, uuid.Nil, 1); engine.Code(err) != "invalid" {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// What has ended goes, by hand or in time; what waits stays.
func TestPurgeTriggers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []string{"a", "b", "c"} {
		must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: key}))(t)
	}
	b.sendEvent("a", `1`)
	must(b.CancelTrigger(t.Context(), "", "b"))(t)
	purge := func(older time.Duration, dry bool) int {
		return must(b.PurgeTriggers(t.Context(), "", older, dry))(t)
	}
	equal(t, "young ones", purge(time.Hour, false), 0)
	equal(t, "dry", purge(0, true), 2)
	equal(t, "dry again", purge(0, true), 2)
	equal(t, "another project's", must(b.PurgeTriggers(t.Context(), "elsewhere", 0, false))(t), 0)
	equal(t, "all", purge(0, false), 2)
	if _, err := b.Trigger(t.Context(), "", "a"); !errors.Is(err, engine.ErrNoTrigger) {
		t.Errorf("purged: %v", err)
	}
	equal(t, "what waits", b.trigger("c").Status, engine.TriggerWaiting)
	b.sendEvent("c", `1`)
	b.work(engine.WorkerConfig{Retention: engine.Retention{Triggers: time.Millisecond}})
	eventually(t, "kept for long enough", func() bool { _, err := b.Trigger(t.Context(), "", "c"); return errors.Is(err, engine.ErrNoTrigger) })
}

// A webhook is due once the event is there, and not otherwise: with the trigger as it is shown.
func TestTriggerWebhook(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := engine.EventWait{Key: "hook", NotifyURL: "https://example.com/hook", RequestPayload: json.RawMessage(`{"n": 12345678901234567}`)}
	must(b.CreateTrigger(t.Context(), "", w))(t)
	w.Key = "no hook"
	must(b.CreateTrigger(t.Context(), "", w))(t)
	must(b.CancelTrigger(t.Context(), "", "no hook"))(t)
	b.sendEvent("hook", `{"ok": true}`)
	b.sendEvent("hook", `{"ok": true}`)
	g := b.trigger("hook")
	equal(t, "notify status", *g.NotifyStatus, "pending")
	var body []byte
	var n int
	if err := b.pool.QueryRow(t.Context(), `select (select count(*) from `+b.db.Schema+`.webhook_deliveries), body from `+b.db.Schema+`.webhook_deliveries where source_id = $1 and url = $2`, g.ID, w.NotifyURL).Scan(&n, &body); err != nil {
		t.Fatal(err)
	}
	equal(t, "deliveries", n, 1)
	var sent struct {
		Type      string
		Timestamp time.Time
		Data      engine.Trigger
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	want, got := engine.MustJSON(g), engine.MustJSON(sent.Data)
	if string(want) != string(got) || sent.Type != "trigger.received" || !sent.Timestamp.Equal(*g.ReceivedAt) {
		t.Errorf("the webhook has\n%s\nand the trigger is\n%s", got, want)
	}
}

func TestWatchTrigger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(waiter(t))
	must(b.CreateTrigger(t.Context(), "", engine.EventWait{Key: "seen"}))(t)
	var statuses []engine.TriggerStatus
	for g, err := range b.WatchTrigger(t.Context(), "", "seen") {
		if err != nil {
			t.Fatal(err)
		}
		if statuses = append(statuses, g.Status); len(statuses) == 1 {
			b.sendEvent("seen", `7`)
		} else {
			equal(t, "payload", string(g.ResponsePayload), "7")
		}
	}
	equal(t, "statuses", fmt.Sprint(statuses), "[waiting received]")
	n := 0
	for g, err := range b.WatchTrigger(t.Context(), "", "seen") {
		if n++; err != nil {
			t.Error(err)
		}
		equal(t, "at once", g.Status, engine.TriggerReceived)
	}
	equal(t, "yields", n, 1)
	for _, err := range b.WatchTrigger(t.Context(), "", "unknown") {
		if !errors.Is(err, engine.ErrNoTrigger) {
			t.Errorf("unknown: %v", err)
		}
	}
}

func TestTriggerMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := setupWith(t, engine.Config{Metrics: reg})
	b.serve(waiter(t))
	in := b.waiting(engine.EventWait{Key: "m:1"})
	b.sendEvent("m:1", `1`)
	b.ends(in.ID, engine.StatusDone)
	b.ends(b.waiting(engine.EventWait{Key: "m:2", Timeout: time.Second}).ID, engine.StatusDone)
	got := map[string]float64{}
	for _, family := range must(reg.Gather())(t) {
		for _, m := range family.GetMetric() {
			if strings.HasPrefix(family.GetName(), "pointsman_event_triggers_") {
				got[family.GetName()] += m.GetCounter().GetValue()
				equal(t, "labels", fmt.Sprint(m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue()), fmt.Sprint("default", "job_run"))
			}
		}
	}
	equal(t, "metrics", fmt.Sprint(got), "map[pointsman_event_triggers_created_total:2 pointsman_event_triggers_received_total:1 pointsman_event_triggers_timed_out_total:1]")
}
