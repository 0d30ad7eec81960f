package store

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Canceled says what a cancel came to.
type Canceled struct {
	IDs   []uuid.UUID // the instances that it ended
	Woken []string    // queues of parents that have more to do for it

	Triggers []EndedTrigger // that they waited for
}

// Cancel ends live instances, with the triggers that they wait for, and tells their parents. What executes goes on until it commits in vain or hears of it from its heartbeat.
func (s *Store) Cancel(ctx context.Context, instances []uuid.UUID, reason string, publish []string) (c Canceled, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		c = Canceled{}
		var children []uuid.UUID
		err := tx.each(ctx, "cancel", tx.text.cancel, func(r pgx.Rows) error {
			var id uuid.UUID
			var child bool
			err := r.Scan(&id, &child)
			if c.IDs = append(c.IDs, id); child {
				children = append(children, id)
			}
			return err
		}, instances, optional(reason), publish)
		if err != nil {
			return err
		}
		waiting, err := tx.tellParents(ctx, children)
		if err != nil {
			return err
		}
		if err := tx.run(ctx, tx.clearEnded(instances, &c.Triggers)); err != nil {
			return err
		}
		tx.moved = append(tx.moved, instances...)
		return tx.wakeParents(ctx, waiting, func(queue string) { c.Woken = append(c.Woken, queue) })
	})
	return c, err
}

var cancelOutputs = strings.NewReplacer("{outcomes}", strings.ReplaceAll(insertOutcomes, "$19", "$3"), "{notify}", notifyEnded, "{notified}", notifiedColumns)

// cancelText ($1 ids, $2 reason, $3 statuses to publish) bumps rev and searches nothing: ready rows and timers of these are stale
// from here on. It locks the ended ones too, whose unique keys the last statement looks at again, and the parents, which never change.
const cancelText = `
with /* cancel */ lk as materialized (
  select id, id = any($1) as own from pointsman.instances
  where id = any($1::uuid[] || array(select p.parent_id from pointsman.instances p where p.id = any($1)))
  order by id for no key update
), u as (
  update pointsman.instances i set live = false, status = 'canceled', rev = i.rev + 1, last_error = coalesce($2, i.last_error), finished_at = now(), updated_at = now()
  from lk where i.id = lk.id and lk.own and ` + alive + `
  returning i.id, i.rev, i.project, i.machine, i.version, i.correlation_key, i.status, i.result, i.last_error, i.finished_at, i.reply_to, i.traceparent, i.queue, i.priority{notified}
), hi as (
  insert into pointsman.history (instance_id, rev, step, outcome, attempt) select id, rev, step, 'cancel', attempt from u
), ob as ({outcomes}
){notify}
select id, parent_id is not null from u`
