package devenv

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/bridge"
	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/examples/orders"
)

// summary is what came of a traffic.
type summary struct {
	traffic   *traffic
	stored    []*message
	dropped   map[string]bool // copies that a stream knew already
	instances map[string]engine.Instance
	outcomes  map[string][]outcome
	took      time.Duration // to publish and take in

	published int
	fates     map[string]int
	problems  []string
}

// fateRows are the rows of the table that published is the sum of.
var fateRows = []struct{ fate, name string }{
	{bridge.FateStarted, "started"},
	{bridge.FateDelivered, "delivered"},
	{bridge.FateDuplicate, "duplicate"},
	{bridge.FateConflict, "conflict"},
	{bridge.FateHeld, "held"},
	{bridge.FateFiltered, "filtered"},
	{bridge.FateDropped, "dropped"},
	{bridge.FateDeadLettered, "dead-lettered"},
}

// check counts, and notes all that is not as the traffic says.
func (s *summary) check() {
	s.checkMessages()
	for _, o := range s.traffic.orders {
		s.checkOrder(o)
	}
	if n := len(s.instances); n != len(s.traffic.orders) {
		s.problem("%d orders were placed, and there are %d instances", len(s.traffic.orders), n)
	}
}

func (s *summary) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// checkMessages counts each message once. What a stream dropped as a duplicate is one.
func (s *summary) checkMessages() {
	s.fates = map[string]int{}
	known := make(map[string]bool, len(s.stored))
	fates := make([][]string, len(s.traffic.events))
	for _, m := range s.stored {
		known[m.copyID] = true
		s.published++
		s.fates[m.fate]++
		if !slices.ContainsFunc(fateRows, func(r struct{ fate, name string }) bool { return r.fate == m.fate }) {
			s.problem("%s (%s) is nowhere: %s", m.place, s.traffic.events[m.event].msgID, m.fate)
		}
		fates[m.event] = append(fates[m.event], m.fate)
	}
	for _, e := range s.traffic.events {
		for n := range e.copies {
			id := shopCopy{e, n}.id()
			switch {
			case known[id]:
			case s.dropped[id]:
				s.published++
				s.fates[bridge.FateDuplicate]++
				fates[e.n] = append(fates[e.n], bridge.FateDuplicate)
			default:
				s.problem("%s was acked by JetStream and is not in its stream", e.msgID)
			}
		}
		s.checkEvent(e, fates[e.n])
	}
}

// checkEvent compares the fates of an event's copies with what it has to meet.
func (s *summary) checkEvent(e *event, fates []string) {
	wanted := func(fate string) bool { return slices.Contains(e.want, fate) }
	strange := func(fate string) bool { return !wanted(fate) && fate != bridge.FateDuplicate }
	if !slices.ContainsFunc(fates, wanted) || slices.ContainsFunc(fates, strange) {
		s.problem("%s: its copies are %s, want %s", e.msgID, strings.Join(fates, ", "), strings.Join(e.want, " or "))
	}
}

// checkOrder compares an order with its instance, and that with its outcome message.
func (s *summary) checkOrder(o *order) {
	in, ok := s.instances[o.key()]
	if !ok {
		s.problem("%s was never started", o.key())
		return
	}
	if got := endOf(in); got != o.ends {
		s.problem("%s is %s (%s), want %s", o.key(), got, in.LastError, o.ends)
	} else if o.ends == endsDone {
		s.checkShipment(o, in.Result)
	}
	switch sent := s.outcomes[o.key()]; {
	case len(sent) != 1:
		s.problem("%s: %d outcome messages, want 1", o.key(), len(sent))
	case sent[0].InstanceID != in.ID.String() || sent[0].Status != string(in.Status):
		s.problem("%s: its outcome message says %s of %s, and it is %s and %s", o.key(), sent[0].Status, sent[0].InstanceID, in.Status, in.ID)
	}
}

func (s *summary) checkShipment(o *order, result json.RawMessage) {
	var got orders.Shipment
	if err := json.Unmarshal(result, &got); err != nil {
		s.problem("%s: result %s: %v", o.key(), result, err)
		return
	}
	slices.Sort(got.Packed)
	if !slices.Equal(got.Packed, o.skus) || got.Paid != o.paid {
		s.problem("%s: packed %v and paid %d, want %v and %d", o.key(), got.Packed, got.Paid, o.skus, o.paid)
	}
}

func endOf(in engine.Instance) ending {
	if in.Status == engine.StatusFailed && strings.HasPrefix(in.LastError, orders.WaitedInVain) {
		return endsTimedOut
	}
	return ending(in.Status)
}

// print writes the table, one count a line.
func (s *summary) print(out io.Writer) {
	line := func(name string, n int) { _, _ = fmt.Fprintf(out, "  %-15s %8d\n", name, n) }
	_, _ = fmt.Fprintln(out)
	line("published", s.published)
	for _, row := range fateRows {
		line("  "+row.name, s.fates[row.fate])
	}
	ends, received := map[ending]int{}, 0
	for _, in := range s.instances {
		ends[endOf(in)]++
	}
	for _, sent := range s.outcomes {
		received += len(sent)
	}
	line("orders", len(s.instances))
	line("  done", ends[endsDone])
	line("  failed", ends[endsFailed]+ends[endsTimedOut])
	line("    by time-out", ends[endsTimedOut])
	line("  canceled", ends[ending(engine.StatusCanceled)])
	line("outcomes", received)
	line("events/s", int(float64(s.published)/s.took.Seconds()))
	_, _ = fmt.Fprintln(out)
}

const shownProblems = 20

// err is nil where all adds up.
func (s *summary) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	text := fmt.Sprintf("it does not add up, in %d places:", len(s.problems))
	for _, p := range s.problems[:min(shownProblems, len(s.problems))] {
		text += "\n  " + p
	}
	return fmt.Errorf("%s", text)
}
