package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

const hookURL = "https://receiver.test/hook"

func notified(key string) NewInstance {
	n := newInstance(key)
	n.NotifyURL = hookURL
	return n
}

func TestEndsWriteWebhooks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	told := `select i.correlation_key, d.status, d.attempts, d.project, d.source, d.url, d.host, d.type, d.body->>'type', d.body->'data'->>'id' = i.id::text,
		(d.body->>'timestamp')::timestamptz = i.finished_at, d.body->'data'->>'status'
		from pointsman.webhook_deliveries d join pointsman.instances i on i.id = d.source_id order by 1`
	tail := func(status string) string {
		return fmt.Sprintf(" pending 0 p instance %s receiver.test instance.%s instance.%s true true %s", hookURL, status, status, status)
	}
	f.begin(notified("done"), notified("failed"), notified("canceled"), notified("goes on"), newInstance("nobody"))
	var os []Outcome
	for _, w := range f.pick(8) {
		switch w.CorrelationKey {
		case "done", "nobody":
			os = append(os, outcome(w, OutcomeDone))
		case "failed":
			o := outcome(w, OutcomeStop)
			o.Reason = "why"
			o.Publish = []Publish{{Subject: "s"}}
			os = append(os, o)
		case "goes on":
			o := outcome(w, OutcomeNext)
			o.Ahead = w.GoOn(&o)
			os = append(os, o)
		}
	}
	settled := must(f.Commit(t.Context(), os, Group{Publish: publish, Ahead: Lease{Token: u(77), Worker: "w", Length: time.Minute}}))(t)
	must(f.Cancel(t.Context(), []uuid.UUID{f.idOf("canceled"), f.idOf("done")}, "", publish))(t)
	f.want(strings.Join([]string{"canceled" + tail("canceled"), "done" + tail("done"), "failed" + tail("failed")}, ","), told)

	f.commit(outcome(*settled.Ahead[0], OutcomeDone)) // without a pick between
	f.want("1", `select count(*) from pointsman.webhook_deliveries d join pointsman.instances i on i.id = d.source_id where i.correlation_key = 'goes on'`)
	f.want("true", `select array_agg(id order by id) = array_agg(id order by created_at, id) from pointsman.webhook_deliveries`)
}

func (f *fixture) idOf(key string) uuid.UUID {
	f.t.Helper()
	return uuid.MustParse(f.rows(`select id::text from pointsman.instances where correlation_key = $1`, key))
}

// pending writes a delivery for each URL, in turn due a second later; the last one a second ago.
func (f *fixture) pending(urls ...string) {
	f.t.Helper()
	var ds []NewDelivery
	for _, url := range urls {
		ds = append(ds, NewDelivery{Project: project, Source: SourceTrigger, SourceID: u(1), URL: url, Type: "trigger.received", At: time.Unix(1, 0), Data: []byte(`{"n": 1}`)})
	}
	must(struct{}{}, f.AddDeliveries(f.t.Context(), ds))(f.t)
	f.exec(`update pointsman.webhook_deliveries set next_at = now() - (cardinality($1::text[]) - array_position($1::text[], url) + 1) * interval '1 s'`, urls)
}

func (f *fixture) claim(c DeliveryClaim) (urls, next string, rows []ClaimedDelivery) {
	f.t.Helper()
	if c.Limit == 0 {
		c.Limit = 100
	}
	if c.For == 0 {
		c.For = time.Minute
	}
	if c.PerHost == 0 {
		c.PerHost = 2
	}
	rows, next, _, err := f.ClaimDeliveries(f.t.Context(), c, time.Minute)
	if err != nil {
		f.t.Fatal(err)
	}
	var all []string
	for _, r := range rows {
		all = append(all, strings.TrimPrefix(r.URL, "http://"))
	}
	slices.Sort(all)
	return strings.Join(all, " "), next, rows
}

func TestClaimGoesByHosts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.want("a.test:8080,b.test,[::1]:1,", `select substring(lower(u) from '^https?://([^/?#]+)') || '' from unnest('{HTTP://A.test:8080/x,https://b.test?q,http://[::1]:1#f}'::text[]) u union all select ''`)
	f.pending("http://a/1", "http://a/2", "http://a/3", "http://b/1", "http://c/1", "http://C/2")
	got, next, _ := f.claim(DeliveryClaim{Room: map[string]int{"b": 0, "c": 1}})
	equal(t, "the oldest of each host, as far as there is room", got, "a/1 a/2 c/1")
	equal(t, "came to the last host", next, "")
	got, next, _ = f.claim(DeliveryClaim{Limit: 2})
	equal(t, "what is left, up to the limit", got, "a/3 b/1")
	equal(t, "came to", next, "b")
	got, _, _ = f.claim(DeliveryClaim{After: next})
	equal(t, "after that", got, "C/2")
	_, _, wait, err := f.ClaimDeliveries(t.Context(), DeliveryClaim{PerHost: 1, Limit: 1, For: time.Minute}, time.Hour)
	if err != nil || wait < 30*time.Second || wait > time.Minute {
		t.Errorf("the next is due in %v, %v: want when the claims end", wait, err)
	}
	f.exec(`update pointsman.webhook_deliveries set next_at = now() where url = 'http://b/1'`)
	got, _, rows := f.claim(DeliveryClaim{})
	equal(t, "a claim that has ended", got, "b/1")
	equal(t, "its number", rows[0].Claim, 2)
	equal(t, "its body", string(rows[0].Body), `{"type" : "trigger.received", "timestamp" : "1970-01-01T00:00:01.000000Z", "data" : {"n": 1}}`)
}

// However many hosts there are, claims come to all of them.
func TestClaimsComeRound(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`insert into pointsman.webhook_deliveries (project, source, source_id, url, type, body, next_at)
		select 'p', 'trigger', gen_random_uuid(), 'http://h' || g, 't', '{}', now() + case when g = 599 then '-1 s' else '1 h' end::interval from generate_series(100, 700) g`)
	after, turns := "", 0
	for {
		got, next, _ := f.claim(DeliveryClaim{After: after})
		turns++
		if got == "h599" {
			break
		}
		if next == "" {
			t.Fatal("no claim came to it")
		}
		after = next
	}
	equal(t, "turns", turns, 2)
}

func TestRecordDeliveries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`insert into pointsman.triggers (id, project, event_key, status, source_type, timeout_secs, expires_at, notify_status) values ($1, 'p', 'e', 'received', 'api', 1, now(), 'pending')`, u(1))
	f.pending("http://a/1")
	state := `select status, attempts, next_at > now(), last_status, last_error, response from pointsman.webhook_deliveries`
	trigger := `select notify_status from pointsman.triggers`
	record := func(r DeliveryResult) {
		t.Helper()
		must(struct{}{}, f.RecordDeliveries(t.Context(), []DeliveryResult{r}))(t)
	}
	_, _, rows := f.claim(DeliveryClaim{})
	r := DeliveryResult{ID: rows[0].ID, Claim: rows[0].Claim, Status: "pending", Delay: 0, LastStatus: 503, LastError: "503", Response: "busy"}
	record(r)
	f.want("pending 1 false 503 503 busy", state)
	_, _, again := f.claim(DeliveryClaim{})
	equal(t, "attempts", again[0].Attempts, 1)
	r.Status = "failed"
	record(r) // of the claim before
	f.want("pending 1 true 503 503 busy", state)
	record(DeliveryResult{ID: again[0].ID, Claim: again[0].Claim, Status: "pending", Uncounted: true})
	f.want("pending 1 false 503 503 busy", state)
	_, _, again = f.claim(DeliveryClaim{})
	r.Claim, r.LastStatus, r.Response = again[0].Claim, 0, ""
	record(r)
	f.want("failed 2 false <nil> 503 <nil>", state)
	f.want("failed", trigger)
	record(r) // its answer was lost
	f.want("failed 2 false <nil> 503 <nil>", state)

	had := must(f.RetryDeliveries(t.Context(), "q", []uuid.UUID{r.ID}))(t)
	equal(t, "of another project", len(had), 0)
	had = must(f.RetryDeliveries(t.Context(), project, []uuid.UUID{r.ID, u(9)}))(t)
	equal(t, "had", fmt.Sprint(had), fmt.Sprint(map[uuid.UUID]string{r.ID: "failed"}))
	f.want("pending 0 false <nil> 503 <nil>", state)
	f.want("pending", trigger)
	equal(t, "had, again", must(f.RetryDeliveries(t.Context(), project, []uuid.UUID{r.ID}))(t)[r.ID], "pending")
	_, _, again = f.claim(DeliveryClaim{})
	record(DeliveryResult{ID: r.ID, Claim: again[0].Claim, Status: "delivered", LastStatus: 204})
	f.want("delivered 1 false 204 <nil> <nil>", state)
	f.want("delivered", trigger)
	equal(t, "had, delivered", must(f.RetryDeliveries(t.Context(), project, []uuid.UUID{r.ID}))(t)[r.ID], "delivered")
	f.want("delivered 1 false 204 <nil> <nil>", state)
}

func TestGiveUpAndRetireDeliveries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.pending("http://a/1", "http://a/2", "http://b/1")
	f.exec(`update pointsman.webhook_deliveries set next_at = now() - interval '2 h', last_error = 'refused' where url in ('http://a/1', 'http://b/1')`)
	equal(t, "given up", must(f.GiveUpDeliveries(t.Context(), []string{"a"}, time.Hour, "the host is down"))(t), 1)
	f.want("http://a/1 failed the host is down: refused,http://a/2 pending <nil>,http://b/1 pending refused", `select url, status, last_error from pointsman.webhook_deliveries order by url`)

	f.exec(`update pointsman.webhook_deliveries set updated_at = now() - interval '2 h'`)
	f.exec(`update pointsman.webhook_deliveries set status = 'delivered', updated_at = now() where url = 'http://a/2'`)
	equal(t, "retired", must(f.RetireDeliveries(t.Context(), time.Hour))(t), 1)
	f.want("http://a/2 delivered,http://b/1 pending", `select url, status from pointsman.webhook_deliveries order by url`)
}

func TestListDeliveries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.pending("http://a/1", "http://a/2", "http://a/3", "http://a/4")
	f.exec(`update pointsman.webhook_deliveries set status = 'failed' where url in ('http://a/1', 'http://a/3')`)
	f.exec(`update pointsman.webhook_deliveries set status = 'delivered', last_error = 'e' where url = 'http://a/2'`)
	list := func(project, status string, before uuid.UUID, n int) (urls string, last uuid.UUID) {
		t.Helper()
		for _, d := range must(f.Deliveries(t.Context(), project, status, before, n))(t) {
			urls, last = urls+strings.TrimPrefix(d.URL, "http://a/"), d.ID
		}
		return urls, last
	}
	order := f.rows(`select string_agg(right(url, 1), '' order by id desc) from pointsman.webhook_deliveries`) // made in one millisecond
	got, last := list(project, "", uuid.Nil, 3)
	equal(t, "a page", got, order[:3])
	got, _ = list(project, "", last, 3)
	equal(t, "the next", got, order[3:])
	got, _ = list(project, "failed", uuid.Nil, 3)
	equal(t, "failed", len(got), 2)
	got, _ = list("q", "", uuid.Nil, 3)
	equal(t, "of another project", got, "")
	d, found, err := f.DeliveryByID(t.Context(), project, last)
	if err != nil || !found || d.Body == nil || d.Source != SourceTrigger {
		t.Errorf("%+v, %t, %v", d, found, err)
	}
	if _, found, _ := f.DeliveryByID(t.Context(), "q", last); found {
		t.Error("found one of another project")
	}
}
