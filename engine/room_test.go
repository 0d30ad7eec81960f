package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// In a flow a pick waits for half of the slots: a moment where steps hold the others, and longer where a commit gives them back.
func TestRoom(t *testing.T) {
	t.Parallel()
	const slots = 8
	for _, c := range []struct {
		name       string
		flow       bool
		free       int // at first
		ended      int
		givesAfter time.Duration // as many as have ended; 0: never
		took       time.Duration
	}{
		{"none in a flow", false, 1, 7, 0, 0},
		{"half are free", true, 4, 0, 0, 0},
		{"steps hold the others", true, 1, 2, 0, linger},
		{"a commit gives enough", true, 1, 3, 6 * linger, 6 * linger},
		{"a commit gives enough, and too late", true, 1, 3, time.Minute, 10 * linger},
		{"a commit gives back all that are", true, 0, 8, time.Minute, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue("q", slots)
				q.take(slots - c.free)
				for range c.ended {
					q.end()
				}
				if c.givesAfter > 0 {
					time.AfterFunc(c.givesAfter, func() { q.give(c.ended, 0) })
				}
				began := time.Now()
				if !q.room(t.Context(), c.flow) {
					t.Fatal("no room")
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("room after %s, want %s", took, c.took)
				}
				time.Sleep(2 * time.Minute) // what is given late has come
				if now, soon := q.free(); c.givesAfter > 0 && (now != soon || now != c.free+c.ended) {
					t.Errorf("%d and %d are free, want %d", now, soon, c.free+c.ended)
				}
			})
		})
	}
}
