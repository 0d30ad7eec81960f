package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// EventKeys are the keys of the triggers that ended with an instance, for a [Store.Retry] to bring them back.
func (s *Store) EventKeys(ctx context.Context, instance uuid.UUID) (keys []string, err error) {
	err = s.each(ctx, "event keys", s.text.endedWith, func(r pgx.Rows) error {
		var t endedWithInstance
		err := t.scan(r)
		keys = append(keys, t.key)
		return err
	}, instance)
	return keys, err
}

// endedWithInstance is a trigger that the end of its instance has canceled.
type endedWithInstance struct {
	id           uuid.UUID
	project, key string
	sleep, taken bool
}

func (t *endedWithInstance) scan(r pgx.Rows) error {
	return r.Scan(&t.id, &t.project, &t.key, &t.sleep, &t.taken)
}

// endedWithText ($1 instance).
const endedWithText = `
select /* ended with */ t.id, t.project, t.event_key, t.trigger_type = 'sleep',
  (select w.id from pointsman.triggers w where w.project = t.project and w.event_key = t.event_key and w.status = 'waiting' limit 1) is not null
from pointsman.triggers t where t.instance_id = $1 and t.with_instance order by t.requested_at desc, t.id`

// revive makes the triggers wait again that ended with an instance which is live again, up to their time as it was. Where the key is another's
// by now, or the quota is used up, the trigger stays canceled, and the instance is told. locked are the keys whose locks this transaction holds.
func (s *Store) revive(ctx context.Context, instance uuid.UUID, locked []string, maxActive int) error {
	var all []endedWithInstance
	err := s.each(ctx, "ended with", s.text.endedWith, func(r pgx.Rows) error {
		var t endedWithInstance
		err := t.scan(r)
		all = append(all, t)
		return err
	}, instance)
	if err != nil || len(all) == 0 {
		return err
	}
	may := map[string]bool{}
	for _, key := range locked {
		may[key] = true
	}
	var back []uuid.UUID
	var counted []bool
	wanted := map[string]int64{}
	for _, t := range all {
		if t.taken || !may[t.key] {
			continue
		}
		may[t.key] = false
		back, counted = append(back, t.id), append(counted, !t.sleep)
		if !t.sleep {
			wanted[t.project]++
		}
	}
	if maxActive > 0 && len(wanted) > 0 {
		room, err := s.quotaRoom(ctx, wanted, int64(maxActive))
		if err != nil {
			return err
		}
		within := back[:0]
		for i, id := range back {
			if counted[i] {
				if room[all[0].project]--; room[all[0].project] < 0 {
					continue
				}
			}
			within = append(within, id)
		}
		back = within
	}
	return s.each(ctx, "revive triggers", s.text.revive, nil, instance, back, maxActive)
}

// reviveText ($1 instance, $2 those that wait again, $3 the quota).
const reviveText = `
with /* revive triggers */ uncounted as (
  update pointsman.quotas set max_triggers = 0 where $3::bigint = 0 and project = (select i.project from pointsman.instances i where i.id = $1) and max_triggers <> 0
), lt as materialized (
  select t.id from pointsman.triggers t where t.instance_id = $1 and t.with_instance order by t.id for no key update
)
update pointsman.triggers t set with_instance = false,
  status = case when t.id = any($2) then 'waiting' else t.status end, ended_at = case when t.id = any($2) then null else t.ended_at end,
  error = case when t.id = any($2) then null else t.error end,
  missed_visit = case when t.id <> all($2) and 'event/' || t.event_key = any(i.awaits) then i.visit end
from pointsman.instances i where t.id = any(array(select id from lt)) and i.id = $1`
