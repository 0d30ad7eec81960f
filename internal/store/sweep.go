package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/subjects"
)

// SweepTimers wakes what waits for a time that has come, at most n of them, and returns the queues that have more to do.
func (s *Store) SweepTimers(ctx context.Context, n int) (woken []string, fired int, err error) {
	err = s.together(ctx, statement{"sweep timers", s.text.sweepTimers, []any{n}, func(r pgx.Rows) error {
		var queue string
		var unguarded bool
		err := r.Scan(&queue, &unguarded)
		woken, fired = append(woken, queue), fired+1
		if unguarded {
			s.shared.unguarded.Add(1)
		}
		return err
	}})
	return woken, fired, err
}

// sweepTimersText ($1 how many) reads the due timers unlocked, locks their instances by id (skip locked: the next sweep has
// those), and fires only what still waits at that rev: a delivery that woke it first did not move the rev, but it is no longer
// parked. What fires has been ready since it was due, so that a late sweep keeps the order. Whether an instance is gone is asked row by row: not exists would be planned as an anti join with all of them.
// A full join is never planned as a nested loop. The unique keys of what wakes need no later statement: nobody else has woken it, so they are as this one's snapshot has them.
const sweepTimersText = `
with /* sweep timers */ due as materialized (
  select ctid as place, instance_id, rev, run_at from pointsman.timers where run_at <= now() order by run_at limit $1
), lk as materialized (
  select i.id, i.rev, i.parked, i.delayed, i.paused, i.live from pointsman.instances i
  where i.id = any(array(select instance_id from due)) order by i.id for no key update skip locked
), u as (
  update pointsman.instances i set parked = false, delayed = false, timed_out = i.timed_out or lk.parked
  from (select lk.*, due.run_at from lk full join due on due.instance_id = lk.id and due.rev = lk.rev offset 0) lk
  where i.id = lk.id and lk.run_at is not null and (lk.parked or lk.delayed) and not lk.paused and lk.live
  returning i.id, i.queue, i.priority, i.rev, i.project, i.unique_key, i.unique_scope, lk.parked as woken, lk.run_at
), moved as materialized (
  select id, project, unique_key, unique_scope & 5 = 4 as leaves, unique_scope & 5 = 1 as enters, 0 as ord from u where woken and unique_scope & 5 in (1, 4)
), ` + uniqueMoves + `, rdy as (
  insert into pointsman.ready (queue, priority, run_at, instance_id, rev) select queue, priority, run_at, id, rev from u
), gone as (
  delete from pointsman.timers where ctid = any(array(
    select due.place from due where due.instance_id in (select id from lk) or (select i.id from pointsman.instances i where i.id = due.instance_id) is null))
)
select queue, (id in (select id from moved where enters) and id not in (select instance_id from has)) is true from u`

// Reaped is an instance whose lease ran out.
type Reaped struct {
	ID      uuid.UUID
	Machine string
	Queue   string
}

// SweepLeases takes back what at most n expired leases hold: attempt + 1, to be leased alone. Their partition keys go to who waits for
// them.
func (s *Store) SweepLeases(ctx context.Context, n int) (reaped []Reaped, err error) {
	var expired bool
	err = s.each(ctx, "any expired", s.text.anyExpired, func(r pgx.Rows) error { return r.Scan(&expired) })
	if err != nil || !expired {
		return nil, err
	}
	err = s.inTx(ctx, func(tx *Store) error {
		var held []heldKey
		err := tx.each(ctx, "sweep leases", tx.text.sweepLeases, func(r pgx.Rows) (err error) {
			held, reaped, err = tx.scanSwept(r, held, reaped)
			return err
		}, n)
		if err != nil {
			return err
		}
		for _, st := range tx.release(held, func(string) {}) { // a poke more or less is nothing beside the length of a lease
			if err := tx.run(ctx, st); err != nil {
				return err
			}
		}
		return nil
	})
	return reaped, err
}

// scanSwept reads an instance of an expired lease. One that has moved on gives back its key only.
func (s *Store) scanSwept(r pgx.Rows, held []heldKey, reaped []Reaped) ([]heldKey, []Reaped, error) {
	var h heldKey
	var machine, queue, project, key *string
	var moved bool
	if err := r.Scan(&h.id, &h.token, &machine, &queue, &moved, &project, &key); err != nil {
		return held, reaped, err
	}
	if key != nil {
		h.project, h.key = *project, *key
		held = append(held, h)
	}
	if machine != nil {
		reaped = append(reaped, Reaped{ID: h.id, Machine: *machine, Queue: *queue})
	}
	if moved {
		s.moved = append(s.moved, h.id)
	}
	return held, reaped, nil
}

const anyExpiredText = `select /* any expired */ exists (select from pointsman.leases where expires_at <= now())`

// sweepLeasesText ($1 how many) takes expired lease rows (skip locked: a commit in progress has its own), then locks their
// instances by id and waits for them: an instance skipped here would be in no lease and nowhere else. A join with them alone would
// be planned as a scan of all that are live.
//
// What was leased alone is blamed if its worker had nothing else. If it had, its next lease is the only one of its kind that a worker has.
const sweepLeasesText = `
with /* sweep leases */ l as (
  delete from pointsman.leases where ctid = any(array(
    select ctid from pointsman.leases where expires_at <= now() order by expires_at limit $1 for update skip locked))
  returning token, ids, revs, worker, alone
), x as materialized (
  select l.token, l.alone or cardinality(l.ids) = 1 and not exists (select from pointsman.leases o where o.worker = l.worker and o.token <> l.token) as blamed,
    l.alone, cardinality(l.ids) = 1 as lone, t.id, t.rev from l, unnest(l.ids, l.revs) t(id, rev)
), lk as materialized (
  select i.id, i.project, i.partition_key from pointsman.instances i where i.id = any(array(select id from x)) order by i.id for no key update
), u as (
  update pointsman.instances i set rev = i.rev + 1, attempt = i.attempt + 1, uncounted = i.uncounted + (not x.blamed)::int, updated_at = now()
  from x where i.id = any(array(select id from lk)) and i.id = x.id and i.rev = x.rev and ` + alive + `
  returning i.id, i.queue, i.priority, i.rev, i.machine, i.unique_scope & 3 in (1, 2) as moved, x.alone or x.lone and not x.blamed as unsure
), rdy as (
  insert into pointsman.ready (queue, lane, priority, instance_id, rev, solo) select queue, case when unsure then '~' else '' end, priority, id, rev, true from u
)
select x.id, x.token, u.machine, u.queue, coalesce(u.moved, false), lk.project, lk.partition_key
from x left join lk on lk.id = x.id left join u on u.id = x.id and u.rev = x.rev + 1`

// ExpireHeld makes dead letters of at most n held signals whose time is over, and returns how many.
func (s *Store) ExpireHeld(ctx context.Context, n int) (expired int, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		var dead []DeadLetter
		err := tx.each(ctx, "expire held", s.text.expireHeld, func(r pgx.Rows) error {
			var d DeadLetter
			var key, name string
			var message, dedupKey *string
			var dedup uuid.UUID
			var since time.Time
			if err := r.Scan(&d.Project, &key, &dedup, &since, &message, &d.Body, &name, &dedupKey); err != nil {
				return err
			}
			expired++
			if message == nil {
				return nil
			}
			d.MsgID = "held:" + dedup.String()
			if err := d.describe(*message, key, fmt.Sprintf("expired: held since %s, and nobody started with the key %q", since.UTC().Format(time.RFC3339), key)); err != nil {
				return err
			}
			// It may be held again by a replay: that expiry is another, also within the time for which the stream knows ids.
			d.MsgID += ":" + strconv.FormatInt(since.UnixNano(), 36)
			if d.Route == EffectsRoute && d.Headers[subjects.HeaderStream] == nil {
				d.describeEffect(name, d.Project, value(dedupKey))
				d.Headers[subjects.HeaderCorrelationKey] = []string{key}
			}
			dead = append(dead, d)
			return nil
		}, n)
		if err != nil {
			return err
		}
		return tx.AddDeadLetters(ctx, dead)
	})
	return expired, err
}

// describe gives a dead letter the headers of its original, and those that say where it came from.
func (d *DeadLetter) describe(message, key, reason string) error {
	var o Original
	if err := json.Unmarshal([]byte(message), &o); err != nil {
		return err
	}
	d.Route, d.Headers = o.Route, maps.Clone(o.Headers)
	if d.Headers == nil {
		d.Headers = map[string][]string{}
	}
	if id := d.Headers[subjects.HeaderMsgID]; id != nil {
		delete(d.Headers, subjects.HeaderMsgID)
		d.Headers[subjects.HeaderOriginalMsgID] = id
	}
	d.Headers[subjects.HeaderReason] = []string{reason}
	if o.Stream != "" {
		d.MsgID = Expiry{Route: o.Route, Stream: o.Stream, Created: o.Created, Sequence: o.Sequence, Key: key}.msgID()
		stream, sequence := o.Stream, o.Sequence
		if o.ReadStream != "" {
			stream, sequence = o.ReadStream, o.ReadSequence
		}
		d.Headers[subjects.HeaderStream] = []string{stream}
		d.Headers[subjects.HeaderSeq] = []string{strconv.FormatUint(sequence, 10)}
		d.Headers[subjects.HeaderSubject] = []string{o.Subject}
		d.Headers[subjects.HeaderDeliveries] = []string{strconv.FormatUint(o.Deliveries, 10)}
		d.Headers[subjects.HeaderOrigin] = []string{fmt.Sprintf("%s %d %d", o.Stream, o.Created.UnixNano(), o.Sequence)}
		if !o.Stored.IsZero() {
			d.Headers[subjects.HeaderTime] = []string{o.Stored.UTC().Format(time.RFC3339Nano)}
		}
	}
	return nil
}

const expireHeldText = `
delete /* expire held */ from pointsman.held where ctid = any(array(
  select ctid from pointsman.held where expires_at <= now() order by expires_at limit $1 for update skip locked))
returning project, key, dedup, inserted_at, message, body, name, dedup_key`

// NextDue is how long it is until the next timer, lease, hold or trigger is due, at most limit.
func (s *Store) NextDue(ctx context.Context, limit time.Duration) (time.Duration, error) {
	wait := limit
	err := s.together(ctx, statement{"next due", s.text.nextDue, []any{limit}, func(r pgx.Rows) error { return r.Scan(&wait) }})
	return max(0, wait), err
}

const nextDueText = `
select /* next due */ least(now() + $1::interval,
  (select run_at from pointsman.timers order by run_at limit 1),
  (select expires_at from pointsman.leases order by expires_at limit 1),
  (select expires_at from pointsman.held order by expires_at limit 1),
  (select expires_at from pointsman.triggers where status = 'waiting' order by expires_at limit 1),
  (select expires_at from pointsman.held_events order by expires_at limit 1)) - now()`
