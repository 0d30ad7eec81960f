package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/client"
)

// script answers requests one after another, and keeps what was asked.
type script struct {
	mu      sync.Mutex
	answers []func(w http.ResponseWriter, r *http.Request)
	asked   []string
}

func newScript(t *testing.T, answers ...func(w http.ResponseWriter, r *http.Request)) (*script, *client.Client) {
	t.Helper()
	s := &script{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{URL: server.URL + "/", Token: "pm_x", Project: "shop", RetryFor: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.asked = append(s.asked, strings.TrimSpace(strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Last-Event-ID"), string(body)}, " ")))
	if len(s.answers) == 0 {
		http.Error(w, "the script is over", http.StatusTeapot)
		return
	}
	s.answers[0](w, r)
	s.answers = s.answers[1:]
}

func says(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

var away = says(http.StatusServiceUnavailable, `{"error": {"code": "unavailable", "message": "come again"}}`)

func breaks(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// What does no harm twice is sent again, with the same idempotency key.
func TestAgain(t *testing.T) {
	t.Parallel()
	var keys []string
	note := func(next func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			next(w, r)
		}
	}
	s, c := newScript(t, note(away), note(breaks), note(says(http.StatusBadGateway, "<html>")), note(says(202, `{"result": "delivered", "instance_id": "i", "signal_id": 7}`)))
	done, err := c.Signal(t.Context(), client.ByKey("a/b %"), "pay", map[string]int{"amount": 1}, "")
	if err != nil || done.Result != "delivered" || *done.SignalID != 7 {
		t.Errorf("%+v, %v", done, err)
	}
	if len(keys) != 4 || keys[0] == "" || keys[0] != keys[3] || keys[0] != keys[1] {
		t.Errorf("keys %q", keys)
	}
	if want := `POST /v1/instances/key:a%2Fb%20%25/signals/pay?project=shop Bearer pm_x  {"amount":1}`; s.asked[0] != want {
		t.Errorf("asked %s", s.asked[0])
	}
	_, c = newScript(t, note(says(202, `{}`)))
	if _, err := c.Signal(t.Context(), client.ByKey("a"), "pay", nil, "mine"); err != nil || keys[4] != "mine" {
		t.Errorf("%v, %q", err, keys)
	}
}

// What may do harm is sent once, and a refusal is final.
func TestOnce(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(c *client.Client) error{
		"retry": func(c *client.Client) error { _, err := c.Retry(t.Context(), client.ByKey("a")); return err },
		"starts": func(c *client.Client) error {
			_, err := c.StartAll(t.Context(), []client.NewInstance{{Machine: "m"}}, false)
			return err
		},
		"signals": func(c *client.Client) error {
			_, err := c.SignalAll(t.Context(), []client.NewSignal{{Name: "n"}}, true)
			return err
		},
		"triggers": func(c *client.Client) error {
			_, err := c.CreateTrigger(t.Context(), client.NewTrigger{EventKey: "k"})
			return err
		},
		"waits": func(c *client.Client) error {
			_, err := c.WaitForEvent(t.Context(), client.ByKey("a"), client.NewTrigger{EventKey: "k"})
			return err
		},
		"rewinds": func(c *client.Client) error {
			_, err := c.RewindRoute(t.Context(), client.Rewind{Name: "r"})
			return err
		},
		"replay": func(c *client.Client) error { _, err := c.ReplayDeadLetter(t.Context(), 7, false); return err },
		"drops": func(c *client.Client) error {
			_, err := c.DropDeadLetters(t.Context(), client.DeadLetterChoice{Seq: 7})
			return err
		},
		"webhooks": func(c *client.Client) error { _, err := c.RetryWebhook(t.Context(), "w"); return err },
	} {
		s, c := newScript(t, away)
		if err := call(c); client.Code(err) != client.CodeUnavailable || len(s.asked) != 1 {
			t.Errorf("%s: %v, %q", name, err, s.asked)
		}
	}
	s, c := newScript(t, says(409, `{"error": {"code": "conflict", "message": "taken", "details": {"instance_id": "i"}}}`))
	_, err := c.Start(t.Context(), client.NewInstance{Machine: "m"})
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.CodeConflict || refused.Details["instance_id"] != "i" || len(s.asked) != 1 {
		t.Errorf("%v, %q", err, s.asked)
	}
	_, c = newScript(t, says(404, "nothing here"))
	if _, err := c.Get(t.Context(), client.ByKey("a")); err == nil || client.Code(err) != "" || !strings.Contains(err.Error(), "no answer of pointsman") {
		t.Error(err)
	}
	_, c = newScript(t, says(200, "{"))
	if _, err := c.Get(t.Context(), client.ByKey("a")); err == nil {
		t.Error("half an answer is one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, c = newScript(t, func(w http.ResponseWriter, r *http.Request) { cancel(); away(w, r) })
	if _, err := c.Get(ctx, client.ByKey("a")); err == nil {
		t.Error("no error of a request that is canceled")
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for want, call := range map[string]func(c *client.Client) error{
		"GET /v1/instances/key:a/events/%2E%2E?project=shop": func(c *client.Client) error {
			var v json.RawMessage
			return c.Event(t.Context(), client.ByKey("a"), "..", &v)
		},
		"GET /v1/instances?limit=2&machine=m&project=shop&status=done": func(c *client.Client) error {
			_, err := c.List(t.Context(), client.Filter{Machine: "m", Status: "done", Limit: 2})
			return err
		},
		"DELETE /v1/instances/key:a?project=shop&reason=why+not": func(c *client.Client) error {
			_, err := c.Cancel(t.Context(), client.ByKey("a"), "why not")
			return err
		},
		"POST /v1/signals?atomic=true&project=shop": func(c *client.Client) error {
			_, err := c.SignalAll(t.Context(), []client.NewSignal{{Name: "n"}}, true)
			return err
		},
		"DELETE /v1/instances/key:a?children=true&project=shop": func(c *client.Client) error {
			_, err := c.CancelAll(t.Context(), client.ByKey("a"), "")
			return err
		},
		"POST /v1/events/a%2Fb%20%25/send?hold=1h0m0s&project=shop": func(c *client.Client) error {
			_, err := c.SendEvent(t.Context(), "a/b %", 1, time.Hour)
			return err
		},
		"POST /v1/events/prefix/a%2F/send?project=shop": func(c *client.Client) error {
			_, err := c.SendEventPrefix(t.Context(), "a/", 1)
			return err
		},
		"GET /v1/events?limit=2&project=shop&status=waiting": func(c *client.Client) error {
			_, err := c.Triggers(t.Context(), client.TriggerFilter{Status: "waiting", Limit: 2})
			return err
		},
		"DELETE /v1/dead-letters/7?dry_run=true&project=shop": func(c *client.Client) error {
			_, err := c.DropDeadLetter(t.Context(), 7, true)
			return err
		},
		"GET /v1/messages?project=shop&seq=7&stream=ORDERS": func(c *client.Client) error {
			_, err := c.Message(t.Context(), client.MessageRef{Stream: "ORDERS", Seq: 7})
			return err
		},
	} {
		s, c := newScript(t, says(200, "{}"))
		if err := call(c); err != nil || !strings.HasPrefix(s.asked[0], want+" ") {
			t.Errorf("%v: asked %q, want %q", err, s.asked[0], want)
		}
	}
	for _, url := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://x?y=1"} {
		if _, err := client.New(client.Config{URL: url}); err == nil {
			t.Errorf("%q is a URL", url)
		}
	}
}

// A watch goes on over streams that break, and over servers that are away, and yields no state twice.
func TestWatch(t *testing.T) {
	t.Parallel()
	event := func(id, status string) string {
		return fmt.Sprintf("event: state\nid: %s\ndata: {\"id\": \"00000001-0000-7000-8000-000000000000\", \"status\": %q}\n\n", id, status)
	}
	s, c := newScript(t,
		says(200, "retry: 2000\n\n"+event("1", "runnable")+": ping\n\n"+event("2", "executing")+"event: state\nid: 3\ndata: {\"half"),
		away, breaks, says(200, event("4", "awaiting_signal")), says(200, "retry: 2000\n\n"), says(200, event("5", "done")))
	var seen []string
	for in, err := range c.Watch(t.Context(), client.ByKey("a")) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, string(in.Status))
	}
	if fmt.Sprint(seen) != "[runnable executing awaiting_signal done]" {
		t.Errorf("seen %q", seen)
	}
	const path = "/v1/instances/00000001-0000-7000-8000-000000000000/stream?project=shop Bearer pm_x "
	if s.asked[1] != "GET "+path+"2" || s.asked[5] != "GET "+path+"4" || !strings.Contains(s.asked[0], "/key:a/") {
		t.Errorf("asked %q", s.asked)
	}
	_, c = newScript(t, says(200, event("1", "runnable")), says(http.StatusNoContent, ""))
	n := 0
	for _, err := range c.Watch(t.Context(), client.ByKey("a")) {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d states, want 1", n)
	}
	_, c = newScript(t, says(404, `{"error": {"code": "not_found", "message": "none"}}`))
	for _, err := range c.Watch(t.Context(), client.ByKey("a")) {
		if client.Code(err) != client.CodeNotFound {
			t.Error(err)
		}
	}
	_, c = newScript(t, says(200, event("1", "runnable")))
	for _, err := range c.Watch(t.Context(), client.ByKey("a")) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, c = newScript(t, says(200, event("1", "runnable")))
	var last error
	for _, err := range c.Watch(ctx, client.ByKey("a")) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("canceled: %v", last)
	}
}

// A wait is a chain of requests, the later ones by id: another instance may have the key by then.
func TestWait(t *testing.T) {
	t.Parallel()
	const in = `{"id": "00000001-0000-7000-8000-000000000000", "status": %q}`
	s, c := newScript(t, says(200, fmt.Sprintf(in, "runnable")), away, says(200, fmt.Sprintf(in, "done")))
	got, err := c.Wait(t.Context(), client.ByKey("a"))
	if err != nil || got.Status != "done" || !strings.Contains(s.asked[2], "/00000001-") || !strings.Contains(s.asked[0], "/key:a?project=shop&wait=30s") {
		t.Errorf("%+v, %v, %q", got, err, s.asked)
	}
}

// An update is asked for with one key until a step has taken it; a refusal is an answer, and what an accepted one is told after is no error.
func TestUpdate(t *testing.T) {
	t.Parallel()
	var keys []string
	note := func(next func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			next(w, r)
		}
	}
	const taken = `{"accepted": true, "run": {"status": "done"}}`
	s, c := newScript(t, note(away), note(says(200, `{"accepted": true, "run": null}`)), note(says(200, taken)))
	u := client.NewUpdate{Name: "decide", Arg: map[string]bool{"yes": true}, Wait: time.Hour}
	done, err := c.Update(t.Context(), client.ByKey("a"), u)
	if err != nil || !done.Accepted || done.Run == nil || done.Run.Status != "done" {
		t.Errorf("%+v, %v", done, err)
	}
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[0] != keys[2] {
		t.Errorf("keys %q", keys)
	}
	if want := `POST /v1/instances/key:a/updates/decide?project=shop&wait=30s Bearer pm_x  {"yes":true}`; s.asked[2] != want {
		t.Errorf("asked %s", s.asked[2])
	}
	_, c = newScript(t, says(422, `{"accepted": false, "reason": "not so"}`))
	if done, err = c.Update(t.Context(), client.ByKey("a"), u); err != nil || done.Accepted || done.Reason != "not so" {
		t.Errorf("%+v, %v", done, err)
	}
	_, c = newScript(t, says(200, `{"accepted": true, "run": null}`), says(404, `{"error": {"code": "not_found", "message": "gone"}}`))
	if done, err = c.Update(t.Context(), client.ByKey("a"), u); err != nil || !done.Accepted || done.Run != nil {
		t.Errorf("%+v, %v", done, err)
	}
	_, c = newScript(t, says(409, `{"error": {"code": "conflict", "message": "another argument"}}`))
	if _, err = c.Update(t.Context(), client.ByKey("a"), u); client.Code(err) != client.CodeConflict {
		t.Error(err)
	}
	_, c = newScript(t)
	if _, err = c.Update(t.Context(), client.ByKey("a"), client.NewUpdate{Name: "decide", Arg: make(chan int)}); err == nil {
		t.Error("a channel is JSON")
	}
}

// A watch of a trigger goes on by its key.
func TestWatchTrigger(t *testing.T) {
	t.Parallel()
	event := func(id, status string) string {
		return fmt.Sprintf("event: status\nid: %s\ndata: {\"id\": \"00000001-0000-7000-8000-000000000000\", \"status\": %q}\n\n", id, status)
	}
	s, c := newScript(t, says(200, event("1", "waiting")), away, says(200, event("2", "received")))
	var seen []string
	for g, err := range c.WatchTrigger(t.Context(), "a/b") {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, string(g.Status))
	}
	if fmt.Sprint(seen) != "[waiting received]" || s.asked[2] != "GET /v1/events/a%2Fb/stream?project=shop Bearer pm_x 1" {
		t.Errorf("seen %q, asked %q", seen, s.asked)
	}
}

// An event that is held has no trigger.
func TestSendEvent(t *testing.T) {
	t.Parallel()
	_, c := newScript(t, away, says(202, `{"result": "held", "event_key": "k", "held_until": "2030-01-02T03:04:05Z"}`), says(200, `{"event_key": "k", "status": "received"}`))
	sent, err := c.SendEvent(t.Context(), "k", nil, time.Hour)
	if err != nil || sent.Trigger != nil || sent.HeldUntil.Year() != 2030 {
		t.Errorf("%+v, %v", sent, err)
	}
	sent, err = c.SendEvent(t.Context(), "k", nil, 0)
	if err != nil || sent.Trigger == nil || sent.Trigger.Status != "received" || !sent.HeldUntil.IsZero() {
		t.Errorf("%+v, %v", sent, err)
	}
}
