package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// Effects commit with their outcome, by key and by id, to who is there, who is to come, who has ended and nobody.
func TestEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ended := uuid.New()
	b.serve(
		define(t, engine.Definition[raw]{Name: "target", Steps: map[string]step{
			"begin": to(engine.Await("end", "s")),
			"end": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
				return engine.Done(v.Awaited[0].Payload), nil
			},
		}}),
		steps(t, map[string]step{"begin": func(_ context.Context, v *engine.Visit[raw]) (engine.Outcome, error) {
			var to struct{ ID uuid.UUID }
			if err := json.Unmarshal(v.State, &to); err != nil {
				return engine.Outcome{}, err
			}
			sig := func(n int) engine.Signal { return engine.Signal{Name: "s", Payload: engine.MustJSON(n)} }
			return engine.Done(nil).
				Signal(engine.ByKey("", "live"), sig(1)).
				Signal(engine.ByID(to.ID), sig(2)).
				Signal(engine.ByKey("", "to come"), sig(3)).
				Signal(engine.ByKey("", "ended"), sig(4)).
				Signal(engine.ByID(ended), sig(5)).
				Signal(engine.ByKey("", "child"), sig(6)).
				Start(engine.NewInstance{Machine: "target", CorrelationKey: "child"}).
				Start(engine.NewInstance{Machine: "target", CorrelationKey: "live"}).
				SetEvent("progress", 1).SetEvent("progress", 2).
				Publish("a.b", map[string]int{"n": 1}, map[string][]string{"X": {"1", "2"}}).
				Publish("c", []byte("raw"), nil), nil
		}}),
	)
	live, byID := b.begin("target", "live").ID, b.begin("target", "").ID
	b.start(engine.NewInstance{ID: ended, Machine: "target", CorrelationKey: "ended"})
	must(b.Cancel(t.Context(), engine.ByID(ended), ""))(t)
	id := b.start(engine.NewInstance{Machine: "m", State: raw(fmt.Sprintf(`{"ID":%q}`, byID))}).ID
	b.ends(id, engine.StatusDone)

	result := func(id uuid.UUID) string { return string(b.ends(id, engine.StatusDone).Result) }
	equal(t, "by key", result(live), "1")
	equal(t, "by id", result(byID), "2")
	equal(t, "held, then adopted", result(b.begin("target", "to come").ID), "3")
	equal(t, "to its start", result(must(b.Get(t.Context(), engine.ByKey("", "child")))(t).ID), "6")
	equal(t, "event", b.count(`select value::int from pointsman.events where instance_id = $1 and key = 'progress'`, id), 2)

	dead := b.published(engine.PublishDeadLetter)
	equal(t, "dead letters", len(dead), 2)
	for i, p := range dead {
		equal(t, "subject", p.Subject, "effects")
		equal(t, "body", string(p.Body), fmt.Sprint(4+i))
		contains(t, "reason", p.Headers["Pointsman-Reason"][0], "no_target: instance "+ended.String()+" is canceled")
	}
	messages := b.published(engine.PublishMessage)
	equal(t, "messages", len(messages), 2)
	equal(t, "subject", messages[0].Subject+" "+messages[1].Subject, "a.b c")
	equal(t, "json body", string(messages[0].Body), `{"n":1}`)
	equal(t, "raw body", string(messages[1].Body), "raw")
	equal(t, "headers", fmt.Sprint(messages[0].Headers), "map[X:[1 2]]")
	equal(t, "ids differ", messages[0].MsgID != messages[1].MsgID, true)
}

// The effects of two visits are two, whatever they say.
func TestEffectsOfAnotherVisitAreNew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(
		steps(t, map[string]step{
			"begin": to(engine.Next("again").Signal(engine.ByKey("", "k"), engine.Signal{Name: "s"}).Start(engine.NewInstance{Machine: "idle"})),
			"again": to(engine.Done(nil).Signal(engine.ByKey("", "k"), engine.Signal{Name: "s"}).Start(engine.NewInstance{Machine: "idle"})),
		}))
	k := b.begin("idle", "k").ID
	b.ends(b.begin("m", "").ID, engine.StatusDone)
	equal(t, "signals", b.get(k).InboxCount, 2)
	equal(t, "started", b.count(`select count(*) from pointsman.instances where machine = 'idle'`), 3)
}

// Each commit of a visit has effects of its own: what a replay sends does not stand for what the next one sends, nor that of an end for that of
// its retry. A dedup key of the step's own does, and another signal under it is a dead letter.
func TestEffectsOfEachCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	idle := b.begin("idle", "target").ID
	b.exec(`delete from pointsman.ready where instance_id = $1`, idle) // for its inbox only
	var runs atomic.Int64
	b.serve(steps(t, map[string]step{"begin": func(context.Context, *engine.Visit[raw]) (engine.Outcome, error) {
		n := runs.Add(1)
		o := []engine.Outcome{engine.Replay(0), engine.Stop("why"), engine.Done(nil)}[n-1]
		own := engine.Signal{Name: fmt.Sprint("own", n), DedupKey: "own"}
		return o.Signal(engine.ByKey("", "target"), engine.Signal{Name: fmt.Sprint("s", n)}).Signal(engine.ByID(idle), own), nil
	}}))
	id := b.begin("m", "").ID
	b.ends(id, engine.StatusFailed)
	must(b.Retry(t.Context(), engine.ByID(id)))(t)
	b.ends(id, engine.StatusDone)
	var names []string
	for _, s := range must(b.Inbox(t.Context(), idle, 0, 10))(t) {
		names = append(names, s.Name)
	}
	equal(t, "inbox", fmt.Sprint(names), "[s1 own1 s2 s3]")
	equal(t, "dead letters", len(b.published(engine.PublishDeadLetter)), 2)
}

// An effect stays in the project of its instance: an id of another is nobody's.
func TestEffectsStayInTheProject(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.start(engine.NewInstance{Project: "other", Machine: "idle", CorrelationKey: "k"}).ID
	s := engine.Signal{Name: "s"}
	b.serve(define(t, engine.Definition[raw]{Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]step{
		"begin": to(engine.Done(nil).Signal(engine.ByID(other), s).Signal(engine.ByKey("", "k"), s).Signal(engine.ByKey("mine", "k"), s).
			Start(engine.NewInstance{Machine: "idle", CorrelationKey: "started"}).Start(engine.NewInstance{Project: "mine", Machine: "idle"})),
		"signal": to(engine.Done(nil).Signal(engine.ByKey("other", "k"), s)),
		"start":  to(engine.Done(nil).Start(engine.NewInstance{Project: "default", Machine: "idle"})),
	}}))
	b.ends(b.start(engine.NewInstance{Project: "mine", Machine: "m"}).ID, engine.StatusDone)
	equal(t, "inbox of the other", b.get(other).InboxCount, 0)
	equal(t, "started here", must(b.Get(t.Context(), engine.ByKey("mine", "started")))(t).Project, "mine")
	equal(t, "dead letters", len(b.published(engine.PublishDeadLetter)), 1)
	equal(t, "held here", b.count(`select count(*) from pointsman.held where project = 'mine' and key = 'k'`), 2)
	for step, why := range map[string]string{"signal": `signal s: is for the project "other"`, "start": `start of idle: is for the project "default"`} {
		in := b.ends(b.start(engine.NewInstance{Project: "mine", Machine: "m", Start: step}).ID, engine.StatusFailed)
		contains(t, step, in.LastError, why+`, and the effects of this instance are for its own, "mine"`)
	}
	equal(t, "started", b.count(`select count(*) from pointsman.instances where machine = 'idle'`), 3)
}

// One commit locks no more than 200 keys, and needs no lock for what has no key.
func TestEffectsOnManyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	most, without := engine.Done(nil), engine.Done(nil)
	for i := range engine.MaxEffectKeys {
		most = most.Start(engine.NewInstance{Machine: "idle", CorrelationKey: fmt.Sprint(i)}).Signal(engine.ByKey("", fmt.Sprint(i)), engine.Signal{Name: "s"})
	}
	for range engine.MaxEffects {
		without = without.Start(engine.NewInstance{Machine: "idle"})
	}
	more := most.Start(engine.NewInstance{Machine: "idle", DedupKey: "one more"})
	b.serve(define(t, engine.Definition[raw]{Retry: engine.RetryPolicy{MaxAttempts: 1}, Steps: map[string]step{"begin": to(most), "without": to(without), "more": to(more)}}))
	in := b.ends(b.start(engine.NewInstance{Machine: "m", Start: "more"}).ID, engine.StatusFailed)
	contains(t, "more", in.LastError, "effects on 201 keys: at most 200")
	equal(t, "started by a step that failed", b.count(`select count(*) from pointsman.instances where machine = 'idle'`), 0)
	b.ends(b.begin("m", "").ID, engine.StatusDone)
	equal(t, "with keys", b.count(`select count(*) from pointsman.instances where machine = 'idle' and correlation_key is not null`), engine.MaxEffectKeys)
	equal(t, "signals", b.count(`select count(*) from pointsman.signals`), engine.MaxEffectKeys)
	b.ends(b.start(engine.NewInstance{Machine: "m", Start: "without"}).ID, engine.StatusDone)
	equal(t, "without", b.count(`select count(*) from pointsman.instances where machine = 'idle' and correlation_key is null`), engine.MaxEffects)
}

// A start that finds its key live is settled: the same start by a later step does nothing either, when the key is free again.
func TestStartByAStepThatFindsItsKeyTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.begin("idle", "k").ID
	b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil).Start(engine.NewInstance{Machine: "idle", CorrelationKey: "k", DedupKey: "d"}))}))
	b.ends(b.begin("m", "").ID, engine.StatusDone)
	must(b.Cancel(t.Context(), engine.ByID(holder), ""))(t)
	b.ends(b.begin("m", "").ID, engine.StatusDone)
	equal(t, "instances", b.count(`select count(*) from pointsman.instances where machine = 'idle'`), 1)
}

// Instances that signal one another in the same groups, crosswise, do not deadlock, and no signal is lost.
func TestEffectsCrosswise(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n, rounds = 20, 10
	type state struct{ Me, Round, Got int }
	m := must(engine.Define(engine.Definition[state]{Name: "m", Start: "begin", Steps: map[string]engine.Step[state]{
		"begin": func(_ context.Context, v *engine.Visit[state]) (engine.Outcome, error) {
			v.State.Got += len(v.Awaited)
			if v.State.Round == rounds {
				if v.State.Got == rounds {
					return engine.Done(nil), nil
				}
				return engine.Await("", "s").Consuming(), nil
			}
			v.State.Round++
			to := engine.ByKey("", fmt.Sprint((v.State.Me+v.State.Round)%n))
			return engine.Await("", "s").Consuming().Within(time.Millisecond).Signal(to, engine.Signal{Name: "s"}), nil
		},
	}}))(t)
	cfg := engine.WorkerConfig{Machines: []*engine.Machine{m}}
	b.work(cfg)
	b.workAs(b.another(b.db.URL), cfg)
	var all []uuid.UUID
	for i := range n {
		all = append(all, b.start(engine.NewInstance{Machine: "m", CorrelationKey: fmt.Sprint(i), State: raw(fmt.Sprintf(`{"Me":%d}`, i))}).ID)
	}
	for _, id := range all {
		b.ends(id, engine.StatusDone)
	}
	equal(t, "dead letters", len(b.published(engine.PublishDeadLetter)), 0)
}

// The end of an instance is published with a stable id, to the outcome subject and to whom its start named.
func TestOutcomesArePublished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(steps(t, map[string]step{"done": to(engine.Done(map[string]int{"n": 1})), "failed": to(engine.Stop("why")), "begin": to(engine.Await("", "s"))}))
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, status := range []engine.Status{engine.StatusDone, engine.StatusFailed, engine.StatusCanceled} {
		start := string(status)
		if status == engine.StatusCanceled {
			start = "begin"
		}
		id := b.start(engine.NewInstance{Machine: "m", Start: start, CorrelationKey: "k", ReplyTo: "reply.here", Traceparent: trace}).ID
		if status == engine.StatusCanceled {
			b.reaches(id, engine.StatusAwaiting)
			must(b.Cancel(t.Context(), engine.ByID(id), "why"))(t)
		}
		in := b.ends(id, status)
		ps := b.outbox()
		equal(t, "publications", len(ps), 2)
		for _, p := range ps {
			var body struct {
				InstanceID     uuid.UUID `json:"instance_id"`
				Machine        string
				Version        int
				Status         engine.Status
				CorrelationKey string `json:"correlation_key"`
				Result         json.RawMessage
				Reason         *string
				FinishedAt     time.Time `json:"finished_at"`
			}
			must(0, json.Unmarshal(p.Body, &body))(t)
			equal(t, "body", fmt.Sprint(body.InstanceID, body.Machine, body.Version, body.Status, body.CorrelationKey), fmt.Sprint(id, "m", 1, status, "k"))
			equal(t, "finished", body.FinishedAt.Equal(*in.FinishedAt), true)
			if status == engine.StatusDone {
				equal(t, "result", string(body.Result), `{"n": 1}`)
				equal(t, "no reason", body.Reason == nil, true)
			} else {
				equal(t, "reason", *body.Reason, "why")
				equal(t, "no result", string(body.Result), "null")
			}
			equal(t, "trace", fmt.Sprint(p.Headers["traceparent"]), "["+trace+"]")
			equal(t, "instance", p.InstanceID, id)
			equal(t, "subject", p.Subject, map[engine.PublicationKind]string{engine.PublishOutcome: "m." + string(status), engine.PublishReply: "reply.here"}[p.Kind])
		}
		equal(t, "one id", ps[0].MsgID, ps[1].MsgID)
		equal(t, "the same id each time", b.outbox()[0].MsgID, ps[0].MsgID)
		must(0, b.Published(t.Context(), []int64{ps[0].ID, ps[1].ID}))(t)
	}
}

// Config.Outcomes chooses what is published; a reply is sent all the same.
func TestOutcomesThatAreNotPublished(t *testing.T) {
	t.Parallel()
	b := setupWith(t, engine.Config{Outcomes: []engine.Status{engine.StatusFailed}})
	b.serve(steps(t, map[string]step{"begin": to(engine.Done(nil)), "stop": to(engine.Stop(""))}))
	b.ends(b.start(engine.NewInstance{Machine: "m", ReplyTo: "r"}).ID, engine.StatusDone)
	b.ends(b.start(engine.NewInstance{Machine: "m", Start: "stop"}).ID, engine.StatusFailed)
	equal(t, "outcomes", fmt.Sprint(len(b.published(engine.PublishOutcome)), len(b.published(engine.PublishReply))), "1 1")
}
