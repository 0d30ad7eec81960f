package devenv

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
)

// perfect is the summary of a traffic of which all went as it had to.
func perfect(t *testing.T, n int) *summary {
	t.Helper()
	s := &summary{traffic: newTraffic(n, 1), dropped: map[string]bool{}, instances: map[string]engine.Instance{}, outcomes: map[string][]outcome{}, took: time.Second}
	for i, e := range s.traffic.events {
		for c := range e.copies {
			m := &message{place: place{"ORDERS", uint64(10*i + c)}, copyID: shopCopy{e, c}.id(), event: e.n, fate: e.want[0]}
			if c > 0 {
				m.fate = bridge.FateDuplicate
			}
			s.stored = append(s.stored, m)
		}
	}
	for _, o := range s.traffic.orders {
		in := engine.Instance{ID: uuid.New(), CorrelationKey: o.key(), Status: engine.StatusDone}
		switch o.ends {
		case endsDone:
			result, err := json.Marshal(orders.Shipment{Packed: o.skus, Paid: o.paid})
			if err != nil {
				t.Fatal(err)
			}
			in.Result = result
		case endsTimedOut:
			in.Status, in.LastError = engine.StatusFailed, orders.WaitedInVain+" for 2s"
		default:
			in.Status, in.LastError = engine.StatusFailed, "item: no such thing"
		}
		s.instances[o.key()] = in
		s.outcomes[o.key()] = []outcome{{InstanceID: in.ID.String(), CorrelationKey: o.key(), Status: string(in.Status)}}
	}
	return s
}

func TestSummaryAddsUp(t *testing.T) {
	t.Parallel()
	s := perfect(t, 100)
	planned := len(s.stored)
	s.dropped[s.stored[0].copyID] = true // of an attempt whose predecessor is stored: it counts once
	again := slices.IndexFunc(s.stored, func(m *message) bool { return m.fate == bridge.FateDuplicate })
	s.dropped[s.stored[again].copyID] = true // of a copy that the stream never took
	s.stored = slices.Delete(s.stored, again, again+1)
	s.check()
	if err := s.err(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s.print(&out)
	rows := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ +([a-z/ -]+?) +(\d+)$`).FindAllStringSubmatch(out.String(), -1) {
		rows[m[1]], _ = strconv.Atoi(m[2])
	}
	sum := 0
	for _, row := range fateRows {
		sum += rows[row.name]
	}
	if rows["published"] != planned || sum != planned || rows["orders"] != 100 || rows["failed"] != 7 || rows["by time-out"] != 5 || rows["outcomes"] != 100 {
		t.Errorf("%d were published:\n%s", planned, out.String())
	}
}

// TestSummaryTells: nothing that goes wrong goes unnoticed.
func TestSummaryTells(t *testing.T) {
	t.Parallel()
	of := func(s *summary, fate string) *message {
		for _, m := range s.stored {
			if m.fate == fate {
				return m
			}
		}
		panic("no message is " + fate)
	}
	done := func(s *summary) *order { return s.traffic.orders[0] }
	for name, test := range map[string]struct {
		spoil func(s *summary)
		want  string
	}{
		"a message left no trace":     {func(s *summary) { of(s, bridge.FateDelivered).fate = bridge.FateUnknown }, "is nowhere"},
		"a message has two fates":     {func(s *summary) { of(s, bridge.FateDeadLettered).fate = fateTwice }, "is nowhere"},
		"a stream lost a message":     {func(s *summary) { s.stored = s.stored[1:] }, "was acked by JetStream and is not in its stream"},
		"a message counted twice":     {func(s *summary) { of(s, bridge.FateDuplicate).fate = bridge.FateHeld }, "its copies are"},
		"only duplicates":             {func(s *summary) { of(s, bridge.FateStarted).fate = bridge.FateDuplicate }, "its copies are"},
		"poison was taken in":         {func(s *summary) { of(s, bridge.FateDeadLettered).fate = bridge.FateDelivered }, "its copies are"},
		"an order was never started":  {func(s *summary) { delete(s.instances, done(s).key()) }, "was never started"},
		"an order too many":           {func(s *summary) { s.instances["order-x"] = engine.Instance{} }, "and there are 101 instances"},
		"an order ended another way":  {func(s *summary) { s.set(done(s), engine.StatusCanceled, nil) }, "is canceled"},
		"an order is not at its end":  {func(s *summary) { s.set(done(s), engine.StatusAwaiting, nil) }, "is awaiting_signal"},
		"an order was packed twice":   {func(s *summary) { s.set(done(s), engine.StatusDone, []byte(`{"packed": ["a", "a"]}`)) }, "packed [a a]"},
		"an outcome was never told":   {func(s *summary) { s.outcomes[done(s).key()] = nil }, "0 outcome messages"},
		"an outcome was told twice":   {func(s *summary) { k := done(s).key(); s.outcomes[k] = append(s.outcomes[k], s.outcomes[k]...) }, "2 outcome messages"},
		"an outcome of another":       {func(s *summary) { s.outcomes[done(s).key()][0].InstanceID = "x" }, "its outcome message says"},
		"an outcome with a wrong end": {func(s *summary) { s.outcomes[done(s).key()][0].Status = "failed" }, "its outcome message says failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := perfect(t, 100)
			test.spoil(s)
			s.check()
			if err := s.err(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func (s *summary) set(o *order, status engine.Status, result []byte) {
	in := s.instances[o.key()]
	in.Status = status
	if result != nil {
		in.Result = result
	}
	s.instances[o.key()] = in
}
