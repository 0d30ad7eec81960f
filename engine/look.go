package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pointsman/pointsman/internal/store"
)

// Record is what the database knows of an [Intake] that may have been taken in, and what would become of it now.
type Record struct {
	// Result is Delivered, Started or Held where this very Origin is on record; Duplicate or Conflict where another one has its dedup
	// key; "" where nothing is known of it.
	Result     Result
	InstanceID uuid.UUID
	SignalID   int64
	At         time.Time

	Would  Result    // what Accept would say now
	Target uuid.UUID // the live instance it is for
	Ended  *Ended    // the last one, where none is live
}

// Look says what is on record of an intake. It changes nothing and locks nothing: what it says of now may be over when it returns.
func (c *Client) Look(ctx context.Context, in Intake) (Record, error) {
	records, err := c.LookAll(ctx, []Intake{in})
	if err != nil {
		return Record{}, err
	}
	return records[0], nil
}

// LookAll is Look for a few hundred, each by itself, in one request.
func (c *Client) LookAll(ctx context.Context, batch []Intake) ([]Record, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	questions, hashes := make([]store.Question, len(batch)), make([]uuid.UUID, len(batch))
	for i := range batch {
		if err := batch[i].check(); err != nil {
			return nil, err
		}
		questions[i], hashes[i] = batch[i].question()
	}
	answers, err := c.store.Fates(ctx, questions)
	if err != nil {
		return nil, fmt.Errorf("look: %w", err)
	}
	records := make([]Record, len(batch))
	for i, a := range answers {
		records[i] = batch[i].record(a, hashes[i])
	}
	return records, nil
}

// question is what to ask of an intake, and the hash of what it holds.
func (in *Intake) question() (store.Question, uuid.UUID) {
	g := in.signal()
	q := store.Question{Project: in.project(), Key: in.To.key, ID: in.To.id, Dedup: g.Dedup, Source: g.Source}
	switch {
	case in.To.key != "":
		q.Scope = store.KeyScope(q.Project, q.Key)
	case in.Name == "":
		n := *in.Start
		n.DedupKey = in.DedupKey
		q.Scope = n.row().Scope(q.Project)
	}
	if in.Name == "" && in.DedupKey != "" {
		q.Dedup = store.StartDedup(in.DedupKey)
	}
	return q, g.Hash
}

func (in *Intake) record(a store.Answer, hash uuid.UUID) Record {
	var r Record
	if a.Live != nil {
		r.Target = a.Live.ID
	}
	if a.Ended != nil {
		r.Ended = &Ended{ID: a.Ended.ID, Status: Status(a.Ended.Status), At: a.Ended.EndedAt}
	}
	entry, own := a.Taken, Delivered
	switch {
	case entry == nil:
		entry, own = a.Held, Held
	case in.Start != nil && entry.WithStart:
		own = Started
	case in.Name == "":
		own = Duplicate // of the start that had its key
	}
	if entry == nil {
		r.Would = in.would(r)
		return r
	}
	r.InstanceID, r.SignalID, r.At = entry.InstanceID, entry.SignalID, entry.At
	mine := !in.Origin.IsZero() && entry.Source != nil && *entry.Source == store.Source(in.Origin.Route, in.Origin.Stream, in.Origin.Created, in.Origin.Sequence)
	r.Would = Duplicate
	if !mine && entry.Hash != hash {
		r.Would = Conflict
	}
	r.Result = r.Would
	if mine {
		r.Result = own
	}
	return r
}

// would is what becomes of an intake that is not known yet.
func (in *Intake) would(r Record) Result {
	switch {
	case in.Name == "" && r.Target != uuid.Nil:
		return Duplicate // of the start that made its key live
	case in.Name == "":
		return Started
	case r.Target != uuid.Nil:
		return Delivered
	case r.Ended != nil:
		switch in.OnTerminal {
		case TerminalDrop:
			return Dropped
		case TerminalStart:
			return Started
		}
		return NoTarget
	}
	switch in.OnMissing {
	case MissingHold:
		return Held
	case MissingStart:
		return Started
	case MissingDrop:
		return Dropped
	}
	return NoTarget
}
