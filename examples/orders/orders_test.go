package orders_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
	"github.com/pointsman/pointsman/examples/orders"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// place starts an order of 42 for two items, and has it wait for them.
func place(t *testing.T) (*enginetest.Env, *enginetest.Instance) {
	t.Helper()
	machine, err := orders.Machine()
	if err != nil {
		t.Fatal(err)
	}
	env := enginetest.New(t, machine)
	order := env.Start(engine.NewInstance{Machine: "order", CorrelationKey: "order-1", State: engine.MustJSON(orders.Order{Amount: 42, Items: 2})})
	env.Drain()
	order.ExpectAwaiting("item", "payment")
	return env, order
}

func item(sku string) map[string]string { return map[string]string{"sku": sku} }

func payment(amount int) map[string]int { return map[string]int{"amount": amount} }

func wantShipment(t *testing.T, order *enginetest.Instance, paid int, packed ...string) {
	t.Helper()
	got := enginetest.Result[orders.Shipment](order)
	if got.Paid != paid || !slices.Equal(got.Packed, packed) {
		t.Errorf("shipped %+v, want %v for %d", got, packed, paid)
	}
}

func TestOrderIsShipped(t *testing.T) {
	t.Parallel()
	env, order := place(t)
	order.Signal("item", item("cup"))
	env.Drain()
	if progress := enginetest.Event[orders.Order](order, "progress"); !slices.Equal(progress.Packed, []string{"cup"}) {
		t.Errorf("progress %+v", progress)
	}
	order.Signal("payment", payment(42))
	order.Signal("item", item("pot"))
	env.Drain()
	wantShipment(t, order, 42, "cup", "pot")
}

func TestOrderIsGivenUp(t *testing.T) {
	t.Parallel()
	env, order := place(t)
	env.Advance(23 * time.Hour)
	order.Signal("item", item("cup"))
	env.Advance(23 * time.Hour) // each item is worth another day
	order.ExpectAwaiting("item", "payment")
	env.Advance(time.Hour)
	order.ExpectFailed(orders.WaitedInVain + " for 24h0m0s: 1 of 2 items, 0 of 42 paid")
}

func TestDuplicatesCountOnce(t *testing.T) {
	t.Parallel()
	env, order := place(t)
	for range 2 {
		order.SignalOnce("payment-7", "payment", payment(21))
		env.Drain()
	}
	if paid := enginetest.State[orders.Order](order).Paid; paid != 21 {
		t.Errorf("paid %d, want 21", paid)
	}
	if r := order.SignalOnce("payment-7", "payment", payment(1000)); r != engine.Conflict {
		t.Errorf("another payment under the same key: %s", r)
	}
}

// The worker dies when the order has been collected, and before that has committed.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	env, order := place(t)
	order.Signal("item", item("cup"))
	order.Signal("payment", payment(42))
	env.Crash()
	order.Expect(engine.StatusExecuting)
	order.Signal("item", item("pot")) // comes meanwhile
	env.Drain()
	order.Expect(engine.StatusExecuting)

	env.Advance(enginetest.Lease)
	wantShipment(t, order, 42, "cup", "pot")
	if steps := order.Steps(); steps != "begin collect ship" {
		t.Errorf("steps %s", steps)
	}
}

// What cannot be read is not tried again.
func TestUnreadablePayment(t *testing.T) {
	t.Parallel()
	env, order := place(t)
	order.SignalOnce("p1", "payment", "all of it")
	env.Drain()
	order.ExpectFailed("payment p1: json: cannot unmarshal string")
}
