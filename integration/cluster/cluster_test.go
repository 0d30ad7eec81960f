package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pointsman/pointsman/integration/cluster"
)

// patience is how long a test waits for what should come soon. Only one that fails waits so long.
const patience = 3 * time.Minute

const routes = `
worker: {lease: 3s, heartbeat: 1s, shutdown_timeout: 20s}
routes:
  - {name: starts, stream: ERRANDS, subject: errands.*.start, correlation_key: "errand-{{subject[1]}}", start: {machine: errand}}
  - {name: backs, stream: ERRANDS, subject: errands.*.back, correlation_key: "errand-{{subject[1]}}", signal: back}
`

func TestProcesses(t *testing.T) { smoke(t, cluster.Processes) }

func TestContainers(t *testing.T) { smoke(t, cluster.Containers) }

func smoke(t *testing.T, b cluster.Backend) {
	began := time.Now()
	c := cluster.Start(t, cluster.Config{
		Backend: b, NATS: 3, Standby: true, Pooler: true, Bridges: 2, Workers: 2, Config: routes, WorkerProgram: "./integration/cluster/errands",
		Streams: []jetstream.StreamConfig{{Name: stream, Subjects: []string{"errands.>"}}},
	})
	t.Logf("up after %s", time.Since(began).Round(time.Millisecond))
	e := newErrands(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	bridges, workers := c.Bridges(), c.Workers()
	for _, fault := range []func() (*cluster.Fault, error){
		func() (*cluster.Fault, error) { return c.Kill(ctx, bridges[0]) },
		func() (*cluster.Fault, error) { return c.Kill(ctx, workers[0]) },
		func() (*cluster.Fault, error) { return c.Pause(ctx, workers[1]) },
		func() (*cluster.Fault, error) { return c.Cut(ctx, bridges[1], c.Database()...) },
		func() (*cluster.Fault, error) { return c.Refuse(ctx, bridges[0], c.NATS()...) },
		func() (*cluster.Fault, error) { return c.Cut(ctx, workers[1], c.Database()...) },
		func() (*cluster.Fault, error) { return c.Slow(ctx, 20*time.Millisecond, workers[0], c.Database()...) },
		func() (*cluster.Fault, error) { return c.Isolate(ctx, bridges[0]) },
		func() (*cluster.Fault, error) {
			leader, err := c.Leader(ctx, stream)
			if err != nil {
				return nil, err
			}
			return c.Cut(ctx, leader, c.NATS()...)
		},
		func() (*cluster.Fault, error) {
			leader, err := c.Leader(ctx, stream)
			if err != nil {
				return nil, err
			}
			return c.Kill(ctx, leader)
		},
		func() (*cluster.Fault, error) { return c.Kill(ctx, c.Members(cluster.Pooler)[0]) },
		func() (*cluster.Fault, error) { return c.Kill(ctx, c.Primary()) },
		func() (*cluster.Fault, error) { return c.Pause(ctx, c.Standby()) },
		func() (*cluster.Fault, error) { return c.Failover(ctx) },
		func() (*cluster.Fault, error) { return c.Fill(ctx, "POINTSMAN_OUTCOMES") },
	} {
		at := time.Now()
		f, err := fault()
		if err != nil {
			t.Fatal(err)
		}
		in := time.Since(at)
		published := make(chan struct{})
		go func() { defer close(published); e.publish(10) }()
		select {
		case <-published:
		case <-time.After(2 * time.Second): // it is connected to a server that has lost the others
		}
		at = time.Now()
		if err := f.Heal(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("%-45s in force after %5d ms, healed after %5d ms", f, in.Milliseconds(), time.Since(at).Milliseconds())
		<-published
	}
	// A schema that is newer than the programs has more in it: those that run go on, those that start take it.
	extend(t, c)
	for _, m := range append(bridges, workers...) {
		if err := c.Upgrade(ctx, m, cluster.Build{Version: "next"}); err != nil {
			t.Fatal(err)
		}
		e.publish(10)
	}
	e.publish(200 - e.published)
	if err := c.Ready(ctx); err != nil {
		t.Error(err)
	}
	e.outcomes()
	for _, m := range append(bridges, workers...) {
		if !strings.Contains(m.Log(), "version=next") {
			t.Errorf("%s is not the build that it was upgraded to", m)
		}
	}
	t.Logf("all after %s", time.Since(began).Round(time.Millisecond))
}

// extend does to the schema what migrations of a later version may: a column for each table, a table, and the next number.
func extend(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `select format('alter table %I.%I add column of_the_future int not null default 7', schemaname, tablename)
		from pg_tables where schemaname = 'pointsman'`)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range append(changes, `create table pointsman.of_the_future (id int8 primary key)`, `update pointsman.schema_version set version = version + 1`) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

const stream = "ERRANDS"

// errands are what the workers are asked to run: each is two messages, a start and a signal.
type errands struct {
	t         *testing.T
	js        jetstream.JetStream
	published int
}

func newErrands(t *testing.T, c *cluster.Cluster) *errands {
	t.Helper()
	nc, err := nats.Connect(c.NATSURL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	e := &errands{t: t}
	if e.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return e
}

// insist tries again while the servers elect and restart.
func (e *errands) insist(what string, do func(ctx context.Context) error) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.t.Errorf("%s: %v", what, err)
			return
		}
	}
}

func (e *errands) publish(n int) {
	e.t.Helper()
	for range n {
		for _, what := range []string{"start", "back"} {
			subject := fmt.Sprintf("errands.%d.%s", e.published, what)
			e.insist("publish "+subject, func(ctx context.Context) error {
				_, err := e.js.Publish(ctx, subject, []byte("{}"), jetstream.WithMsgID(subject))
				return err
			})
		}
		e.published++
	}
}

// outcomes waits until each errand has been told to be done.
func (e *errands) outcomes() {
	e.t.Helper()
	var messages jetstream.MessagesContext
	e.insist("read the outcomes", func(ctx context.Context) error {
		c, err := e.js.OrderedConsumer(ctx, "POINTSMAN_OUTCOMES", jetstream.OrderedConsumerConfig{})
		if err == nil {
			messages, err = c.Messages()
		}
		return err
	})
	defer messages.Stop()
	ended := map[string]bool{}
	for len(ended) < e.published {
		m, err := messages.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			e.t.Fatalf("%d of %d outcomes came: %v", len(ended), e.published, err)
		}
		var o struct {
			Status string          `json:"status"`
			Key    string          `json:"correlation_key"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(m.Data(), &o); err != nil {
			e.t.Fatal(err)
		}
		if o.Status != "done" || string(o.Result) != "1" {
			e.t.Errorf("%s: %s", o.Key, m.Data())
		}
		ended[o.Key] = true
	}
}

func TestProgramsAnswer(t *testing.T) {
	c := cluster.Start(t, cluster.Config{})
	for _, m := range append(c.Bridges(), c.Workers()...) {
		resp, err := http.Get(m.URL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", m, resp.Status)
		}
	}
}
