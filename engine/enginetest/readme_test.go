package enginetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// What README.md shows, in its words: integration/snippets_test.go compares them.

type Parcel struct {
	To string `json:"to"`
}

func defineParcel() (*engine.Machine, error) {
	machine, err := engine.Define(engine.Definition[Parcel]{
		Name:  "parcel",
		Start: "posted",
		Steps: map[string]engine.Step[Parcel]{
			"posted": func(ctx context.Context, v *engine.Visit[Parcel]) (engine.Outcome, error) {
				return engine.Await("scanned", "scan").Within(48 * time.Hour), nil
			},
			"scanned": func(ctx context.Context, v *engine.Visit[Parcel]) (engine.Outcome, error) {
				if v.TimedOut {
					return engine.Stop("no scan for two days"), nil
				}
				return engine.Done(map[string]any{"delivered": true}), nil
			},
		},
	})
	return machine, err
}

var machine, errOfMachine = defineParcel()

func TestParcelIsDefined(t *testing.T) {
	t.Parallel()
	if errOfMachine != nil {
		t.Error(errOfMachine)
	}
}

func TestNobodyScans(t *testing.T) {
	env := enginetest.New(t, machine)
	parcel := env.Start(engine.NewInstance{Machine: "parcel"})
	env.Crash()                   // a worker runs the first step, and is killed before that commits
	env.Advance(enginetest.Lease) // after which another one runs it again
	parcel.ExpectAwaiting("scan")

	env.Advance(48 * time.Hour)
	parcel.ExpectFailed("no scan for two days")
}
