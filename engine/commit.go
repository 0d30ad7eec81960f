package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/internal/store"
)

// How much one transaction commits at most, of outcomes (beyond it nothing is gained) and of bytes.
const (
	maxGroup      = 200
	maxGroupBytes = 16 << 20
)

// commitLoop commits what has finished, as many at once as have come together meanwhile. When done is closed it commits what is
// left, and returns.
func (w *Worker) commitLoop(ctx context.Context, done <-chan struct{}) {
	var aside sync.WaitGroup
	defer aside.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-w.outcomes:
			w.commit(ctx, w.group(first), &aside)
		case <-done:
			select {
			case first := <-w.outcomes:
				w.commit(ctx, w.group(first), &aside)
			default:
				return
			}
		}
	}
}

// group takes what waits, but no more effects than a transaction should lock keys for, and no more bytes than a message should have.
func (w *Worker) group(first finished) []finished {
	group := []finished{first}
	effects, bytes := first.weight()
	for len(group) < maxGroup && effects < maxScopes && bytes < maxGroupBytes {
		select {
		case f := <-w.outcomes:
			group = append(group, f)
			e, b := f.weight()
			effects, bytes = effects+e, bytes+b
		default:
			return group
		}
	}
	return group
}

// weight of an outcome: the instances that its effects may touch, and about how many bytes it has.
func (f *finished) weight() (effects, bytes int) {
	o := &f.outcome
	bytes = len(o.State) + len(o.Result)
	for _, e := range o.Events {
		bytes += len(e.Value)
	}
	for _, p := range o.Publish {
		bytes += len(p.Body)
	}
	for _, s := range o.Signals {
		bytes += len(s.Payload)
	}
	for _, n := range o.Starts {
		bytes += len(n.State)
	}
	return len(o.Signals) + len(o.Starts), bytes
}

// commit settles a group. An outcome that cannot be stored is found by halving; its instance fails with the reason. So is found one
// whose instance somebody else has locked for longer than the lock timeout, but aside: it keeps nobody else waiting.
func (w *Worker) commit(ctx context.Context, group []finished, aside *sync.WaitGroup) {
	begin := time.Now()
	settled, err := w.tryCommit(ctx, group, store.BlameData, store.BlameLock)
	switch {
	case err == nil:
		w.metrics.commitSeconds.Observe(time.Since(begin).Seconds())
		w.settled(ctx, group, settled)
	case ctx.Err() != nil: // Run says so
		w.giveSlots(group)
	case len(group) > 1:
		half := len(group) / 2
		if store.Blame(err) == store.BlameLock {
			aside.Go(func() { w.commit(ctx, group[:half], aside) })
			aside.Go(func() { w.commit(ctx, group[half:], aside) })
			return
		}
		w.commit(ctx, group[:half], aside)
		w.commit(ctx, group[half:], aside)
	default:
		aside.Go(func() { w.commitAlone(ctx, group) })
	}
}

// commitAlone waits for the lock of a single instance as long as it takes, and fails the instance whose outcome cannot be stored.
func (w *Worker) commitAlone(ctx context.Context, group []finished) {
	settled, err := w.tryCommit(ctx, group, store.BlameData)
	if err != nil && ctx.Err() == nil {
		group[0].outcome = unstorable(group[0].outcome, err)
		settled, err = w.tryCommit(ctx, group)
	}
	if err != nil {
		w.giveSlots(group)
		return
	}
	w.settled(ctx, group, settled)
}

// settled forgets a group, and pokes whoever has more to do for it.
func (w *Worker) settled(ctx context.Context, group []finished, settled *store.Settled) {
	w.metrics.commitsRefused.Add(float64(len(group) - len(settled.Passed)))
	orphans := w.leases.remove(group)
	w.giveSlots(group)
	w.client.Wake(append(settled.Woken, publishes(group))...)
	w.client.tellOf(group)
	if len(orphans) > 0 {
		_ = w.retry(ctx, "commit", func(ctx context.Context) error { // else they run out by themselves
			_, err := w.store.Commit(ctx, nil, orphans, w.client.publish)
			return err
		})
	}
}

func (w *Worker) giveSlots(group []finished) {
	slots := map[*queue]int{}
	for _, f := range group {
		slots[f.queue]++
	}
	for q, n := range slots {
		q.give(n)
	}
}

// publishes is the outbox's queue, or "".
func publishes(group []finished) string {
	for _, f := range group {
		if o := f.outcome; o.Kind == store.OutcomeDone || o.Kind == store.OutcomeStop || len(o.Publish)+len(o.Signals) > 0 {
			return OutboxQueue
		}
	}
	return ""
}

// tryCommit waits for the database. It returns only errors for which a row of the group is to blame in one of these ways, or ctx's.
func (w *Worker) tryCommit(ctx context.Context, group []finished, blames ...store.Blamed) (settled *store.Settled, err error) {
	rows := make([]store.Outcome, len(group))
	for i, f := range group {
		rows[i] = f.outcome
	}
	last := w.leases.last(group)
	var blamed error
	err = w.retry(ctx, "commit", func(ctx context.Context) error {
		settled, err = w.store.Commit(ctx, rows, last, w.client.publish)
		if err != nil && slices.Contains(blames, store.Blame(err)) {
			blamed = err
			return nil
		}
		return err
	})
	if blamed != nil {
		return nil, blamed
	}
	return settled, err
}

// unstorable is what becomes of an outcome that Postgres does not take.
func unstorable(o store.Outcome, err error) store.Outcome {
	return store.Outcome{
		ID: o.ID, Project: o.Project, Rev: o.Rev, Token: o.Token, Timed: o.Timed, PartitionKey: o.PartitionKey, UniqueScope: o.UniqueScope, Ran: o.Ran, Attempt: o.Attempt,
		Kind: store.OutcomeStop, Reason: clean(fmt.Sprintf("the outcome %s of step %q cannot be stored: %v", o.Kind, o.Ran, err)),
	}
}
