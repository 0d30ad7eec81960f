package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, want string }{
		{``, ""},
		{` `, ""},
		{`{"machine": "m", "state": {"id": 12345678901234567890}}`, ""},
		{`[{"machine": "m"}]`, ""},
		{`{"colour": 1}`, "colour: is not a field of this request"},
		{`[{"colour": 1}]`, "colour: is not a field of this request"},
		{`{"version": "1"}`, "version: is a JSON string, and a whole number of its range is wanted"},
		{`{"priority": 40000}`, "priority: is a JSON number 40000, and a whole number of its range is wanted"},
		{`{"run_at": "soon"}`, "body: "},
		{"{\"machine\": \"\xff\"}", "body: is not valid UTF-8"},
		{`{"machine": "\u0000"}`, "body: "},
		{`{} {}`, "body: "},
		{`7`, "body: "},
		{`[`, "body: "},
	} {
		var items Items[NewInstance]
		err := Decode([]byte(c.body), &items)
		var invalid *engine.InvalidError
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && (!errors.As(err, &invalid) || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"machine": "m"}`, `[{"machine": "m"}, null]`, `{"state": [[[1e999]]]}`, `[`, "\xff", `{"run_at": "2030-01-02T15:04:05Z"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var items Items[NewInstance]
		err := Decode(body, &items)
		if code := engine.Code(err); err != nil && code != CodeInvalid {
			t.Fatalf("%q: %s, %v", body, code, err)
		}
	})
}

func TestErrorOf(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	ended := engine.Ended{ID: id, Status: engine.StatusFailed, At: time.Unix(0, 0)}
	for _, c := range []struct {
		err     error
		code    string
		details string
	}{
		{&engine.InvalidError{Field: "state", Reason: "is bad"}, CodeInvalid, "map[field:state]"},
		{&engine.ConflictError{ID: id, Reason: "taken"}, CodeConflict, fmt.Sprint(map[string]any{"instance_id": id})},
		{&engine.ConflictError{Reason: "taken"}, CodeConflict, "map[]"},
		{&engine.NoTargetError{Ended: ended}, CodeNoTarget, fmt.Sprint(map[string]any{"instance_id": id, "status": "failed", "finished_at": "1970-01-01T00:00:00Z"})},
		{engine.ErrNoTarget, CodeNoTarget, "map[]"},
		{fmt.Errorf("get: %w", engine.ErrNotFound), CodeNotFound, "map[]"},
		{fmt.Errorf("x: %w", bridge.ErrNoLetter), CodeNotFound, "map[]"},
		{fmt.Errorf("x: %w", bridge.ErrNoMessage), CodeNotFound, "map[]"},
		{&engine.BatchError{Index: 3, Err: engine.ErrNoTarget}, CodeNoTarget, "map[index:3]"},
		{notFound("no %s", "key"), CodeNotFound, "map[]"},
		{errors.New("password authentication failed"), CodeUnavailable, "map[]"},
		{context.DeadlineExceeded, CodeUnavailable, "map[]"},
	} {
		e := ErrorOf(c.err)
		if e.Code != c.code || fmt.Sprint(e.Details) != c.details || e.Message == "" || strings.Contains(e.Message, "password") {
			t.Errorf("%v: %+v", c.err, e)
		}
		if !errors.Is(e, c.err) && errors.Unwrap(e) != nil {
			t.Errorf("%v: its cause is %v", c.err, errors.Unwrap(e))
		}
	}
	if ErrorOf(nil) != nil {
		t.Error("an error of nothing")
	}
}

// A page is cut where its items are large, and goes on behind the last one that it has.
func TestPageIsCut(t *testing.T) {
	t.Parallel()
	items := []string{strings.Repeat("a", pageBytes/2), strings.Repeat("b", pageBytes/3), strings.Repeat("c", pageBytes/3), "d"}
	cursor := func(s string) string { return s[:1] }
	for _, c := range []struct {
		items []string
		next  string
		want  string
	}{
		{items, "", "2 b"}, {items, "z", "2 b"}, {items[2:], "z", "2 z"}, {items[2:], "", "2 "}, {[]string{strings.Repeat("x", 2*pageBytes), "y"}, "", "1 x"}, {nil, "", "0 "},
	} {
		page, err := newPage(c.items, c.next, cursor)
		next := ""
		if page.NextCursor != nil {
			next = *page.NextCursor
		}
		if got := fmt.Sprint(len(page.Items), " ", next); err != nil || got != c.want || page.Items == nil {
			t.Errorf("got %s, %v, want %s", got, err, c.want)
		}
	}
}

func TestCursorsComeBack(t *testing.T) {
	t.Parallel()
	place := engine.HeldPlace{Key: "order-ü", ID: uuid.New()}
	var back engine.HeldPlace
	if err := unpack(pack(place), &back); err != nil || back != place {
		t.Errorf("%+v, %v", back, err)
	}
	for _, wrong := range []string{"!", "bnVsbA=", "e30x", pack("text"), pack(-1)} {
		var seq uint64
		if err := unpack(wrong, &seq); engine.Code(err) != CodeInvalid {
			t.Errorf("%q: %v, %d", wrong, err, seq)
		}
	}
}
