package engine

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// slow is the transaction for what found no live target at first, or needs more than its own signal to wake one. Under the locks
// of the keys it looks again; whom it finds missing then stays missing until the commit, so that a hold, a start or a verdict
// stands.
func (a *acceptance) slow(project string, items []int) error {
	var scopes []uuid.UUID
	if !a.locked {
		for _, i := range items {
			scopes = append(scopes, a.locks(i)...)
		}
	}
	s := &slowAcceptance{acceptance: a, project: project, began: map[Ref]int{}, barred: map[Ref]string{}}
	err := a.st.InScopes(a.ctx, scopes, func(tx *store.Store) error {
		s.tx = tx
		return s.run(items)
	})
	if err != nil {
		return err
	}
	for _, settle := range s.settled {
		settle()
	}
	return nil
}

// slowAcceptance is one slow transaction. Receipts wait for its commit.
type slowAcceptance struct {
	*acceptance
	tx      *store.Store
	project string
	starts  []int       // items to start for
	began   map[Ref]int // the first of these for a target
	waiting []waiter
	barred  map[Ref]string // targets that did not start, and why
	holds   []int
	settled []func()
}

// waiter is a signal for a target that an item of the batch starts.
type waiter struct {
	item    int
	verdict store.Delivery // why it had no target before
}

func (s *slowAcceptance) settle(i int, r Receipt) {
	s.settled = append(s.settled, func() { s.acceptance.settle(i, r) })
}

func (s *slowAcceptance) deliver(i int, d store.Delivery) {
	s.settled = append(s.settled, func() { s.acceptance.delivered(i, d) })
}

// run looks again, holds before it starts, because a start adopts what is held, and then delivers to what was started.
func (s *slowAcceptance) run(items []int) error {
	var signals []int
	for _, i := range items {
		if s.batch[i].Name == "" {
			s.startFor(i)
		} else {
			signals = append(signals, i)
		}
	}
	missing, err := s.look(s.part(signals, true), true)
	if err != nil {
		return err
	}
	ids, paired := s.unpair(missing)
	if err := s.decide(ids, true); err != nil {
		return err
	}
	byKey := append(s.part(signals, false), paired...)
	slices.Sort(byKey)
	if missing, err = s.look(byKey, false); err != nil {
		return err
	}
	if err := s.decide(missing, false); err != nil {
		return err
	}
	if err := s.hold(); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return err
	}
	if err := s.deliverWaiting(); err != nil {
		return err
	}
	return s.hold()
}

// unpair tells the items by key from those by id: the instance that both named has ended, and another one may have the key.
func (s *slowAcceptance) unpair(items []int) (ids, keys []int) {
	for _, i := range items {
		if s.batch[i].To.id != uuid.Nil {
			ids = append(ids, i)
		} else {
			keys = append(keys, i)
		}
	}
	return ids, keys
}

// look delivers again, and returns what still has no live target.
func (s *slowAcceptance) look(items []int, byID bool) (missing []int, err error) {
	ds, err := s.tx.DeliverSlow(s.ctx, s.project, byID, s.of(items))
	if err != nil {
		return nil, err
	}
	for k, i := range items {
		if ds[k].Verdict == store.Missing {
			missing = append(missing, i)
		} else {
			s.deliver(i, ds[k])
		}
	}
	return missing, nil
}

// decide sorts what has no live target: known before, for a target that this batch starts, or to be turned away.
func (s *slowAcceptance) decide(items []int, byID bool) error {
	ds, err := s.tx.Nobody(s.ctx, s.project, byID, s.of(items))
	if err != nil {
		return err
	}
	for k, i := range items {
		d := ds[k]
		switch {
		case d.Verdict == store.Duplicate || d.Verdict == store.Conflict:
			s.deliver(i, d)
		case s.wantsStart(i, d):
			s.startFor(i)
			s.waiting = append(s.waiting, waiter{i, d})
		case s.startsBefore(i):
			s.waiting = append(s.waiting, waiter{i, d})
		default:
			s.turnAway(i, d)
		}
	}
	return nil
}

func (s *slowAcceptance) wantsStart(i int, d store.Delivery) bool {
	in := &s.batch[i]
	return in.Start != nil && !s.startsBefore(i) &&
		(d.Verdict == store.Ended && in.OnTerminal == TerminalStart || d.Verdict == store.Missing && in.OnMissing == MissingStart)
}

// startsBefore reports whether an earlier item of the batch starts the target of this one.
func (s *slowAcceptance) startsBefore(i int) bool {
	first, ok := s.began[s.batch[i].To.named()]
	return ok && first < i
}

func (s *slowAcceptance) startFor(i int) {
	s.starts = append(s.starts, i)
	if to := s.batch[i].To.named(); to.key != "" {
		if first, ok := s.began[to]; !ok || i < first {
			s.began[to] = i
		}
	}
}

// turnAway follows the policies of a signal that has no live target.
func (s *slowAcceptance) turnAway(i int, d store.Delivery) {
	in := &s.batch[i]
	r := Receipt{Result: NoTarget}
	switch {
	case d.Verdict == store.Ended:
		r.InstanceID, r.Ended = d.InstanceID, &Ended{ID: d.InstanceID, Status: Status(d.Status), At: d.EndedAt}
		r.Reason = (&NoTargetError{*r.Ended}).Error()
		if in.OnTerminal == TerminalDrop {
			r.Result = Dropped
		}
	case in.OnMissing == MissingDrop:
		r = Receipt{Result: Dropped}
	case in.To.id != uuid.Nil:
		r.Reason = fmt.Sprintf("there is no instance %s", in.To.id)
	case in.OnMissing == MissingHold:
		s.holds = append(s.holds, i)
		r = Receipt{Result: Held}
	default:
		r.Reason = fmt.Sprintf("nobody has the key %q", in.To.key)
	}
	if why := s.barred[in.To.named()]; why != "" && r.Result == NoTarget {
		r.Reason = why
	}
	s.settle(i, r)
}

// start creates instances, in the order of the batch.
func (s *slowAcceptance) start() error {
	slices.Sort(s.starts)
	rows := make([]store.NewInstance, len(s.starts))
	for k, i := range s.starts {
		rows[k] = s.acceptance.start(i).row()
		if s.batch[i].Name != "" {
			rows[k].DedupKey = "" // its signal is what the ledger knows it by
			continue
		}
		g := &s.signals[i]
		rows[k].Hash, rows[k].Source, rows[k].Recheck, rows[k].Settles = g.Hash, g.Source, g.Recheck, true
	}
	started, err := s.tx.Start(s.ctx, s.project, rows)
	if err != nil {
		return err
	}
	for k, i := range s.starts {
		st := started[k]
		if st.Unique {
			s.barred[s.batch[i].To.named()] = s.batch[i].Start.uniqueHeld(st.InstanceID)
		}
		s.settled = append(s.settled, func() { s.queues = append(s.queues, st.Queue) })
		if s.batch[i].Name == "" {
			s.started(i, st)
		}
	}
	return nil
}

// deliverWaiting gives what was started the signals that came for it. A start that was none (a duplicate of one that has ended, or
// another holds its unique key) leaves them without a target.
func (s *slowAcceptance) deliverWaiting() error {
	items := make([]int, len(s.waiting))
	for k, w := range s.waiting {
		items[k] = w.item
	}
	ds, err := s.tx.DeliverSlow(s.ctx, s.project, false, s.of(items))
	if err != nil {
		return err
	}
	for k, i := range items {
		switch d := ds[k]; {
		case d.Verdict == store.Missing:
			s.turnAway(i, s.waiting[k].verdict)
		case d.Verdict == store.Delivered && slices.Contains(s.starts, i):
			s.settle(i, Receipt{Result: Started, InstanceID: d.InstanceID, SignalID: d.SignalID})
		default:
			s.deliver(i, d)
		}
	}
	return nil
}

// started settles a start without a signal. One whose correlation key is live, or whose unique key is held, is a duplicate of the start
// that made it so.
func (s *slowAcceptance) started(i int, st store.Start) {
	r := Receipt{InstanceID: st.InstanceID}
	switch st.Verdict {
	case store.Started:
		r.Result = Started
	case store.Conflict:
		r.Result, r.Reason = Conflict, s.conflict(i)
	default:
		r.Result = Duplicate
	}
	s.settle(i, r)
}

// hold keeps what was turned away to be held.
func (s *slowAcceptance) hold() error {
	holds := make([]store.Hold, len(s.holds))
	for k, i := range s.holds {
		in := &s.batch[i]
		holds[k] = store.Hold{Signal: s.signals[i], For: in.holdFor(), Body: in.Body}
		if in.Body == nil {
			holds[k].Body = in.Payload
		}
		holds[k].Original = in.original()
	}
	s.holds = nil
	return s.tx.Hold(s.ctx, s.project, holds)
}

// start is the instance that an intake asks for.
func (a *acceptance) start(i int) NewInstance {
	in := &a.batch[i]
	n := *in.Start
	n.Project, n.CorrelationKey = in.project(), in.To.key
	if in.Name == "" {
		n.DedupKey = in.DedupKey
	}
	if n.Traceparent == "" {
		n.Traceparent = in.Traceparent
	}
	if full, err := n.withDefaults(); err == nil {
		n = full
	}
	return n
}
