package engine

import (
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// maxAhead is how many steps of an instance run in a row without a pick, so that nobody is kept waiting for long by one that others
// should come before.
const maxAhead = 16

// run executes the step of a picked instance, and then, where nobody waits for the slot, the steps that it goes on with, each after the
// commit of the one before.
func (w *Worker) run(v *visit, q *queue) {
	for n := 1; ; n++ {
		ahead := w.runVisit(v, q, n < maxAhead && w.life.picking.Err() == nil && !q.wanted())
		if ahead == nil {
			return
		}
		select {
		case v = <-ahead:
		case <-w.life.working.Done():
			return
		}
		if v == nil {
			return
		}
		if w.life.picking.Err() != nil || v.work.InboxErr != nil {
			w.hand(finished{outcome: release(v.work), queue: q, party: v.party})
			return
		}
	}
}

// wanted reports whether others wait for the slots of the queue, as far as is known.
func (q *queue) wanted() bool { return q.backlog.Load() || len(q.poked) > 0 }

// goOn takes up what a commit leased again.
func (w *Worker) goOn(works []*store.Work) map[uuid.UUID]*visit {
	if len(works) == 0 {
		return nil
	}
	contexts, party := w.leases.add(w.life.working, works), newParty(len(works))
	visits := make(map[uuid.UUID]*visit, len(works))
	for i, work := range works {
		work.ReadyAt = time.Now()
		visits[work.ID] = &visit{contexts[i], work, party}
	}
	return visits
}
