package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Cancel ends live instances, with the triggers that they wait for, and returns those that it ended. What executes goes on until it commits in vain or hears of it from
// its heartbeat.
func (s *Store) Cancel(ctx context.Context, instances []uuid.UUID, reason string, publish []string) (canceled []uuid.UUID, triggers []EndedTrigger, err error) {
	sts := []statement{{"cancel", s.text.cancel, []any{instances, optional(reason), publish}, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		canceled = append(canceled, id)
		return err
	}}, s.clearEnded(instances, &triggers), s.guarding(instances, nil, nil, nil, nil)}
	err = s.together(ctx, sts...)
	return canceled, triggers, err
}

// cancelText ($1 ids, $2 reason, $3 statuses to publish) bumps rev and searches nothing: ready rows and timers of these are stale
// from here on. It locks the ended ones too, whose unique keys the last statement looks at again.
const cancelText = `
with /* cancel */ lk as materialized (
  select id from pointsman.instances where id = any($1) order by id for no key update
), u as (
  update pointsman.instances i set live = false, status = 'canceled', rev = i.rev + 1, last_error = coalesce($2, i.last_error), finished_at = now(), updated_at = now()
  from lk where i.id = lk.id and i.live
  returning i.id, i.rev, i.project, i.machine, i.version, i.correlation_key, i.status, i.result, i.last_error, i.finished_at, i.reply_to, i.traceparent, i.step, i.attempt
), hi as (
  insert into pointsman.history (instance_id, rev, step, outcome, attempt) select id, rev, step, 'cancel', attempt from u
), ob as ({outcomes}
)
select id from u`
