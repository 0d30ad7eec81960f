package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// shop publishes the events of orders and keeps its own account of what has to come of them. It never asks the system.
type shop struct {
	*stack
	rng    *rand.Rand
	orders []order
	poison map[string]bool // Nats-Msg-Id of what has to become a dead letter
	sent   int
}

type order struct {
	key  string
	skus []string // each has to be packed once
	paid int
}

const (
	ordersStream   = "ORDERS"
	paymentsStream = "PAYMENTS"
	// dedupWindow of the streams is short, so that a duplicate sent a little later is outside of it.
	dedupWindow = 100 * time.Millisecond
)

func newShop(s *stack, seed uint64, orders, items int) *shop {
	s.Helper()
	s.Logf("seed %d", seed)
	sh := &shop{stack: s, rng: rand.New(rand.NewPCG(seed, seed)), poison: map[string]bool{}}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: ordersStream, Subjects: []string{"orders.>"}, Duplicates: dedupWindow},
		{Name: paymentsStream, Subjects: []string{"payments.>"}, Duplicates: dedupWindow},
	} {
		_, err := s.js.CreateStream(s.Context(), cfg)
		s.must(err)
	}
	for i := range orders {
		o := order{key: fmt.Sprintf("%04d", i)}
		for k := range items {
			o.skus = append(o.skus, fmt.Sprintf("sku-%s-%02d", o.key, k))
		}
		sh.orders = append(sh.orders, o)
	}
	return sh
}

// message is one to be published; due is its place among the others.
type message struct {
	subject, id, body string
	due               float64
}

// script lays out all messages of all orders: in about a fifth of the orders items come before the order is placed. One in ten
// messages is sent again, half of them at once, inside the stream's window, and half much later.
func (sh *shop) script() (all, later []message) {
	for i := range sh.orders {
		o := &sh.orders[i]
		at := sh.rng.Float64() * 0.7
		early := sh.rng.IntN(5) == 0
		placed := at
		if early {
			placed += 0.1
		}
		amount := 0
		for k := range 2 {
			amount += 10 + k
			all = append(all, message{fmt.Sprintf("payments.%s.confirmed", o.key), fmt.Sprintf("pay-%s-%d", o.key, k), fmt.Sprintf(`{"amount": %d}`, 10+k), at + 0.2*sh.rng.Float64()})
		}
		o.paid = amount
		all = append(all, message{fmt.Sprintf("orders.%s.placed", o.key), "placed-" + o.key, fmt.Sprintf(`{"amount": %d, "items": %d}`, amount, len(o.skus)), placed})
		for _, sku := range o.skus {
			all = append(all, message{fmt.Sprintf("orders.%s.item", o.key), "item-" + sku, fmt.Sprintf(`{"sku": %q}`, sku), at + 0.01 + 0.28*sh.rng.Float64()})
		}
	}
	all = append(all, sh.poisoned(len(all)/200)...)
	for _, m := range slices.Clone(all) {
		switch sh.rng.IntN(20) {
		case 0:
			all = append(all, m)
		case 1:
			later = append(later, m)
		}
	}
	slices.SortStableFunc(all, func(a, b message) int {
		switch {
		case a.due < b.due:
			return -1
		case a.due > b.due:
			return 1
		}
		return 0
	})
	return all, later
}

// poisoned are messages that no inbox can take.
func (sh *shop) poisoned(n int) (all []message) {
	bodies := []string{`{"sku": `, "not json", `{"sku": "a` + `\u0000` + `"}`, "\xff\xfe", `{"n": 1e999999}`, strings.Repeat("[", 2000) + strings.Repeat("]", 2000)}
	for i := range n {
		m := message{subject: fmt.Sprintf("orders.%s.item", sh.orders[i%len(sh.orders)].key), id: fmt.Sprintf("poison-%d", i), body: bodies[i%len(bodies)], due: sh.rng.Float64()}
		if i%10 == 9 { // no such field: the condition cannot be decided
			m.subject, m.body = fmt.Sprintf("payments.%s.confirmed", sh.orders[0].key), `{"total": 1}`
		}
		sh.poison[m.id] = true
		all = append(all, m)
	}
	return all
}

// publish sends messages and waits until JetStream has them all.
func (sh *shop) publish(ms []message) {
	sh.Helper()
	for chunk := range slices.Chunk(ms, 500) {
		var acks []jetstream.PubAckFuture
		for _, m := range chunk {
			ack, err := sh.js.PublishMsgAsync(&nats.Msg{Subject: m.subject, Data: []byte(m.body), Header: nats.Header{"Nats-Msg-Id": {m.id}}})
			sh.must(err)
			acks = append(acks, ack)
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				sh.Fatal(err)
			case <-time.After(patience):
				sh.Fatal("no ack of a publication")
			}
		}
		sh.sent += len(chunk)
	}
}

// settled waits until every order has ended, then checks all of it against the shop's own account.
func (sh *shop) settled(within time.Duration) {
	sh.Helper()
	sh.until(within, "every order ends", func() (bool, string) {
		n := sh.count(`select count(*) from pointsman.v_instances where status not in ('done', 'failed', 'canceled')`)
		all := sh.count(`select count(*) from pointsman.v_instances`)
		return n == 0 && all == len(sh.orders), fmt.Sprintf("%d of %d orders there, %d not ended", all, len(sh.orders), n)
	})
	sh.consumed(patience)
	sh.checkOrders()
	sh.checkOutcomes(patience)
	sh.checkDeadLetters()
	if n := sh.count(`select count(*) from pointsman.v_inbox`); n != 0 {
		sh.Errorf("%d signals are left in inboxes of orders that have all ended", n)
	}
}

// consumed waits until the bridges have acked everything.
func (sh *shop) consumed(within time.Duration) {
	sh.Helper()
	for stream, consumers := range map[string][]string{ordersStream: {"pointsman-placed", "pointsman-items"}, paymentsStream: {"pointsman-payments"}} {
		for _, name := range consumers {
			sh.until(within, name+" has acked all", func() (bool, string) {
				c, err := sh.js.Consumer(sh.Context(), stream, name)
				sh.must(err)
				info, err := c.Info(sh.Context())
				sh.must(err)
				return info.NumPending == 0 && info.NumAckPending == 0, fmt.Sprintf("%d pending, %d not acked", info.NumPending, info.NumAckPending)
			})
		}
	}
}

func (sh *shop) checkOrders() {
	sh.Helper()
	rows, err := sh.db.Query(sh.Context(), `select correlation_key, status, result from pointsman.v_instances`)
	sh.must(err)
	type shipment struct {
		Packed []string
		Paid   int
	}
	got := map[string]shipment{}
	for rows.Next() {
		var key, status string
		var result []byte
		sh.must(rows.Scan(&key, &status, &result))
		var s shipment
		if status != "done" {
			sh.Errorf("%s is %s", key, status)
		} else if err := json.Unmarshal(result, &s); err != nil {
			sh.Errorf("%s: %s: %v", key, result, err)
		}
		slices.Sort(s.Packed)
		got[key] = s
	}
	sh.must(rows.Err())
	for _, o := range sh.orders {
		s, ok := got["order-"+o.key]
		if !ok {
			sh.Errorf("order %s is not there", o.key)
		} else if !slices.Equal(s.Packed, o.skus) || s.Paid != o.paid {
			sh.Errorf("order %s: packed %v and paid %d, want %v and %d", o.key, s.Packed, s.Paid, o.skus, o.paid)
		}
	}
}

// checkOutcomes wants one message for each end. A relay that was killed may publish again under the same id; the stream's own
// window drops it.
func (sh *shop) checkOutcomes(within time.Duration) {
	sh.Helper()
	sh.until(within, "all outcomes are out", func() (bool, string) {
		s, err := sh.js.Stream(sh.Context(), "POINTSMAN_OUTCOMES")
		sh.must(err)
		info, err := s.Info(sh.Context())
		sh.must(err)
		return info.State.Msgs >= uint64(len(sh.orders)), fmt.Sprintf("%d of %d", info.State.Msgs, len(sh.orders))
	})
	seen := map[string]int{}
	for _, m := range sh.messages("POINTSMAN_OUTCOMES") {
		var o struct {
			CorrelationKey string `json:"correlation_key"`
			Status         string
		}
		sh.must(json.Unmarshal(m.Data(), &o))
		if m.Subject() != "pointsman.outcome.default.order.done" || o.Status != "done" || m.Headers().Get("Nats-Msg-Id") == "" {
			sh.Errorf("outcome on %s: %s", m.Subject(), m.Data())
		}
		seen[o.CorrelationKey]++
	}
	for _, o := range sh.orders {
		if n := seen["order-"+o.key]; n != 1 {
			sh.Errorf("order %s: %d outcome messages", o.key, n)
		}
	}
}

func (sh *shop) checkDeadLetters() {
	sh.Helper()
	seen := map[string]int{}
	for _, m := range sh.messages("POINTSMAN_DLQ") {
		id := m.Headers().Get("Pointsman-Original-Msg-Id")
		seen[id]++
		if !sh.poison[id] {
			sh.Errorf("dead letter of %q, which is no poison: %s", id, m.Headers().Get("Pointsman-Reason"))
		}
		if m.Headers().Get("Pointsman-Reason") == "" || m.Headers().Get("Pointsman-Stream") == "" || m.Headers().Get("Pointsman-Seq") == "" {
			sh.Errorf("dead letter of %q says too little: %v", id, m.Headers())
		}
	}
	for id := range sh.poison {
		if seen[id] == 0 {
			sh.Errorf("%s is not in the dead letters", id)
		}
	}
}

// outsideWindow waits until the streams have forgotten the ids of what was published before: until one of their own age is taken
// again.
func (sh *shop) outsideWindow() {
	sh.Helper()
	probe := &nats.Msg{Subject: "orders.probe.nothing", Header: nats.Header{"Nats-Msg-Id": {"probe"}}}
	for taken := 0; taken < 2; {
		ack, err := sh.js.PublishMsg(sh.Context(), probe)
		sh.must(err)
		if !ack.Duplicate {
			taken++
		}
	}
}
