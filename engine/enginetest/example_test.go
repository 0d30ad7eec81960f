package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// example stands where a test of yours has its *testing.T.
type example struct {
	testing.TB
	cleanups []func()
}

func (t *example) Helper()                           {}
func (t *example) Name() string                      { return "example" }
func (t *example) Context() context.Context          { return context.Background() }
func (t *example) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *example) Skipf(format string, args ...any)  { log.Fatalf(format, args...) }
func (t *example) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

func (t *example) end() {
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		t.cleanups[last]()
		t.cleanups = t.cleanups[:last]
	}
}

type Order struct {
	Amount int `json:"amount"`
	Paid   int `json:"paid"`
}

// order waits a day for its payment, charges the card, which works at the third attempt, and says so.
func order() *engine.Machine {
	m, err := engine.Define(engine.Definition[Order]{
		Name:  "order",
		Start: "begin",
		Steps: map[string]engine.Step[Order]{
			"begin": func(context.Context, *engine.Visit[Order]) (engine.Outcome, error) {
				return engine.Await("charge", "payment").Within(24 * time.Hour), nil
			},
			"charge": func(_ context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				if v.TimedOut {
					return engine.Stop("not paid in time"), nil
				}
				if err := v.Awaited[0].Decode(&v.State.Paid); err != nil {
					return engine.Outcome{}, engine.Terminal(err)
				}
				fmt.Println("charged under a key of this visit, attempt", v.Instance.Attempt)
				if v.Instance.Attempt < 2 {
					return engine.Outcome{}, errors.New("the bank does not answer")
				}
				return engine.Done(v.State.Paid).Publish("orders.charged", v.State, nil), nil
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	return m
}

// A test starts instances, sends them signals, and looks at what becomes of them. Nothing runs but in Drain and Advance.
func Example() {
	t := &example{} // in a test of yours this is its *testing.T
	defer t.end()

	env := enginetest.New(t, order())
	in := env.Start(engine.NewInstance{Machine: "order", State: engine.MustJSON(Order{Amount: 42})})
	env.Drain()
	in.ExpectAwaiting("payment")

	in.Signal("payment", 42)
	env.Drain()
	fmt.Println(in.Expect(engine.StatusRunnable).LastError)

	env.Advance(time.Minute) // the retries are due within
	fmt.Println(enginetest.Result[int](in), enginetest.State[Order](in).Paid)
	fmt.Println(in.Steps())
	for _, m := range env.Published() {
		fmt.Println(m.Subject, string(m.Body))
	}
	// Output:
	// charged under a key of this visit, attempt 0
	// the bank does not answer
	// charged under a key of this visit, attempt 1
	// charged under a key of this visit, attempt 2
	// 42 42
	// begin charge charge charge
	// orders.charged {"amount":42,"paid":42}
}

// A day goes by at once.
func ExampleEnv_Advance() {
	t := &example{}
	defer t.end()

	env := enginetest.New(t, order())
	in := env.Start(engine.NewInstance{Machine: "order"})
	env.Advance(23 * time.Hour)
	in.ExpectAwaiting("payment")
	env.Advance(time.Hour)
	in.ExpectFailed("not paid in time")
	fmt.Println(in.Get().LastError)
	// Output: not paid in time
}

// A worker is killed between what a step does to the world and the commit of its outcome. The step runs again.
func ExampleEnv_Crash() {
	t := &example{}
	defer t.end()

	env := enginetest.New(t, order())
	in := env.Start(engine.NewInstance{Machine: "order"})
	env.Drain()
	in.Signal("payment", 42)
	env.Crash()
	fmt.Println(in.Get().Status, len(in.Inbox()), "signal in the inbox")

	env.Advance(enginetest.Lease)
	env.Advance(time.Minute)
	fmt.Println(in.Get().Status, in.Steps())
	// Output:
	// charged under a key of this visit, attempt 0
	// executing 1 signal in the inbox
	// charged under a key of this visit, attempt 1
	// charged under a key of this visit, attempt 2
	// done begin charge charge
}

// The second of two signals with one key is a duplicate, also after the first was consumed.
func ExampleInstance_SignalOnce() {
	t := &example{}
	defer t.end()

	env := enginetest.New(t, order())
	in := env.Start(engine.NewInstance{Machine: "order"})
	env.Drain()
	fmt.Println(in.SignalOnce("payment-1", "payment", 42))
	fmt.Println(in.SignalOnce("payment-1", "payment", 42))
	fmt.Println(in.SignalOnce("payment-1", "payment", 43))
	// Output:
	// delivered
	// duplicate
	// conflict
}

// A worker as in production, beside the test.
func ExampleEnv_Serve() {
	t := &example{}
	defer t.end()

	env := enginetest.New(t)
	env.Serve(engine.WorkerConfig{Machines: []*engine.Machine{order()}})
	in := env.Start(engine.NewInstance{Machine: "order"})
	in.Until("parked", func(in engine.Instance) bool { return in.Status == engine.StatusAwaiting })
	fmt.Println(in.Get().Awaits)
	// Output: [payment]
}
