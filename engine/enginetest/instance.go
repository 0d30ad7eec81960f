package enginetest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/engine"
)

// Instance is one of an [Env]. Every call asks the database. What an instance fails to be is said with all that there is to say of it,
// as [Instance.Describe] does.
type Instance struct {
	ID  uuid.UUID
	env *Env
}

// Get is the instance as it is now.
func (in *Instance) Get() engine.Instance {
	in.env.t.Helper()
	got, err := in.env.Client.Get(in.env.t.Context(), engine.ByID(in.ID))
	in.env.must(err)
	return got
}

// Signal puts a signal into the inbox. The payload is anything that is JSON. It is seen by [Env.Drain].
func (in *Instance) Signal(name string, payload any) {
	in.env.t.Helper()
	in.SignalOnce("", name, payload)
}

// SignalOnce is Signal with a dedup key. Of several with the same key the first counts: the result of the others is
// [engine.Duplicate], or [engine.Conflict] where name or payload differ.
func (in *Instance) SignalOnce(dedupKey, name string, payload any) engine.Result {
	in.env.t.Helper()
	intake := engine.Intake{To: engine.ByID(in.ID), Name: name, Payload: engine.MustJSON(payload), DedupKey: dedupKey}
	receipts, err := in.env.Client.Accept(in.env.t.Context(), []engine.Intake{intake})
	in.env.must(err)
	r := receipts[0]
	switch r.Result {
	case engine.Delivered, engine.Duplicate, engine.Conflict:
	default:
		in.fatalf("signal %s: %s: %s", name, r.Result, r.Reason)
	}
	return r.Result
}

// Inbox is what has come and was not consumed, the oldest first, at most 1,000.
func (in *Instance) Inbox() []engine.Signal {
	in.env.t.Helper()
	signals, err := in.env.Client.Inbox(in.env.t.Context(), in.ID, 0, 1000)
	in.env.must(err)
	return signals
}

// History are the latest transitions, at most 1,000, the oldest of them first.
func (in *Instance) History() []engine.Transition {
	in.env.t.Helper()
	transitions, err := in.env.Client.History(in.env.t.Context(), in.ID, engine.Transition{}, 1000)
	in.env.must(err)
	slices.Reverse(transitions)
	return transitions
}

// Steps are the steps of the history, as in "begin collect collect ship".
func (in *Instance) Steps() string {
	in.env.t.Helper()
	var steps []string
	for _, t := range in.History() {
		steps = append(steps, t.Step)
	}
	return strings.Join(steps, " ")
}

// Expect fails the test unless the instance has this status.
func (in *Instance) Expect(want engine.Status) engine.Instance {
	in.env.t.Helper()
	got := in.Get()
	if got.Status != want {
		in.fatalf("is %s, want %s", got.Status, want)
	}
	return got
}

// ExpectAwaiting fails the test unless the instance is parked for exactly these signals, in any order.
func (in *Instance) ExpectAwaiting(signals ...string) engine.Instance {
	in.env.t.Helper()
	got := in.Expect(engine.StatusAwaiting)
	if !slices.Equal(slices.Sorted(slices.Values(got.Awaits)), slices.Sorted(slices.Values(signals))) {
		in.fatalf("awaits %v, want %v", got.Awaits, signals)
	}
	return got
}

// ExpectFailed fails the test unless the instance has failed for a reason that contains this text.
func (in *Instance) ExpectFailed(reason string) engine.Instance {
	in.env.t.Helper()
	got := in.Expect(engine.StatusFailed)
	if !strings.Contains(got.LastError, reason) {
		in.fatalf("failed with %q, want %q in it", got.LastError, reason)
	}
	return got
}

func (in *Instance) fatalf(format string, args ...any) {
	in.env.t.Helper()
	in.env.t.Fatalf("enginetest: "+format+"\n%s", append(args, in.Describe())...)
}

// State is the state of an instance, as its machine sees it.
func State[S any](in *Instance) S {
	in.env.t.Helper()
	return decode[S](in, "state", in.Get().State)
}

// Result is what an instance has ended with. It fails the test unless that is done.
func Result[R any](in *Instance) R {
	in.env.t.Helper()
	return decode[R](in, "result", in.Expect(engine.StatusDone).Result)
}

// Event is a value that an instance has published, by [engine.Outcome.SetEvent]. It fails the test where there is none.
func Event[V any](in *Instance, key string) V {
	in.env.t.Helper()
	value, err := in.env.Client.Event(in.env.t.Context(), in.ID, key)
	if err != nil {
		in.fatalf("%v", err)
	}
	return decode[V](in, "event "+key, value)
}

func decode[T any](in *Instance, what string, data json.RawMessage) (v T) {
	in.env.t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		in.fatalf("%s: %v", what, err)
	}
	return v
}
