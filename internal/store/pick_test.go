package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

func keys(works []Work) (all []string) {
	for _, w := range works {
		all = append(all, w.CorrelationKey)
	}
	return all
}

func TestPickOrder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("a", "b", "c", "d")
	f.exec(`update pointsman.ready r set priority = case correlation_key when 'c' then -1 else 0 end,
		run_at = r.run_at - case correlation_key when 'd' then interval '1 s' else interval '0' end from pointsman.instances i where i.id = r.instance_id`)
	f.exec(`update pointsman.ready r set run_at = r.run_at + interval '1 us' from pointsman.instances i where i.id = r.instance_id and correlation_key = 'b'`)
	equal(t, "lowest priority first", fmt.Sprint(keys(f.pick(1))), "[c]")
	equal(t, "then longest ready", fmt.Sprint(keys(f.pick(1))), "[d]")
	equal(t, "at most so many, two being a power of two", len(f.pick(3)), 2)
	equal(t, "nothing left", len(f.pick(8)), 0)
}

func TestPickedWork(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n := newInstance("k")
	n.Priority, n.Traceparent = 3, "00-1"
	f.begin(n)
	works := f.pick(1)
	w := works[0]
	if time.Since(w.InsertedAt) > time.Minute || time.Since(w.ReadyAt) > time.Minute || w.Token == uuid.Nil {
		t.Errorf("times and token: %+v", w)
	}
	got := fmt.Sprint(w.ID, w.Rev, w.Project, w.Machine, w.Version, w.Step, w.CorrelationKey, w.Queue, w.Priority, w.Attempt, w.Visit, w.TimedOut, w.Timed, string(w.State), w.Traceparent)
	equal(t, "work", got, fmt.Sprint(n.ID, 0, project, machine, 1, "begin", "k", queue, 3, 0, 0, false, false, `{"n": 0}`, "00-1"))
	f.want("w true", `select worker, ids[1] = $1 and revs[1] = 0 from pointsman.leases where token = $2`, n.ID, w.Token)
	in, _ := must2(f.Get(t.Context(), "", n.ID))(t)
	equal(t, "status", in.Status, "executing")
}

func must2[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
}

// What this worker does not know waits in a lane of its own for one who does.
func TestPickDiverts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n := newInstance("new")
	n.Version = 2
	f.begin(n)
	equal(t, "picked by who does not know it", len(f.pick(8)), 0)
	f.want("m@2 false", `select lane, solo from pointsman.ready`)
	equal(t, "from its lane by who does not know it", len(must(f.Pick(t.Context(), queue, "m@2", "w", known, 8, time.Minute))(t)), 0)
	works := must(f.Pick(t.Context(), queue, "m@2", "w", []string{"m@1", "m@2"}, 8, time.Minute))(t)
	equal(t, "from its lane", fmt.Sprint(keys(works), works[0].Attempt), "[new] 0")
}

func TestPickDropsTheStale(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.started("canceled", "paused", "gone", "here")
	must(f.Cancel(t.Context(), ids[:1], "", publish))(t)
	f.exec(`update pointsman.instances set paused = true, rev = rev + 1 where id = $1`, ids[1])
	f.exec(`delete from pointsman.instances where id = $1`, ids[2])
	equal(t, "picked", fmt.Sprint(keys(f.pick(8))), "[here]")
	f.want("0", `select count(*) from pointsman.ready`)
}

// The oldest signals come first where there are more than a step is shown, and those that it awaited before others.
func TestPickLongInbox(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	fill := func(name string, from, n int) (last int64) {
		sigs := make([]Signal, n)
		for i := range sigs {
			sigs[i] = signal("k", name, fmt.Sprint(name, from+i))
		}
		ds := f.fast(sigs...)
		return ds[n-1].SignalID
	}
	fill("noise", 0, MaxInbox-1)
	last := fill("pay", 0, 1)
	w := f.picked()
	if len(w.Inbox) != MaxInbox || w.More || w.SeenTo != last {
		t.Fatalf("at the bound: %d signals, more %t, seen to %d, want %d", len(w.Inbox), w.More, w.SeenTo, last)
	}
	o := outcome(w, OutcomeRelease)
	o.Ran = ""
	f.commit(o)
	last = fill("pay", 1, 2)
	w = f.picked()
	awaited := 0
	for _, g := range w.Inbox {
		if g.Tag() == "signal/pay" {
			awaited++
		}
	}
	if !w.More || w.SeenTo != last || awaited != 3 || w.Inbox[0].DedupKey != "noise0" {
		t.Errorf("over the bound: %d signals of which %d awaited, more %t, seen to %d, want %d", len(w.Inbox), awaited, w.More, w.SeenTo, last)
	}
}

// However large the signals are, and however small they were stored, a step is shown a bounded part of them.
func TestPickLargeInbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pad       string // SQL of the payload's
		n, length int
		shown     int
		more      bool
	}{
		"more than a pick reads": {random, 3, 600 << 10, 3, false},
		"stored as they are":     {random, 20, 1<<20 - 32, MaxInboxBytes >> 20, true},
		"stored compressed":      {"repeat('x', $3)", 20, 1<<20 - 32, MaxInboxBytes >> 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			id := f.parked("k", "signal/pay")
			f.exec(`insert into pointsman.signals (instance_id, name, payload) select $1, case g when 1 then 'noise' else 'pay' end, to_jsonb(`+c.pad+`) from generate_series(1, $2::int) g`, id, c.n, c.length)
			w := f.wokenByHand()
			bytes, awaited := 0, 0
			for _, g := range w.Inbox {
				bytes += len(g.Payload)
				if g.Tag() == "signal/pay" {
					awaited++
				}
			}
			if w.InboxErr != nil || len(w.Inbox) != c.shown || bytes > MaxInboxBytes || w.More != c.more {
				t.Errorf("%d signals of %d bytes, more %t, %v: want %d, more %t", len(w.Inbox), bytes, w.More, w.InboxErr, c.shown, c.more)
			}
			if c.more {
				equal(t, "awaited before others", awaited, c.shown)
			}
			f.want(fmt.Sprint(w.SeenTo), `select max(id) from pointsman.signals`)
		})
	}
}

// random is text that does not compress, of $3 bytes.
const random = `(select substr(string_agg(md5(g || '/' || h), ''), 1, $3) from generate_series(1, $3 / 32 + 1) h)`

// A signal that is more than a step is shown comes alone.
func TestPickShowsOneAtLeast(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "signal/pay")
	f.exec(`insert into pointsman.signals (instance_id, name, payload) select $1, 'pay', to_jsonb(repeat('x', $2)) from generate_series(1, 2)`, id, MaxInboxBytes)
	w := f.wokenByHand()
	equal(t, "shown", len(w.Inbox), 1)
	equal(t, "more", w.More, true)
}

// wokenByHand picks the one instance that there is, parked as it is.
func (f *fixture) wokenByHand() Work {
	f.t.Helper()
	f.exec(`update pointsman.instances set parked = false`)
	f.exec(`insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from pointsman.instances`)
	return f.picked()
}

func TestExtend(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.started("canceled", "here")
	works := f.pick(2)
	unknown := uuid.New()
	must(f.Cancel(t.Context(), []uuid.UUID{works[0].ID}, "", publish))(t)
	gone, moved := must2(f.Extend(t.Context(), []uuid.UUID{works[0].Token, unknown}, time.Hour))(t)
	equal(t, "gone", fmt.Sprint(gone), fmt.Sprint([]uuid.UUID{unknown}))
	equal(t, "moved", fmt.Sprint(moved), fmt.Sprint([]Leased{{works[0].Token, works[0].ID}}))
	f.want("true", `select expires_at > now() + interval '50 min' from pointsman.leases`)
}
