package natsapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/subjects"
)

const patience = 90 * time.Second

// serve runs operations that need no database. stop tells the service to end, and ended what Run returned.
func serve(t *testing.T, slots int, operations map[string]operation) (client *Client, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	a, err := api.New(api.Config{Client: &engine.Client{}, Mapper: &bridge.Mapper{}, Tracer: &bridge.Tracer{}, Letters: &bridge.Letters{}, Replayer: &bridge.Replayer{}, Dropper: &bridge.Dropper{}, Operator: &bridge.Operator{}})
	if err != nil {
		t.Fatal(err)
	}
	return serveAPI(t, a, slots, operations)
}

func serveAPI(t *testing.T, a *api.API, slots int, operations map[string]operation) (client *Client, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	server := natstest.Start(t)
	space, err := subjects.New("")
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{
		cfg:        Config{Conn: server.Conn(t), Subjects: space, API: a, ShutdownTimeout: patience, Logger: slog.New(slog.DiscardHandler)},
		operations: operations, slots: make(chan struct{}, slots), waiting: make(chan struct{}, slots),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(cancel)
	client = &Client{Conn: server.Conn(t), Subjects: space}
	for deadline := time.Now().Add(patience); errors.Is(client.Do(t.Context(), "ready", nil, nil), ErrNoService); {
		if time.Now().After(deadline) {
			t.Fatal("nobody answers")
		}
	}
	return client, cancel, done
}

func code(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func answer(v any, err error) operation {
	return func(context.Context, string, nats.Header, []byte) (any, error) { return v, err }
}

func TestWhatGoesWrongIsAnError(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, 4, map[string]operation{
		"ready":   answer(true, nil),
		"panics":  func(context.Context, string, nats.Header, []byte) (any, error) { panic("a bug") },
		"fails":   answer(nil, errors.New("connection refused to secret.host")),
		"large":   answer(strings.Repeat("x", 2<<20), nil),
		"strange": answer(func() {}, nil),
	})
	for verb, want := range map[string]string{"panics": api.CodeUnavailable, "fails": api.CodeUnavailable, "large": api.CodeTooLarge, "strange": api.CodeUnavailable} {
		err := client.Do(t.Context(), verb, nil, nil)
		if code(err) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", verb, err, want)
		}
	}
	var ready bool
	if err := client.Do(t.Context(), "ready", nil, &ready); err != nil || !ready {
		t.Errorf("after all that: %v", err)
	}
}

// One request that waits does not keep others of its verb waiting, one too many is turned away, and those in work are answered when the
// service is told to stop.
func TestManyAtOnceAndDrain(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	client, stop, ended := serve(t, 2, map[string]operation{
		"ready": answer(true, nil),
		"slow": func(context.Context, string, nats.Header, []byte) (any, error) {
			began <- struct{}{}
			<-release
			return json.RawMessage(`"late"`), nil
		},
	})
	answers := make(chan error, 2)
	for range 2 {
		go func() {
			var late string
			err := client.Do(t.Context(), "slow", nil, &late)
			if err == nil && late != "late" {
				err = errors.New(late)
			}
			answers <- err
		}()
	}
	<-began
	<-began
	if err := client.Do(t.Context(), "ready", nil, nil); code(err) != api.CodeUnavailable {
		t.Errorf("one too many: %v", err)
	}
	stop()
	for deadline := time.Now().Add(patience); !errors.Is(client.Do(t.Context(), "ready", nil, nil), ErrNoService); {
		if time.Now().After(deadline) {
			t.Fatal("it takes requests on")
		}
	}
	close(release)
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Who waits for an instance when the service is told to stop is answered, with the instance as it is, and keeps nobody from stopping.
func TestStopEndsWaits(t *testing.T) {
	t.Parallel()
	db, reg := pgtest.New(t), prometheus.NewRegistry()
	pool, err := engine.Connect(t.Context(), db.URL, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c, err := engine.NewClient(pool, engine.Config{Schema: db.Schema, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.Start(t.Context(), engine.NewInstance{Machine: "m"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.New(api.Config{Client: c, Mapper: &bridge.Mapper{}, Tracer: &bridge.Tracer{}, Letters: &bridge.Letters{}, Replayer: &bridge.Replayer{}, Dropper: &bridge.Dropper{}, Operator: &bridge.Operator{}})
	if err != nil {
		t.Fatal(err)
	}
	client, stop, ended := serveAPI(t, a, 1, map[string]operation{"ready": answer(true, nil), VerbGet: of(a.Get)})
	answers := make(chan error, 1)
	var got api.Instance
	go func() {
		answers <- client.Do(context.WithoutCancel(t.Context()), VerbGet, api.GetRequest{Ref: in.ID.String(), Wait: api.MaxWait.String()}, &got)
	}()
	for deadline := time.Now().Add(patience); waits(t, reg) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not wait")
		}
	}
	if err := client.Do(t.Context(), "ready", nil, nil); err != nil { // a wait takes nobody else's place
		t.Error(err)
	}
	stop()
	if err := <-answers; err != nil || got.Status != engine.StatusRunnable {
		t.Errorf("answered %v, %+v", err, got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func waits(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "pointsman_waits" {
			return family.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no metric")
	return 0
}

func TestSemver(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"": "0.0.0", "devel-abc": "0.0.0", "v1.2.3": "1.2.3", "1.2.3-rc1": "1.2.3", "v0.0.0-2026-x": "0.0.0"} {
		if got := semver(version); got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}
