package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// HeldKey is the correlation key of a live instance.
type HeldKey struct{ Project, Key string }

// KeysOf returns the correlation keys of those of the instances that are live and have one. It locks nothing.
func (s *Store) KeysOf(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]HeldKey, error) {
	keys := make(map[uuid.UUID]HeldKey, len(ids))
	err := s.each(ctx, "keys of", s.text.keysOf, func(r pgx.Rows) error {
		var id uuid.UUID
		var k HeldKey
		err := r.Scan(&id, &k.Project, &k.Key)
		keys[id] = k
		return err
	}, ids)
	return keys, err
}

const keysOfText = `
select /* keys of */ i.id, i.project, i.correlation_key from pointsman.instances i where i.id = any($1::uuid[]) and ` + alive + ` and i.correlation_key is not null`
