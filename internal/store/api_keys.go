package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// APIKey is what is kept of a key: not the key itself.
type APIKey struct {
	ID         uuid.UUID
	Project    string
	Name       string
	Scope      string
	Hint       string
	CreatedAt  time.Time
	LastUsedAt *time.Time
	RevokedAt  *time.Time
}

// APIKey returns the live key with a hash, and notes that it is used, at most once a minute.
func (s *Store) APIKey(ctx context.Context, hash []byte) (key APIKey, found bool, err error) {
	err = s.together(ctx, statement{"api key", s.text.apiKey, []any{hash}, func(r pgx.Rows) (err error) {
		key, err = scanAPIKey(r)
		found = true
		return err
	}})
	return key, found, err
}

const apiKeyColumns = `id, project, name, scope, hint, created_at, last_used_at, revoked_at`

// apiKeyText ($1 hash). Who finds the row locked is not the only one who notes its use, and leaves it.
const apiKeyText = `
with /* api key */ used as (
  update pointsman.api_keys set last_used_at = now() where id = (
    select id from pointsman.api_keys where hash = $1 and revoked_at is null and (last_used_at is null or last_used_at < now() - interval '1 minute')
    for update skip locked)
)
select ` + apiKeyColumns + ` from pointsman.api_keys where hash = $1 and revoked_at is null`

// InsertKey adds a key; taken is that a live key of the project has its name.
func (s *Store) InsertKey(ctx context.Context, key APIKey, hash []byte) (taken bool, err error) {
	taken = true
	err = s.together(ctx, statement{"insert key", s.text.insertKey, []any{key.ID, key.Project, key.Name, key.Scope, hash, key.Hint}, func(pgx.Rows) error {
		taken = false
		return nil
	}})
	return taken, err
}

const insertKeyText = `
insert /* insert key */ into pointsman.api_keys (id, project, name, scope, hash, hint) values ($1, $2, $3, $4, $5, $6)
on conflict (project, name) where revoked_at is null do nothing returning id`

// RevokeKey ends a key of a project, by its id or its name. One that was revoked before stays as it is; by a name only a live one is found.
func (s *Store) RevokeKey(ctx context.Context, project, idOrName string) (key APIKey, found bool, err error) {
	err = s.together(ctx, statement{"revoke key", s.text.revokeKey, []any{project, idOrName}, func(r pgx.Rows) (err error) {
		key, err = scanAPIKey(r)
		found = true
		return err
	}})
	return key, found, err
}

const revokeKeyText = `
update /* revoke key */ pointsman.api_keys set revoked_at = coalesce(revoked_at, now())
where project = $1 and (id::text = $2 or name = $2 and revoked_at is null)
returning ` + apiKeyColumns

// Keys returns up to limit keys of a project ("": of all), those with an id above after, the oldest first, with the revoked ones or without.
func (s *Store) Keys(ctx context.Context, project string, revoked bool, after uuid.UUID, limit int) (keys []APIKey, err error) {
	err = s.each(ctx, "list keys", s.text.listKeys, func(r pgx.Rows) error {
		key, err := scanAPIKey(r)
		keys = append(keys, key)
		return err
	}, project, revoked, after, limit)
	return keys, err
}

const listKeysText = `
select /* list keys */ ` + apiKeyColumns + ` from pointsman.api_keys
where ($1 = '' or project = $1) and ($2 or revoked_at is null) and id > $3 order by id limit $4`

// AnyKey says whether there is a live key, of any project.
func (s *Store) AnyKey(ctx context.Context) (any bool, err error) {
	err = s.each(ctx, "any key", s.text.anyKey, func(r pgx.Rows) error { return r.Scan(&any) })
	return any, err
}

const anyKeyText = `select /* any key */ exists (select from pointsman.api_keys where revoked_at is null)`

func scanAPIKey(r pgx.Rows) (k APIKey, err error) {
	err = r.Scan(&k.ID, &k.Project, &k.Name, &k.Scope, &k.Hint, &k.CreatedAt, &k.LastUsedAt, &k.RevokedAt)
	return k, err
}
