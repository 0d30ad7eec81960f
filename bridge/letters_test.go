package bridge

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/natsio"
	"github.com/pointsman/pointsman/subjects"
)

// Dead letters come latest first, page by page, of one route or of all, also where most of a stream is another route's or gone.
func TestLettersInPages(t *testing.T) {
	b := setup(t)
	letters := NewLetters(b.js, b.space)
	if page, next, err := letters.List(t.Context(), "", 0, 10); err != nil || len(page) > 0 || next != 0 {
		t.Fatalf("without a stream: %v, %d, %v", page, next, err)
	}
	if err := natsio.EnsureStreams(t.Context(), b.js, b.space, 1); err != nil {
		t.Fatal(err)
	}
	if page, next, err := letters.List(t.Context(), "", 0, 10); err != nil || len(page) > 0 || next != 0 {
		t.Fatalf("of none: %v, %d, %v", page, next, err)
	}
	for i := 1; i <= 200; i++ {
		route := "often"
		if i%50 == 3 { // 3, 53, 103, 153
			route = "seldom"
		}
		b.publish(b.space.DeadLetter(route), "{}", subjects.HeaderReason, fmt.Sprint(i))
	}
	stream, err := b.js.Stream(t.Context(), b.space.DeadLettersStream())
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{1, 2, 103, 200} {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		route string
		limit int
		want  string
	}{
		{"seldom", 10, "[153 53 3]"}, {"seldom", 1, "[153 53 3]"}, {"seldom", 2, "[153 53 3]"}, {"never", 3, "[]"},
	} {
		if got := fmt.Sprint(allLetters(t, letters, c.route, c.limit)); got != c.want {
			t.Errorf("%s by %d: %s, want %s", c.route, c.limit, got, c.want)
		}
	}
	if all := allLetters(t, letters, "", 7); len(all) != 196 || all[0] != 199 || all[195] != 3 {
		t.Errorf("all: %d, %v", len(all), all)
	}
}

func allLetters(t *testing.T, letters *Letters, route string, limit int) (seqs []uint64) {
	t.Helper()
	seqs = []uint64{}
	for before := uint64(0); ; {
		page, next, err := letters.List(t.Context(), route, before, limit)
		if err != nil || len(page) > limit {
			t.Fatal(len(page), err)
		}
		for _, l := range page {
			if l.Reason != fmt.Sprint(l.Seq) {
				t.Errorf("%+v", l)
			}
			seqs = append(seqs, l.Seq)
		}
		if before = next; next == 0 {
			return seqs
		}
	}
}

func TestLetterIsGone(t *testing.T) {
	b := setup(t)
	letters := NewLetters(b.js, b.space)
	for _, seq := range []uint64{0, 1} {
		if _, err := letters.Get(t.Context(), seq); !errors.Is(err, ErrNoLetter) {
			t.Errorf("%d: %v", seq, err)
		}
	}
}

// The headers of a letter are its message's; what the server adds to a message that is read directly is not.
func TestLetterHeaders(t *testing.T) {
	t.Parallel()
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	h := nats.Header{
		subjects.HeaderReason: {"why"}, subjects.HeaderStream: {"S"}, subjects.HeaderSeq: {"7"}, subjects.HeaderOriginalMsgID: {"id"}, subjects.HeaderMsgID: {"r:S@1:7"},
		"Nats-Stream": {"POINTSMAN_DLQ"}, "Nats-Sequence": {"1"}, "X-Own": {"a", "b"},
	}
	l := NewLetters(nil, space).letter("pointsman.dlq.r", h, nil, 1, time.Time{})
	if got := fmt.Sprint(l.Route, l.Reason, l.Stream, l.StreamSeq, l.MsgID, l.Headers); got != fmt.Sprint("r", "why", "S", 7, "id", map[string][]string{"X-Own": {"a", "b"}}) {
		t.Error(got)
	}
}

// A walk sees the letters that there were when it began, those chosen, in their order.
func TestChooseLetters(t *testing.T) {
	b := setup(t)
	letters := NewLetters(b.js, b.space)
	if from, to, err := letters.Range(t.Context(), time.Time{}); from != 0 || to != 0 || err != nil {
		t.Fatal(from, to, err)
	}
	if err := natsio.EnsureStreams(t.Context(), b.js, b.space, 1); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 12; i++ {
		b.publish(b.space.DeadLetter([]string{"a", "b"}[i%2]), "{}", subjects.HeaderReason, fmt.Sprint("reason ", i/4))
	}
	if err := letters.remove(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if err := letters.remove(t.Context(), 7); err != nil {
		t.Errorf("a second time: %v", err)
	}
	from, to, err := letters.Range(t.Context(), time.Time{})
	if from != 1 || to != 12 || err != nil {
		t.Fatal(from, to, err)
	}
	b.publish(b.space.DeadLetter("a"), "{}", subjects.HeaderReason, "reason 1") // later than the walk
	walk := func(c LetterChoice, from uint64, limit int) (seqs []uint64) {
		for from > 0 {
			var chosen []Letter
			if chosen, from, err = letters.Choose(t.Context(), c, from, to, limit); err != nil || len(chosen) > limit {
				t.Fatal(len(chosen), err)
			}
			for _, l := range chosen {
				seqs = append(seqs, l.Seq)
			}
		}
		return seqs
	}
	for _, c := range []struct {
		choice LetterChoice
		want   string
	}{
		{LetterChoice{}, "[1 2 3 4 5 6 8 9 10 11 12]"},
		{LetterChoice{Route: "b"}, "[1 3 5 9 11]"},
		{LetterChoice{ReasonContains: "reason 1"}, "[4 5 6]"},
		{LetterChoice{Route: "a", ReasonContains: "reason 1"}, "[4 6]"},
		{LetterChoice{Route: "none"}, "[]"},
	} {
		for _, limit := range []int{1, 2, 50} {
			if got := fmt.Sprint(walk(c.choice, from, limit)); got != c.want {
				t.Errorf("%+v by %d: %s, want %s", c.choice, limit, got, c.want)
			}
		}
	}
	ninth, err := letters.Get(t.Context(), 9)
	if err != nil {
		t.Fatal(err)
	}
	if from, _, err = letters.Range(t.Context(), ninth.At); err != nil || from > 9 || fmt.Sprint(walk(LetterChoice{Since: ninth.At}, from, 50)) != "[9 10 11 12]" {
		t.Error("since: ", from, err)
	}
	if from, to, err = letters.Range(t.Context(), time.Now().Add(time.Hour)); err != nil || from <= to {
		t.Error("in the future: ", from, to, err)
	}
}

// dropLog notes what is dropped, or fails.
type dropLog struct {
	notes []engine.DroppedLetter
	err   error
}

func (l *dropLog) NoteDropped(_ context.Context, letters []engine.DroppedLetter, _ time.Duration) error {
	if l.err == nil {
		l.notes = append(l.notes, letters...)
	}
	return l.err
}

// No letter goes without a note of its message, but for one that came from no stream.
func TestDropLeavesANote(t *testing.T) {
	b := setup(t)
	letters := NewLetters(b.js, b.space)
	if err := natsio.EnsureStreams(t.Context(), b.js, b.space, 1); err != nil {
		t.Fatal(err)
	}
	b.publish(b.space.DeadLetter("a"), "{}", subjects.HeaderReason, "why", subjects.HeaderOrigin, "S 1700000000000000001 5")
	b.publish(b.space.DeadLetter("effects"), "{}", subjects.HeaderReason, "no_target: nobody")
	all, _, err := letters.List(t.Context(), "", 0, 10)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	log := &dropLog{err: errors.New("connection refused")}
	d := NewDropper(letters, log, time.Hour)
	if err := d.Drop(t.Context(), all); !errors.Is(err, log.err) {
		t.Fatal(err)
	}
	if left, _, _ := letters.List(t.Context(), "", 0, 10); len(left) != 2 {
		t.Fatalf("without a note %d letters are left", len(left))
	}
	log.err = nil
	if err := d.Drop(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint([]engine.DroppedLetter{{Origin: engine.Origin{Route: "a", Stream: "S", Created: time.Unix(0, 1700000000000000001), Sequence: 5}, Reason: "why"}})
	if left, _, _ := letters.List(t.Context(), "", 0, 10); len(left) != 0 || fmt.Sprint(log.notes) != want {
		t.Errorf("%d letters are left, notes %v, want %s", len(left), log.notes, want)
	}
}
