package bridge

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
