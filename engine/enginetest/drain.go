package enginetest

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/internal/byhand"
	"github.com/pointsman/pointsman/internal/store"
)

// Drain runs all steps that may run, and those that may run because of these, one after another: by queue, priority, and how long they
// have been ready. When it returns every instance has ended, is parked, waits for a time to come or for a partition key, belongs to a
// worker that has crashed, or is of a machine that New was not given.
//
// No time passes: a deadline, a delay or a lease that the clock on the wall has overtaken meanwhile is left for [Env.Advance].
//
// It fails the test when instances do not come to rest (see MaxSteps) or a step does not return (see StepTimeout).
func (e *Env) Drain() {
	e.t.Helper()
	e.drain(newTally())
}

// Advance lets time pass, and runs what that makes due. It drains, then goes on to the next time that something waits for (a deadline, a
// delay, a lease, the end of a hold), deals with that, drains again, and so on until d is over. A step that waits for an hour again and
// again runs 24 times in a day.
//
// The clock itself stays: what moves is every time that the database holds, by so much into the past. A step sees Instance.InsertedAt
// and Signal.InsertedAt as old as they would be, and time.Now as it is; what a step keeps in its state, or took from time.Now, stays as
// it is. A machine that has to know how long something took compares the former with time.Now, and is testable so.
// The clock on the wall runs on meanwhile: do not test deadlines by fractions of a second.
func (e *Env) Advance(d time.Duration) {
	e.t.Helper()
	if d < 0 {
		e.t.Fatalf("enginetest: Advance(%s): time only goes forward", d)
	}
	n := newTally()
	e.drain(n)
	for {
		hop, err := e.store.NextDue(e.t.Context(), d)
		e.must(err)
		if hop > 0 {
			e.must(e.store.Age(e.t.Context(), hop))
			n.idle = 0
		}
		d -= hop
		e.must(e.worker.Sweep(e.t.Context()))
		e.drain(n)
		if d <= 0 {
			return
		}
		if n.idle++; n.idle > maxIdle {
			e.t.Fatalf("enginetest: something is due, and somebody else keeps it locked")
		}
	}
}

// Crash runs the next step, the one that [Env.Drain] would begin with, and has its worker killed before the commit: what the step did to
// the world is done, its outcome is lost. The instance is leased to that worker until [Lease] is over; [Env.Advance] by it has the step
// run again, with an attempt more and the same idempotency key. It returns the instance.
func (e *Env) Crash() *Instance {
	e.t.Helper()
	v, _ := e.pick()
	if v == nil {
		e.t.Fatalf("enginetest: Crash: no step may run. Was there a Drain before?")
	}
	e.run(v)
	v.Forget()
	return &Instance{ID: v.Work().ID, env: e}
}

// maxIdle is how often in a row nothing may come of looking for what is there.
const maxIdle = 1000

// tally counts what one call has done.
type tally struct {
	all  int
	of   map[uuid.UUID]int
	idle int
}

func newTally() *tally { return &tally{of: map[uuid.UUID]int{}} }

func (e *Env) drain(n *tally) {
	e.t.Helper()
	for {
		v, left := e.pick()
		switch {
		case v != nil:
			e.count(n, v.Work().ID)
			e.run(v)
			if e.Kill != nil && e.Kill() {
				v.Forget()
				continue
			}
			e.must(v.Commit(e.t.Context()))
		case left == nil:
			return
		default:
			if n.idle++; n.idle > maxIdle {
				e.t.Fatalf("enginetest: somebody else keeps an instance locked that is ready\n%s", e.describe(left.Next))
			}
		}
	}
}

func (e *Env) count(n *tally, id uuid.UUID) {
	e.t.Helper()
	n.idle = 0
	n.of[id]++
	n.all++
	if n.of[id] > e.MaxSteps {
		e.t.Fatalf("enginetest: %d steps of one instance ran, and it does not come to rest. If that is meant, set MaxSteps higher\n%s", e.MaxSteps, e.describe(id))
	}
	if n.all > 10*e.MaxSteps {
		e.t.Fatalf("enginetest: %d steps of %d instances ran, and there are more. If that is meant, set MaxSteps higher. The next is\n%s", 10*e.MaxSteps, len(n.of), e.describe(id))
	}
}

// pick leases the next instance. left is a lane that has something ready of which nothing could be picked.
func (e *Env) pick() (v byhand.Visit, left *store.ReadyLane) {
	e.t.Helper()
	lanes, err := e.store.ReadyLanes(e.t.Context())
	e.must(err)
	for _, lane := range lanes {
		if version := strings.TrimPrefix(lane.Lane.Lane, store.AloneLane); version != "" && !e.known[version] {
			continue
		}
		v, err := e.worker.Pick(e.t.Context(), lane.Queue, lane.Lane.Lane)
		e.must(err)
		if v != nil {
			return v, nil
		}
		left = &lane
	}
	return nil, left
}

// run executes a step.
func (e *Env) run(v byhand.Visit) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), e.StepTimeout)
	defer cancel()
	err := v.Run(ctx)
	if err == nil {
		err = ctx.Err() // the step heeded it
	}
	if err != nil {
		e.t.Fatalf("enginetest: step %q did not return within %s\n%s", v.Work().Step, e.StepTimeout, e.describe(v.Work().ID))
	}
}

func (e *Env) describe(id uuid.UUID) string {
	e.t.Helper()
	return e.Instance(engine.ByID(id)).Describe()
}
