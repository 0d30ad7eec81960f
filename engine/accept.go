package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// Accept takes a batch in and says what became of each. Whatever a receipt says has been committed, so its message may be acked.
// An error means that the database could not be asked, or not to the end: some may have been taken in, and the whole batch can be
// given again, because what was taken in then is a duplicate.
//
// One intake that cannot be stored does not fail the others: the batch is halved until it is alone, and its receipt says Refused
// (no store could ever hold it) or Failed (it may go another time). Intakes for one target are taken in in the order of the batch.
func (c *Client) Accept(ctx context.Context, batch []Intake) ([]Receipt, error) {
	a := newAcceptance(ctx, c.store, batch)
	err := a.run(a.take)
	c.Wake(a.queues...)
	c.toldTriggers(a.ended)
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	return a.receipts, nil
}

// AcceptTx is Accept inside a transaction of the caller's, which must be READ COMMITTED. All or nothing: an intake that cannot be
// stored fails the transaction, and so do more than 200 different keys: each is locked until the end of it. [Client.Wake] after the commit
// spares the worker's poll interval.
func (c *Client) AcceptTx(ctx context.Context, tx pgx.Tx, batch []Intake) ([]Receipt, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return nil, err
	}
	a := newAcceptance(ctx, st, batch)
	if err := a.lock(); err != nil {
		return nil, err
	}
	if err := a.run(a.slow); err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	return a.receipts, nil
}

// Signal puts a signal into the inbox of a live instance. Its receipt says Delivered or Duplicate. The error is [ErrNoTarget]
// where nobody live has the key or id, and a [*ConflictError] where the dedup key was used with another name or payload.
func (c *Client) Signal(ctx context.Context, to Ref, s Signal) (Receipt, error) {
	receipts, err := c.Accept(ctx, []Intake{intakeOf(to, s)})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], receipts[0].Err()
}

// SignalTx is Signal inside a transaction of the caller's, which must be READ COMMITTED.
func (c *Client) SignalTx(ctx context.Context, tx pgx.Tx, to Ref, s Signal) (Receipt, error) {
	receipts, err := c.AcceptTx(ctx, tx, []Intake{intakeOf(to, s)})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], receipts[0].Err()
}

func intakeOf(to Ref, s Signal) Intake {
	return Intake{To: to, Name: s.Name, Payload: s.Payload, DedupKey: s.DedupKey, Traceparent: s.Traceparent}
}

// Err is the receipt as an error: nil where the intake was taken in, now or before, or forgotten as it asked.
func (r Receipt) Err() error {
	switch r.Result {
	case Conflict:
		return &ConflictError{ID: r.InstanceID, Reason: r.Reason}
	case NoTarget:
		if r.Ended != nil {
			return &NoTargetError{Ended: *r.Ended}
		}
		return ErrNoTarget
	case Refused:
		return &InvalidError{Field: "signal", Reason: r.Reason}
	case Failed:
		return errors.New(r.Reason)
	default:
		return nil
	}
}

// acceptance is one batch on its way in.
type acceptance struct {
	ctx      context.Context
	st       *store.Store
	batch    []Intake
	receipts []Receipt
	signals  []store.Signal
	same     [][]int // of each first, the later ones with its target and dedup key
	paired   map[int]Ref
	locked   bool // the locks of all keys are held
	queues   []string
	ended    []store.EndedTrigger
	hasty    bool // somebody has a row locked, and is being looked for
	ordered  bool // what is locked for now fails the batch, where else it would fall behind
}

func newAcceptance(ctx context.Context, st *store.Store, batch []Intake) *acceptance {
	a := &acceptance{ctx: ctx, st: st, batch: batch, receipts: make([]Receipt, len(batch)), signals: make([]store.Signal, len(batch)), same: make([][]int, len(batch))}
	type once struct {
		to    Ref
		event string
		start bool
		dedup string
	}
	seen := make(map[once]int, len(batch))
	for i := range batch {
		if err := batch[i].check(); err != nil {
			a.receipts[i] = Receipt{Result: Refused, Reason: err.Error()}
			continue
		}
		a.signals[i] = batch[i].signal()
		if batch[i].DedupKey == "" {
			continue
		}
		key := once{batch[i].To.named(), batch[i].Event, batch[i].Name == "", batch[i].DedupKey}
		if first, ok := seen[key]; ok {
			a.same[first] = append(a.same[first], i)
			a.receipts[i].Result = Duplicate // of what the first comes to; says for now that it is not to be sent
		} else {
			seen[key] = i
		}
	}
	return a
}

func (in *Intake) check() error {
	if in.Event != "" {
		return in.checkEvent()
	}
	if in.Name == "" && in.Start == nil {
		return &InvalidError{Field: "name", Reason: "is empty, and there is nothing to start"}
	}
	if in.To.key == "" && in.To.id == uuid.Nil && in.Name != "" {
		return &InvalidError{Field: "correlation_key", Reason: "is empty, and no instance id is given"}
	}
	if err := checkRef(in.To); err != nil {
		return err
	}
	if in.Name != "" {
		if err := checkSignal(in.Name, in.Payload, in.DedupKey); err != nil {
			return err
		}
	}
	if in.Start == nil {
		return nil
	}
	if in.To.id != uuid.Nil {
		return &InvalidError{Field: "start", Reason: "wants a correlation key, not an instance id"}
	}
	if in.DedupKey != "" {
		if err := ident.Key("dedup_key", in.DedupKey); err != nil {
			return err
		}
	}
	return in.Start.check()
}

func (in *Intake) project() string {
	if in.To.project != "" || in.To.id != uuid.Nil {
		return in.To.project
	}
	return DefaultProject
}

func (in *Intake) signal() store.Signal {
	body := in.Body
	if body == nil {
		body = in.Payload
	}
	g := store.Signal{
		Key: in.To.key, ID: in.To.id, Kind: KindSignal, Name: in.Name, Payload: in.Payload, DedupKey: in.DedupKey, SentBy: in.SentBy, Traceparent: in.Traceparent,
		Hash: store.SignalHash(KindSignal, in.Name, body), Recheck: in.Redelivered && !in.Origin.IsZero(),
	}
	if in.DedupKey != "" {
		g.Dedup = store.SignalDedup(in.DedupKey)
	} else {
		g.Dedup = uuid.New()
	}
	if !in.Origin.IsZero() {
		source := store.Source(in.Origin.Route, in.Origin.Stream, in.Origin.Created, in.Origin.Sequence)
		g.Source = &source
	}
	return g
}

// run sends what has no receipt yet, by project: one statement is for one project. What a batch repeats may need a second turn.
func (a *acceptance) run(send func(project string, items []int) error) error {
	if err := a.pair(); err != nil {
		return err
	}
	for {
		groups := map[string][]int{}
		var events []int
		for i := range a.batch {
			switch {
			case a.receipts[i].Result != "":
			case a.batch[i].Event != "":
				events = append(events, i)
			default:
				p := a.project(i)
				groups[p] = append(groups[p], i)
			}
		}
		if err := a.sendEvents(events); err != nil {
			return err
		}
		if len(groups) == 0 && len(events) == 0 {
			return nil
		}
		for _, project := range slices.Sorted(maps.Keys(groups)) {
			if err := send(project, groups[project]); err != nil {
				return err
			}
		}
	}
}

// take is one round trip for what has a live target, and a transaction for the rest. In an ordered batch nothing may fall behind: where an
// item cannot be stored, what comes before it is taken in whole before what comes after it.
func (a *acceptance) take(project string, items []int) error {
	if !a.ordered {
		return a.takeParts(project, items, a.bisect)
	}
	whole := func(items []int, send func([]int) ([]int, error)) ([]int, error) { return send(items) }
	_, err := a.bisect(items, func(items []int) ([]int, error) {
		items = slices.DeleteFunc(slices.Clone(items), func(i int) bool { return a.receipts[i].Result != "" })
		return nil, a.takeParts(project, items, whole)
	})
	return err
}

// takeParts sends the parts of the items, each through by.
func (a *acceptance) takeParts(project string, items []int, by func(items []int, send func([]int) ([]int, error)) ([]int, error)) error {
	fast, rest := a.split(items)
	for _, byID := range []bool{false, true} {
		missed, err := by(a.part(fast, byID), func(items []int) ([]int, error) { return a.fast(project, byID, items) })
		if err != nil {
			return err
		}
		rest = append(rest, missed...)
	}
	slices.Sort(rest)
	for chunk := range a.chunks(rest) {
		if _, err := by(chunk, func(items []int) ([]int, error) { return nil, a.slow(project, items) }); err != nil {
			return err
		}
	}
	return nil
}

// split takes out what needs the slow transaction anyway: starts without a signal, and redelivered messages with all else that is
// for the same target, so that its order stays.
func (a *acceptance) split(items []int) (fast, slow []int) {
	again := map[Ref]bool{}
	for _, i := range items {
		if a.signals[i].Recheck {
			again[a.to(i)] = true
		}
	}
	for _, i := range items {
		if a.batch[i].Name == "" || again[a.to(i)] {
			slow = append(slow, i)
		} else {
			fast = append(fast, i)
		}
	}
	return fast, slow
}

// bisect calls send, and where one of the items cannot be stored halves them until it is alone.
func (a *acceptance) bisect(items []int, send func([]int) ([]int, error)) (missed []int, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	missed, err = send(items)
	blame := store.Blame(err)
	if err == nil || blame == store.BlameNobody || a.ordered && blame == store.BlameLock {
		return missed, err
	}
	if blame == store.BlameLock {
		if locked, unknown := a.st.TablesLocked(a.ctx); locked || unknown != nil {
			return nil, err // no row is to blame: this is an outage
		}
		if !a.hasty {
			a.hasty, a.st = true, a.st.Hasty() // else each half would wait as long again
		}
	}
	if len(items) == 1 {
		result := Failed
		if blame == store.BlameData {
			result = Refused
		}
		a.settle(items[0], Receipt{Result: result, Reason: err.Error()})
		return nil, nil
	}
	half := len(items) / 2
	left, err := a.bisect(items[:half], send)
	if err != nil {
		return nil, err
	}
	right, err := a.bisect(items[half:], send)
	return append(left, right...), err
}

// fast delivers to live targets.
func (a *acceptance) fast(project string, byID bool, items []int) (missed []int, err error) {
	ds, err := a.st.Deliver(a.ctx, project, byID, a.of(items))
	if err != nil {
		return nil, err
	}
	for k, i := range items {
		if ds[k].Verdict == store.Missing {
			missed = append(missed, i)
		} else {
			a.delivered(i, ds[k])
		}
	}
	return missed, nil
}

// part are the items that go by id, or by key.
func (a *acceptance) part(items []int, byID bool) (part []int) {
	for _, i := range items {
		if (a.to(i).id != uuid.Nil) == byID {
			part = append(part, i)
		}
	}
	return part
}

func (a *acceptance) of(items []int) []store.Signal {
	sigs := make([]store.Signal, len(items))
	for k, i := range items {
		sigs[k] = a.signals[i]
	}
	return sigs
}

// delivered settles what met a live target or was known before.
func (a *acceptance) delivered(i int, d store.Delivery) {
	r := Receipt{InstanceID: d.InstanceID, SignalID: d.SignalID}
	switch d.Verdict {
	case store.Delivered:
		r.Result = Delivered
	case store.Duplicate:
		r.Result = Duplicate
	case store.Conflict:
		r.Result, r.Reason = Conflict, a.conflict(i)
	default:
		r.Result, r.Reason = Failed, "its target changed at the same time"
	}
	a.queues = append(a.queues, d.Queue)
	a.settle(i, r)
}

func (a *acceptance) conflict(i int) string {
	return store.ConflictOf(a.batch[i].DedupKey)
}

// settle writes the receipt of an item, and of those that repeat it.
func (a *acceptance) settle(i int, r Receipt) {
	a.receipts[i] = r
	for _, later := range a.same[i] {
		again, same := r, a.signals[later].Hash == a.signals[i].Hash
		switch r.Result {
		case Delivered, Started, Held, Duplicate:
			again.Result = Duplicate
			if !same {
				again = Receipt{Result: Conflict, InstanceID: r.InstanceID, Reason: a.conflict(later)}
			}
		case Conflict:
			if !same {
				again = Receipt{} // it may be what was there before: that needs another look
			}
		}
		a.receipts[later] = again
	}
	a.same[i] = nil
}

// holdFor is how long an intake that asks to be held is.
func (in *Intake) holdFor() time.Duration {
	if in.HoldFor > 0 {
		return in.HoldFor
	}
	return time.Hour
}
