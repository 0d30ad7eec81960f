package engine

import (
	"cmp"
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

	// Changed says that this Origin is on record with another name or body than the intake has: it was taken in in another way.
	Changed bool

	Would  Result    // what Accept would say now
	Target uuid.UUID // the live instance it is for
	Ended  *Ended    // the last one, where none is live
}

// Look says what is on record of an intake. It changes nothing and locks nothing: what it says of now may be over when it returns.
func (c *Client) Look(ctx context.Context, in Intake) (Record, error) {
	if err := in.check(); err != nil {
		return Record{}, err
	}
	records, err := c.LookAll(ctx, []Intake{in})
	if err != nil {
		return Record{}, err
	}
	return records[0], nil
}

// lookBatch is how many are asked for in one statement.
const lookBatch = 500

// LookAll is Look for many, a few hundred in one statement. One that [Client.Accept] would refuse has the Would [Refused].
func (c *Client) LookAll(ctx context.Context, batch []Intake) ([]Record, error) {
	records := make([]Record, len(batch))
	for first := 0; first < len(batch); first += lookBatch {
		var at, events []int
		var questions []store.Question
		var hashes []uuid.UUID
		for i := first; i < min(len(batch), first+lookBatch); i++ {
			if batch[i].check() != nil {
				records[i].Would = Refused
				continue
			}
			if batch[i].Event != "" {
				events = append(events, i)
				continue
			}
			q, hash := batch[i].question()
			at, questions, hashes = append(at, i), append(questions, q), append(hashes, hash)
		}
		answers, err := c.store.Fates(ctx, questions)
		if err != nil {
			return nil, fmt.Errorf("look: %w", err)
		}
		for k, i := range at {
			records[i] = batch[i].record(answers[k], hashes[k])
		}
		if err := c.lookEvents(ctx, batch, events, records); err != nil {
			return nil, fmt.Errorf("look: %w", err)
		}
	}
	return records, nil
}

// Expiring says which intakes were held until their time was over, and are not in the dead letters yet: those are on their way there.
func (c *Client) Expiring(ctx context.Context, batch []Intake) ([]bool, error) {
	holds := make([]store.Expiry, len(batch))
	for i, in := range batch {
		holds[i] = store.Expiry{Route: in.Origin.Route, Stream: in.Origin.Stream, Created: in.Origin.Created, Sequence: in.Origin.Sequence, Key: cmp.Or(in.To.key, in.Event)}
	}
	expiring, err := c.store.Waiting(ctx, holds)
	if err != nil {
		return nil, fmt.Errorf("expiring: %w", err)
	}
	return expiring, nil
}

// Vanished says of which records the signal is gone: its instance lives, and neither its inbox nor its history has it.
func (c *Client) Vanished(ctx context.Context, records []Record) ([]bool, error) {
	vanished := make([]bool, len(records))
	var at []int
	var instances []uuid.UUID
	var signals []int64
	for i, r := range records {
		if (r.Result == Delivered || r.Result == Started) && r.SignalID != 0 {
			at, instances, signals = append(at, i), append(instances, r.InstanceID), append(signals, r.SignalID)
		}
	}
	if len(at) == 0 {
		return vanished, nil
	}
	found, err := c.store.Vanished(ctx, instances, signals)
	if err != nil {
		return nil, fmt.Errorf("vanished: %w", err)
	}
	for k, i := range at {
		vanished[i] = found[k]
	}
	return vanished, nil
}

// question asks for the record of an intake; hash is what its entry would have.
func (in *Intake) question() (q store.Question, hash uuid.UUID) {
	g := in.signal()
	q = store.Question{Project: in.project(), Key: in.To.key, ID: in.To.id, Dedup: g.Dedup, Source: g.Source}
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
		r.Result, r.Changed = own, entry.Hash != hash
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
