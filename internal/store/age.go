package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Age makes everything in the database older: every time that it holds moves d earlier, in one transaction. What was due in d is due
// now, and as much older than now as if d had gone by. It is for tests: it writes every row that there is.
//
// The creation times of streams and consumers stay. They name one, and say nothing of when something happened here.
func (s *Store) Age(ctx context.Context, d time.Duration) error {
	return s.inTx(ctx, func(tx *Store) error {
		if err := tx.each(ctx, "stand still", tx.text.standStill, nil); err != nil {
			return err
		}
		return tx.each(ctx, "age", tx.text.age, nil, d)
	})
}

// standStillText keeps everyone out who locks an instance, and so who moves one: a commit that parks one meanwhile would leave it with a
// timer that ageText does not see. Every statement that locks instances has its lock of this table before it has a row.
const standStillText = `lock /* stand still */ table pointsman.instances in exclusive mode`

// ageText ($1 by how much).
const ageText = `
with /* age */ engine1 as (
  update pointsman.instances set due_at = due_at - $1::interval, run_at = run_at - $1::interval, inserted_at = inserted_at - $1::interval,
    updated_at = updated_at - $1::interval, finished_at = finished_at - $1::interval
), engine2 as (
  update pointsman.ready set run_at = run_at - $1::interval
), engine3 as (
  update pointsman.leases set expires_at = expires_at - $1::interval
), engine4 as (
  update pointsman.timers set run_at = run_at - $1::interval
), engine5 as (
  update pointsman.signals set inserted_at = inserted_at - $1::interval
), engine6 as (
  update pointsman.ledger set at = at - $1::interval
), engine7 as (
  update pointsman.held set expires_at = expires_at - $1::interval, inserted_at = inserted_at - $1::interval
), engine8 as (
  update pointsman.waiters set run_at = run_at - $1::interval
), engine9 as (
  update pointsman.history set at = at - $1::interval
), engine10 as (
  update pointsman.events set updated_at = updated_at - $1::interval
), engine11 as (
  update pointsman.verdicts set at = at - $1::interval
), engine12 as (
  update pointsman.machines set registered_at = registered_at - $1::interval
), engine13 as (
  update pointsman.workers set started_at = started_at - $1::interval, seen_at = seen_at - $1::interval
), engine14 as (
  update pointsman.departed set due = due - $1::interval
), engine15 as (
  update pointsman.departed_to set finished_at = finished_at - $1::interval
), outbox1 as (
  update pointsman.outbox set next_at = next_at - $1::interval, created_at = created_at - $1::interval
), outbox2 as (
  update pointsman.outbox_shards set expires_at = expires_at - $1::interval
), outbox3 as (
  update pointsman.relays set expires_at = expires_at - $1::interval
), bridge1 as (
  update pointsman.routes set expires_at = expires_at - $1::interval, updated_at = updated_at - $1::interval
), bridge2 as (
  update pointsman.checkpoints set updated_at = updated_at - $1::interval
), bridge3 as (
  update pointsman.failures set updated_at = updated_at - $1::interval
), bridge4 as (
  update pointsman.dropped_letters set dropped_at = dropped_at - $1::interval
), triggers1 as (
  update pointsman.triggers set requested_at = requested_at - $1::interval, expires_at = expires_at - $1::interval,
    received_at = received_at - $1::interval, ended_at = ended_at - $1::interval
), triggers2 as (
  update pointsman.held_events set expires_at = expires_at - $1::interval, sent_at = sent_at - $1::interval
), webhooks1 as (
  update pointsman.webhook_deliveries set next_at = next_at - $1::interval, created_at = created_at - $1::interval, updated_at = updated_at - $1::interval
), operations1 as (
  update pointsman.api_keys set created_at = created_at - $1::interval, last_used_at = last_used_at - $1::interval, revoked_at = revoked_at - $1::interval
)
update pointsman.jobs set due_at = due_at - $1::interval, ended_at = ended_at - $1::interval, created_at = created_at - $1::interval, updated_at = updated_at - $1::interval`

// ReadyLane is a lane with something ready in it.
type ReadyLane struct {
	Lane
	Next uuid.UUID // the instance that is next
}

// ReadyLanes are all lanes of all queues that have something ready. It is for tests: it reads all of it.
func (s *Store) ReadyLanes(ctx context.Context) (lanes []ReadyLane, err error) {
	err = s.each(ctx, "ready lanes", s.text.readyLanes, func(r pgx.Rows) error {
		var l ReadyLane
		err := r.Scan(&l.Queue, &l.Lane.Lane, &l.Next)
		lanes = append(lanes, l)
		return err
	})
	return lanes, err
}

const readyLanesText = `
select /* ready lanes */ distinct on (queue, lane) queue, lane, instance_id from pointsman.ready order by queue, lane, priority, run_at`
