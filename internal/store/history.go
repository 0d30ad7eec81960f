package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// MaxHistory is how many of its latest transitions an instance keeps, at least; it has at most [MaxHistory] + 31 of them.
const MaxHistory = 100

// A commit whose rev can be divided by historyEvery drops what has become old; the others pay nothing for it. It is a prime: what else
// moves a rev in a steady rhythm (pauses, lost leases) does not keep commits from these revs for long.
const (
	historyRevs  = "100"
	historyEvery = "31"
)

// Transition is one row of the history.
type Transition struct {
	Rev      int32
	Nth      int32 // of its rev
	Step     string
	Outcome  string
	Attempt  int
	Consumed []int64
	At       time.Time
}

// History returns up to limit transitions of an instance before the nth of this rev, the latest first.
func (s *Store) History(ctx context.Context, instance uuid.UUID, rev, nth int32, limit int) (transitions []Transition, err error) {
	err = s.each(ctx, "history", s.text.history, func(r pgx.Rows) error {
		t, err := scanTransition(r)
		transitions = append(transitions, t)
		return err
	}, instance, rev, nth, limit)
	return transitions, err
}

// ConsumedBy returns the transition that consumed a signal, as far as the history of its instance is kept.
func (s *Store) ConsumedBy(ctx context.Context, instance uuid.UUID, signal int64) (t Transition, found bool, err error) {
	err = s.each(ctx, "consumed by", s.text.consumedBy, func(r pgx.Rows) (err error) {
		t, err = scanTransition(r)
		found = true
		return err
	}, instance, signal)
	return t, found, err
}

func scanTransition(r pgx.Rows) (t Transition, err error) {
	err = r.Scan(&t.Rev, &t.Nth, &t.Step, &t.Outcome, &t.Attempt, &t.Consumed, &t.At)
	return t, err
}

const transitionColumns = `rev, nth, step, outcome, attempt, consumed, at`

const historyText = `
select /* history */ ` + transitionColumns + ` from pointsman.history where instance_id = $1 and (rev, nth) < ($2, $3) order by rev desc, nth desc limit $4`

const consumedByText = `
select /* consumed by */ ` + transitionColumns + ` from pointsman.history where instance_id = $1 and consumed @> array[$2::bigint] order by rev limit 1`

// Vanished says which signals of live instances are neither in the inbox nor, by a history that has all of it, consumed.
func (s *Store) Vanished(ctx context.Context, instances []uuid.UUID, signals []int64) ([]bool, error) {
	vanished := make([]bool, len(instances))
	err := s.each(ctx, "vanished", s.text.vanished, func(r pgx.Rows) error {
		var ord int
		err := r.Scan(&ord)
		if err == nil {
			vanished[ord-1] = true
		}
		return err
	}, instances, signals)
	return vanished, err
}

// vanishedText ($1 instances, $2 signals). A machine may keep no history, and a long one has lost its beginning.
const vanishedText = `
select /* vanished */ t.ord::int from unnest($1::uuid[], $2::bigint[]) with ordinality t(instance_id, signal, ord)
cross join lateral (select i.rev from pointsman.instances i where i.id = t.instance_id and ` + alive + ` and i.rev <= ` + historyRevs + ` offset 0) i
where (select s.id from pointsman.signals s where s.instance_id = t.instance_id and s.id = t.signal) is null
  and (i.rev = 0 or (select h.rev from pointsman.history h where h.instance_id = t.instance_id limit 1) is not null)
  and (select h.rev from pointsman.history h where h.instance_id = t.instance_id and t.signal = any(h.consumed) limit 1) is null`
