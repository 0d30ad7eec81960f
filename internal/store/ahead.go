package store

import (
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CanGoOn reports whether a worker may go on with the next step of w at once. Whoever has a partition key goes back to the others that
// wait for it, and whose unique key tells runnable from executing is seen to be runnable in between.
func (w *Work) CanGoOn() bool {
	in := w.UniqueScope & (ScopeRunnable | ScopeExecuting)
	return w.PartitionKey == "" && (in == 0 || in == ScopeRunnable|ScopeExecuting)
}

// GoOn is the instance of w as it is once the outcome, a next, is committed.
func (w *Work) GoOn(o *Outcome) *Work {
	n := *w
	n.Rev, n.Visit, n.Attempt, n.Uncounted = w.Rev+1, w.Visit+1, 0, 0
	n.TimedOut, n.WaitCanceled, n.Timed, n.Awaits, n.LastError = false, false, false, nil, ""
	n.Inbox, n.InboxErr, n.More, n.long, n.SeenTo = nil, nil, false, false, 0
	n.Step = o.Step
	if o.State != nil {
		n.State = o.State
	}
	return &n
}

// inboxAhead reads the inboxes of those that go on, after the locks: what is delivered later finds them executing.
func (s *Store) inboxAhead(goOn []*Work, settled *Settled) statement {
	ids := make([]uuid.UUID, len(goOn))
	for i, w := range goOn {
		ids[i] = w.ID
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	ids = slices.Compact(ids) // an outcome of an earlier lease of it may be here too
	var instance id
	var g signalRow
	into := append([]any{&instance}, g.columns()...)
	return statement{"inbox ahead", s.text.inboxAhead, []any{ids}, func(r pgx.Rows) error {
		if err := r.Scan(into...); err != nil {
			return err
		}
		if at := slices.IndexFunc(settled.Ahead, func(w *Work) bool { return w.ID == uuid.UUID(instance) }); at >= 0 {
			settled.Ahead[at].shown(g.signal())
		}
		return nil
	}}
}

// inboxAheadText ($1 ids) is the inbox as a pick reads it.
const inboxAheadText = `
select /* inbox ahead */ c.instance_id, ` + inboxColumns + ` from unnest($1::uuid[]) c(instance_id)
cross join lateral (` + inboxOfC + `) s where ` + inboxBound
