package enginetest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

type raw = json.RawMessage

// stage is where one case plays: a schema of its own, and workers that serve the machines of a host.
type stage struct {
	*engine.Client
	t    testing.TB
	env  *Env
	host Host
}

// newStage goes through the pooler, unless there is none.
func newStage(t testing.TB, host Host, pooler *pgtest.Bouncer) *stage {
	t.Helper()
	env := New(t)
	if pooler != nil {
		pool, err := engine.Connect(t.Context(), pooler.To(env.Pool.Config().ConnString()), maxConns, true)
		env.must(err)
		t.Cleanup(pool.Close)
		env.Client, err = engine.NewClient(pool, engine.Config{Schema: env.Schema, Logger: slog.New(slog.DiscardHandler)})
		env.must(err)
	}
	return &stage{Client: env.Client, t: t, env: env, host: host}
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// machine hosts a script, which retries at once unless it says otherwise.
func (s *stage) machine(script Script) *engine.Machine {
	s.t.Helper()
	if script.Name == "" {
		script.Name = "m"
	}
	if script.Start == "" {
		script.Start = "begin"
	}
	if script.Retry == (engine.RetryPolicy{}) {
		script.Retry = engine.RetryPolicy{Initial: time.Millisecond, Max: time.Millisecond}
	}
	return s.host(s.t, script)
}

// play serves the machine "m" of these steps until the test ends, and notes what its steps are asked.
func (s *stage) play(steps map[string]Step) *diary {
	s.t.Helper()
	d := &diary{}
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{s.machine(Script{Steps: d.around(steps)})}})
	return d
}

// serve runs a worker until the returned function is called, or the test ends.
func (s *stage) serve(cfg engine.WorkerConfig) (stop func()) {
	s.t.Helper()
	return s.env.Serve(cfg)
}

func (s *stage) start(n engine.NewInstance) uuid.UUID {
	s.t.Helper()
	if n.Machine == "" {
		n.Machine = "m"
	}
	in, err := s.Start(s.t.Context(), n)
	s.must(err)
	return in.ID
}

func (s *stage) begin(state string) uuid.UUID {
	s.t.Helper()
	return s.start(engine.NewInstance{State: raw(state)})
}

// send puts signals into the inbox of an instance, together. The payload is the dedup key.
func (s *stage) send(id uuid.UUID, signals ...engine.Signal) {
	s.t.Helper()
	batch := make([]engine.Intake, len(signals))
	for i, g := range signals {
		batch[i] = engine.Intake{To: engine.ByID(id), Name: g.Name, Payload: g.Payload, DedupKey: g.DedupKey}
	}
	receipts, err := s.Accept(s.t.Context(), batch)
	s.must(err)
	for _, r := range receipts {
		if r.Result != engine.Delivered {
			s.t.Fatalf("a signal is %s: %s", r.Result, r.Reason)
		}
	}
}

// update sends one, and returns the instance after the step that took it.
func (s *stage) update(id uuid.UUID, r engine.UpdateRequest) engine.Instance {
	s.t.Helper()
	r.Wait = patience
	res, err := s.Update(s.t.Context(), engine.ByID(id), r)
	s.must(err)
	if !res.Accepted || res.Run == nil {
		s.t.Fatalf("an update is %+v", res)
	}
	return *res.Run
}

func named(name, dedup string) engine.Signal {
	return engine.Signal{Name: name, DedupKey: dedup, Payload: engine.MustJSON(dedup)}
}

// until waits for an instance to be as it should.
func (s *stage) until(id uuid.UUID, what string, ok func(engine.Instance) bool) engine.Instance {
	s.t.Helper()
	return s.env.Instance(engine.ByID(id)).Until(what, ok)
}

func (s *stage) parks(id uuid.UUID) engine.Instance {
	s.t.Helper()
	return s.until(id, "parked", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting })
}

// ends waits for the end, and wants it to be this.
func (s *stage) ends(id uuid.UUID, status engine.Status) engine.Instance {
	s.t.Helper()
	in := s.until(id, "ended", func(in engine.Instance) bool { return !in.Status.Live() })
	if in.Status != status {
		s.t.Fatalf("ended as %+v, want %s", in, status)
	}
	return in
}

// query returns one value as text.
func (s *stage) query(sql string, args ...any) (value string) {
	s.t.Helper()
	s.must(s.env.Pool.QueryRow(s.t.Context(), migrations.Qualify(sql, s.env.Schema), args...).Scan(&value))
	return value
}

// normal is JSON as Postgres writes it.
func (s *stage) normal(json string) string {
	s.t.Helper()
	return s.query(`select $1::text::jsonb::text`, json)
}

// eventually waits for a query to find this.
func (s *stage) eventually(sql, want string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		got := s.query(sql)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %s, want %s", sql, got, want)
		}
	}
}

func (s *stage) equal(what string, got, want any) {
	s.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.t.Errorf("%s: %s, want %s", what, g, w)
	}
}

// json compares two documents as Postgres sees them.
func (s *stage) json(what string, got raw, want string) {
	s.t.Helper()
	s.equal(what, s.normal(string(got)), s.normal(want))
}

// diary notes what steps are asked, in order.
type diary struct {
	mu   sync.Mutex
	made []Request
}

func (d *diary) around(steps map[string]Step) map[string]Step {
	noted := map[string]Step{}
	for name, step := range steps {
		noted[name] = func(r Request) Reply {
			d.mu.Lock()
			d.made = append(d.made, r)
			d.mu.Unlock()
			return step(r)
		}
	}
	return noted
}

// of returns the requests of a step.
func (d *diary) of(step string) (rs []Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.made {
		if r.Step == step {
			rs = append(rs, r)
		}
	}
	return rs
}

// tell writes something about each request of a step, with a space between.
func (d *diary) tell(step string, what func(Request) any) string {
	var all []string
	for _, r := range d.of(step) {
		all = append(all, fmt.Sprint(what(r)))
	}
	return strings.Join(all, " ")
}

// keys counts the different idempotency keys of a step.
func (d *diary) keys(step string) int {
	keys := map[string]bool{}
	for _, r := range d.of(step) {
		keys[r.IdempotencyKey] = true
	}
	return len(keys)
}

// names are those of signals, with their dedup keys.
func names(signals []Signal) string {
	all := make([]string, len(signals))
	for i, g := range signals {
		all[i] = g.Name + ":" + g.DedupKey
	}
	return "[" + strings.Join(all, " ") + "]"
}
