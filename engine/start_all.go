package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// StartReceipt says what became of one of several starts: Err, else Started or Duplicate, with the instance.
type StartReceipt struct {
	Result     Result
	InstanceID uuid.UUID
	Err        error // as of Start
}

// BatchError is why a batch that was to be all or nothing is nothing: the first item that was refused.
type BatchError struct {
	Index int
	Err   error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("item %d: %v; nothing of the batch was done", e.Index, e.Err)
}

func (e *BatchError) Unwrap() error { return e.Err }

// StartAll creates instances of one project (the first one's), as [Client.Start] does, in few transactions, and says what became of
// each; one that is refused does not undo the others. With atomic the first that is refused undoes all and is the error, a
// [*BatchError]; then at most 200 are taken.
func (c *Client) StartAll(ctx context.Context, ns []NewInstance, atomic bool) ([]StartReceipt, error) {
	if atomic && len(ns) > maxScopes {
		return nil, &InvalidError{Field: "items", Reason: fmt.Sprintf("are %d: at most %d can be all or nothing", len(ns), maxScopes)}
	}
	b := &startBatch{ctx: ctx, atomic: atomic, ns: slices.Clone(ns), receipts: make([]StartReceipt, len(ns))}
	var valid []int
	for i := range b.ns {
		err := b.ns[i].check()
		if err == nil {
			b.ns[i], err = b.ns[i].withDefaults()
		}
		if err != nil && atomic {
			return nil, &BatchError{i, err}
		}
		if b.receipts[i].Err = err; err == nil {
			valid = append(valid, i)
		}
	}
	for chunk := range slices.Chunk(valid, maxScopes) {
		if err := b.run(c.store, chunk); err != nil {
			return nil, err
		}
	}
	c.Wake(b.queues...)
	return b.receipts, nil
}

type startBatch struct {
	ctx      context.Context
	atomic   bool
	ns       []NewInstance
	receipts []StartReceipt
	queues   []string
}

// run starts the items in one transaction. Where one of them cannot be stored, each gets its own.
func (b *startBatch) run(st *store.Store, items []int) error {
	err := b.transaction(st, items)
	if err == nil || b.atomic || store.Blame(err) == store.BlameNobody {
		return blamed(err)
	}
	if len(items) == 1 {
		b.receipts[items[0]].Err = blamed(err)
		return nil
	}
	for _, i := range items {
		if err := b.run(st, []int{i}); err != nil {
			return err
		}
	}
	return nil
}

func (b *startBatch) transaction(st *store.Store, items []int) error {
	project := b.ns[items[0]].Project
	rows, scopes := make([]store.NewInstance, len(items)), make([]uuid.UUID, len(items))
	for k, i := range items {
		rows[k] = b.ns[i].row()
		scopes[k] = rows[k].Scope(project)
	}
	var started []store.Start
	err := st.InScopes(b.ctx, scopes, func(tx *store.Store) (err error) {
		if started, err = tx.Start(b.ctx, project, rows); err != nil {
			return err
		}
		for k, i := range items {
			if err := b.ns[i].refusal(started[k]); err != nil && b.atomic {
				return &BatchError{i, err}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for k, i := range items {
		r := StartReceipt{Result: Started, InstanceID: started[k].InstanceID, Err: b.ns[i].refusal(started[k])}
		if started[k].Verdict == store.Duplicate {
			r.Result = Duplicate
		}
		b.receipts[i] = r
		b.queues = append(b.queues, started[k].Queue)
	}
	return nil
}
