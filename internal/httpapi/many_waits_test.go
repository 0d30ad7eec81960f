package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/wake"
)

// sleeper is a machine that ends with the payload of a signal "go".
func sleeper(t *testing.T) *engine.Machine {
	t.Helper()
	machine, err := engine.Define(engine.Definition[struct{}]{Name: "sleeper", Start: "sleep", Steps: map[string]engine.Step[struct{}]{
		"sleep": func(context.Context, *engine.Visit[struct{}]) (engine.Outcome, error) {
			return engine.Await("end", "go"), nil
		},
		"end": func(_ context.Context, v *engine.Visit[struct{}]) (engine.Outcome, error) {
			return engine.Done(v.Awaited[0].Payload), nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

// TestManyWaits: all four ways to learn of an end at once, each for a quarter of many instances: a get that waits, a stream, Client.Wait of
// another process, and reply_to. One job signals them all; each is told its own end, and the job counts each once. POINTSMAN_TEST_LONG=1
// has 5,000 that wait.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	n := 240
	if os.Getenv("POINTSMAN_TEST_LONG") != "" {
		n = 5_000
	}
	stack := apptest.Start(t, routes, map[string][]string{"ORDERS": {"orders.>"}}, sleeper(t))
	b := &bundle{T: t, stack: stack, url: stack.HTTPURL}
	conn := stack.NATS.Conn(t)
	metrics := prometheus.NewRegistry()
	c, pool := anotherClient(t, stack, conn, metrics)

	told := make(chan error, n)
	var replied sync.Map
	_, err := conn.Subscribe("ends.*", func(m *nats.Msg) {
		if _, again := replied.LoadOrStore(m.Subject, true); !again { // at least once
			told <- ended(m.Data)
		}
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	ids := startSleepers(t, c, pool, n)
	begun := time.Now()
	var opening errgroup.Group
	opening.SetLimit(32)
	for i, id := range ids {
		switch i % 4 {
		case 0: // has its reply_to
		case 1:
			go func() {
				in, err := c.Wait(t.Context(), engine.ByID(id))
				if err == nil && in.Status != engine.StatusDone {
					err = fmt.Errorf("it is %s", in.Status)
				}
				told <- err
			}()
		default:
			path, read := "?wait=5m", endOfGet
			if i%4 == 3 {
				path, read = "/stream", endOfStream
			}
			opening.Go(func() error {
				lines, err := b.dial("/v1/instances/" + id.String() + path)
				if err == nil {
					go func() { told <- read(lines) }()
				}
				return err
			})
		}
	}
	if err := opening.Wait(); err != nil {
		t.Fatal(err)
	}
	apptest.Eventually(t, "all wait", func() (bool, error) {
		here, there := waiting(t, metrics), strings.Contains(string(b.call("GET", "/metrics", "").body), fmt.Sprintf("\npointsman_waits %d\n", n/2))
		return here == n/4 && there, fmt.Errorf("%d wait here, and in the bridge all: %t", here, there)
	})
	open := time.Since(begun)

	begun = time.Now()
	var j api.Job
	b.ask(http.StatusCreated, "POST", "/v1/jobs", `{"kind": "signal", "filter": {"machine": "sleeper"}, "args": {"name": "go", "payload": {"over": true}}}`, &j)
	all(t, "is told", told, n)
	took := time.Since(begun)
	apptest.Eventually(t, "the job has ended", func() (bool, error) {
		b.ask(http.StatusOK, "GET", "/v1/jobs/"+j.ID.String(), "", &j)
		return j.EndedAt != nil, fmt.Errorf("it is %+v", j)
	})
	equal(b, "the job", fmt.Sprint(j.Status, j.Total, j.Done, j.Failed, j.Skipped), fmt.Sprint(engine.JobDone, n, n, 0, 0))
	apptest.Eventually(t, "nobody waits", func() (bool, error) {
		return waiting(t, metrics) == 0 && strings.Contains(string(b.call("GET", "/metrics", "").body), "\npointsman_waits 0\n"), errors.New("somebody does")
	})
	t.Logf("%d wait after %s; signaled, run and told in %s", n, open.Round(time.Millisecond), took.Round(time.Millisecond))
}

// anotherClient is of another process.
func anotherClient(t *testing.T, stack *apptest.Stack, conn *nats.Conn, metrics prometheus.Registerer) (*engine.Client, *pgxpool.Pool) {
	t.Helper()
	pool, err := engine.Connect(t.Context(), stack.DatabaseURL, 4, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := wake.New(conn, stack.Space)
	t.Cleanup(w.Close)
	c, err := engine.NewClient(pool, engine.Config{Waker: w, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	return c, pool
}

// startSleepers starts n, of which every fourth has a reply_to, and returns when all are parked.
func startSleepers(t *testing.T, c *engine.Client, pool *pgxpool.Pool, n int) (ids []uuid.UUID) {
	t.Helper()
	ns := make([]engine.NewInstance, n)
	for i := range ns {
		ns[i] = engine.NewInstance{Machine: "sleeper", CorrelationKey: fmt.Sprint("sleeper-", i)}
		if i%4 == 0 {
			ns[i].ReplyTo = "ends." + strconv.Itoa(i)
		}
	}
	receipts, err := c.StartAll(t.Context(), ns, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		ids = append(ids, r.InstanceID)
	}
	apptest.Eventually(t, "all are parked", func() (parked bool, err error) {
		err = pool.QueryRow(t.Context(), `select count(*) = $1 from pointsman.instances where parked`, n).Scan(&parked)
		return parked, err
	})
	return ids
}

// waiting is how many calls of a client wait.
func waiting(t *testing.T, metrics prometheus.Gatherer) int {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "pointsman_waits" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("there is no metric of waits")
	return 0
}

// ended wants the JSON of an instance, or of its outcome, to be of one that is done with what the signal said.
func ended(text []byte) error {
	var in struct {
		Status string
		Result struct{ Over bool }
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	if in.Status != "done" || !in.Result.Over {
		return fmt.Errorf("the end is %s", text)
	}
	return nil
}

func endOfGet(lines *bufio.Reader) error {
	resp, err := http.ReadResponse(lines, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return ended(text)
}

// endOfStream reads states until the last.
func endOfStream(lines *bufio.Reader) (err error) {
	last := ""
	for {
		line, err := lines.ReadString('\n')
		if data, is := strings.CutPrefix(line, "data: "); is {
			last = data
		}
		if errors.Is(err, io.EOF) {
			return ended([]byte(last))
		}
		if err != nil {
			return err
		}
	}
}
