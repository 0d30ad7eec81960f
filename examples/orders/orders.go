// Package orders is the example that pointsman dev runs: an order waits for its items and its payment, ships, and says how it
// ended. It is written with the public API only; worker/ hosts it in a program of its own.
package orders

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/engine"
)

// Config has the routes that turn the messages of a shop into starts and signals of orders.
//
//go:embed pointsman.yaml
var Config []byte

// Order is the state of an order. What the shop publishes when it is placed is its first value.
type Order struct {
	Amount     int      `json:"amount"`                // to be paid
	Items      int      `json:"items"`                 // to be packed
	PatienceMS int      `json:"patience_ms,omitempty"` // how long it waits for the next item or payment; 0: a day
	Packed     []string `json:"packed,omitempty"`
	Paid       int      `json:"paid,omitempty"`
}

// Shipment is the result of an order.
type Shipment struct {
	Packed []string `json:"packed"`
	Paid   int      `json:"paid"`
}

type item struct {
	SKU string `json:"sku"`
}

type payment struct {
	Amount int `json:"amount"`
}

// WaitedInVain begins the reason of an order that failed because nothing came in time.
const WaitedInVain = "waited in vain"

// Machine is the order's definition.
func Machine() (*engine.Machine, error) {
	return engine.Define(engine.Definition[Order]{
		Name:  "order",
		Start: "begin",
		Steps: map[string]engine.Step[Order]{
			"begin":   begin,
			"collect": collect,
			"ship":    ship,
		},
	})
}

func begin(_ context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
	if v.State.complete() {
		return engine.Next("ship"), nil
	}
	return v.State.waitForMore(), nil
}

// collect runs whenever items or payments have come in, with all that came.
func collect(_ context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
	if v.TimedOut {
		return engine.Stop(fmt.Sprintf("%s for %s: %d of %d items, %d of %d paid", WaitedInVain, v.State.patience(), len(v.State.Packed), v.State.Items, v.State.Paid, v.State.Amount)), nil
	}
	for _, s := range v.Awaited {
		if err := v.State.add(s); err != nil {
			return engine.Outcome{}, engine.Terminal(err)
		}
	}
	if v.State.complete() {
		return engine.Next("ship"), nil
	}
	return v.State.waitForMore().SetEvent("progress", v.State), nil
}

func ship(_ context.Context, v *engine.Visit[Order]) (engine.Outcome, error) {
	return engine.Done(Shipment{Packed: v.State.Packed, Paid: v.State.Paid}).SetEvent("progress", v.State), nil
}

// waitForMore consumes what was handled, and parks the order until there is more.
func (o *Order) waitForMore() engine.Outcome {
	return engine.Await("collect", "item", "payment").Consuming().Within(o.patience())
}

func (o *Order) patience() time.Duration {
	if o.PatienceMS > 0 {
		return time.Duration(o.PatienceMS) * time.Millisecond
	}
	return 24 * time.Hour
}

func (o *Order) add(s engine.Signal) error {
	switch s.Name {
	case "item":
		var i item
		if err := s.Decode(&i); err != nil {
			return fmt.Errorf("item %s: %w", s.DedupKey, err)
		}
		o.Packed = append(o.Packed, i.SKU)
	case "payment":
		var p payment
		if err := s.Decode(&p); err != nil {
			return fmt.Errorf("payment %s: %w", s.DedupKey, err)
		}
		o.Paid += p.Amount
	}
	return nil
}

func (o *Order) complete() bool { return len(o.Packed) >= o.Items && o.Paid >= o.Amount }
