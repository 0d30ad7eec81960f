package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// WaitingSignal is one in an inbox, with what only a look at it asks for.
type WaitingSignal struct {
	InboxSignal
	SentBy string
}

// Inbox returns up to limit signals of an instance whose id is above after, in the order of arrival.
func (s *Store) Inbox(ctx context.Context, instance uuid.UUID, after int64, limit int) (signals []WaitingSignal, err error) {
	err = s.each(ctx, "inbox", s.text.inbox, func(r pgx.Rows) error {
		var g WaitingSignal
		var dedup, sentBy *string
		err := r.Scan(&g.ID, &g.Kind, &g.Name, &g.Payload, &dedup, &sentBy, &g.InsertedAt)
		g.DedupKey, g.SentBy = value(dedup), value(sentBy)
		signals = append(signals, g)
		return err
	}, instance, after, limit)
	return signals, err
}

const inboxText = `
select /* inbox */ id, kind, name, payload, dedup_key, sent_by, inserted_at from pointsman.signals where instance_id = $1 and id > $2 order by id limit $3`
