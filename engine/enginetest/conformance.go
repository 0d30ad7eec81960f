package enginetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// Conformance wants the machines of the host to be machines.
func Conformance(t *testing.T, host Host) {
	conformance(t, host, nil)
}

// ConformanceBehindPooler is Conformance with a PgBouncer in transaction mode before the database.
func ConformanceBehindPooler(t *testing.T, host Host) {
	conformance(t, host, pgtest.NewBouncer(t, pgtest.Empty(t).URL))
}

func conformance(t *testing.T, host Host, pooler *pgtest.Bouncer) {
	for name, play := range map[string]func(*stage){
		"Request":             request,
		"Next":                next,
		"Replay":              replay,
		"Errors":              failures,
		"Exhausted":           exhausted,
		"Await":               await,
		"Consume":             consume,
		"Updates":             updates,
		"AwaitAll":            awaitAll,
		"AwaitNOf":            awaitNOf,
		"AwaitWhere":          awaitWhere,
		"Children":            children,
		"ChildrenOne":         childrenOne,
		"Timeout":             timeout,
		"TimeoutPart":         timeoutWithPart,
		"Keys":                keys,
		"Done":                done,
		"Stop":                stop,
		"RoundTrip":           roundTrip,
		"Effects":             effects,
		"Queue":               queue,
		"Slots":               slots,
		"Shutdown":            shutdown,
		"ErrorCommitsNothing": errorCommitsNothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(newStage(t, host, pooler))
		})
	}
}

func to(r Reply) Step { return func(Request) Reply { return r } }

// A step is told which instance it is of, and what there is.
func request(s *stage) {
	d := &diary{}
	m := s.machine(Script{Name: "m", Version: 3, Steps: d.around(map[string]Step{"begin": to(Reply{Outcome: "done"})})})
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{m}})
	id := s.start(engine.NewInstance{Project: "acme", Version: 3, CorrelationKey: "Größe 1/2", State: raw(`{"a": 1}`)})
	in := s.ends(id, engine.StatusDone)
	r := d.of("begin")[0]
	s.equal("instance", r.InstanceID, id)
	s.equal("what", fmt.Sprint(r.Project, r.Machine, r.Version, r.Step, r.Attempt, r.CorrelationKey), fmt.Sprint("acme", "m", 3, "begin", 0, "Größe 1/2"))
	s.equal("version", in.Version, 3)
	s.json("state", r.State, `{"a":1}`)
	s.equal("signals", len(r.Awaited)+len(r.All), 0)
	s.equal("flags", fmt.Sprint(r.TimedOut, r.Canceled, r.InboxMore), "false false false")
	s.equal("key is there", r.IdempotencyKey != "", true)
}

// A next runs another step, or with none named the same one again, with the new state or the old one.
func next(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "next", Step: "again", State: raw(`{"n":1}`)}),
		"again": func(r Request) Reply {
			if s.normal(string(r.State)) == `{"n": 1}` {
				return Reply{Outcome: "next", State: raw(`{"n":2}`)}
			}
			return Reply{Outcome: "next", Step: "end"}
		},
		"end": func(r Request) Reply { return Reply{Outcome: "done", Result: r.State} },
	})
	in := s.ends(s.begin(`{}`), engine.StatusDone)
	s.json("result", in.Result, `{"n":2}`)
	s.equal("executions", len(d.of("begin"))*100+len(d.of("again"))*10+len(d.of("end")), 121)
	s.equal("attempts", d.tell("again", func(r Request) any { return r.Attempt }), "0 0")
	s.equal("keys", d.keys("again"), 2)
}

// A replay runs the step again, counts, keeps what was awaited and the key, and its state commits.
func replay(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"s"}, Step: "got"}),
		"got": func(r Request) Reply {
			if r.Attempt == 2 {
				return Reply{Outcome: "done"}
			}
			return Reply{Outcome: "replay", DelayMS: r.Attempt, State: engine.MustJSON(r.Attempt + 1)}
		},
	})
	id := s.begin(`0`)
	s.parks(id)
	s.send(id, named("s", "1"))
	in := s.ends(id, engine.StatusDone)
	s.equal("attempts", d.tell("got", func(r Request) any { return r.Attempt }), "0 1 2")
	s.equal("states", d.tell("got", func(r Request) any { return string(r.State) }), "0 1 2")
	s.equal("awaited", d.tell("got", func(r Request) any { return names(r.Awaited) }), "[s:1] [s:1] [s:1]")
	s.equal("keys", d.keys("got"), 1)
	s.equal("last error", in.LastError, "")
}

// An error is retried with the same key, and what it awaited.
func failures(s *stage) {
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"s"}, Step: "got"}),
		"got": func(r Request) Reply {
			if r.Attempt < 2 {
				return Reply{Error: "the card is declined"}
			}
			return Reply{Outcome: "next", Step: "end"}
		},
		"end": to(Reply{Outcome: "done"}),
	})
	id := s.begin(`{"n": 7}`)
	s.parks(id)
	s.send(id, named("s", "1"))
	s.ends(id, engine.StatusDone)
	s.equal("attempts", d.tell("got", func(r Request) any { return r.Attempt }), "0 1 2")
	s.equal("awaited", d.tell("got", func(r Request) any { return names(r.Awaited) }), "[s:1] [s:1] [s:1]")
	s.equal("keys", d.keys("got"), 1)
	s.equal("after it", d.tell("end", func(r Request) any { return fmt.Sprintf("%d %s", r.Attempt, s.normal(string(r.State))) }), `0 {"n": 7}`)
}

// After as many executions as the policy allows the instance fails with the last error.
func exhausted(s *stage) {
	d := &diary{}
	m := s.machine(Script{
		Retry: engine.RetryPolicy{MaxAttempts: 3, Initial: time.Millisecond, Max: time.Millisecond},
		Steps: d.around(map[string]Step{"begin": func(r Request) Reply { return Reply{Error: fmt.Sprint("declined, attempt ", r.Attempt)} }}),
	})
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{m}})
	in := s.ends(s.begin(`{"n": 7}`), engine.StatusFailed)
	s.equal("executions", len(d.of("begin")), 3)
	s.equal("last error", in.LastError, "declined, attempt 2")
	s.json("state", in.State, `{"n":7}`)
}

// An error between: the instance is runnable, with the error to be read and the state as it was.
func errorCommitsNothing(s *stage) {
	m := s.machine(Script{
		Retry: engine.RetryPolicy{Initial: time.Hour, Max: time.Hour},
		Steps: map[string]Step{"begin": to(Reply{Error: "declined"})},
	})
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{m}})
	in := s.until(s.begin(`{"n": 7}`), "tried", func(in engine.Instance) bool { return in.Attempt == 1 })
	s.equal("instance", fmt.Sprint(in.Status, in.Step, in.LastError), fmt.Sprint(engine.StatusRunnable, "begin", "declined"))
	s.json("state", in.State, `{"n":7}`)
}

// done ends with a result, or null.
func done(s *stage) {
	s.play(map[string]Step{
		"begin": to(Reply{Outcome: "done", Result: raw(`{"paid": true}`), State: raw(`"last"`)}),
		"empty": to(Reply{Outcome: "done"}),
	})
	in := s.ends(s.begin(`{}`), engine.StatusDone)
	s.json("result", in.Result, `{"paid":true}`)
	s.json("state", in.State, `"last"`)
	s.json("no result", s.ends(s.start(engine.NewInstance{Start: "empty"}), engine.StatusDone).Result, `null`)
}

func stop(s *stage) {
	d := s.play(map[string]Step{"begin": to(Reply{Outcome: "stop", Reason: "not paid in time"})})
	in := s.ends(s.begin(`{"n":1}`), engine.StatusFailed)
	s.equal("reason", in.LastError, "not paid in time")
	s.json("state", in.State, `{"n":1}`)
	s.equal("executions", len(d.of("begin")), 1)
}

// State, payloads and results come through as they are: numbers of any size, any text, any nesting.
func roundTrip(s *stage) {
	deep := strings.Repeat(`[`, 400) + strings.Repeat(`]`, 400)
	document := `{"id": 12345678901234567890123, "exact": 0.1000, "small": 1e-30, "big": 1.5e300, "text": "Ωmega \u0001 \ud83d\ude00 \"<&>\" \\ \u2028", "": [null, true, {}], "deep": ` + deep + `}`
	d := s.play(map[string]Step{
		"begin": to(Reply{Outcome: "await", Signals: []string{"s"}, Step: "got"}),
		"got":   func(r Request) Reply { return Reply{Outcome: "next", Step: "end", State: r.Awaited[0].Payload} },
		"end":   func(r Request) Reply { return Reply{Outcome: "done", Result: r.State} },
	})
	id := s.begin(document)
	s.parks(id)
	s.send(id, engine.Signal{Name: "s", Payload: raw(document)})
	in := s.ends(id, engine.StatusDone)
	s.json("state as it came", d.of("got")[0].State, document)
	s.json("payload", d.of("got")[0].Awaited[0].Payload, document)
	s.json("state", in.State, document)
	s.json("result", in.Result, document)
}

// A machine says in which queue its instances are where their start does not.
func queue(s *stage) {
	m := s.machine(Script{Queue: "slow", Steps: map[string]Step{"begin": to(Reply{Outcome: "done"})}})
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{m}, Queues: map[string]int{"slow": 1, "other": 1}})
	// The worker makes the machine known when it begins to run.
	s.eventually(`select count(*)::text from pointsman.machines`, "1")
	s.equal("queue", s.ends(s.begin(`{}`), engine.StatusDone).Queue, "slow")
	s.equal("queue", s.ends(s.start(engine.NewInstance{Queue: "other"}), engine.StatusDone).Queue, "other")
}

// As many steps run at once as the queue has slots, and no more.
func slots(s *stage) {
	const slots, instances = 4, 12
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		running += n
		if most = max(most, running); running == slots {
			fill()
		}
	}
	m := s.machine(Script{Steps: map[string]Step{"begin": func(Request) Reply {
		count(1)
		defer count(-1)
		<-full // nobody ends before all slots are taken
		return Reply{Outcome: "done"}
	}}})
	for range instances {
		s.begin(`{}`)
	}
	s.serve(engine.WorkerConfig{Machines: []*engine.Machine{m}, Queues: map[string]int{engine.DefaultQueue: slots}})
	s.eventually(`select count(*)::text from pointsman.instances where status = 'done'`, fmt.Sprint(instances))
	s.equal("at once", most, slots)
}

// A step that its worker has to leave is executed again by another one, as the same execution of the same visit.
func shutdown(s *stage) {
	d := &diary{}
	var calls atomic.Int32
	entered, release := make(chan struct{}), make(chan struct{})
	s.t.Cleanup(func() { close(release) })
	m := s.machine(Script{Steps: d.around(map[string]Step{"begin": func(Request) Reply {
		if calls.Add(1) == 1 {
			close(entered)
			<-release
		}
		return Reply{Outcome: "done"}
	}})})
	cfg := engine.WorkerConfig{Machines: []*engine.Machine{m}, ShutdownTimeout: 5 * time.Second} // the commit that gives the step back has to fit in
	leave := s.serve(cfg)
	id := s.begin(`{}`)
	<-entered
	leave()
	s.serve(cfg)
	s.ends(id, engine.StatusDone)
	s.equal("attempts", d.tell("begin", func(r Request) any { return r.Attempt }), "0 0")
	s.equal("keys", d.keys("begin"), 1)
}
