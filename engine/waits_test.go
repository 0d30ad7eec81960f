package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/internal/store"
	"github.com/pointsman/pointsman/migrations"
)

// never is a poll interval that no test lives to see.
const never = time.Hour

// hall are waits on a database of a test's own, with somebody to tell them.
type hall struct {
	*waits[Instance]
	t  *testing.T
	db *pgtest.DB

	statements *tally
	hearing    func() // is called when the waits begin to hear, before they do

	mu     sync.Mutex
	ears   map[string]func([]uuid.UUID)
	hears  chan string // topics that are heard from now on
	stops  chan string
	refuse error
}

func newHall(t *testing.T, poll time.Duration) *hall {
	t.Helper()
	h := &hall{t: t, db: pgtest.New(t), statements: &tally{by: map[string]int{}}, ears: map[string]func([]uuid.UUID){}, hears: make(chan string, 100), stops: make(chan string, 100)}
	cfg, err := pgxpool.ParseConfig(h.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	store.Tune(cfg, false)
	cfg.ConnConfig.Tracer = h.statements
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st, err := store.New(pool, h.db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	h.waits = newWaits(instances(st), h, poll, slog.New(slog.DiscardHandler))
	return h
}

// hall is the [Waker] of its waits.
func (h *hall) Wake([]string) {}

func (h *hall) Listen([]string, func(string)) (func(), error) { return func() {}, nil }

func (h *hall) Tell(topic string, ids []uuid.UUID) {
	h.mu.Lock()
	heard := h.ears[topic]
	h.mu.Unlock()
	if heard != nil {
		heard(ids)
	}
}

func (h *hall) Hear(topic string, heard func([]uuid.UUID)) (func(), error) {
	if h.refuse != nil {
		return nil, h.refuse
	}
	if h.hearing != nil {
		h.hearing()
	}
	h.mu.Lock()
	h.ears[topic] = heard
	h.mu.Unlock()
	h.hears <- topic
	return func() {
		h.mu.Lock()
		delete(h.ears, topic)
		h.mu.Unlock()
		h.stops <- topic
	}, nil
}

// tally counts statements by their name.
type tally struct {
	mu sync.Mutex
	by map[string]int
}

func (c *tally) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if _, name, ok := strings.Cut(data.SQL, "/* "); ok {
		name, _, _ = strings.Cut(name, " */")
		return context.WithValue(ctx, c, name)
	}
	return ctx
}

func (c *tally) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	name, _ := ctx.Value(c).(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[name]++
}

func (c *tally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[name]
}

func (h *hall) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.db.Pool.Exec(context.WithoutCancel(h.t.Context()), migrations.Qualify(sql, h.db.Schema), args...); err != nil {
		h.t.Errorf("%s: %v", sql, err)
	}
}

// live makes instances that wait for nothing.
func (h *hall) live(n int) []uuid.UUID {
	h.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	h.exec(`insert into pointsman.instances (id, project, machine, version, queue, scope, step, state) select id, 'p', 'm', 1, 'q', id, 's', '{}' from unnest($1::uuid[]) id`, ids)
	return ids
}

const ending = `update pointsman.instances set live = false, status = 'done', rev = rev + 1, finished_at = now(), updated_at = now() where id = any($1)`

func (h *hall) wait(ref Ref, every bool) *wait[Instance] {
	h.t.Helper()
	w, err := h.enter(ref, every)
	if err != nil {
		h.t.Fatal(err)
	}
	return w
}

// sees takes what is shown to w next.
func (h *hall) sees(w *wait[Instance]) sight[Instance] {
	h.t.Helper()
	select {
	case s := <-w.seen:
		return s
	case <-time.After(90 * time.Second):
		h.t.Fatal("nothing is seen")
		return sight[Instance]{}
	}
}

// eventually polls a condition.
func (h *hall) eventually(what string, ok func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("never: %s", what)
		}
	}
}

// Thousands that wait cost a handful of statements: when they come, and when all that they wait for ends.
func TestWaitsAreLookedAtTogether(t *testing.T) {
	t.Parallel()
	const n = 5000
	h := newHall(t, never)
	entered := make(chan struct{})
	h.hearing = func() { <-entered }
	ids := h.live(n)
	all := make([]*wait[Instance], n)
	for i, id := range ids {
		all[i] = h.wait(ByID(id), false)
	}
	close(entered)
	h.eventually("all looked at", func() bool { return h.statements.of("standings") == n/lookedAt })
	h.exec(ending, ids)
	h.Tell(noticeEnded, ids)
	for i, w := range all {
		if s := h.sees(w); s.err != nil || s.of.ID != ids[i] || s.of.Status != StatusDone {
			t.Fatalf("sees %+v", s)
		}
		h.leave(w)
	}
	// The first look may have had some of them before the end, or none.
	if looks, reads := h.statements.of("standings"), h.statements.of("list page"); looks != 2*n/lookedAt || reads != n/readOf {
		t.Errorf("%d looks and %d reads, want %d and %d", looks, reads, 2*n/lookedAt, n/readOf)
	}
}

// What ends after the subscription and before the first look is seen by that look, though its notice came too early or not at all.
func TestEndBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	h := newHall(t, never)
	id := h.live(1)
	h.hearing = func() { h.exec(ending, id) }
	w := h.wait(ByID(id[0]), false)
	defer h.leave(w)
	if s := h.sees(w); s.err != nil || s.of.Status != StatusDone {
		t.Errorf("sees %+v", s)
	}
}

// A notice that comes while a look is on its way is for the next one: this one may have seen what was before.
func TestNoticeDuringALook(t *testing.T) {
	t.Parallel()
	h := newHall(t, never)
	entered := make(chan struct{})
	h.hearing = sync.OnceFunc(func() { <-entered }) // keeps the goroutine of the waits from their turn
	id := h.live(1)
	w := h.wait(ByID(id[0]), false)
	defer h.leave(w)
	batch, _ := h.take(t.Context())
	h.heard(noticeEnded, id)
	h.look(t.Context(), batch)
	h.exec(ending, id)
	close(entered)
	if s := h.sees(w); s.of.Status != StatusDone {
		t.Errorf("sees %+v", s)
	}
}

// Who comes while a look is on its way is not told what that look saw: it may be older than what he knows.
func TestLookIsForThoseWhoWereThere(t *testing.T) {
	t.Parallel()
	h := newHall(t, never)
	entered := make(chan struct{})
	h.hearing = sync.OnceFunc(func() { <-entered }) // keeps the goroutine of the waits from their turn
	id := h.live(1)
	h.exec(ending, id)
	early := h.wait(ByID(id[0]), false)
	batch, _ := h.take(t.Context())
	late := h.wait(ByID(id[0]), false)
	h.look(t.Context(), batch)
	if len(early.seen) != 1 || len(late.seen) != 0 {
		t.Errorf("seen: early %d, late %d", len(early.seen), len(late.seen))
	}
	close(entered)
	if s := h.sees(late); s.of.Status != StatusDone { // by a look of his own
		t.Errorf("sees %+v", s)
	}
	h.leave(early)
	h.leave(late)
}

// The poll finds an end that nobody told of, also where notices cannot be had.
func TestPollFindsTheEnd(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]error{"silence": nil, "deaf": errors.New("closed")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall(t, 10*time.Millisecond)
			h.refuse = refuse
			id := h.live(1)
			w := h.wait(ByID(id[0]), false)
			defer h.leave(w)
			h.eventually("looked at more than once", func() bool { return h.statements.of("standings") > 2 })
			h.exec(ending, id)
			if s := h.sees(w); s.of.Status != StatusDone {
				t.Errorf("sees %+v", s)
			}
		})
	}
}

// The pauses between looks grow to five intervals, and are not the same for all.
func TestPauses(t *testing.T) {
	t.Parallel()
	ws := newWaits(view[Instance]{}, nil, time.Second, nil)
	w := &wait[Instance]{pause: ws.poll}
	ws.of[uuid.Nil], ws.count = []*wait[Instance]{w}, 1
	now, pauses := time.Now(), map[time.Duration]bool{}
	for range 50 {
		ws.due[uuid.Nil] = true
		ws.take(t.Context())
		ws.pollAt = now.Add(never)
		ws.schedule(w, now)
		pause := w.next.Sub(now)
		pauses[pause] = true
		if pause < 3*time.Second/4 || pause > 25*time.Second/4 || !ws.pollAt.Equal(w.next) {
			t.Errorf("a pause of %s, a poll after %s", pause, ws.pollAt.Sub(now))
		}
	}
	if w.pause != 5*time.Second || len(pauses) < 40 {
		t.Errorf("the pause is %s, %d different ones", w.pause, len(pauses))
	}
	w.next = now.Add(time.Millisecond)
	ws.pollDue(now)
	if len(ws.due) != 0 || ws.pollAt.Sub(now) != 100*time.Millisecond {
		t.Errorf("polls that are near one another are not made together: %d, %s", len(ws.due), ws.pollAt.Sub(now))
	}
	ws.pollDue(ws.pollAt)
	if len(ws.due) != 1 {
		t.Error("a poll that is due is not made")
	}
}

// One that is deleted, or another project's, is not found.
func TestWaitForNobody(t *testing.T) {
	t.Parallel()
	h := newHall(t, never)
	ids := h.live(2)
	stays := h.wait(ByID(ids[1]).In("p"), false)
	defer h.leave(stays)
	for what, ref := range map[string]Ref{"unknown": ByID(uuid.New()), "another project's": ByID(ids[0]).In("q"), "zero": {}} {
		w := h.wait(ref, false)
		if s := h.sees(w); !errors.Is(s.err, ErrNotFound) {
			t.Errorf("%s: sees %+v", what, s)
		}
		h.leave(w)
	}
	w := h.wait(ByID(ids[0]).In("p"), true)
	defer h.leave(w)
	if s := h.sees(w); s.of.ID != ids[0] {
		t.Fatalf("sees %+v", s)
	}
	h.exec(`delete from pointsman.instances where id = $1`, ids[0])
	h.Tell(noticeChanged, ids[:1])
	if s := h.sees(w); !errors.Is(s.err, ErrNotFound) {
		t.Errorf("deleted: sees %+v", s)
	}
	if len(stays.seen) != 0 {
		t.Errorf("the other one sees %+v", <-stays.seen)
	}
}

// Nothing is left of those who went, and nothing is heard that nobody wants to know.
func TestLeave(t *testing.T) {
	t.Parallel()
	h := newHall(t, never)
	ids := h.live(2)
	topics := func(c chan string) string {
		select {
		case topic := <-c:
			return topic
		case <-time.After(90 * time.Second):
			return "nothing"
		}
	}
	for range 3 {
		one, other := h.wait(ByID(ids[0]), false), h.wait(ByID(ids[0]), false)
		if got := topics(h.hears); got != noticeEnded {
			t.Fatalf("hears %s", got)
		}
		h.leave(one)
		watch := h.wait(ByID(ids[1]), true)
		if got := topics(h.hears); got != noticeChanged {
			t.Fatalf("hears %s", got)
		}
		h.leave(watch)
		if got := topics(h.stops); got != noticeChanged {
			t.Fatalf("stops to hear %s", got)
		}
		h.leave(other)
		if got := topics(h.stops); got != noticeEnded {
			t.Fatalf("stops to hear %s", got)
		}
		if len(h.of)+len(h.due)+h.count+h.watching != 0 || h.stop != nil {
			t.Fatalf("left: %d %d %d %d", len(h.of), len(h.due), h.count, h.watching)
		}
	}
}

func TestTooManyWaits(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	h := newHall(t, never)
	h.hearing = func() { <-entered }
	all := make([]*wait[Instance], maxWaits)
	for i := range all {
		all[i] = h.wait(ByID(uuid.New()), false)
	}
	if _, err := h.enter(ByID(uuid.New()), false); !errors.Is(err, ErrTooManyWaits) || !strings.Contains(err.Error(), fmt.Sprint(maxWaits)) {
		t.Errorf("one more: %v", err)
	}
	h.leave(all[0])
	all[0] = h.wait(ByID(uuid.New()), false)
	for _, w := range all {
		h.leave(w)
	}
	close(entered)
	<-h.stops // the goroutine has ended before the database goes
}
