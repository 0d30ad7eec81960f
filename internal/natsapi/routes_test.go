package natsapi_test

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/natsapi"
)

// A route is paused, what a rewind would bring is counted, and after the rewind exactly the new comes through.
func testOperateRoutes(b *bundle) {
	b.start("audited")
	for _, m := range []struct{ subject, body string }{{"audits.audited", `{"amount": 1}`}, {"audits.audited", `{"amount": 0}`}, {"audits.audited", `not JSON`}, {"audits.absent", `{"amount": 1}`}} {
		b.publish(m.subject, m.body)
	}
	apptest.Eventually(b, "read", func() (bool, error) {
		r := b.routeNamed("audits")
		return r.AckFloor != nil && *r.AckFloor == 4 && *r.Lag == 0 && r.Trouble == nil, fmt.Errorf("%+v", r)
	})
	var p api.RoutePause
	for range 2 { // it is idempotent
		b.ask(natsapi.VerbRoutesPause, api.RouteRequest{Name: "audits"}, &p)
		equal(b, "paused", fmt.Sprint(p.Paused, p.PausedBy), "true [operator]")
	}
	b.ask(natsapi.VerbRoutesPause, api.RouteRequest{Name: "idle"}, &p)
	equal(b, "paused twice", fmt.Sprint(p.PausedBy), "[config operator]")
	b.ask(natsapi.VerbRoutesResume, api.RouteRequest{Name: "idle"}, &p)
	equal(b, "resumed, and paused", fmt.Sprint(p.Paused, p.PausedBy), "true [config]")
	apptest.Eventually(b, "nobody pulls", func() (bool, error) {
		c, err := b.stack.JS.Consumer(b.Context(), "AUDITS", "pointsman-audits")
		return err == nil && c.CachedInfo().NumWaiting == 0, err
	})
	b.publish("audits.audited", `{"amount": 2}`)
	r := b.routeNamed("audits")
	equal(b, "listed", fmt.Sprintf("%t %v %s %v %s %d %d", r.Paused, r.PausedBy, r.Stream, r.Subjects, r.Consumer, *r.Lag, *r.Pending), "true [operator] AUDITS [audits.>] pointsman-audits 1 1")

	b.ask(natsapi.VerbStart, api.NewInstance{Machine: "once", CorrelationKey: "absent"}, nil)
	run := func(request api.RewindRequest) string {
		request.Name, request.DryRun = "audits", true
		var d api.RewindDryRun
		b.ask(natsapi.VerbRoutesRewind, request, &d)
		return fmt.Sprint("total ", d.Total, " new ", d.New, " duplicate ", d.Duplicate, " filtered ", d.Filtered, " dead ", d.Dead, " next ", text(d.NextSeq), " last ", d.LastSeq)
	}
	equal(b, "all", run(api.RewindRequest{ToSeq: 1}), "total 5 new 2 duplicate 1 filtered 1 dead 1 next null last 5")
	equal(b, "limited", run(api.RewindRequest{ToSeq: 1, Limit: 2}), "total 2 new 0 duplicate 1 filtered 1 dead 0 next 3 last 5")
	equal(b, "from there", run(api.RewindRequest{ToSeq: 3, UntilSeq: 4}), "total 2 new 1 duplicate 0 filtered 0 dead 1 next null last 5")
	early := time.Now().Add(-time.Hour)
	equal(b, "by time", run(api.RewindRequest{ToTime: &early}), "total 5 new 2 duplicate 1 filtered 1 dead 1 next null last 5")
	equal(b, "untouched", *b.routeNamed("audits").AckFloor, 4)

	var done api.Rewound
	b.ask(natsapi.VerbRoutesRewind, api.RewindRequest{Name: "audits", ToSeq: 2}, &done)
	equal(b, "rewound", fmt.Sprint(done), "{audits AUDITS 2 4}")
	b.ask(natsapi.VerbRoutesResume, api.RouteRequest{Name: "audits"}, &p)
	equal(b, "resumed", fmt.Sprint(p.Paused, p.PausedBy), "false []")
	apptest.Eventually(b, "read again", func() (bool, error) {
		r := b.routeNamed("audits")
		return *r.AckFloor == 5 && *r.Lag == 0, fmt.Errorf("%+v", r)
	})
	equal(b, "afterwards", run(api.RewindRequest{ToSeq: 1}), "total 5 new 0 duplicate 3 filtered 1 dead 1 next null last 5")

	_ = b.refused(api.CodeNotFound, natsapi.VerbRoutesPause, api.RouteRequest{Name: "nobody"})
	_ = b.refused(api.CodeNotFound, natsapi.VerbRoutesResume, api.RouteRequest{Name: "nobody"})
	_ = b.refused(api.CodeNotFound, natsapi.VerbRoutesRewind, api.RewindRequest{Name: "nobody", ToSeq: 1})
	_ = b.refused(api.CodeInvalid, natsapi.VerbRoutesRewind, api.RewindRequest{Name: "audits", ToSeq: 7})
	_ = b.refused(api.CodeInvalid, natsapi.VerbRoutesRewind, api.RewindRequest{Name: "audits", ToSeq: 1, Limit: 5})
	_ = b.refused(api.CodeInvalid, natsapi.VerbRoutesRewind, api.RewindRequest{Name: "audits", ToSeq: 1, DryRun: true, Limit: api.MaxDryRun + 1})
}

func (b *bundle) routeNamed(name string) (r api.Route) {
	b.Helper()
	var routes api.Routes
	b.ask(natsapi.VerbRoutes, api.RoutesRequest{}, &routes)
	for _, r := range routes.Items {
		if r.Name == name {
			return r
		}
	}
	b.Fatalf("no route %s in %+v", name, routes)
	return r
}
