package bridge

import (
	"errors"
	"log/slog"
	"testing"
)

func TestHealthLogsChangesOnly(t *testing.T) {
	t.Parallel()
	buf := &logBuffer{}
	h := newHealth(slog.New(slog.NewTextHandler(buf, nil)))
	h.expect("b")
	if got := h.err().Error(); got != "b: is starting" {
		t.Errorf("got %q", got)
	}
	h.report("b", nil)
	if err := h.err(); err != nil {
		t.Error(err)
	}
	for range 10 {
		h.report("b", errors.New("away"))
		h.report("a", errors.New("gone"))
	}
	if got := h.err().Error(); got != "a: gone\nb: away" {
		t.Errorf("got %q", got)
	}
	for range 10 {
		h.report("a", nil)
		h.report("b", nil)
	}
	if err := h.err(); err != nil {
		t.Error(err)
	}
	if got := buf.lines(); got != 5 {
		t.Errorf("%d lines, want 5:\n%s", got, buf)
	}
}
