package engine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Work goes on behind a PgBouncer while its sessions are killed, and the whole of it: every step commits once, and nothing ever missed
// what a session had prepared.
func TestKillsBehindPooler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bouncer := pgtest.NewBouncer(t, b.db.URL)
	name := "kills-" + b.db.Schema[len(b.db.Schema)-12:]
	pool := must(engine.Connect(t.Context(), bouncer.URL+"&application_name="+name, 6, true))(t)
	t.Cleanup(pool.Close)
	log := &logged{}
	b.Client = must(engine.NewClient(pool, engine.Config{Schema: b.db.Schema, Logger: slog.New(slog.NewTextHandler(log, nil))}))(t)
	const n = 60
	kills := []func(){
		func() {
			eventually(t, "a session is killed", func() bool {
				return b.count(`select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1`, name) > 0
			})
		},
		bouncer.Restart,
	}
	// The lease of a pick whose answer was lost has to run out; that others do on a slow machine must not end an instance.
	m := define(t, engine.Definition[raw]{Retry: engine.RetryPolicy{MaxAttempts: 1000, Initial: time.Millisecond, Max: time.Millisecond}, Steps: map[string]step{
		"begin": to(engine.Await("paid", "pay").Within(time.Hour)),
		"paid":  to(engine.Next("ship").Publish("paid", nil, nil)),
		"ship":  to(engine.Done(nil).Publish("shipped", nil, nil)),
	}})
	b.work(engine.WorkerConfig{Machines: []*engine.Machine{m}, Lease: 5 * time.Second, Heartbeat: time.Second})
	for i := range n {
		key := fmt.Sprint("k", i)
		var errs []error
		retried := func(what string, call func() error) {
			eventually(t, what, func() bool {
				err := call()
				if err != nil {
					errs = append(errs, err)
				}
				return err == nil
			})
		}
		retried("a start", func() error {
			_, err := b.Start(t.Context(), engine.NewInstance{Machine: "m", CorrelationKey: key, DedupKey: key})
			return err
		})
		if i%10 == 5 {
			kills[i/10%2]()
		}
		retried("a signal", func() error {
			_, err := b.Signal(t.Context(), engine.ByKey("", key), engine.Signal{Name: "pay", DedupKey: key})
			return err
		})
		for _, err := range errs {
			log.Write([]byte(err.Error() + "\n")) //nolint:errcheck // never an error
		}
	}
	settled := func() bool {
		return b.count(`select (select count(*) from pointsman.instances where status = 'done') - (select count(*) from pointsman.leases)`) == n
	}
	for deadline := time.Now().Add(2 * time.Minute); !settled(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never all done, and no lease left; the log:\n%s", log)
		}
	}
	equal(t, "publications", b.count(`select count(*) from pointsman.outbox where kind = 'publish'`), 2*n)
	equal(t, "outcomes", b.count(`select count(*) from pointsman.outbox where kind = 'outcome'`), n)
	for _, never := range []string{"prepared statement", "cached plan", "unnamed portal", "bind message"} {
		if strings.Contains(log.String(), never) {
			t.Errorf("the log has %q:\n%s", never, log)
		}
	}
	if !strings.Contains(log.String(), "terminating connection") {
		t.Errorf("nobody noticed a kill:\n%s", log)
	}
}
