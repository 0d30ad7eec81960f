package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Events returns the values that an instance has published, at most limit of them, in the order of their keys; with a key only that
// one.
func (s *Store) Events(ctx context.Context, instance uuid.UUID, key string, limit int) (events []Event, err error) {
	err = s.each(ctx, "events", s.text.events, func(r pgx.Rows) error {
		var e Event
		err := r.Scan(&e.Key, &e.Value)
		events = append(events, e)
		return err
	}, instance, key, limit)
	return events, err
}

const eventsText = `
select /* events */ key, value from pointsman.events where instance_id = $1 and $2 in ('', key) order by key limit $3`

// SetEvent publishes a value of an instance at once, for the step that executes at this rev under this lease. It reports whether it did:
// to who has lost the lease, or has committed meanwhile, nothing is published.
func (s *Store) SetEvent(ctx context.Context, lease Leased, rev int32, e Event) (set bool, err error) {
	err = s.together(ctx, statement{"set event", s.text.setEvent, []any{lease.Token, lease.ID, rev, e.Key, jsonText(e.Value)}, func(pgx.Rows) error {
		set = true
		return nil
	}})
	return set, err
}

// setEventText ($1 lease, $2 instance, $3 rev as picked, $4 key, $5 value) locks as a commit does, lease first: one that waited for the
// commit of its own step, or for who swept its lease, finds the rev moved under the lock.
const setEventText = `
with /* set event */ l as materialized (
  select token from pointsman.leases where token = $1 and $2 = any(ids) for no key update
), i as materialized (
  select i.id, i.rev from pointsman.instances i where i.id = $2 and i.rev = $3 and ` + alive + ` and (select count(*) from l) > 0 for no key update
)
insert into pointsman.events (instance_id, key, rev, value) select id, $4, rev, $5::text::jsonb from i
on conflict (instance_id, key) do update set value = excluded.value, rev = excluded.rev, updated_at = now()
returning true`
