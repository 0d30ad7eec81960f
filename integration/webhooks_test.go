package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A bridge that is killed with webhooks on their way, or between two attempts, loses none: the next bridge sends them, under the same ids.
func TestWebhooksOutliveTheBridge(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	wh, err := standardwebhooks.NewWebhook(webhookSecret)
	s.must(err)
	var killed atomic.Bool
	var mu sync.Mutex
	got := map[string]int{} // by id
	receiver := func(before http.HandlerFunc) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			id := r.Header.Get("webhook-id")
			if err := wh.Verify(body, r.Header); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			mu.Lock()
			got[id]++
			mu.Unlock()
			if !killed.Load() {
				before(w, r)
			}
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	hanging := make(chan struct{}, 10)
	hangs := receiver(func(_ http.ResponseWriter, r *http.Request) { hanging <- struct{}{}; <-r.Context().Done() })
	fails := receiver(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	config := s.file("webhooks.yaml", `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
webhooks: {secret: "`+webhookSecret+`", allow_private: true, timeout: 10m}
`)
	bridge := s.start("bridge 1", "bridge", "--config", config)
	for i, url := range []string{hangs, fails, hangs, fails} {
		key := fmt.Sprint("w", i)
		s.until(patience, "a bridge takes the start", func() (bool, string) {
			status, printed := s.run("pointsman", "start", "m", "--key", key, "--notify-url", url, "--config", config)
			return status == 0, printed
		})
		s.must(s.start("cancel", "pointsman", "cancel", "key:"+key, "--config", config).wait(patience))
	}
	<-hanging
	<-hanging
	s.until(patience, "two wait for their next attempt", func() (bool, string) {
		n := s.count(`select count(*) from pointsman.webhook_deliveries where attempts > 0 and status = 'pending'`)
		return n == 2, fmt.Sprint(n)
	})
	bridge.kill()
	killed.Store(true)
	s.start("bridge 2", "bridge", "--config", config)
	_, err = s.db.Exec(t.Context(), `update pointsman.webhook_deliveries set next_at = now()`) // as if the claims of the dead, and the delays, were over
	s.must(err)
	s.until(patience, "all are delivered", func() (bool, string) {
		n := s.count(`select count(*) from pointsman.webhook_deliveries where status = 'delivered'`)
		return n == 4, fmt.Sprint(n)
	})
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 4 {
		t.Errorf("%d ids for 4 webhooks", len(got))
	}
	for id, n := range got {
		if n < 2 {
			t.Errorf("%s came %d times", id, n)
		}
	}
}

func TestWrongWebhookSecret(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	config := s.file("wrong.yaml", `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
webhooks: {secret: "hush!"}
`)
	status, printed := s.run("bridge", "--config", config)
	if want := "wrong.yaml:4:20: webhooks.secret: a secret is not in base64"; status != 2 || !strings.Contains(printed, want) || strings.Contains(printed, "hush") {
		t.Errorf("exit status %d, %s, want 2, %s", status, printed, want)
	}
}
