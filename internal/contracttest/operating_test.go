package contracttest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
)

// A message for nobody is a dead letter, which is listed, shown, replayed and dropped; the fate of its message follows.
func testDeadLetters(b *bundle) {
	d, route := b.driver.(operator), routeOf(b.surface, "calls")
	var seqs []uint64
	for i := range 3 {
		seqs = append(seqs, b.stack.Publish(b, fmt.Sprintf("%s.%d", route, i), `{"n": `+strconv.Itoa(i)+`}`).Sequence)
	}
	var letters []api.DeadLetter
	apptest.Eventually(b, "3 dead letters", func() (bool, error) {
		letters = pages(b, 2, func(cursor string) (api.Page[api.DeadLetter], error) {
			return d.deadLetters(b.Context(), api.DeadLettersRequest{Route: route, Limit: 2, Cursor: cursor})
		})
		return len(letters) == 3, fmt.Errorf("there are %d", len(letters))
	})
	bySeq := map[uint64]api.DeadLetter{}
	for _, l := range letters {
		bySeq[l.StreamSeq] = l
	}
	first, last := bySeq[seqs[0]], bySeq[seqs[2]]
	content, err := d.deadLetter(b.Context(), first.Seq)
	b.is("none", err)
	equal(b, "content", words(content.Route, *content.Stream, content.StreamSeq == seqs[0], strings.HasPrefix(content.Reason, "no_target"), compact(b, content.Data)), route+` CALLS true true {"n":0}`)
	fate, err := d.message(b.Context(), "CALLS", seqs[0])
	b.is("none", err)
	equal(b, "fate", words(fate.Fate, *fate.Route), "dead-lettered "+route)

	tried, err := d.replay(b.Context(), first.Seq, true)
	b.is("none", err)
	equal(b, "tried", words(tried.Result, tried.Stays), "dead-lettered true")
	in, err := b.start(b.Context(), api.NewInstance{Machine: "nobody-runs-it", CorrelationKey: route + "-0"})
	b.is("none", err)
	tried, err = d.replay(b.Context(), last.Seq, true)
	b.is("none", err)
	equal(b, "tried again", words(tried.Result, tried.Stays), "dead-lettered true")
	done, err := d.replay(b.Context(), first.Seq, false)
	b.is("none", err)
	equal(b, "replayed", words(done.Result, done.Stays, *done.InstanceID == in.ID), "delivered false true")
	fate, err = d.message(b.Context(), "CALLS", seqs[0])
	b.is("none", err)
	equal(b, "fate", fate.Fate, "delivered")
	dropped, err := d.drop(b.Context(), last.Seq)
	b.is("none", err)
	equal(b, "dropped", words(dropped.Seq == last.Seq, dropped.Result), "true dropped")
	for _, seq := range []uint64{first.Seq, last.Seq} {
		_, err = d.deadLetter(b.Context(), seq)
		b.is(api.CodeNotFound, err)
		_, err = d.replay(b.Context(), seq, false)
		b.is(api.CodeNotFound, err)
		_, err = d.drop(b.Context(), seq)
		b.is(api.CodeNotFound, err)
	}
	_, err = d.message(b.Context(), "CALLS", 1<<40)
	b.is(api.CodeNotFound, err)
	_, err = d.deadLetters(b.Context(), api.DeadLettersRequest{Route: "a b"})
	b.is(api.CodeInvalid, err)
}

// A route that is paused says by whom, and takes nothing until it is resumed.
func testRoutes(b *bundle) {
	d, name := b.driver.(operator), routeOf(b.surface, "halt")
	listed := func() string {
		b.Helper()
		routes, err := d.routes(b.Context())
		b.is("none", err)
		for _, r := range routes {
			if r.Name == name {
				return words(r.Stream, r.Subjects, r.Paused, r.PausedBy)
			}
		}
		return "not there"
	}
	equal(b, "listed", listed(), "CALLS ["+name+".*] false []")
	for range 2 {
		p, err := d.pauseRoute(b.Context(), "pause", name)
		b.is("none", err)
		equal(b, "paused", words(p.Name, p.Paused, p.PausedBy), name+" true [operator]")
	}
	equal(b, "listed", listed(), "CALLS ["+name+".*] true [operator]")
	for range 2 {
		p, err := d.pauseRoute(b.Context(), "resume", name)
		b.is("none", err)
		equal(b, "resumed", words(p.Name, p.Paused, p.PausedBy), name+" false []")
	}
	equal(b, "listed", listed(), "CALLS ["+name+".*] false []")
	for _, verb := range []string{"pause", "resume"} {
		_, err := d.pauseRoute(b.Context(), verb, "nobody")
		b.is(api.CodeNotFound, err)
	}
}
