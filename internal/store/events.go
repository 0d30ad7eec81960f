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
