package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Incarnation is a stream as a route reads it: one that was made again under its name is another.
type Incarnation struct {
	Route   string
	Stream  string
	Created time.Time
}

// Checkpoint is how far a route has come: every message up to Seq that it reads has its fate.
type Checkpoint struct {
	Seq      uint64
	Consumer time.Time // when the route's consumer was created that got so far
	First    time.Time // when its first one was
}

// Checkpoint of a route; false: none.
func (s *Store) Checkpoint(ctx context.Context, in Incarnation) (cp Checkpoint, known bool, err error) {
	err = s.together(ctx, statement{"checkpoint", s.text.checkpoint, []any{in.Route, in.Stream, in.Created}, func(r pgx.Rows) error {
		var seq int64
		err := r.Scan(&seq, &cp.Consumer, &cp.First)
		cp.Seq, known = uint64(seq), true
		return err
	}})
	return cp, known, err
}

// SaveCheckpoint keeps the furthest, and the first First.
func (s *Store) SaveCheckpoint(ctx context.Context, in Incarnation, cp Checkpoint) error {
	return s.together(ctx, statement{"save checkpoint", s.text.saveCheckpoint, []any{in.Route, in.Stream, in.Created, int64(cp.Seq), cp.Consumer, cp.First}, nil})
}

// Failure of a message of its own.
type Failure struct {
	Seq    uint64
	Reason string
}

// CountFailures adds one to the failures of each message, no message twice, and returns how many each has now.
func (s *Store) CountFailures(ctx context.Context, in Incarnation, fs []Failure) ([]int, error) {
	seqs, reasons, at := make([]int64, len(fs)), make([]string, len(fs)), make(map[int64]int, len(fs))
	for i, f := range fs {
		seqs[i], reasons[i], at[int64(f.Seq)] = int64(f.Seq), f.Reason, i
	}
	counts := make([]int, len(fs))
	err := s.together(ctx,
		statement{"forget failures", s.text.forgetFailures, []any{failuresKept}, nil},
		statement{"count failures", s.text.countFailures, []any{in.Route, in.Stream, in.Created, seqs, reasons}, func(r pgx.Rows) error {
			var seq int64
			var n int
			err := r.Scan(&seq, &n)
			counts[at[seq]] = n
			return err
		}})
	return counts, err
}

// failuresKept is how long failures are remembered: longer than a message comes again.
const failuresKept = 7 * 24 * time.Hour

const checkpointText = `
select /* checkpoint */ seq, consumer, first from pointsman.checkpoints where route = $1 and stream = $2 and created = $3`

// saveCheckpointText ($1 route, $2 stream, $3 created, $4 sequence, $5 consumer, $6 first). A server may forget how far a consumer came: the
// furthest stands.
const saveCheckpointText = `
insert /* save checkpoint */ into pointsman.checkpoints as c (route, stream, created, seq, consumer, first) values ($1, $2, $3, $4, $5, $6)
on conflict (route, stream, created) do update set seq = greatest(c.seq, excluded.seq), consumer = greatest(c.consumer, excluded.consumer), updated_at = now()
where c.seq < excluded.seq or c.consumer < excluded.consumer`

const countFailuresText = `
insert /* count failures */ into pointsman.failures as f (route, stream, created, seq, n, last_error)
select $1, $2, $3, t.seq, 1, t.reason from unnest($4::bigint[], $5::text[]) t(seq, reason) order by t.seq
on conflict (route, stream, created, seq) do update set n = f.n + 1, last_error = excluded.last_error, updated_at = now()
returning seq, n`

// forgetFailuresText ($1 how long they are kept) is for a few of those that nobody has asked for.
const forgetFailuresText = `
delete /* forget failures */ from pointsman.failures where ctid = any(array(
  select ctid from pointsman.failures where updated_at < now() - $1::interval order by updated_at limit 100 for update skip locked))`
