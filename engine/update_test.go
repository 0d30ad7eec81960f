package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/migrations"
)

// update sends one, and wants it to be decided.
func (b *bundle) update(id uuid.UUID, r engine.UpdateRequest) engine.UpdateResult {
	b.t.Helper()
	return must(b.Update(b.t.Context(), engine.ByID(id), r))(b.t)
}

// footprint is every row version of every table that an instance may have something in.
func (b *bundle) footprint() string {
	b.t.Helper()
	var all strings.Builder
	for _, table := range strings.Fields("instances ready leases timers signals ledger held events history outbox running_keys waiters unique_keys triggers") {
		var rows string
		sql := fmt.Sprintf(`select coalesce(string_agg(xmin || '@' || ctid || ' ' || t::text, E'\n' order by ctid), '') from pointsman.%s t`, table)
		if err := b.db.Pool.QueryRow(b.t.Context(), migrations.Qualify(sql, b.db.Schema)).Scan(&rows); err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s:\n%s\n", table, rows)
	}
	return all.String()
}

// decided is a machine that awaits the update "decide", in the step "begin", and goes on with it in "decided".
func decided(t testing.TB, d *diary, then engine.Outcome) *engine.Machine {
	t.Helper()
	return steps(t, map[string]step{"begin": to(engine.Await("decided").OrUpdate("decide")), "decided": d.around(to(then)), "after": to(engine.Await("", "nothing"))})
}

var yes = engine.UpdateRequest{Name: "decide", Arg: raw(`{"ok": true}`), Wait: patience}

// An update is a kind of its own, matched by kind and name.
func TestUpdateIsNoSignal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin":   to(engine.Await("decided", "go").OrUpdate("decide", "amend")),
		"decided": d.around(to(engine.Done(nil))),
	}))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	equal(t, "awaits", strings.Join(b.get(in.ID).Awaits, " "), "go decide amend")
	b.send("k", "decide", "a signal of that name")
	b.update(in.ID, engine.UpdateRequest{Name: "go", Arg: raw(`1`)})
	equal(t, "neither wakes", b.get(in.ID).Status, engine.StatusAwaiting)
	res := b.update(in.ID, engine.UpdateRequest{Name: "amend", Arg: raw(`{"by": 2}`), Wait: patience})
	if !res.Accepted || res.Run == nil || res.Run.Status != engine.StatusDone {
		t.Errorf("%+v", res)
	}
	v := d.all()[0]
	equal(t, "awaited", len(v.Awaited), 1)
	equal(t, "kind and name", v.Awaited[0].Kind+" "+v.Awaited[0].Name+" "+string(v.Awaited[0].Payload), `update amend {"by": 2}`)
	equal(t, "inbox", names(v.Inbox), "decide go amend")
}

func TestUpdateThatComesEarlyStaysInTheInbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("ready", "go")), "ready": to(engine.Await("decided").OrUpdate("decide")), "decided": d.around(to(engine.Done("ok"))),
	}))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	res := b.update(in.ID, engine.UpdateRequest{Name: "decide", Wait: 50 * time.Millisecond})
	if !res.Accepted || res.Run != nil || res.SignalID == 0 {
		t.Errorf("early: %+v", res)
	}
	equal(t, "in the inbox", b.get(in.ID).InboxCount, 1)
	b.send("k", "go", "1")
	b.ends(in.ID, engine.StatusDone)
	equal(t, "nil is null", string(d.all()[0].Awaited[0].Payload), "null")
}

func TestUpdateThatTimesOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("decided").OrUpdate("decide").Within(20 * time.Millisecond)), "decided": d.around(to(engine.Stop("expired")))}))
	in := b.ends(b.begin("m", "k").ID, engine.StatusFailed)
	if v := d.all()[0]; !v.TimedOut || len(v.Awaited) != 0 {
		t.Errorf("%+v", v)
	}
	_, err := b.Update(t.Context(), engine.ByID(in.ID), yes)
	var gone *engine.NoTargetError
	if !errors.As(err, &gone) || gone.Ended.ID != in.ID || gone.Ended.Status != engine.StatusFailed {
		t.Errorf("after the end: %v", err)
	}
	equal(t, "code", engine.Code(err), "no_target")
}

func TestUpdateOfNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, ref := range []engine.Ref{engine.ByKey("", "nobody"), engine.ByID(uuid.New())} {
		_, err := b.Update(t.Context(), ref, yes)
		equal(t, "code", engine.Code(err), "not_found")
	}
	in := b.start(engine.NewInstance{Machine: "m", Project: "acme", CorrelationKey: "k"})
	for _, ref := range []engine.Ref{engine.ByKey("", "k"), engine.ByID(in.ID).In("default")} {
		_, err := b.Update(t.Context(), ref, yes)
		equal(t, "of another project", engine.Code(err), "not_found")
	}
	equal(t, "of its own", b.update(in.ID, engine.UpdateRequest{Name: "decide"}).Accepted, true)
	for name, r := range map[string]engine.UpdateRequest{
		"name": {}, "name ": {Name: "a b"}, "arg": {Name: "decide", Arg: raw(`{`)}, "arg ": {Name: "decide", Arg: raw(`"\u0000"`)}, "idempotency_key": {Name: "decide", IdempotencyKey: "a\nb"},
	} {
		_, err := b.Update(t.Context(), engine.ByID(in.ID), r)
		var invalid *engine.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != strings.TrimSpace(name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is refused leaves the instance exactly as it was, wherever it stands, also where the refusal is kept for retries.
func TestRefusedUpdateLeavesNoTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold, executes := make(chan struct{}), make(chan struct{})
	m := steps(t, map[string]step{
		"begin": to(engine.Await("decided").OrUpdate("decide").Within(time.Hour)), "decided": to(engine.Done(nil)),
		"long": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
			close(executes)
			<-hold
			return engine.Done(nil), nil
		},
	})
	r := b.serve(m)
	parked, long := b.begin("m", "k"), b.start(engine.NewInstance{Machine: "m", Start: "long"})
	b.reaches(parked.ID, engine.StatusAwaiting)
	receive(t, executes)
	b.send("k", "other", "1")
	if err := b.Validate("m", "decide", func(context.Context, json.RawMessage) error { return engine.Refuse("not today") }); err != nil {
		t.Fatal(err)
	}
	before := b.footprint()
	for _, id := range []uuid.UUID{parked.ID, long.ID} {
		for _, key := range []string{"", "i"} {
			res := b.update(id, engine.UpdateRequest{Name: "decide", Arg: raw(`1`), IdempotencyKey: key, Wait: time.Second})
			if res.Accepted || res.Reason != "not today" || res.Run != nil || res.SignalID != 0 {
				t.Errorf("%+v", res)
			}
		}
	}
	equal(t, "every row", b.footprint(), before)
	equal(t, "verdicts", b.count(`select count(*) from pointsman.verdicts`), 2)
	close(hold)
	b.ends(long.ID, engine.StatusDone)
	r.stop()
}

func TestValidators(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"begin": to(engine.Await("begin").OrUpdate("decide").Consuming())}))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	send := func(arg string) (engine.UpdateResult, error) {
		return b.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "decide", Arg: raw(arg), Wait: patience})
	}
	type decision struct {
		Approved bool   `json:"approved"`
		Note     string `json:"note"`
	}
	typed := engine.ValidatorOf(func(_ context.Context, d decision) error {
		if !d.Approved && d.Note == "" {
			return engine.Refuse("a rejection must include a note")
		}
		return nil
	})
	register := func(v engine.Validator) {
		t.Helper()
		if err := b.Validate("m", "decide", v); err != nil {
			t.Fatal(err)
		}
	}
	register(typed)
	for arg, want := range map[string]string{
		`{"approved": true}`: "accepted", `{"approved": false, "note": "late"}`: "accepted", `{}`: "a rejection must include a note",
		`{"approved": "yes"}`: "the argument does not fit: ", `{"approve": true}`: `the argument does not fit: json: unknown field "approve"`,
	} {
		res, err := send(arg)
		if got := res.Reason; err != nil || res.Accepted != (want == "accepted") || !res.Accepted && !strings.HasPrefix(got, want) {
			t.Errorf("%s: %+v, %v, want %s", arg, res, err, want)
		}
	}
	register(func(context.Context, json.RawMessage) error { return fmt.Errorf("wrapped: %w", engine.Refuse("no")) })
	res, err := send(`1`)
	if err != nil || res.Accepted || res.Reason != "no" {
		t.Errorf("registered again, with an error that wraps a refusal: %+v, %v", res, err)
	}
	register(func(context.Context, json.RawMessage) error { return engine.Refuse("\x00\xff") })
	if res, err := send(`1`); err != nil || res.Reason != "\uFFFD\uFFFD" {
		t.Errorf("a reason that Postgres cannot hold: %+v, %v", res, err)
	}
	for name, bad := range map[string]error{
		"machine": b.Validate("a.b", "decide", typed), "update": b.Validate("m", "a b", typed), "validator": b.Validate("m", "decide", nil),
	} {
		var invalid *engine.InvalidError
		if !errors.As(bad, &invalid) || invalid.Field != name {
			t.Errorf("%s: %v", name, bad)
		}
	}
	_, err = engine.Define(engine.Definition[raw]{Name: "m", Start: "s", Steps: map[string]step{"s": to(engine.Done(nil))}, Validators: map[string]engine.Validator{"decide": nil}})
	contains(t, "a definition with none", fmt.Sprint(err), `of update "decide" has no code`)
}

// A validator that fails decides nothing, and nothing is delivered.
func TestValidatorThatFails(t *testing.T) {
	t.Parallel()
	b := setupWith(t, engine.Config{ValidateTimeout: 300 * time.Millisecond})
	in := b.start(engine.NewInstance{Machine: "m"})
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	away := errors.New("the people service is away")
	before := b.footprint()
	for _, c := range []struct {
		name string
		v    engine.Validator
		want string
	}{
		{"error", func(context.Context, json.RawMessage) error { return away }, "the people service is away"},
		{"panic", func(context.Context, json.RawMessage) error { panic("oops") }, "its validator panicked"},
		{"goexit", func(context.Context, json.RawMessage) error { runtime.Goexit(); return nil }, "its validator ended its goroutine"},
		{"time-out", func(ctx context.Context, _ json.RawMessage) error { <-ctx.Done(); return ctx.Err() }, "did not decide within 300ms"},
		{"time-out, deaf", func(context.Context, json.RawMessage) error { <-hold; return nil }, "did not decide within 300ms"},
	} {
		if err := b.Validate("m", "decide", c.v); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"", "i"} {
			_, err := b.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "decide", IdempotencyKey: key})
			var failed *engine.ValidatorError
			if !errors.As(err, &failed) || failed.Machine != "m" || failed.Update != "decide" {
				t.Errorf("%s: %v", c.name, err)
			}
			contains(t, c.name, fmt.Sprint(err), c.want)
			contains(t, c.name, fmt.Sprint(err), "was not delivered")
			equal(t, "code", engine.Code(err), "unavailable")
			equal(t, "its own error is in it", errors.Is(err, away), c.name == "error")
		}
	}
	equal(t, "every row", b.footprint(), before)
	equal(t, "verdicts", b.count(`select count(*) from pointsman.verdicts`), 0)
}

// Who asks again with the same idempotency key is told what he was told first.
func TestUpdateIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(decided(t, &d, engine.Next("after")))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	var asked atomic.Int32
	verdict := engine.Refuse("not yet")
	if err := b.Validate("m", "decide", func(context.Context, json.RawMessage) error { asked.Add(1); return verdict }); err != nil {
		t.Fatal(err)
	}
	with := func(key, arg string) engine.UpdateRequest {
		return engine.UpdateRequest{Name: "decide", Arg: raw(arg), IdempotencyKey: key, Wait: patience}
	}
	equal(t, "refused", b.update(in.ID, with("a", `1`)).Reason, "not yet")
	verdict = nil
	equal(t, "refused again", b.update(in.ID, with("a", `1`)).Reason, "not yet")
	equal(t, "asked", asked.Load(), 1)
	_, err := b.Update(t.Context(), engine.ByID(in.ID), with("a", `2`))
	var conflict *engine.ConflictError
	if !errors.As(err, &conflict) || conflict.ID != in.ID {
		t.Errorf("another argument for a refusal: %v", err)
	}
	first := b.update(in.ID, with("b", `{"x": [1, 2]}`))
	if !first.Accepted || first.Run == nil || first.Run.Step != "after" {
		t.Errorf("accepted: %+v", first)
	}
	verdict = engine.Refuse("too late")
	again := b.update(in.ID, with("b", ` {"x":[1,2]}`))
	if !again.Accepted || again.SignalID != first.SignalID || again.Run == nil || again.Run.Step != "after" {
		t.Errorf("accepted again: %+v", again)
	}
	if _, err := b.Update(t.Context(), engine.ByID(in.ID), with("b", `2`)); engine.Code(err) != "conflict" {
		t.Errorf("another argument for an acceptance: %v", err)
	}
	equal(t, "the same key for another update is another request", b.update(in.ID, engine.UpdateRequest{Name: "amend", IdempotencyKey: "b"}).Accepted, true)
	equal(t, "and so is a signal with it", b.send("k", "decide", "b").Result, engine.Delivered)
	equal(t, "visits", len(d.all()), 1)
	must(b.Cancel(t.Context(), engine.ByID(in.ID), ""))(t)
	ended := b.update(in.ID, with("b", `{"x": [1, 2]}`))
	if !ended.Accepted || ended.Run == nil || ended.Run.Status != engine.StatusCanceled {
		t.Errorf("accepted, after the end: %+v", ended)
	}
	// The key has another holder: the request is still that of the first.
	verdict = nil
	next := b.begin("m", "k")
	b.reaches(next.ID, engine.StatusAwaiting)
	res := must(b.Update(t.Context(), engine.ByKey("", "k"), with("b", `{"x": [1, 2]}`)))(t)
	equal(t, "whose it was", res.InstanceID, in.ID)
	equal(t, "the next one still awaits", b.get(next.ID).Status, engine.StatusAwaiting)
	equal(t, "visits", len(d.all()), 1)
}

// Of requests with one key that come together one is delivered, whatever their validators say.
func TestUpdatesAtOnceWithOneKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(decided(t, &d, engine.Await("decided").OrUpdate("decide").Consuming()))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	const n = 8
	var asked atomic.Int32
	together := make(chan struct{})
	if err := b.Validate("m", "decide", func(context.Context, json.RawMessage) error {
		k := asked.Add(1)
		if k == n {
			close(together)
		}
		<-together
		if k%2 == 0 {
			return engine.Refuse("even")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	results := make([]engine.UpdateResult, n)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			res, err := b.Update(context.WithoutCancel(t.Context()), engine.ByKey("", "k"), engine.UpdateRequest{Name: "decide", Arg: raw(`1`), IdempotencyKey: "i"})
			if err != nil {
				t.Error(err)
			}
			results[i] = res
		})
	}
	group.Wait()
	for _, res := range results {
		equal(t, "verdict", res, results[0])
	}
	equal(t, "in the ledger", b.count(`select count(*) from pointsman.ledger where signal_id is not null`), map[bool]int{true: 1}[results[0].Accepted])
}

// A caller that is gone while its validator runs leaves nothing, and the next request with its key is decided anew.
func TestUpdateWhoseCallerDies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.start(engine.NewInstance{Machine: "m"})
	ctx, die := context.WithCancel(t.Context())
	if err := b.Validate("m", "decide", func(ctx context.Context, _ json.RawMessage) error {
		die()
		<-ctx.Done()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	before := b.footprint()
	if _, err := b.Update(ctx, engine.ByID(in.ID), engine.UpdateRequest{Name: "decide", IdempotencyKey: "i"}); err == nil {
		t.Error("no error")
	}
	equal(t, "every row", b.footprint(), before)
	equal(t, "verdicts", b.count(`select count(*) from pointsman.verdicts`), 0)
	if err := b.Validate("m", "decide", func(context.Context, json.RawMessage) error { return nil }); err != nil {
		t.Fatal(err)
	}
	equal(t, "again", b.update(in.ID, engine.UpdateRequest{Name: "decide", IdempotencyKey: "i"}).Accepted, true)
}

// Run is the instance after the step that took the update, whatever that came to, with and without a history.
func TestUpdateWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cases := []struct {
		name string
		then engine.Outcome
		want string
	}{
		{"next", engine.Next("after"), "awaiting_signal after"},
		{"await", engine.Await("after", "nothing"), "awaiting_signal after"},
		{"await, consuming", engine.Await("after", "nothing").Consuming(), "awaiting_signal after"},
		{"await it again", engine.Await("").OrUpdate("decide"), "awaiting_signal await it again"},
		{"done", engine.Done("r"), "done done"},
		{"stop", engine.Stop("r"), "failed stop"},
		{"done with an effect", engine.Done(nil).SetEvent("status", "over"), "done done with an effect"},
	}
	all := map[string]step{"after": to(engine.Await("", "nothing"))}
	for i, c := range cases {
		decided := fmt.Sprint("decided", i)
		all[fmt.Sprint("begin", i)], all[decided] = to(engine.Await(decided).OrUpdate("decide")), to(c.then)
	}
	b.serve(define(t, engine.Definition[raw]{Name: "history", Start: "after", Steps: all}), define(t, engine.Definition[raw]{Name: "none", Start: "after", NoHistory: true, Steps: all}))
	for i, c := range cases {
		for _, machine := range []string{"history", "none"} {
			t.Run(c.name+", "+machine, func(t *testing.T) {
				in := b.start(engine.NewInstance{Machine: machine, Start: fmt.Sprint("begin", i)})
				b.reaches(in.ID, engine.StatusAwaiting)
				res := b.update(in.ID, yes)
				if res.Run == nil {
					t.Fatalf("%+v", res)
				}
				run := *res.Run
				if c.name == "next" { // it may be on its way to the await
					equal(t, "step", run.Step, "after")
					run = b.reaches(in.ID, engine.StatusAwaiting)
				}
				equal(t, "run", string(run.Status)+" "+strings.Replace(run.Step, fmt.Sprint("decided", i), c.name, 1), c.want)
			})
		}
	}
}

func TestUpdateWaitsForAPaused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var d diary
	b.serve(decided(t, &d, engine.Done(nil)))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	must(b.Pause(t.Context(), engine.ByID(in.ID)))(t)
	r := yes
	r.Wait, r.IdempotencyKey = 50*time.Millisecond, "i"
	if res := b.update(in.ID, r); !res.Accepted || res.Run != nil {
		t.Errorf("while it is paused: %+v", res)
	}
	must(b.Resume(t.Context(), engine.ByID(in.ID)))(t)
	r.Wait = patience
	if res := b.update(in.ID, r); res.Run == nil || res.Run.Status != engine.StatusDone {
		t.Errorf("resumed: %+v", res)
	}
}

// A step that errs has not taken the update; an instance that is canceled never will.
func TestUpdateWaitsOutErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int32
	b.serve(steps(t, map[string]step{
		"begin": to(engine.Await("decided").OrUpdate("decide")),
		"decided": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			if runs.Add(1) < 3 {
				return engine.Outcome{}, errors.New("again")
			}
			return engine.Done(len(v.Awaited)), nil
		},
	}))
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	res := b.update(in.ID, yes)
	if res.Run == nil || string(res.Run.Result) != "1" {
		t.Errorf("%+v", res)
	}
	other := b.start(engine.NewInstance{Machine: "unserved"})
	done := make(chan engine.UpdateResult, 1)
	go func() {
		res, err := b.Update(context.WithoutCancel(t.Context()), engine.ByID(other.ID), yes)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	b.until(other.ID, "updated", func(in engine.Instance) bool { return in.InboxCount == 1 })
	must(b.Cancel(t.Context(), engine.ByID(other.ID), ""))(t)
	if res := receive(t, done); !res.Accepted || res.Run == nil || res.Run.Status != engine.StatusCanceled {
		t.Errorf("canceled: %+v", res)
	}
}

// A client in another process asks the validator of a machine that a worker serves, and accepts nothing where it cannot.
func TestValidatorElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := define(t, engine.Definition[raw]{
		Steps:      map[string]step{"begin": to(engine.Await("begin").OrUpdate("decide", "amend", "free").Consuming())},
		Validators: map[string]engine.Validator{"decide": func(context.Context, json.RawMessage) error { return engine.Refuse("the worker's") }},
	})
	if err := b.Validate("m", "amend", func(context.Context, json.RawMessage) error { return engine.Refuse("the client's") }); err != nil {
		t.Fatal(err)
	}
	b.serve(m)
	in := b.begin("m", "k")
	b.reaches(in.ID, engine.StatusAwaiting)
	equal(t, "where the worker is", b.update(in.ID, engine.UpdateRequest{Name: "decide"}).Reason, "the worker's")
	equal(t, "its validators", fmt.Sprint(b.Validators()), "map[m:[amend decide]]")
	equal(t, "asked by name", fmt.Sprint(b.Judge(t.Context(), "m", "amend", nil), b.Judge(t.Context(), "m", "free", nil)), "the client's <nil>")

	blind := b.another(b.db.URL)
	_, err := blind.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "decide"})
	var failed *engine.ValidatorError
	if !errors.As(err, &failed) {
		t.Errorf("a client that cannot ask: %v", err)
	}
	contains(t, "it says so", fmt.Sprint(err), "AskValidator")
	equal(t, "what nobody validates", must(blind.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "free"}))(t).Accepted, true)

	asking := must(engine.NewClient(b.pool, engine.Config{Schema: b.db.Schema, Logger: quiet, AskValidator: func(machine, update string) engine.Validator {
		return func(ctx context.Context, arg json.RawMessage) error { return b.Judge(ctx, machine, update, arg) }
	}}))(t)
	for update, want := range map[string]string{"decide": "the worker's", "amend": "the client's"} {
		equal(t, update, must(asking.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: update}))(t).Reason, want)
	}
	own := func(context.Context, json.RawMessage) error { return nil }
	if err := asking.Validate("m", "decide", own); err != nil {
		t.Fatal(err)
	}
	equal(t, "one of its own comes first", must(asking.Update(t.Context(), engine.ByID(in.ID), engine.UpdateRequest{Name: "decide"}))(t).Accepted, true)
}

// The newest of the versions that a worker serves has the validator; instances of each are asked about by it.
func TestValidatorOfSeveralVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	version := func(n int) *engine.Machine {
		return define(t, engine.Definition[raw]{
			Version: n, Steps: map[string]step{"begin": to(engine.Await("begin").OrUpdate("decide"))},
			Validators: map[string]engine.Validator{"decide": func(context.Context, json.RawMessage) error { return engine.Refuse(fmt.Sprint("version ", n)) }},
		})
	}
	b.serve(version(2), version(1))
	for n := 1; n <= 2; n++ {
		in := b.start(engine.NewInstance{Machine: "m", Version: n})
		equal(t, "verdict", b.update(in.ID, engine.UpdateRequest{Name: "decide"}).Reason, "version 2")
	}
}

func TestUpdateIsForAwaitsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(define(t, engine.Definition[raw]{Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]step{
		"begin": to(engine.Done(nil).OrUpdate("decide")), "name": to(engine.Await("").OrUpdate("a b")),
	}}))
	in := b.ends(b.begin("m", "k").ID, engine.StatusFailed)
	contains(t, "on done", in.LastError, "OrUpdate: only an await")
	in = b.ends(b.start(engine.NewInstance{Machine: "m", Start: "name"}).ID, engine.StatusFailed)
	contains(t, "a name", in.LastError, `update: "a b"`)
}
