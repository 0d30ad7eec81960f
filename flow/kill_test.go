package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/engine/enginetest"
)

// A worker is killed at every transition of the order example, one after the other, between what the step did and its commit: each order
// comes to the same end, with the same effects, and what is asked again is asked with the same key.
func TestKillAtEveryTransition(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.answer("stock.reserve", says(map[string]string{"reservation": "r1"}))
	s.answer("shipping.ship", func(data json.RawMessage) (any, error) {
		if strings.Contains(string(data), "anvil") {
			return nil, errors.New("too heavy")
		}
		return map[string]string{"parcel": "p1"}, nil
	})
	s.answer("payments.refund", says(true))
	s.answer("stock.release", says(true))
	text, err := os.ReadFile("../examples/flows/order/pointsman.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env := enginetest.New(t, machines(t, s.conn, string(text))...)
	for _, o := range []order{
		{item: "anvil", paid: true, ends: `failed step "ship": too heavy `, transitions: 8, asked: 3},
		{item: "cup", paid: true, ends: `done  {"shipped": {"news": "shipped", "parcel": "p1"}}`, transitions: 4, asked: 1},
		{item: "cup", ends: `failed step "paid": no signal paid within 24h0m0s `, transitions: 4},
	} {
		want, transitions := o.play(t, env, s, -1)
		if transitions != o.transitions {
			t.Errorf("%d transitions: %s", transitions, want)
		}
		for kill := range transitions {
			got, _ := o.play(t, env, s, kill)
			equal(t, fmt.Sprintf("%v killed at transition %d", o, kill), got, want)
		}
	}
}

// order is a way that one goes.
type order struct {
	item        string
	paid        bool
	ends        string
	transitions int
	asked       int // to be shipped
}

// play has the worker killed at one transition; below 0: at none. It returns what became of the order.
func (o order) play(t *testing.T, env *enginetest.Env, s *services, kill int) (outcome string, transitions int) {
	t.Helper()
	in := env.Start(engine.NewInstance{Machine: "order", State: engine.MustJSON(map[string][]string{"items": {o.item}}), CorrelationKey: "order"})
	published, calls := len(env.Published()), len(env.Instances("order:call"))
	env.Kill = func() bool {
		transitions++
		return transitions-1 == kill
	}
	env.Advance(2 * enginetest.Lease)
	if o.paid {
		in.Signal("paid", map[string]int{"amount": 0})
		in.Signal("paid", map[string]int{"amount": 42})
	}
	env.Advance(25 * time.Hour)
	got := in.Get()
	outcome = fmt.Sprintf("%s %s %s", got.Status, got.LastError, got.Result)
	equal(t, "ends", outcome, o.ends)
	for _, p := range env.Published()[published:] {
		outcome += fmt.Sprintf("\n%s %s", p.Subject, p.Body)
	}
	for _, subject := range []string{"stock.reserve", "shipping.ship", "payments.refund", "stock.release"} {
		most := 1
		if subject == "shipping.ship" {
			most = o.asked
		}
		keys := map[string]int{}
		for _, c := range s.calls(subject) {
			if strings.HasPrefix(c.key, in.ID.String()) {
				keys[strings.TrimPrefix(c.key, in.ID.String())]++
			}
		}
		for key, made := range keys {
			outcome += "\n" + subject + " " + key
			if made > most+1 || kill < 0 && made != most {
				t.Errorf("killed at %d: %s is asked %d times", kill, subject, made)
			}
		}
	}
	return outcome + fmt.Sprintf("\n%d instances of calls", len(env.Instances("order:call"))-calls), transitions
}
