package natsapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// herald signals the key that its own names, and ends.
func herald(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[struct{}]{Name: "herald", Start: "begin", Steps: map[string]engine.Step[struct{}]{
		"begin": func(_ context.Context, v *engine.Visit[struct{}]) (engine.Outcome, error) {
			return engine.Done(nil).Signal(engine.ByKey("", v.Instance.CorrelationKey+"-heir"), engine.Signal{Name: "note", Payload: []byte(`{"from": "herald"}`)}), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// letters waits for dead letters whose reason has a text.
func (b *bundle) letters(text string, n int) (found []api.DeadLetter) {
	b.Helper()
	apptest.Eventually(b, fmt.Sprintf("%d dead letters with %q", n, text), func() (bool, error) {
		found = nil
		for cursor, more := "", true; more; {
			var page api.Page[api.DeadLetter]
			b.ask(natsapi.VerbDeadLetters, api.DeadLettersRequest{Limit: 200, Cursor: cursor}, &page)
			for _, l := range page.Items {
				if strings.Contains(l.Reason, text) || strings.Contains(fmt.Sprint(l.Subject), text) {
					found = append(found, l)
				}
			}
			if more = page.NextCursor != nil; more {
				cursor = *page.NextCursor
			}
		}
		return len(found) == n, fmt.Errorf("there are %d", len(found))
	})
	return found
}

func (b *bundle) replay(r api.LettersChoice) (page api.Page[api.LetterResult]) {
	b.Helper()
	b.ask(natsapi.VerbReplay, r, &page)
	return page
}

// A dead letter is taken in as its message: what the ledger says of it is of its place, so a rewind or a second replay finds a duplicate.
func testReplay(b *bundle) {
	var seqs []uint64
	for range 3 {
		seqs = append(seqs, b.publish("orders.replay-late.paid", `{"amount": 1}`)) // nothing but their places tells them apart
	}
	for _, seq := range seqs {
		equal(b, "reason", strings.HasPrefix(text(b.fate(seq, "dead-lettered").Reason), "no_target: "), true)
	}
	choice := api.LettersChoice{Route: "paid", Limit: 200}
	one := func(dry bool, seq uint64) api.LetterResult {
		b.Helper()
		c := choice
		c.DryRun = dry
		for {
			page := b.replay(c)
			for _, item := range page.Items {
				if item.StreamSeq == seq {
					return item
				}
			}
			if page.NextCursor == nil {
				b.Fatalf("message %d is not among the dead letters", seq)
			}
			c.Cursor = *page.NextCursor
		}
	}
	again := one(false, seqs[0])
	equal(b, "refused again", fmt.Sprint(again.Result, again.Stays, strings.HasPrefix(text(again.Reason), "no_target: ")), fmt.Sprint("dead-lettered", true, true))

	in := b.start("replay-late")
	would := one(true, seqs[0])
	equal(b, "dry run", fmt.Sprint(would.Result, would.Stays, text(would.InstanceID)), fmt.Sprint("delivered", false, in.ID))
	equal(b, "which changes nothing", b.get(in.ID).InboxCount, 0)
	page := b.replay(api.LettersChoice{Seq: again.Seq})
	equal(b, "replayed", fmt.Sprint(page.Items[0].Result, text(page.Items[0].InstanceID), page.Items[0].SignalID != nil), fmt.Sprint("delivered", in.ID, true))
	_ = b.refused(api.CodeNotFound, natsapi.VerbReplay, api.LettersChoice{Seq: again.Seq})
	fate := b.fate(seqs[0], "delivered")
	equal(b, "its fate is of its place", text(fate.SignalID), text(page.Items[0].SignalID))

	// What was replayed by a bridge that was killed before it deleted the letter is a duplicate. So is what a route takes in twice.
	letter, err := b.stack.JS.Stream(b.Context(), b.stack.Space.DeadLettersStream())
	if err != nil {
		b.Fatal(err)
	}
	second := one(true, seqs[1])
	raw, err := letter.GetMsg(b.Context(), second.Seq)
	if err != nil {
		b.Fatal(err)
	}
	copied := b.stack.Publish(b, raw.Subject, string(raw.Data), flat(raw.Header)...)
	equal(b, "the letter", b.replay(api.LettersChoice{Seq: second.Seq}).Items[0].Result, "delivered")
	equal(b, "its copy", b.replay(api.LettersChoice{Seq: copied.Sequence}).Items[0].Result, "duplicate")

	var dropped api.Page[api.LetterResult]
	b.ask(natsapi.VerbDrop, api.LettersChoice{Seq: one(true, seqs[2]).Seq}, &dropped)
	equal(b, "dropped", dropped.Items[0].Result, "dropped")
	gone := b.fate(seqs[2], "dropped")
	equal(b, "fate", strings.HasPrefix(text(gone.Reason), "it was a dead letter, which an operator dropped: no_target: ") && gone.At != nil, true)
	for _, r := range []api.LettersChoice{{}, {Seq: 1, All: true}, {Route: "a.b"}, {All: true, Limit: 1000}, {All: true, Cursor: "?"}} {
		_ = b.refused(api.CodeInvalid, natsapi.VerbReplay, r)
		_ = b.refused(api.CodeInvalid, natsapi.VerbDrop, r)
	}
}

// flat are headers as pairs, without those of the server.
func flat(h map[string][]string) (pairs []string) {
	for name, values := range h {
		if !strings.HasPrefix(name, "Nats-") {
			pairs = append(pairs, name, values[0])
		}
	}
	return pairs
}

// A signal of a step that was held until its time was over is sent again as that step sent it.
func testReplayEffect(b *bundle) {
	db, err := pgx.Connect(b.Context(), b.stack.DatabaseURL)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(b.Context()))
	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "herald", CorrelationKey: "effect"}, nil)
	b.becomes("key:effect", engine.StatusDone)
	if tag, err := db.Exec(b.Context(), `update pointsman.held set expires_at = now() where key = 'effect-heir'`); err != nil || tag.RowsAffected() != 1 {
		b.Fatal(tag, err)
	}
	letter := b.letters(`nobody started with the key "effect-heir"`, 1)[0]
	equal(b, "letter", fmt.Sprint(letter.Route, " ", text(letter.Subject)), "effects signal.note")
	heir := b.start("effect-heir")
	page := b.replay(api.LettersChoice{Seq: letter.Seq})
	equal(b, "replayed", fmt.Sprint(page.Items[0].Result, text(page.Items[0].InstanceID)), fmt.Sprint("delivered", heir.ID))
	var inbox api.Page[api.Signal]
	b.ask(natsapi.VerbInbox, api.PageRequest{Ref: heir.ID}, &inbox)
	equal(b, "inbox", fmt.Sprint(len(inbox.Items), inbox.Items[0].Name, string(inbox.Items[0].Payload)), fmt.Sprint(1, "note", `{"from":"herald"}`))
}
