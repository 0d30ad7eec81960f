package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	Rewinds  int64     // how often it was set back
	Rewound  bool      // it was, and the consumer is still to be made again from there
}

// ErrRewound: the route was set back since the checkpoint was read that this one goes on from.
var ErrRewound = errors.New("the route was rewound")

// Checkpoint of a route; false: none.
func (s *Store) Checkpoint(ctx context.Context, in Incarnation) (cp Checkpoint, known bool, err error) {
	err = s.together(ctx, statement{"checkpoint", s.text.checkpoint, []any{in.Route, in.Stream, in.Created}, func(r pgx.Rows) error {
		var seq int64
		err := r.Scan(&seq, &cp.Consumer, &cp.First, &cp.Rewinds, &cp.Rewound)
		cp.Seq, known = uint64(seq), true
		return err
	}})
	return cp, known, err
}

// SaveCheckpoint keeps the furthest, and the first First, and no Rewound. Where the route has had other rewinds than cp says the error is
// [ErrRewound], and nothing has changed.
func (s *Store) SaveCheckpoint(ctx context.Context, in Incarnation, cp Checkpoint) error {
	saved := false
	err := s.together(ctx, statement{
		"save checkpoint", s.text.saveCheckpoint,
		[]any{in.Route, in.Stream, in.Created, int64(cp.Seq), cp.Consumer, cp.First, cp.Rewinds},
		func(r pgx.Rows) error { saved = true; return r.Scan(nil) },
	})
	if err == nil && !saved {
		return ErrRewound
	}
	return err
}

// Rewind sets a route back to after a sequence, and forgets the failures of what it reads again; false: it is further back already, or
// has no checkpoint.
func (s *Store) Rewind(ctx context.Context, in Incarnation, after uint64) (done bool, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		scan := func(r pgx.Rows) error { done = true; return r.Scan(nil) }
		if err := tx.each(ctx, "rewind", tx.text.rewind, scan, in.Route, in.Stream, in.Created, int64(after)); err != nil || !done {
			return err
		}
		return tx.each(ctx, "forget failures after", tx.text.forgetFailuresAfter, nil, in.Route, in.Stream, in.Created, int64(after))
	})
	return done && err == nil, err
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
select /* checkpoint */ seq, consumer, first, rewinds, rewound from pointsman.checkpoints where route = $1 and stream = $2 and created = $3`

// saveCheckpointText ($1 route, $2 stream, $3 created, $4 sequence, $5 consumer, $6 first, $7 rewinds). A server may forget how far a consumer came: the
// furthest stands. What was read before a rewind says nothing of where the route is now.
const saveCheckpointText = `
insert /* save checkpoint */ into pointsman.checkpoints as c (route, stream, created, seq, consumer, first, rewinds) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (route, stream, created) do update
set seq = greatest(c.seq, excluded.seq), consumer = greatest(c.consumer, excluded.consumer), rewound = false, updated_at = now()
where c.rewinds = excluded.rewinds
returning true`

const rewindText = `
update /* rewind */ pointsman.checkpoints set seq = $4, rewinds = rewinds + 1, rewound = true, updated_at = now()
where route = $1 and stream = $2 and created = $3 and seq >= $4
returning true`

const forgetFailuresAfterText = `
delete /* forget failures after */ from pointsman.failures where route = $1 and stream = $2 and created = $3 and seq > $4`

const countFailuresText = `
insert /* count failures */ into pointsman.failures as f (route, stream, created, seq, n, last_error)
select $1, $2, $3, t.seq, 1, t.reason from unnest($4::bigint[], $5::text[]) t(seq, reason) order by t.seq
on conflict (route, stream, created, seq) do update set n = f.n + 1, last_error = excluded.last_error, updated_at = now()
returning seq, n`

// forgetFailuresText ($1 how long they are kept) is for a few of those that nobody has asked for.
const forgetFailuresText = `
delete /* forget failures */ from pointsman.failures where ctid = any(array(
  select ctid from pointsman.failures where updated_at < now() - $1::interval order by updated_at limit 100 for update skip locked))`

// HoldRoute makes owner the one bridge that may take in messages of an ordered route, until ttl is over, and returns the epoch to fence
// with ([Store.Fenced]); false: another is. Whoever takes a route over waits for transactions under the epoch before.
func (s *Store) HoldRoute(ctx context.Context, route, owner string, ttl time.Duration) (epoch int64, held bool, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		scan := func(r pgx.Rows) error { held = true; return r.Scan(&epoch) }
		if err := tx.each(ctx, "extend route", tx.text.extendRoute, scan, route, owner, ttl); err != nil || held {
			return err
		}
		if err := tx.each(ctx, "know route", tx.text.knowRoute, nil, route); err != nil {
			return err
		}
		return tx.each(ctx, "take route", tx.text.takeRoute, scan, route, owner, ttl)
	})
	return epoch, held && err == nil, err
}

// ReleaseRoute lets others have the route at once.
func (s *Store) ReleaseRoute(ctx context.Context, route, owner string) error {
	return s.together(ctx, statement{"release route", s.text.releaseRoute, []any{route, owner}, nil})
}

// Fenced is the same store, whose transactions fail with an error that [IsFenced] knows once the route has another epoch.
func (s *Store) Fenced(route string, epoch int64) *Store {
	fenced := *s
	fenced.fence = &statement{"fence", s.text.fence, []any{route, epoch}, nil}
	return &fenced
}

// fencedState is the SQLSTATE of pointsman.fence.
const fencedState = "PM001"

// IsFenced reports whether a transaction came too late: its route is another bridge's.
func IsFenced(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == fencedState
}

// extendRouteText touches no key: fences of transactions in flight do not hold it up.
const extendRouteText = `
update /* extend route */ pointsman.routes set expires_at = now() + $3::interval, updated_at = now() where name = $1 and owner = $2 and expires_at > now() returning epoch`

const knowRouteText = `insert /* know route */ into pointsman.routes (name) values ($1) on conflict do nothing`

// takeRouteText locks the row against fences: it waits for those of the epoch before, and those that come later see the new one.
const takeRouteText = `
with /* take route */ l as materialized (
  select name from pointsman.routes where name = $1 and (owner is null or expires_at <= now()) for update
)
update pointsman.routes r set owner = $2, epoch = r.epoch + 1, expires_at = now() + $3::interval, updated_at = now() from l where r.name = l.name returning r.epoch`

const releaseRouteText = `
update /* release route */ pointsman.routes set owner = null, expires_at = null, updated_at = now() where name = $1 and owner = $2`

const fenceText = `select /* fence */ pointsman.fence($1, $2)`

// RouteState is what is remembered of a route beside its checkpoints.
type RouteState struct {
	Name   string
	Paused bool   // by an operator
	Owner  string // of an ordered route, that holds it now; "": none
}

// RouteStates are of all routes of which anything is remembered: the ordered ones, and those that an operator has paused.
func (s *Store) RouteStates(ctx context.Context) (all []RouteState, err error) {
	err = s.together(ctx, statement{"route states", s.text.routeStates, nil, func(r pgx.Rows) error {
		var st RouteState
		err := r.Scan(&st.Name, &st.Paused, &st.Owner)
		all = append(all, st)
		return err
	}})
	return all, err
}

// PauseRoute says whether a route is paused by an operator.
func (s *Store) PauseRoute(ctx context.Context, route string, paused bool) error {
	return s.together(ctx, statement{"pause route", s.text.pauseRoute, []any{route, paused}, nil})
}

const routeStatesText = `
select /* route states */ name, paused, coalesce(case when expires_at > now() then owner end, '') from pointsman.routes order by name`

// pauseRouteText touches no key, as extendRouteText.
const pauseRouteText = `
insert /* pause route */ into pointsman.routes as r (name, paused) values ($1, $2)
on conflict (name) do update set paused = excluded.paused, updated_at = now()`
