package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
)

// Why a route is not read stands in routes: who has paused it, that another bridge reads it, that the database is away. Then routes are listed
// all the same, with what the bridge knows.
func TestThrottleReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, `
database: {url: "${POINTSMAN_DATABASE_URL}"}
nats: {url: "${POINTSMAN_NATS_URL}"}
http: {admin_token: only-for-this-test}
routes:
  - {name: idle, stream: ORDERS, subject: orders.idle, correlation_key: a, signal: x, paused: true}
  - {name: lane, stream: ORDERS, subject: orders.lane, correlation_key: a, signal: x, ordered: true}
  - {name: items, stream: ORDERS, subject: orders.items, correlation_key: a, signal: x}
  - {name: paid, stream: ORDERS, subject: orders.paid, correlation_key: a, signal: x}
`, map[string][]string{"ORDERS": {"orders.>"}})
	ask := func(method, at string, into any) error {
		r, err := http.NewRequestWithContext(t.Context(), method, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer only-for-this-test")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", answer.Status, text)
		}
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		return err
	}
	// throttled waits for the reason that a bridge gives, which begins as wanted; "": none.
	throttled := func(bridge, route, want string) (found api.Route) {
		t.Helper()
		apptest.Eventually(t, fmt.Sprintf("%s is %q", route, want), func() (bool, error) {
			var routes api.Routes
			if err := ask("GET", bridge+"/v1/routes", &routes); err != nil {
				return false, err
			}
			for _, r := range routes.Items {
				if r.Name == route {
					found = r
				}
			}
			reason := ""
			if found.Throttle != nil {
				reason = *found.Throttle
			}
			return (want == "") == (reason == "") && strings.HasPrefix(reason, want), fmt.Errorf("%s", reason)
		})
		return found
	}

	throttled(s.HTTPURL, "idle", "paused: by the configuration")
	throttled(s.HTTPURL, "paid", "")
	var paused api.RoutePause
	if err := ask("POST", s.HTTPURL+"/v1/routes/paid/pause", &paused); err != nil {
		t.Fatal(err)
	}
	throttled(s.HTTPURL, "paid", "paused: by an operator")

	throttled(s.HTTPURL, "lane", "")
	throttled(s.Bridge(t), "lane", "standby: another bridge reads")

	connections(t, s.DatabaseURL, false)
	s.Publish(t, "orders.items", `{}`)
	held := throttled(s.HTTPURL, "items", "inbox: accept: ")
	if held.Lag == nil || *held.Lag != 1 || held.Trouble == nil || !strings.Contains(*held.Trouble, "database: ") {
		t.Errorf("while the database is away: %+v", held)
	}
	if r := throttled(s.HTTPURL, "paid", "paused: by an operator"); !r.Paused {
		t.Error("while the database is away nobody knows of the pause")
	}
	connections(t, s.DatabaseURL, true)
	if err := ask("POST", s.HTTPURL+"/v1/routes/paid/resume", &paused); err != nil {
		t.Fatal(err)
	}
	throttled(s.HTTPURL, "paid", "")
	throttled(s.HTTPURL, "items", "")
}

// connections to a database are ended and refused, or allowed.
func connections(t *testing.T, database string, allowed bool) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	db, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	if _, err := db.Exec(t.Context(), fmt.Sprintf("alter database %s allow_connections %t", pgx.Identifier{name}.Sanitize(), allowed)); err != nil {
		t.Fatal(err)
	}
	if !allowed {
		if _, err := db.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name); err != nil {
			t.Fatal(err)
		}
	}
}
