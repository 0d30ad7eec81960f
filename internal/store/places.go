package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Place is where a message stood first, as one route reads it.
type Place struct {
	Route, Stream string
	Created       time.Time
	Sequence      uint64
}

// placeColumns of an array of places, as unnest wants them.
func placeColumns(ps []Place) (routes, streams []string, created []time.Time, seqs []int64) {
	routes, streams = make([]string, len(ps)), make([]string, len(ps))
	created, seqs = make([]time.Time, len(ps)), make([]int64, len(ps))
	for i, p := range ps {
		routes[i], streams[i], created[i], seqs[i] = p.Route, p.Stream, p.Created, int64(p.Sequence)
	}
	return routes, streams, created, seqs
}

// DroppedLetter is a dead letter that was deleted on purpose.
type DroppedLetter struct {
	At     time.Time // zero: there is none
	Reason string    // that it was one for
}

// NoteDropped puts down that the dead letters of these places were deleted on purpose. The first time stands. What was put down longer
// ago than keep is forgotten, a few more at a time than are added.
func (s *Store) NoteDropped(ctx context.Context, ps []Place, reasons []string, keep time.Duration) error {
	routes, streams, created, seqs := placeColumns(ps)
	return s.together(ctx,
		statement{"forget dropped", s.text.forgetDropped, []any{keep, 2*len(ps) + 100}, nil},
		statement{"note dropped", s.text.noteDropped, []any{routes, streams, created, seqs, reasons}, nil})
}

const forgetDroppedText = `
delete /* forget dropped */ from pointsman.dropped_letters where ctid = any(array(
  select ctid from pointsman.dropped_letters where dropped_at < now() - $1::interval order by dropped_at limit $2 for update skip locked))`

const noteDroppedText = `
insert /* note dropped */ into pointsman.dropped_letters (route, stream, created, seq, reason)
select t.route, t.stream, t.created, t.seq, t.reason
from unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::text[]) t(route, stream, created, seq, reason)
order by 1, 2, 3, 4
on conflict do nothing`

// Trace is what a place by itself leads to, without the message.
type Trace struct {
	InstanceID uuid.UUID // of a message that was to start one, and nothing else; Nil: none is known
	At         time.Time
	Started    bool // by this message; of one that is deleted, too
	Dropped    DroppedLetter
}

// Traces looks places up, in their order. What a message brought as a signal is not found so: the ledger has that by its key.
func (s *Store) Traces(ctx context.Context, ps []Place) ([]Trace, error) {
	traces, sources := make([]Trace, len(ps)), make([]uuid.UUID, len(ps))
	if len(ps) == 0 {
		return traces, nil
	}
	for i, p := range ps {
		sources[i] = Source(p.Route, p.Stream, p.Created, p.Sequence)
	}
	routes, streams, created, seqs := placeColumns(ps)
	err := s.each(ctx, "traces", s.text.traces, func(r pgx.Rows) error {
		var ord int
		var instance *uuid.UUID
		var at, droppedAt *time.Time
		var started *bool
		var reason *string
		if err := r.Scan(&ord, &instance, &at, &started, &droppedAt, &reason); err != nil {
			return err
		}
		t := &traces[ord-1]
		if instance != nil {
			t.InstanceID, t.At, t.Started = *instance, *at, *started
		}
		if droppedAt != nil {
			t.Dropped = DroppedLetter{At: *droppedAt, Reason: *reason}
		}
		return nil
	}, routes, streams, created, seqs, sources)
	return traces, err
}

const tracesText = `
select /* traces */ t.ord::int, l.instance_id, l.at, coalesce((select i.inserted_at = l.at from pointsman.instances i where i.id = l.instance_id), true), d.dropped_at, d.reason
from unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::uuid[]) with ordinality t(route, stream, created, seq, source, ord)
left join lateral (select instance_id, at from pointsman.ledger where source = t.source and signal_id is null limit 1) l on true
left join lateral (select dropped_at, reason from pointsman.dropped_letters where route = t.route and stream = t.stream and created = t.created and seq = t.seq limit 1) d on true
where l.instance_id is not null or d.dropped_at is not null`
