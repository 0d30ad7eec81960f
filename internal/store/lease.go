package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Leased is an instance as part of a lease.
type Leased struct{ Token, ID uuid.UUID }

// Extend lengthens leases. It returns the tokens of those that are gone, and the instances that have moved on: what a step that
// still runs for one of these (it was canceled, or reaped) comes to will be refused.
func (s *Store) Extend(ctx context.Context, tokens []uuid.UUID, lease time.Duration) (gone []uuid.UUID, moved []Leased, err error) {
	held := make(map[uuid.UUID]bool, len(tokens))
	err = s.together(ctx, statement{"extend", s.text.extend, []any{tokens, lease}, func(r pgx.Rows) error {
		var token uuid.UUID
		var ids []uuid.UUID
		err := r.Scan(&token, &ids)
		held[token] = true
		for _, id := range ids {
			moved = append(moved, Leased{token, id})
		}
		return err
	}})
	for _, token := range tokens {
		if err == nil && !held[token] {
			gone = append(gone, token)
		}
	}
	return gone, moved, err
}

// extendText ($1 tokens, $2 length) touches lease rows only, in token order like a commit.
const extendText = `
with /* extend */ l as materialized (
  select token from pointsman.leases where token = any($1) order by token for no key update
), u as (
  update pointsman.leases set expires_at = now() + $2::interval where token in (select token from l) returning token, ids, revs
)
select u.token, array_agg(x.id) filter (where i.rev is distinct from x.rev)
from u, unnest(u.ids, u.revs) x(id, rev) left join pointsman.instances i on i.id = x.id group by u.token`
