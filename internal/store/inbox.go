package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Inbox returns up to limit signals of an instance whose id is above after, in the order of arrival.
func (s *Store) Inbox(ctx context.Context, instance uuid.UUID, after int64, limit int) (signals []InboxSignal, err error) {
	err = s.each(ctx, "inbox", s.text.inbox, func(r pgx.Rows) error {
		var g InboxSignal
		var dedup *string
		err := r.Scan(&g.ID, &g.Kind, &g.Name, &g.Payload, &dedup, &g.InsertedAt)
		g.DedupKey = value(dedup)
		signals = append(signals, g)
		return err
	}, instance, after, limit)
	return signals, err
}

const inboxText = `
select /* inbox */ id, kind, name, payload, dedup_key, inserted_at from pointsman.signals where instance_id = $1 and id > $2 order by id limit $3`
