package devenv

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pointsman/pointsman/bridge"
)

// traffic is what a shop publishes: all events of some orders, in the ways that events come in practice. It knows what has to come of
// each, and never asks the system.
type traffic struct {
	run    string // part of every id, so that a second run over the same data has orders of its own
	rng    *rand.Rand
	orders []*order
	events []*event
	// first is published at once; second when the orders have ended, and what the streams remember of the first is over.
	first, second []*event
}

// order is one order, and how it has to end.
type order struct {
	id   string
	ends ending
	skus []string
	paid int
}

type ending string

const (
	endsDone     ending = "done"
	endsFailed   ending = "failed"                // an item makes no sense
	endsTimedOut ending = "failed by time-out"    // the payment never comes
	patience            = 2500 * time.Millisecond // of those
)

func (o *order) key() string { return "order-" + o.id }

// event is one message, which may be published several times. One of its copies has to meet one of the wanted fates; the others are
// this too, or duplicates.
type event struct {
	n       int // what its copies are known by in the streams
	subject string
	msgID   string
	body    string
	want    []string
	due     float64 // its place among the others
	copies  int     // as planned; an outage may add some
}

// One in so many.
const (
	perEarly     = 5   // orders: some of its events come before it is placed
	perUnpaid    = 20  // orders
	perSpoiled   = 50  // orders
	perConflict  = 40  // orders: an id is used again for something else
	perLate      = 10  // orders: something comes after the end
	perNobody    = 100 // orders: an item of an order that is never placed
	perZero      = 8   // orders: a payment of nothing
	perPoison    = 200 // events
	perDuplicate = 20  // events, at once; and as many much later
)

// newTraffic lays out the events of n orders.
func newTraffic(n int, seed uint64) *traffic {
	t := &traffic{run: fmt.Sprintf("%x", seed), rng: rand.New(rand.NewPCG(seed, seed))}
	for i := range n {
		t.order(i)
	}
	t.poison(max(1, len(t.events)/perPoison))
	t.repeat()
	byDue := func(a, b *event) int {
		switch {
		case a.due < b.due:
			return -1
		case a.due > b.due:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(t.first, byDue)
	slices.SortStableFunc(t.second, byDue)
	return t
}

// oneIn is true for every per'th, from an offset on so that even a little traffic has some of each.
func oneIn(per, i, offset int) bool { return i%per == offset%per }

// order adds one with all its events. Those of an order that fails before they come are dead letters.
func (t *traffic) order(i int) {
	o := &order{id: fmt.Sprintf("%s-%04d", t.run, i), ends: endsDone}
	wanted := []string{bridge.FateDelivered}
	switch {
	case oneIn(perUnpaid, i, 3):
		o.ends = endsTimedOut
		wanted = append(wanted, bridge.FateDeadLettered)
	case oneIn(perSpoiled, i, 7):
		o.ends = endsFailed
		wanted = append(wanted, bridge.FateDeadLettered)
	}
	t.orders = append(t.orders, o)

	begin := 0.9 * t.rng.Float64()
	placed := begin
	if oneIn(perEarly, i, 1) {
		placed += 0.05
	}
	soon := func() float64 { return begin + 0.001 + 0.099*t.rng.Float64() }
	for k := range 1 + t.rng.IntN(4) {
		sku := fmt.Sprintf("sku-%s-%d", o.id, k)
		o.skus = append(o.skus, sku)
		t.add(o, "item", sku, fmt.Sprintf(`{"sku": %q}`, sku), soon(), wanted...)
	}
	items, amount, more := len(o.skus), 10+t.rng.IntN(90), ""
	switch o.ends {
	case endsTimedOut:
		more = fmt.Sprintf(`, "patience_ms": %d`, patience.Milliseconds())
		t.add(o, "payment", "late", fmt.Sprintf(`{"amount": %d}`, amount), 2, bridge.FateDeadLettered)
	case endsFailed:
		items++
		t.add(o, "item", "spoiled", `{"sku": 17}`, soon(), bridge.FateDelivered)
		fallthrough
	default:
		first := amount
		if t.rng.IntN(5) == 0 {
			first = amount / 2
			t.add(o, "payment", "rest", fmt.Sprintf(`{"amount": %d}`, amount-first), soon(), wanted...)
		}
		t.add(o, "payment", "1", fmt.Sprintf(`{"amount": %d}`, first), soon(), wanted...)
		o.paid = amount
		t.oddities(i, o, soon)
	}
	t.add(o, "placed", "1", fmt.Sprintf(`{"amount": %d, "items": %d%s}`, amount, items, more), placed, bridge.FateStarted)
}

// oddities are what happens around an order that is paid.
func (t *traffic) oddities(i int, o *order, soon func() float64) {
	if oneIn(perZero, i, 2) {
		t.add(o, "payment", "check", `{"amount": 0}`, soon(), bridge.FateFiltered)
	}
	if oneIn(perLate, i, 4) {
		t.add(o, "item", "late", `{"sku": "late"}`, 2, bridge.FateDeadLettered)
	}
	if oneIn(perConflict, i, 5) {
		// Where the stream itself remembers the id for long it drops this one.
		t.add(o, "payment", "1", `{"amount": 1}`, 2, bridge.FateConflict, bridge.FateDuplicate)
	}
	if oneIn(perNobody, i, 6) {
		t.add(&order{id: o.id + "-nobody"}, "item", "held", `{"sku": "held"}`, soon(), bridge.FateHeld)
	}
}

// poison are messages that no inbox can take.
func (t *traffic) poison(n int) {
	items := []string{`{"sku": `, "not json", `{"sku": "a` + `\u0000` + `"}`, "\xff\xfe"}
	for i := range n {
		o, id := t.orders[t.rng.IntN(len(t.orders))], fmt.Sprintf("poison-%d", i)
		if i%(len(items)+1) == len(items) { // no such field: the route's condition cannot be decided
			t.add(o, "payment", id, `{"total": 1}`, t.rng.Float64(), bridge.FateDeadLettered)
		} else {
			t.add(o, "item", id, items[i%(len(items)+1)], t.rng.Float64(), bridge.FateDeadLettered)
		}
	}
}

// add an event. What is due after 1 is of the second wave.
func (t *traffic) add(o *order, what, id, body string, due float64, want ...string) {
	subject := "orders." + o.id + "." + what
	if what == "payment" {
		subject = "payments." + o.id + ".confirmed"
	}
	e := &event{n: len(t.events), subject: subject, msgID: what + "-" + o.id + "-" + id, body: body, want: want, due: due}
	t.events = append(t.events, e)
	t.publish(e, due > 1)
}

func (t *traffic) publish(e *event, again bool) {
	e.copies++
	if again {
		t.second = append(t.second, e)
	} else {
		t.first = append(t.first, e)
	}
}

// repeat publishes some events again, at once or much later.
func (t *traffic) repeat() {
	for i, e := range slices.Clone(t.first) {
		switch {
		case oneIn(perDuplicate, i, 1):
			t.publish(e, false) // of the same due: it follows at once
		case oneIn(perDuplicate, i, 2):
			t.publish(e, true)
		}
	}
}
