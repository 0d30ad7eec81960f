package bridge

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
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

// What troubles one attempt may be over before this bridge makes another: the next one may be another bridge's, which does not tell.
func TestHealthForgetsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buf := &logBuffer{}
		h := newHealth(slog.New(slog.NewTextHandler(buf, nil)))
		is := func(want bool) {
			t.Helper()
			synctest.Wait()
			if got := h.err() != nil; got != want {
				t.Errorf("in trouble: %t, want %t", got, want)
			}
		}
		full := errors.New("full")
		h.reportFor("a", full, time.Second)
		time.Sleep(attemptTimeout)
		h.reportFor("a", full, time.Minute) // again, and the first is forgotten in vain
		time.Sleep(time.Minute)
		is(true)
		time.Sleep(attemptTimeout)
		is(false)
		h.reportFor("a", full, time.Second)
		h.report("a", errors.New("trouble that lasts"))
		time.Sleep(time.Hour)
		is(true)
		h.reportFor("a", full, time.Second)
		h.forget("a")
		h.report("a", errors.New("another's, of the same name"))
		time.Sleep(time.Hour)
		is(true)
		h.reportFor("a", nil, 0)
		is(false)
		if got := buf.lines(); got != 5 {
			t.Errorf("%d lines, want 5:\n%s", got, buf)
		}
	})
}
