package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// HeldSignal is one for a key that nobody has yet.
type HeldSignal struct {
	Key        string
	Dedup      uuid.UUID
	Kind       string
	Name       string
	Payload    []byte
	DedupKey   string
	InsertedAt time.Time
	ExpiresAt  time.Time
	Original   Original // zero, where it was not made from a message
}

// HeldPlace is where in the order of keys a page of held signals begins: behind this one.
type HeldPlace struct {
	Key   string
	Dedup uuid.UUID
}

// Held returns up to limit held signals of a project behind a place, in the order of their keys: those of one key, or of the keys that
// begin with a prefix, or all where both are "".
func (s *Store) Held(ctx context.Context, project, key, prefix string, after HeldPlace, limit int) (held []HeldSignal, err error) {
	err = s.each(ctx, "held", s.text.held, func(r pgx.Rows) error {
		var h HeldSignal
		var dedup, message *string
		if err := r.Scan(&h.Key, &h.Dedup, &h.Kind, &h.Name, &h.Payload, &dedup, &h.InsertedAt, &h.ExpiresAt, &message); err != nil {
			return err
		}
		h.DedupKey = value(dedup)
		if message != nil {
			if err := json.Unmarshal([]byte(*message), &h.Original); err != nil {
				return err
			}
		}
		held = append(held, h)
		return nil
	}, project, after.Key, after.Dedup, key, prefix, limit)
	return held, err
}

// heldText ($1 project, $2 and $3 place, $4 key, $5 prefix, $6 limit).
const heldText = `
select /* held */ key, dedup, kind, name, payload, dedup_key, inserted_at, expires_at, message from pointsman.held
where project = $1 and (key, dedup) > ($2, $3)
  and key >= case when $4 <> '' then $4 else $5 end collate "C" and key <= case when $4 <> '' then $4 else rpad($5, 513, chr(1114111)) end collate "C"
order by project, key, dedup limit $6`
