package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/pointsman/pointsman/engine"
)

type Order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

type Payment struct {
	Amount int `json:"amount"`
}

// A machine is a name, its steps, and the one to begin with. The state goes from step to step.
func ExampleDefine() {
	machine, err := engine.Define(engine.Definition[Order]{
		Name:  "order",
		Start: "begin",
		Steps: map[string]engine.Step[Order]{
			"begin": func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				return engine.Await("paid", "payment_confirmed").Within(24 * time.Hour), nil
			},
			"paid": func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				if len(v.Awaited) == 0 {
					return engine.Stop("payment never came"), nil
				}
				var p Payment
				if err := v.Awaited[0].Decode(&p); err != nil {
					return engine.Outcome{}, engine.Terminal(err) // no retry makes it readable
				}
				v.State.Amount += p.Amount
				return engine.Done(v.State), nil
			},
		},
		Retry: engine.RetryPolicy{MaxAttempts: 10, Initial: time.Second, Max: time.Minute},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(machine.Name(), machine.Version())
	// Output: order 1
}

// A worker runs until its context is canceled, then drains.
func ExampleWorker_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := engine.Connect(ctx, os.Getenv("POINTSMAN_DATABASE_URL"), 0, false)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	client, err := engine.NewClient(db, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var order *engine.Machine // of Define
	worker, err := engine.NewWorker(client, engine.WorkerConfig{
		Machines: []*engine.Machine{order},
		Queues:   map[string]int{"default": 64, "slow": 4},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A start with a dedup key happens once. Of a correlation key there is one live instance.
func ExampleClient_Start() {
	var client *engine.Client
	ctx := context.Background()

	instance, err := client.Start(ctx, engine.NewInstance{
		Machine:        "order",
		CorrelationKey: "order-17",
		State:          engine.MustJSON(Order{ID: "17"}),
		DedupKey:       "checkout-4711",
	})
	var taken *engine.ConflictError
	if errors.As(err, &taken) {
		log.Printf("order 17 is instance %s already", taken.ID)
	}
	_ = instance
}

// A signal is durable when Signal returns, and with a dedup key it counts once, whoever sends it again.
func ExampleClient_Signal() {
	var client *engine.Client
	ctx := context.Background()

	receipt, err := client.Signal(ctx, engine.ByKey("", "order-17"), engine.Signal{
		Name: "payment_confirmed", Payload: engine.MustJSON(Payment{Amount: 100}), DedupKey: "evt-7",
	})
	if errors.Is(err, engine.ErrNoTarget) {
		log.Print("nobody waits for this order")
	}
	_ = receipt.Result // delivered or duplicate
}

// A service with tables in the same database starts an instance together with its own rows, or not at all.
func ExampleClient_StartTx() {
	var client *engine.Client
	ctx := context.Background()
	db, err := engine.Connect(ctx, os.Getenv("POINTSMAN_DATABASE_URL"), 0, false)
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `insert into orders (id) values ($1)`, "17"); err != nil {
		log.Fatal(err)
	}
	if _, err := client.StartTx(ctx, tx, engine.NewInstance{Machine: "order", CorrelationKey: "order-17"}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	client.Wake("default") // or it begins a poll interval later
}

// A pack: wait for all of a set by awaiting again until it is there. It runs once for each arrival and consumes nothing before.
func ExampleAwait() {
	parts := []string{"paid", "packed", "labelled"}
	collect := func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
		have := map[string]bool{}
		for _, s := range v.Awaited {
			have[s.Name] = true
		}
		if len(have) < len(parts) {
			return engine.Await("", parts...), nil
		}
		return engine.Next("ship"), nil
	}
	_ = collect
}

// The end of a deadline is a wake, not a failure.
func ExampleOutcome_Within() {
	decide := func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
		switch {
		case v.TimedOut:
			return engine.Stop("payment never came"), nil
		case len(v.Awaited) == 0:
			return engine.Await("", "payment_confirmed").Within(time.Hour), nil
		}
		return engine.Next("ship"), nil
	}
	_ = decide
}

// An instance that handles one signal after another parks and consumes in one commit.
func ExampleOutcome_Consuming() {
	count := func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
		for range v.Awaited {
			v.State.Amount++
		}
		return engine.Await("", "item_added").Consuming(), nil
	}
	_ = count
}

// Effects are data in the outcome: they commit with the new state, or not at all.
func ExampleOutcome_Signal() {
	ship := func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
		return engine.Done(v.State).
			SetEvent("progress", "shipped").
			Signal(engine.ByKey("", "customer-9"), engine.Signal{Name: "order_shipped", Payload: engine.MustJSON(v.State.ID)}).
			Start(engine.NewInstance{Machine: "invoice", CorrelationKey: "invoice-" + v.State.ID}).
			Publish("shop.orders.shipped", v.State, nil), nil
	}
	_ = ship
}

// OnError decides what an error comes to, in place of a retry policy.
func ExampleDefinition_onError() {
	d := engine.Definition[Order]{
		Name: "order", Start: "charge",
		Steps: map[string]engine.Step[Order]{
			"charge": func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				return engine.Outcome{}, errors.New("the bank is closed")
			},
			"refund": func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				return engine.Done(nil), nil
			},
		},
		OnError: func(ctx context.Context, v *engine.Visit[Order], cause error) engine.Outcome {
			if v.Instance.Attempt < 3 {
				return engine.Replay(time.Second << v.Instance.Attempt)
			}
			return engine.Next("refund")
		},
	}
	_, err := engine.Define(d)
	fmt.Println(err)
	// Output: <nil>
}
