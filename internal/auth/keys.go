package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/store"
)

// Keys are the API keys of a database.
type Keys struct{ store *store.Store }

// NewKeys returns the keys in a schema of the database.
func NewKeys(db *pgxpool.Pool, schema string) (*Keys, error) {
	st, err := store.New(db, schema)
	if err != nil {
		return nil, err
	}
	return &Keys{st}, nil
}

// Key is what can be known of an API key after it was made.
type Key struct {
	ID         uuid.UUID  `json:"id"`
	Project    string     `json:"project"`
	Name       string     `json:"name"`
	Scope      string     `json:"scope"`
	Hint       string     `json:"hint"` // its first characters
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute
	RevokedAt  *time.Time `json:"revoked_at"`
}

const (
	prefix     = "pm_"
	randomness = 32 // bytes
	hintLength = len(prefix) + 6
)

// Create makes a key. Its secret is returned here and is nowhere kept. Without a name it has one made of its hint; the error is an
// [ident.Error] where a live key of the project has the name.
func (k *Keys) Create(ctx context.Context, project, name string, scope Scope) (secret string, key Key, err error) {
	if err := ident.Token("project", project); err != nil {
		return "", key, err
	}
	if name == AdminName {
		return "", key, &ident.Error{Field: "name", Reason: fmt.Sprintf("%q stands for the admin token: take another", name)}
	}
	if name != "" {
		if err := ident.Name("name", name); err != nil {
			return "", key, err
		}
	}
	if scopes[scope] == "" {
		return "", key, &ident.Error{Field: "scope", Reason: "is none of read, send, admin"}
	}
	random := make([]byte, randomness)
	if _, err := rand.Read(random); err != nil {
		return "", key, err
	}
	secret = prefix + base64.RawURLEncoding.EncodeToString(random)
	row := store.APIKey{Project: project, Name: name, Scope: scope.String(), Hint: secret[:hintLength], CreatedAt: time.Now()}
	if row.Name == "" {
		row.Name = "key-" + strings.TrimPrefix(row.Hint, prefix)
	}
	if row.ID, err = uuid.NewV7(); err != nil {
		return "", key, err
	}
	taken, err := k.store.InsertKey(ctx, row, hash(secret))
	if err != nil {
		return "", key, err
	}
	if taken {
		return "", key, &ident.Error{Field: "name", Reason: fmt.Sprintf("%q is another key's of the project %s: revoke it, or take another name", row.Name, project)}
	}
	return secret, keyOf(row), nil
}

// List returns up to limit keys of a project, or of all where it is "": those behind after, the oldest first; with the revoked ones or
// without.
func (k *Keys) List(ctx context.Context, project string, revoked bool, after uuid.UUID, limit int) ([]Key, error) {
	rows, err := k.store.Keys(ctx, project, revoked, after, limit)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, len(rows))
	for i, row := range rows {
		keys[i] = keyOf(row)
	}
	return keys, nil
}

// Revoke ends a key of a project, by its id or its name, within seconds everywhere; found is false where there is none. One that was
// revoked before stays as it is.
func (k *Keys) Revoke(ctx context.Context, project, idOrName string) (key Key, found bool, err error) {
	row, found, err := k.store.RevokeKey(ctx, project, idOrName)
	return keyOf(row), found, err
}

// Any says whether there is a live key, of any project.
func (k *Keys) Any(ctx context.Context) (bool, error) { return k.store.AnyKey(ctx) }

// lookup finds the live key with a hash, and notes that it is used.
func (k *Keys) lookup(ctx context.Context, hash []byte) (Principal, bool, error) {
	row, found, err := k.store.APIKey(ctx, hash)
	if err != nil || !found {
		return Principal{}, false, err
	}
	scope, err := ParseScope(row.Scope)
	return Principal{Name: row.Name, Project: row.Project, Scope: scope}, err == nil, err
}

// hash of a key. It has 256 random bits, so there is nothing to guess, and a hash that is slow on purpose would only make each request slow.
func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func keyOf(row store.APIKey) Key {
	return Key{
		ID: row.ID, Project: row.Project, Name: row.Name, Scope: row.Scope, Hint: row.Hint, CreatedAt: row.CreatedAt.UTC(), LastUsedAt: utc(row.LastUsedAt), RevokedAt: utc(row.RevokedAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
