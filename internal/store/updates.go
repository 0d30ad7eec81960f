package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// UpdateVerdict is what was said of an update, kept for retries of its request.
type UpdateVerdict struct {
	Accepted   bool      `json:"accepted"`
	Reason     string    `json:"reason,omitempty"` // of a refusal
	InstanceID uuid.UUID `json:"instance_id"`
	SignalID   int64     `json:"signal_id,omitempty"` // of one that was accepted
	Hash       uuid.UUID `json:"-"`                   // of name and argument
}

// Judged returns the verdict on an update of this scope and dedup, if there is one.
func (s *Store) Judged(ctx context.Context, scope, dedup uuid.UUID) (v UpdateVerdict, found bool, err error) {
	err = s.each(ctx, "judged", s.text.judged, func(r pgx.Rows) error {
		var verdict []byte
		if err := r.Scan(&v.Hash, &verdict); err != nil {
			return err
		}
		found = true
		return json.Unmarshal(verdict, &v)
	}, scope, dedup)
	return v, found, err
}

const judgedText = `select /* judged */ hash, verdict from pointsman.verdicts where scope = $1 and dedup = $2`

// Refuse keeps the refusal of an update and returns it, or the verdict that was there first.
func (s *Store) Refuse(ctx context.Context, scope, dedup uuid.UUID, v UpdateVerdict) (UpdateVerdict, error) {
	for {
		kept, err := s.keepVerdict(ctx, scope, dedup, v)
		if err != nil || kept {
			return v, err
		}
		first, found, err := s.Judged(ctx, scope, dedup)
		if err != nil || found {
			return first, err
		} // its time was over just now
	}
}

// keepVerdict reports whether v is the one that stands.
func (s *Store) keepVerdict(ctx context.Context, scope, dedup uuid.UUID, v UpdateVerdict) (kept bool, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return false, err
	}
	err = s.each(ctx, "keep verdict", s.text.keepVerdict, func(pgx.Rows) error { kept = true; return nil }, scope, dedup, v.Hash, string(text))
	return kept, err
}

// keepVerdictText ($1 scope, $2 dedup, $3 hash, $4 verdict) waits for a transaction that is about to keep one.
const keepVerdictText = `
insert /* keep verdict */ into pointsman.verdicts (scope, dedup, hash, verdict) values ($1, $2, $3, $4::text::jsonb) on conflict do nothing returning true`

// errJudged undoes the delivery of an update whose verdict another request has.
var errJudged = errors.New("the update was judged before")

// Update delivers an update that was accepted to the instance that g names by its id, and keeps the verdict of its dedup key where it has
// one, in the same transaction. Where another request with this key was judged first nothing is delivered, and that verdict is returned.
// The delivery may also be Duplicate or Conflict, by the ledger, and Missing or Ended.
func (s *Store) Update(ctx context.Context, project string, scope uuid.UUID, g Signal) (d Delivery, first *UpdateVerdict, err error) {
	for {
		err = s.InScopes(ctx, nil, func(tx *Store) (err error) {
			d, err = tx.update(ctx, project, scope, g)
			return err
		})
		if !errors.Is(err, errJudged) {
			return d, nil, err
		}
		v, found, err := s.Judged(ctx, scope, g.Dedup)
		if err != nil || found {
			return Delivery{}, &v, err
		} // its time was over just now
	}
}

// update is the transaction. The verdict comes after the lock of the instance, as all that is no lock of a key or lease.
func (s *Store) update(ctx context.Context, project string, scope uuid.UUID, g Signal) (Delivery, error) {
	ds, err := s.DeliverSlow(ctx, project, true, []Signal{g})
	if err != nil {
		return Delivery{}, err
	}
	if ds[0].Verdict == Missing {
		if ds, err = s.Nobody(ctx, project, true, []Signal{g}); err != nil {
			return Delivery{}, err
		}
	}
	d := ds[0]
	if g.DedupKey == "" || d.Verdict != Delivered && d.Verdict != Duplicate {
		return d, nil
	}
	kept, err := s.keepVerdict(ctx, scope, g.Dedup, UpdateVerdict{Accepted: true, InstanceID: d.InstanceID, SignalID: d.SignalID, Hash: g.Hash})
	if err == nil && !kept {
		err = errJudged
	}
	return d, err
}

// UpdateTaken says whether a step that was handed an update has committed, or none will be: the instance has ended. found is false where
// there is no such instance.
func (s *Store) UpdateTaken(ctx context.Context, instance uuid.UUID, signal int64) (taken, found bool, err error) {
	err = s.each(ctx, "update taken", s.text.updateTaken, func(r pgx.Rows) error {
		found = true
		return r.Scan(&taken)
	}, instance, signal)
	return taken, found, err
}

// updateTakenText ($1 instance, $2 signal): it is consumed, or the step that parked had been handed it.
const updateTakenText = `
select /* update taken */ not i.live or s.id is null or (s.id <= i.handed_to and ` + tag + ` = any(i.handed)) is true
from pointsman.instances i left join pointsman.signals s on s.instance_id = i.id and s.id = $2 where i.id = $1`

// VerdictBatch is how many verdicts one transaction of the retention deletes.
const VerdictBatch = 500

const verdictsKept = `interval '24 h'`

// ForgetVerdicts deletes at most [VerdictBatch] verdicts on updates that are 24 hours old, and returns how many.
func (s *Store) ForgetVerdicts(ctx context.Context) (forgotten int, err error) {
	err = s.together(ctx, statement{"forget verdicts", s.text.forgetVerdicts, nil, func(r pgx.Rows) error { return r.Scan(&forgotten) }})
	return forgotten, err
}

const forgetVerdictsText = `
with /* forget verdicts */ gone as (
  delete from pointsman.verdicts where ctid = any(array(
    select ctid from pointsman.verdicts where at <= now() - ` + verdictsKept + ` order by at limit 500 for update skip locked)) returning 1)
select count(*)::int from gone`
