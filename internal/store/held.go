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

// adoption gives heirs (id, project, scope, correlation_key), who have come by their keys in this statement, what is held for these.
// Nobody can hold more for them meanwhile: it runs under the locks of the keys.
const adoption = `adopted as (
  delete from pointsman.held h using heirs where h.project = heirs.project and h.key = heirs.correlation_key and h.expires_at > now()
  returning h.*, heirs.id as instance_id, heirs.scope
), numbered as materialized (
  select nextval('pointsman.signal_ids') as sid, a.* from (select * from adopted order by id) a
), known as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
  select scope, dedup, instance_id, hash, source, sid from numbered on conflict do nothing returning signal_id as sid
), sig as (
  insert into pointsman.signals (instance_id, id, kind, name, payload, dedup_key, traceparent, sent_by)
  select instance_id, sid, kind, name, payload, dedup_key, traceparent, sent_by from numbered where (sid in (select sid from known)) is true
)`

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
