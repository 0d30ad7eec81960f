package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// commitLoop commits what has finished, as many at once as have come together meanwhile. When done is closed it commits what is
// left, and returns.
func (w *Worker) commitLoop(ctx context.Context, done <-chan struct{}) {
	var aside sync.WaitGroup
	defer aside.Wait()
	commit := func(first finished) {
		for over := &first; over != nil; {
			var group []finished
			group, over = w.group(*over)
			w.commit(ctx, group, &aside)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-w.outcomes:
			commit(first.arrived())
		case <-done:
			select {
			case first := <-w.outcomes:
				commit(first.arrived())
			default:
				return
			}
		}
	}
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
		if len(settled.Refused) > 0 { // a handler is code of the user's: it keeps nobody else waiting
			aside.Go(func() {
				for _, f := range w.turnedDown(group, settled) {
					w.commitAlone(ctx, []finished{f})
				}
			})
		}
	case ctx.Err() != nil: // Run says so
		w.answer(group, nil)
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
		w.answer(group, nil)
		return
	}
	w.settled(ctx, group, settled)
	for _, f := range w.turnedDown(group, settled) {
		w.commitAlone(ctx, []finished{f})
	}
}

// turnedDown are the outcomes that cannot wait for their events, with what the machine makes of that error.
func (w *Worker) turnedDown(group []finished, settled *store.Settled) (again []finished) {
	for _, f := range group {
		m, refused := settled.Refused[f.outcome.ID]
		if !refused || f.refused == nil {
			continue
		}
		w.metrics.eventsRefused.Inc()
		f.outcome, f.refused = f.refused(&WaitRefusedError{Key: m.Key, Err: w.client.refusal(m, m.Key)}), nil
		again = append(again, f)
	}
	return again
}

// settled forgets a group, and pokes whoever has more to do for it.
func (w *Worker) settled(ctx context.Context, group []finished, settled *store.Settled) {
	if len(settled.Refused) > 0 {
		group = slices.DeleteFunc(slices.Clone(group), func(f finished) bool { _, refused := settled.Refused[f.outcome.ID]; return refused && f.refused != nil })
	}
	w.metrics.commitsRefused.Add(float64(len(group) - len(settled.Passed)))
	for _, n := range settled.Made {
		w.metrics.triggersCreated.WithLabelValues(n.Source, w.metrics.projects.label(n.Project)).Inc()
	}
	w.client.toldTriggers(settled.Ended)
	ahead := w.goOn(settled.Ahead)
	orphans := w.leases.remove(group)
	w.answer(group, ahead)
	w.due(group, settled)
	w.client.Wake(append(settled.Woken, publishes(group), notifies(group))...)
	w.client.tellOf(group)
	if len(orphans) > 0 {
		_ = w.retry(ctx, "commit", func(ctx context.Context) error { // else they run out by themselves
			_, err := w.store.Commit(ctx, nil, store.Group{Last: orphans})
			return err
		})
	}
}

// answer tells each visit whether its instance goes on here, and gives back the slots of the others.
func (w *Worker) answer(group []finished, ahead map[uuid.UUID]*visit) {
	type share struct{ ended, goOn int }
	shares := map[*queue]share{}
	for _, f := range group {
		next := ahead[f.outcome.ID]
		if f.ahead == nil || next != nil && next.work.Rev != f.outcome.Rev+1 {
			next = nil
		}
		s := shares[f.queue]
		if s.ended++; next != nil {
			s.goOn++
		}
		shares[f.queue] = s
		if f.ahead != nil {
			f.ahead <- next
		}
	}
	for q, s := range shares {
		q.give(s.ended, s.goOn)
	}
}

// publishes is the outbox's queue, or "".
func publishes(group []finished) string {
	for _, f := range group {
		if o := f.outcome; o.Kind == store.OutcomeDone || o.Kind == store.OutcomeStop || len(o.Publish)+len(o.Signals)+len(o.Emits) > 0 {
			return OutboxQueue
		}
	}
	return ""
}

// notifies is the queue of webhooks, or "".
func notifies(group []finished) string {
	for _, f := range group {
		if o := f.outcome; o.Notifies && (o.Kind == store.OutcomeDone || o.Kind == store.OutcomeStop) {
			return WebhooksQueue
		}
	}
	return ""
}

// tryCommit waits for the database. It returns only errors for which a row of the group is to blame in one of these ways, or ctx's.
func (w *Worker) tryCommit(ctx context.Context, group []finished, blames ...store.Blamed) (settled *store.Settled, err error) {
	rows := make([]store.Outcome, len(group))
	for i, f := range group {
		rows[i] = f.outcome
		if f.outcome.Ahead != nil && w.life.working.Err() != nil {
			rows[i].Ahead = nil // nobody waits for the answer any more
		}
	}
	g := store.Group{Last: w.leases.last(group), Publish: w.client.publish, MaxTriggers: w.client.maxTriggers, Ahead: store.Lease{Token: uuid.New(), Worker: w.cfg.Name, Length: w.cfg.Lease}}
	var blamed error
	err = w.retry(ctx, "commit", func(ctx context.Context) error {
		settled, err = w.store.Commit(ctx, rows, g)
		if err != nil && slices.Contains(blames, store.Blame(err)) {
			blamed = err
			return nil
		}
		if err != nil {
			rows, g = turnBack(rows, g)
		}
		return err
	})
	if blamed != nil {
		return nil, blamed
	}
	return settled, err
}

// turnBack is for the next try of a commit whose answer was lost: nobody executes what it leased ahead. If it was committed, the next try
// gives that back; if not, it makes ready what would have gone on.
func turnBack(rows []store.Outcome, g store.Group) ([]store.Outcome, store.Group) {
	var ahead []store.Outcome
	for i := range rows {
		if next := rows[i].Ahead; next != nil {
			o := release(next)
			o.Token = g.Ahead.Token
			ahead, rows[i].Ahead = append(ahead, o), nil
		}
	}
	if len(ahead) > 0 {
		g.Last = append(g.Last, g.Ahead.Token)
	}
	return append(rows, ahead...), g
}

// unstorable is what becomes of an outcome that Postgres does not take.
func unstorable(o store.Outcome, err error) store.Outcome {
	return store.Outcome{
		ID: o.ID, Project: o.Project, Rev: o.Rev, Token: o.Token, Timed: o.Timed, PartitionKey: o.PartitionKey, UniqueScope: o.UniqueScope, Notifies: o.Notifies, Ran: o.Ran, Attempt: o.Attempt,
		ParentID: o.ParentID, Kind: store.OutcomeStop, Reason: clean(fmt.Sprintf("the outcome %s of step %q cannot be stored: %v", o.Kind, o.Ran, err)),
	}
}
