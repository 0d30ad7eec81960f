package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pointsman/pointsman/engine"
)

// What arrives is signed with every secret, so a receiver may have either.
func TestSignedByTheScheme(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t, nil)
	cfg := b.config()
	cfg.Secrets, cfg.UserAgent = []string{secretA, secretB}, "pointsman/1"
	s := b.sending(cfg)
	id := b.tell(r.URL + "/hook?x=1")[0]
	s.Poke()
	b.delivered(id)
	got := r.all()[0]
	for _, secret := range cfg.Secrets {
		wh, err := standardwebhooks.NewWebhook(secret)
		if err == nil {
			err = wh.Verify(got.body, got.header)
		}
		if err != nil {
			t.Errorf("%s: %v", secret, err)
		}
		if err := wh.Verify(append(got.body, ' '), got.header); err == nil {
			t.Error("another body has the signature")
		}
	}
	if got.id != id.String() || got.header.Get("Content-Type") != "application/json" || got.header.Get("User-Agent") != "pointsman/1" {
		t.Errorf("headers %v", got.header)
	}
	var body struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			Status    engine.Status
			State     json.RawMessage
			LastError string `json:"last_error"`
		}
	}
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	if body.Type != "instance.canceled" || body.Timestamp.IsZero() || body.Data.Status != engine.StatusCanceled || string(body.Data.State) != `{"n": 12345678901234567890}` || body.Data.LastError != "enough" {
		t.Errorf("body %s", got.body)
	}
}

func TestUnsignedWithoutSecret(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t, nil)
	b.sending(b.config())
	b.delivered(b.tell(r.URL)...)
	if h := r.all()[0].header; h.Get("webhook-signature") != "" || h.Get("webhook-timestamp") == "" {
		t.Errorf("headers %v", h)
	}
}

// Five attempts, with the delays of the spec, under one id; then it is failed, until somebody has it tried again.
func TestAttemptsThenFailedThenRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var fine atomic.Bool
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if !fine.Load() {
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	})
	s := b.sending(b.config())
	id := b.tell(r.URL)[0]
	s.Poke()
	for n, want := range []time.Duration{5 * time.Second, 25 * time.Second, 125 * time.Second, 625 * time.Second} {
		d := b.attempted(id, n+1)
		if got := d.NextAt.Sub(d.UpdatedAt); d.Status != engine.DeliveryPending || got < want || got > want+want/10 {
			t.Errorf("attempt %d: %s, next after %s, want %s and at most a tenth more", n+1, d.Status, got, want)
		}
		b.due(s, id)
	}
	d := b.attempted(id, 5)
	if d.Status != engine.DeliveryFailed || d.LastStatus != 500 || d.Response != "broken\n" || d.LastError != "HTTP status 500" {
		t.Errorf("got %+v", d)
	}
	if _, err := b.RetryDelivery(t.Context(), "other", id); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("retry in another project: %v", err)
	}
	fine.Store(true)
	d, err := b.RetryDelivery(t.Context(), "", id)
	if err != nil || d.Status != engine.DeliveryPending || d.Attempts != 0 {
		t.Errorf("retried %+v, %v", d, err)
	}
	s.Poke()
	b.delivered(id)
	var conflict *engine.ConflictError
	if _, err := b.RetryDelivery(t.Context(), "", id); !errors.As(err, &conflict) {
		t.Errorf("retry of a delivered one: %v", err)
	}
	for _, g := range r.all() {
		if g.id != id.String() {
			t.Errorf("id %s", g.id)
		}
	}
	if n := len(r.all()); n != 6 {
		t.Errorf("%d requests", n)
	}
	for result, want := range map[string]float64{resultRetried: 4, resultFailed: 1, resultDelivered: 1} {
		if got := testutil.ToFloat64(s.metrics.deliveries.WithLabelValues(result)); got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
}

// The event of a trigger is told to its URL, once it has come; notify_status says what became of that. A trigger that ends otherwise tells nobody.
func TestTriggerIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var fine atomic.Bool
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/refuses" && !fine.Load() {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	s := b.sending(b.config())
	told := map[string]engine.Trigger{}
	for _, key := range []string{"takes", "refuses", "canceled"} {
		g, err := b.CreateTrigger(t.Context(), "", engine.EventWait{Key: key, NotifyURL: r.URL + "/" + key})
		if err == nil && g.NotifyStatus != nil {
			t.Errorf("%s: notify_status is %s before the event", key, *g.NotifyStatus)
		}
		if key == "canceled" {
			_, err = b.CancelTrigger(t.Context(), "", key)
		} else if err == nil {
			_, err = b.SendEvent(t.Context(), engine.NewEvent{Key: key, Payload: []byte(`7`), SentBy: "alice"})
		}
		if err != nil {
			t.Fatal(err)
		}
		told[key] = g
	}
	s.Poke()
	status := func(key, want string) {
		t.Helper()
		eventually(t, key+" is "+want, func() bool {
			g, err := b.Trigger(t.Context(), "", key)
			return err == nil && g.NotifyStatus != nil && *g.NotifyStatus == want
		})
	}
	status("takes", "delivered")
	status("refuses", "failed")
	fine.Store(true)
	again, err := b.RetryDelivery(t.Context(), "", b.deliveryOf(told["refuses"].ID))
	if err != nil || again.Status != engine.DeliveryPending {
		t.Fatalf("%+v, %v", again, err)
	}
	s.Poke()
	status("refuses", "delivered")
	if g, err := b.Trigger(t.Context(), "", "canceled"); err != nil || g.NotifyStatus != nil {
		t.Errorf("canceled: %+v, %v", g, err)
	}
	for path, want := range map[string]int{"/takes": 1, "/refuses": 2, "/canceled": 0} {
		if got := r.count(path); got != want {
			t.Errorf("%s was called %d times, want %d", path, got, want)
		}
	}
	var body struct {
		Type string
		Data engine.Trigger
	}
	for _, got := range r.all() {
		if err := json.Unmarshal(got.body, &body); err != nil {
			t.Fatal(err)
		}
		if g := body.Data; body.Type != "trigger.received" || g.Status != engine.TriggerReceived || "/"+g.EventKey != got.path || string(g.ResponsePayload) != "7" || *g.SentBy != "alice" {
			t.Errorf("%s: %s", got.path, got.body)
		}
	}
}

// A sender that nobody pokes finds what is new, and what is due again, by itself.
func TestFindsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	b.sending(b.config())
	id := b.tell(r.URL)[0]
	b.attempted(id, 1)
	b.exec(`update pointsman.webhook_deliveries set next_at = now() + interval '50 ms'`)
	b.attempted(id, 2)
}

// Receivers that hang have only so much of a sender, and others get theirs meanwhile.
func TestHangingHostKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	hang := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	})
	fine := newReceiver(t, nil)
	cfg := b.config()
	cfg.Timeout = time.Minute
	s := b.sender(cfg)
	var urls []string
	for range 20 {
		urls = append(urls, hang.URL)
	}
	stuck := b.tell(urls...)
	others := b.tell(fine.URL, fine.URL, fine.URL)
	b.run(s)
	b.delivered(others...)
	b.delivered(b.tell(fine.URL)...)
	hang.mu.Lock()
	now, most := len(hang.busy), hang.most
	hang.mu.Unlock()
	if now != perHost || most != perHost {
		t.Errorf("%d requests hang, %d at most, want %d", now, most, perHost)
	}
	close(release)
	b.delivered(stuck...)
	if hang.most > perHost || hang.same {
		t.Errorf("%d at once, one twice: %t", hang.most, hang.same)
	}
}

// A host that fails is left alone for a while, then tried with one, and has all of its webhooks when it is well again. None of them has
// used up its attempts for that.
func TestFailingHostIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var fine atomic.Bool
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if !fine.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	cfg := b.config()
	cfg.breakFor = time.Hour
	s := b.sender(cfg)
	var urls []string
	for range 30 {
		urls = append(urls, r.URL)
	}
	ids := b.tell(urls...)
	stop := b.run(s)
	eventually(t, "left alone", func() bool { return b.log.count("a host fails") == 1 })
	well := newReceiver(t, nil)
	other := b.tell(well.URL)
	s.Poke()
	b.delivered(other...)
	stop()
	if n := len(r.all()); n < breakAfter || n > breakAfter+perHost {
		t.Errorf("%d requests, want about %d", n, breakAfter)
	}
	if got := testutil.ToFloat64(s.metrics.failing); got != 1 {
		t.Errorf("%v hosts fail", got)
	}

	cfg = b.config()
	cfg.breakFor = time.Millisecond
	s = b.sender(cfg)
	b.exec(`update pointsman.webhook_deliveries set next_at = now() where status = 'pending'`)
	b.run(s)
	eventually(t, "left alone again", func() bool { return b.log.count("a host fails") == 2 })
	fine.Store(true)
	for _, id := range ids {
		b.until(id, "delivered", func(d engine.Delivery) bool {
			if d.Status == engine.DeliveryPending && d.Attempts > 0 {
				b.due(s, id)
			}
			return d.Status == engine.DeliveryDelivered
		})
	}
	if n := b.log.count("a host answers again"); n != 1 {
		t.Errorf("%d log lines of that it is well", n)
	}
	eventually(t, "no host fails", func() bool { return testutil.ToFloat64(s.metrics.failing) == 0 })
}

// Two senders share what there is: each webhook goes out once, and never twice at the same time.
func TestTwoSendersShare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	both := make(chan struct{})
	var once atomic.Int32
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		if once.Add(1) == perHost+1 { // more than one sender has in hand
			close(both)
		}
		<-both
	})
	var urls []string
	for range 60 {
		urls = append(urls, r.URL)
	}
	ids := b.tell(urls...)
	b.sending(b.config())
	b.sending(b.config())
	b.delivered(ids...)
	seen := map[string]int{}
	for _, g := range r.all() {
		seen[g.id]++
	}
	if len(seen) != len(ids) || len(r.all()) != len(ids) || r.same {
		t.Errorf("%d requests for %d webhooks of %d; one twice at once: %t", len(r.all()), len(seen), len(ids), r.same)
	}
}

// What a sender had that died is sent again when its claim is over; and what that sender brings late, if it was not dead, counts no more.
func TestLateResultOfALostClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lost, err := func() (engine.Claimed, error) {
		b.tell("http://127.0.0.1:1/")
		return b.ClaimDeliveries(t.Context(), engine.DeliveryClaim{PerHost: 8, Limit: 8, For: time.Minute, Idle: time.Second})
	}()
	if err != nil || len(lost.Deliveries) != 1 {
		t.Fatal(lost, err)
	}
	d := lost.Deliveries[0]
	r := newReceiver(t, nil)
	s := b.sending(b.config())
	b.exec(`update pointsman.webhook_deliveries set url = $1`, r.URL)
	s.Poke()
	b.due(s, d.ID) // the time of the claim
	b.delivered(d.ID)
	if err := b.RecordDeliveries(t.Context(), []engine.DeliveryResult{{ID: d.ID, Claim: d.Claim, Status: engine.DeliveryFailed}}); err != nil {
		t.Fatal(err)
	}
	if got := b.delivery(d.ID); got.Status != engine.DeliveryDelivered || got.Attempts != 1 {
		t.Errorf("got %+v", got)
	}
}

// A sender that stops lets its attempts end.
func TestStopEndsAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-release })
	id := b.tell(r.URL)[0]
	stop := b.run(b.sender(b.config()))
	<-begun
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	close(release)
	<-stopped
	if d := b.delivery(id); d.Status != engine.DeliveryDelivered {
		t.Errorf("got %+v", d)
	}
}

// An attempt that is cut off is none: another sender may make it at once.
func TestCutOffIsNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun := make(chan struct{}, 2)
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) { begun <- struct{}{}; <-req.Context().Done() })
	id := b.tell(r.URL)[0]
	cfg := b.config()
	cfg.ShutdownTimeout, cfg.Timeout = time.Millisecond, time.Minute
	stop := b.run(b.sender(cfg))
	<-begun
	stop()
	if d := b.delivery(id); d.Status != engine.DeliveryPending || d.Attempts != 0 || time.Until(d.NextAt) > time.Second {
		t.Errorf("got %+v", d)
	}
}

// away is a database that can be lost.
type away struct {
	engine.Webhooks
	lost     atomic.Bool
	recorded atomic.Int32
}

var errAway = errors.New("connection refused")

func (a *away) ClaimDeliveries(ctx context.Context, c engine.DeliveryClaim) (engine.Claimed, error) {
	if a.lost.Load() {
		return engine.Claimed{}, errAway
	}
	return a.Webhooks.ClaimDeliveries(ctx, c)
}

func (a *away) RecordDeliveries(ctx context.Context, rs []engine.DeliveryResult) error {
	if a.lost.Load() {
		return errAway
	}
	a.recorded.Add(int32(len(rs)))
	return a.Webhooks.RecordDeliveries(ctx, rs)
}

// Results outlive an outage of Postgres, which is two lines in the log.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := &away{Webhooks: b.Client}
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { db.lost.Store(true) })
	cfg := b.config()
	cfg.Deliveries = db
	s := b.sending(cfg)
	id := b.tell(r.URL)[0]
	s.Poke()
	eventually(t, "the log says so", func() bool { return b.log.count("not ready") == 1 })
	s.Poke()
	db.lost.Store(false)
	s.Poke()
	b.delivered(id)
	eventually(t, "the log says that it is over", func() bool { return b.log.count("level=INFO msg=ready") == 1 })
	if len(r.all()) != 1 || db.recorded.Load() != 1 {
		t.Errorf("%d requests, %d results", len(r.all()), db.recorded.Load())
	}
}

// What has been due for long fails where its host has only failed for as long, and nowhere else.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.sender(b.config())
	ids := b.tell("http://down.test/1", "http://down.test/2", "http://other.test/1")
	b.exec(`update pointsman.webhook_deliveries set next_at = now() - interval '2 h', last_error = 'HTTP status 500' where url <> 'http://down.test/2'`)
	for name, failing := range map[string]time.Duration{"down.test": 2 * time.Hour, "other.test": time.Minute, "idle.test": 3 * time.Hour} {
		h := s.newHost(name)
		h.failing, h.seen = time.Now().Add(-failing), time.Now()
		s.hosts[name] = h
	}
	s.hosts["idle.test"].seen = time.Now().Add(-2 * time.Hour)
	if err := s.giveUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := b.delivery(ids[0]); d.Status != engine.DeliveryFailed || d.LastError != "not sent: the host has failed for more than 1h0m0s: HTTP status 500" {
		t.Errorf("got %+v", d)
	}
	for _, id := range ids[1:] {
		if d := b.delivery(id); d.Status != engine.DeliveryPending {
			t.Errorf("got %+v", d)
		}
	}
	if len(s.hosts) != 2 {
		t.Errorf("knows %d hosts", len(s.hosts))
	}
}

// More than one claim can take, and more hosts than one claim looks at.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t, nil)
	b.exec(`insert into pointsman.webhook_deliveries (project, source, source_id, url, type, body)
		select 'default', 'trigger', gen_random_uuid(), replace($1, '127.0.0.1', '127.0.0.' || 1 + g % 100) || '/' || g, 't', '{}' from generate_series(1, 700) g`, r.URL)
	s := b.sender(b.config())
	b.run(s)
	eventually(t, "all at the receiver that is one", func() bool { return len(r.all()) >= 7 })
	eventually(t, "all have been tried", func() bool {
		var n int
		if err := b.db.Pool.QueryRow(t.Context(), fmt.Sprintf(`select count(*) from %s.webhook_deliveries where attempts = 0`, b.db.Schema)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, change := range map[string]func(*Config){
		"no deliveries": func(c *Config) { c.Deliveries = nil }, "negative": func(c *Config) { c.Timeout = -1 },
		"no base64": func(c *Config) { c.Secrets = []string{"hush!"} }, "empty": func(c *Config) { c.Secrets = []string{"whsec_"} },
	} {
		cfg := b.config()
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
