package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// DefaultQueue is the queue of an instance where neither its start nor its machine names one.
const DefaultQueue = "default"

func (n NewInstance) withDefaults() (NewInstance, error) {
	if n.Project == "" {
		n.Project = DefaultProject
	}
	if len(n.State) == 0 {
		n.State = []byte("{}")
	}
	if n.ID == uuid.Nil {
		id, err := uuid.NewV7()
		if err != nil {
			return n, err
		}
		n.ID = id
	}
	return n, nil
}

// check validates; what is empty gets its default later.
func (n NewInstance) check() error {
	optional := func(check func(field, s string) error, field, s string) error {
		if s == "" {
			return nil
		}
		return check(field, s)
	}
	var version error
	if n.Version < 0 || n.Version > math.MaxInt32 {
		version = &InvalidError{Field: "version", Reason: "is not between 0 and 2147483647"}
	}
	return errors.Join(ident.Token("machine", n.Machine), version, optional(ident.Token, "project", n.Project), optional(ident.Name, "step", n.Start),
		optional(ident.Queue, "queue", n.Queue), optional(ident.Key, "correlation_key", n.CorrelationKey), optional(ident.Key, "dedup_key", n.DedupKey),
		optional(ident.Key, "partition_key", n.PartitionKey), optional(ident.Key, "unique_key", n.UniqueKey), n.checkUniqueScope(),
		optional(ident.Key, "reply_to", n.ReplyTo), optional(ident.URL, "notify_url", n.NotifyURL), optional(ident.Key, "traceparent", n.Traceparent), checkJSON("state", n.State))
}

func (n NewInstance) row() store.NewInstance {
	row := store.NewInstance{
		ID: n.ID, CorrelationKey: n.CorrelationKey, Machine: n.Machine, Version: n.Version, Step: n.Start, Queue: n.Queue, Priority: n.Priority,
		State: n.State, ReplyTo: n.ReplyTo, NotifyURL: n.NotifyURL, Traceparent: n.Traceparent, DedupKey: n.DedupKey,
		PartitionKey: n.PartitionKey, UniqueKey: n.UniqueKey, UniqueScope: n.uniqueScope(),
		Hash: store.SignalHash("start", n.Machine, n.State),
	}
	if !n.RunAt.IsZero() {
		at := n.RunAt.UTC().Truncate(time.Microsecond)
		row.RunAt = &at
	}
	return row
}

// Start creates an instance, which runs as soon as a worker has room. A second start with the same DedupKey returns the instance of
// the first; of one that has ended and was deleted since ([Retention]) only the names. The error is a [*ConflictError] with the holder's id where the correlation key is live, the unique key is held, or the dedup
// key was used with another machine or state.
func (c *Client) Start(ctx context.Context, n NewInstance) (Instance, error) {
	in, queue, err := start(ctx, c.store, n)
	c.Wake(queue)
	return in, err
}

// StartTx is Start inside a transaction of the caller's, which must be READ COMMITTED. [Client.Wake] after the commit spares the
// worker's poll interval.
func (c *Client) StartTx(ctx context.Context, tx pgx.Tx, n NewInstance) (Instance, error) {
	st, err := c.store.InTx(ctx, tx)
	if err != nil {
		return Instance{}, err
	}
	in, _, err := start(ctx, st, n)
	return in, err
}

func start(ctx context.Context, st *store.Store, n NewInstance) (in Instance, queue string, err error) {
	if err := n.check(); err != nil {
		return in, "", err
	}
	if n, err = n.withDefaults(); err != nil {
		return in, "", err
	}
	err = st.InScopes(ctx, []uuid.UUID{n.row().Scope(n.Project)}, func(tx *store.Store) error {
		started, err := tx.Start(ctx, n.Project, []store.NewInstance{n.row()})
		if err != nil {
			return err
		}
		if err := n.refusal(started[0]); err != nil {
			return err
		}
		queue = started[0].Queue
		in, err = get(ctx, tx, Ref{project: n.Project, id: started[0].InstanceID})
		if started[0].Verdict == store.Duplicate && errors.Is(err, ErrNotFound) {
			in, err = Instance{ID: started[0].InstanceID, Project: n.Project, Machine: n.Machine, CorrelationKey: n.CorrelationKey}, nil
		}
		return err
	})
	return in, queue, err
}

// refusal is why a start is none; nil where it is one, or the duplicate of one.
func (n NewInstance) refusal(s store.Start) error {
	switch {
	case s.Verdict == store.Taken && s.InstanceID == uuid.Nil:
		return &ConflictError{ID: n.ID, Reason: fmt.Sprintf("there is an instance with the id %s", n.ID)}
	case s.Verdict == store.Taken && s.Unique:
		return &ConflictError{ID: s.InstanceID, Reason: n.uniqueHeld(s.InstanceID)}
	case s.Verdict == store.Taken:
		return &ConflictError{ID: s.InstanceID, Reason: fmt.Sprintf("the correlation key %q is held by instance %s", n.CorrelationKey, s.InstanceID)}
	case s.Verdict == store.Conflict:
		return &ConflictError{ID: s.InstanceID, Reason: fmt.Sprintf("the dedup key %q was used with another machine or state", n.DedupKey)}
	}
	return nil
}

func (n NewInstance) uniqueHeld(by uuid.UUID) string {
	return fmt.Sprintf("the unique key %q is held by instance %s", n.UniqueKey, by)
}
