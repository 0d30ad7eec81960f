package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pointsman/pointsman/engine"
)

type Approval struct {
	Approved bool   `json:"approved"`
	Approver string `json:"approver"`
}

// An update is refused in the request of whoever sends it: the instance never sees it.
func ExampleClient_Update() {
	var client *engine.Client
	ctx := context.Background()

	result, err := client.Update(ctx, engine.ByKey("", "expense-7"), engine.UpdateRequest{
		Name: "decision", Arg: engine.MustJSON(Approval{Approved: true, Approver: "ann"}),
		IdempotencyKey: "decision-of-expense-7", // a retry gets the same answer
		Wait:           5 * time.Second,
	})
	var unvalidated *engine.ValidatorError
	switch {
	case errors.As(err, &unvalidated):
		log.Print("try again later: ", err)
	case err != nil:
		log.Fatal(err)
	case !result.Accepted:
		log.Print("refused: ", result.Reason)
	case result.Run == nil:
		log.Print("accepted, and nobody has taken it yet")
	default:
		log.Print("the expense is ", result.Run.Status)
	}
}

// A machine says which updates it awaits, for how long, and who may send them.
func ExampleOutcome_OrUpdate() {
	machine, err := engine.Define(engine.Definition[Order]{
		Name: "expense", Start: "submit",
		Steps: map[string]engine.Step[Order]{
			"submit": func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				return engine.Await("decide").OrUpdate("decision").Within(7 * 24 * time.Hour), nil
			},
			"decide": func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
				if v.TimedOut {
					return engine.Stop("approval timed out"), nil
				}
				return engine.Done(v.Awaited[0].Payload), nil
			},
		},
		Validators: map[string]engine.Validator{
			"decision": engine.ValidatorOf(func(ctx context.Context, a Approval) error {
				if a.Approver == "" {
					return engine.Refuse("who approves it?")
				}
				return nil
			}),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(machine.Name())
	// Output: expense
}

// A long step shows how far it is.
func ExampleVisit_SetEvent() {
	encode := func(ctx context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
		for done := range 100 {
			if err := v.SetEvent(ctx, "progress", done); errors.Is(err, engine.ErrLeaseLost) {
				return engine.Outcome{}, err // somebody else has it by now
			}
		}
		return engine.Done(nil).SetEvent("progress", 100), nil
	}
	_ = encode
}

// A published value is read without any effect on the instance, also when it has ended.
func ExampleEvent() {
	var client *engine.Client
	ctx := context.Background()

	percent, found, err := engine.Event[int](ctx, client, engine.ByKey("", "order-17"), "progress")
	if err != nil {
		log.Fatal(err)
	}
	if found {
		log.Printf("%d %%", percent)
	}
}
