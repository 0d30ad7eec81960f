package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// updated delivers an update, and returns what it came to.
func (f *fixture) updated(g Signal) (Delivery, *UpdateVerdict) {
	f.t.Helper()
	d, first, err := f.Update(f.t.Context(), project, KeyScope(project, "k"), g)
	if err != nil {
		f.t.Fatal(err)
	}
	return d, first
}

func updateOf(id uuid.UUID, dedup, payload string) Signal {
	g := Signal{ID: id, Kind: "update", Name: "decide", Payload: []byte(payload), DedupKey: dedup, Dedup: uuid.New(), Hash: SignalHash("update", "decide", []byte(payload))}
	if dedup != "" {
		g.Dedup = UpdateDedup("decide", dedup)
	}
	return g
}

func TestUpdateAndItsVerdict(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "update/decide")
	g := updateOf(id, "i", `1`)

	d, first := f.updated(g)
	if first != nil || d.Verdict != Delivered || d.Queue != queue || d.SignalID == 0 {
		t.Errorf("the first: %+v, %+v", d, first)
	}
	f.want("update decide i 1 <nil>", `select kind, name, dedup_key, payload::text, sent_by from pointsman.signals`)
	_, again := f.updated(g)
	if again == nil || !again.Accepted || again.SignalID != d.SignalID || again.InstanceID != id || again.Hash != g.Hash {
		t.Errorf("again: %+v", again)
	}
	d, _ = f.updated(updateOf(id, "i", `2`))
	equal(t, "another argument", d.Verdict, Conflict)
	f.want("1 1 1", `select (select count(*) from pointsman.signals), (select count(*) from pointsman.verdicts), (select count(*) from pointsman.ledger where signal_id is not null)`)

	d, first = f.updated(updateOf(id, "", `3`))
	equal(t, "without a key", d.Verdict, Delivered)
	if first != nil {
		t.Errorf("without a key there is a verdict: %+v", first)
	}
	// The verdict goes after a day; that it was delivered is known as long as the ledger is.
	must(struct{}{}, f.Age(t.Context(), 25*time.Hour))(t)
	equal(t, "forgotten", must(f.ForgetVerdicts(t.Context()))(t), 1)
	d, _ = f.updated(updateOf(id, "i", `2`))
	equal(t, "another argument after a day", d.Verdict, Conflict)
	d, _ = f.updated(g)
	equal(t, "the same after a day", d.Verdict, Duplicate)
	f.want("2", `select count(*) from pointsman.signals`)
}

func TestRefusalStands(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "update/decide")
	g, scope := updateOf(id, "i", `1`), KeyScope(project, "k")
	no := UpdateVerdict{Reason: "no", InstanceID: id, Hash: g.Hash}
	equal(t, "the first", must(f.Refuse(t.Context(), scope, g.Dedup, no))(t), no)
	later := no
	later.Reason = "never"
	equal(t, "a later refusal", must(f.Refuse(t.Context(), scope, g.Dedup, later))(t), no)
	if _, first := f.updated(g); first == nil || *first != no {
		t.Errorf("an acceptance after it: %+v", first)
	}
	f.want("0 0 0", `select (select count(*) from pointsman.signals), (select count(*) from pointsman.ledger where signal_id is not null), (select count(*) from pointsman.ready)`)
}

func TestUpdateOfNobody(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.ended("k")
	d, _ := f.updated(updateOf(id, "i", `1`))
	equal(t, "of one that has ended", d.Verdict, Ended)
	equal(t, "its status", d.Status, "done")
	d, _ = f.updated(updateOf(uuid.New(), "i", `1`))
	equal(t, "of nobody", d.Verdict, Missing)
	f.want("0", `select count(*) from pointsman.verdicts`)
}

func TestForgetVerdictsInBatches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`insert into pointsman.verdicts select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '{}', now() - case when g % 2 = 0 then interval '23 h' else interval '24 h' end from generate_series(1, $1::int) g`, 2*VerdictBatch+2)
	equal(t, "due", must(f.NextRetired(t.Context(), time.Hour, time.Hour, time.Hour))(t), 0)
	equal(t, "first", must(f.ForgetVerdicts(t.Context()))(t), VerdictBatch)
	equal(t, "rest", must(f.ForgetVerdicts(t.Context()))(t), 1)
	equal(t, "nothing", must(f.ForgetVerdicts(t.Context()))(t), 0)
	if next := must(f.NextRetired(t.Context(), time.Hour, time.Hour, 2*time.Hour))(t); next < 30*time.Minute || next > time.Hour {
		t.Errorf("the next is due in %s", next)
	}
}

func TestUpdateTaken(t *testing.T) {
	t.Parallel()
	taken := func(f *fixture, id uuid.UUID, signal int64) string {
		f.t.Helper()
		taken, found, err := f.UpdateTaken(f.t.Context(), id, signal)
		switch {
		case err != nil:
			f.t.Fatal(err)
		case !found:
			return "gone"
		case taken:
			return "taken"
		}
		return "not yet"
	}
	parkedAndUpdated := func(f *fixture) (uuid.UUID, int64, Work) {
		f.t.Helper()
		id := f.parked("k", "update/decide")
		d, _ := f.updated(updateOf(id, "", `1`))
		equal(f.t, "delivered", taken(f, id, d.SignalID), "not yet")
		w := f.picked()
		equal(f.t, "executing", taken(f, id, d.SignalID), "not yet")
		return id, d.SignalID, w
	}
	handed := func(o Outcome, w Work) Outcome {
		o.Handed, o.HandedTo = w.Awaits, w.SeenTo
		return o
	}
	for _, c := range []struct {
		name string
		of   func(w Work) Outcome
		want string
	}{
		{"next", func(w Work) Outcome { return consuming(outcome(w, OutcomeNext), w) }, "taken"},
		{"await, consuming", func(w Work) Outcome { return consuming(await(w, "signal/pay"), w) }, "taken"},
		{"await of the same", func(w Work) Outcome { return handed(await(w, "update/decide"), w) }, "taken"},
		{"await of another", func(w Work) Outcome { return handed(await(w, "signal/pay"), w) }, "taken"},
		{"replay", func(w Work) Outcome { return outcome(w, OutcomeReplay) }, "not yet"},
		{"done", func(w Work) Outcome { return consuming(outcome(w, OutcomeDone), w) }, "taken"},
		{"stop", func(w Work) Outcome { return outcome(w, OutcomeStop) }, "taken"},
		{"release", func(w Work) Outcome { return outcome(w, OutcomeRelease) }, "not yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			id, signal, w := parkedAndUpdated(f)
			f.commit(c.of(w))
			equal(t, "then", taken(f, id, signal), c.want)
		})
	}
	t.Run("early", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		id := f.parked("k", "signal/pay")
		d, _ := f.updated(updateOf(id, "", `1`))
		equal(t, "nobody awaits it", d.Queue, "")
		f.fast(signal("k", "pay", "d"))
		w := f.picked()
		f.commit(handed(await(w, "signal/pay"), w))
		equal(t, "a step that was not handed it", taken(f, id, d.SignalID), "not yet")
		equal(t, "an instance that is not there", taken(f, uuid.New(), d.SignalID), "gone")
	})
}

// A step publishes while it executes, and not when the instance is not its own any more.
func TestSetEventIsGuarded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	set := func(w Work, value string) bool {
		t.Helper()
		return must(f.SetEvent(t.Context(), Leased{Token: w.Token, ID: w.ID}, w.Rev, Event{"progress", []byte(value)}))(t)
	}
	id := f.started("k")[0]
	w := f.picked()
	equal(t, "while it executes", set(w, `1`), true)
	equal(t, "once more", set(w, `{"pct": 2}`), true)
	f.want(`progress {"pct": 2}`, `select key, value::text from pointsman.events`)
	other := w
	other.Token = uuid.New()
	equal(t, "under another lease", set(other, `3`), false)
	late := outcome(w, OutcomeNext)
	late.Events = []Event{{"progress", []byte(`"committed"`)}}
	f.commit(late)
	equal(t, "after its commit", set(w, `4`), false)
	w = f.picked()
	must(f.Cancel(t.Context(), []uuid.UUID{id}, "", publish))(t)
	equal(t, "after a cancel", set(w, `5`), false)
	f.want(`"committed"`, `select value::text from pointsman.events`)
}

func TestValidated(t *testing.T) {
	t.Parallel()
	f := setup(t)
	validated := func(version int, update string) bool {
		t.Helper()
		return must(f.Validated(t.Context(), machine, version, update))(t)
	}
	serves := func(validators ...string) {
		t.Helper()
		must(struct{}{}, f.Register(t.Context(), []Machine{{Name: machine, Version: 1, Start: "s", Queue: queue, Validators: validators}}))(t)
	}
	equal(t, "never served", validated(1, "decide"), false)
	serves("decide", "amend")
	for _, update := range strings.Fields("decide amend") {
		equal(t, update, validated(1, update), true)
	}
	equal(t, "another", validated(1, "drop"), false)
	equal(t, "another version", validated(2, "decide"), false)
	serves()
	equal(t, "served without", validated(1, "decide"), false)
}
