package auth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/internal/auth"
	"github.com/pointsman/pointsman/internal/ident"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type bundle struct {
	*testing.T
	db   *pgtest.DB
	keys *auth.Keys
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	db := pgtest.New(t)
	keys, err := auth.NewKeys(db.Pool, db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{t, db, keys}
}

func (b *bundle) create(project, name string, scope auth.Scope) (string, auth.Key) {
	b.Helper()
	secret, key, err := b.keys.Create(b.Context(), project, name, scope)
	if err != nil {
		b.Fatal(err)
	}
	return secret, key
}

func (b *bundle) guard(cfg auth.GuardConfig) *auth.Guard {
	cfg.Keys = b.keys
	return auth.NewGuard(cfg)
}

func (b *bundle) is(g *auth.Guard, token string, want auth.Principal) {
	b.Helper()
	if p, err := g.Authenticate(b.Context(), token); err != nil || p != want {
		b.Errorf("%.5s…: %+v, %v, want %+v", token, p, err, want)
	}
}

func (b *bundle) isNobody(g *auth.Guard, token string) {
	b.Helper()
	if p, err := g.Authenticate(b.Context(), token); !errors.Is(err, auth.ErrUnauthorized) {
		b.Errorf("%.5s…: %+v, %v", token, p, err)
	}
}

// eventually asks until it is so: what the database said holds for a second.
func (b *bundle) eventually(what string, so func() bool) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s", what)
		}
	}
}

func TestKeys(t *testing.T) {
	b := setup(t)
	secret, key := b.create("shop", "checkout", auth.Send)
	if !strings.HasPrefix(secret, key.Hint) || len(secret) != 46 || len(key.Hint) != 9 || key.Scope != "send" {
		t.Errorf("%d characters, %+v", len(secret), key)
	}
	other, unnamed := b.create("shop", "", auth.Read)
	if other == secret || unnamed.Name != "key-"+unnamed.Hint[3:] {
		t.Errorf("%+v", unnamed)
	}
	var stored string
	if err := b.db.Pool.QueryRow(t.Context(), migrations.Qualify(`select string_agg(k::text, ' ') from pointsman.api_keys k`, b.db.Schema)).Scan(&stored); err != nil || strings.Contains(stored, secret[10:]) {
		t.Errorf("the table has the key: %v, %s", err, stored)
	}
	for _, c := range []struct {
		project, name string
		scope         auth.Scope
		field         string
	}{{"shop", "checkout", auth.Read, "name"}, {"a.b", "x", auth.Read, "project"}, {"shop", "a b", auth.Read, "name"}, {"shop", "admin", auth.Read, "name"}, {"shop", "x", 0, "scope"}} {
		_, _, err := b.keys.Create(t.Context(), c.project, c.name, c.scope)
		var wrong *ident.Error
		if !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
	b.create("other", "checkout", auth.Admin) // names are a project's
	if _, found, err := b.keys.Revoke(t.Context(), "other", key.ID.String()); err != nil || found {
		t.Errorf("another project's key: %t, %v", found, err)
	}
	gone, found, err := b.keys.Revoke(t.Context(), "shop", "checkout")
	if err != nil || !found || gone.RevokedAt == nil {
		t.Errorf("%+v, %t, %v", gone, found, err)
	}
	again, found, err := b.keys.Revoke(t.Context(), "shop", key.ID.String())
	if err != nil || !found || !again.RevokedAt.Equal(*gone.RevokedAt) {
		t.Errorf("revoked twice: %+v, %t, %v", again, found, err)
	}
	b.create("shop", "checkout", auth.Read) // its name is free again
	for _, c := range []struct {
		project string
		revoked bool
		want    int
	}{{"shop", false, 2}, {"shop", true, 3}, {"", false, 3}, {"", true, 4}, {"none", true, 0}} {
		list, err := b.keys.List(t.Context(), c.project, c.revoked, uuid.Nil, 10)
		if err != nil || len(list) != c.want {
			t.Errorf("%+v: %+v, %v", c, list, err)
		}
	}
	page, err := b.keys.List(t.Context(), "", true, key.ID, 1)
	if err != nil || len(page) != 1 || page[0].ID != unnamed.ID {
		t.Errorf("%+v, %v", page, err)
	}
}

// One live key has a name, also where two are made at once.
func TestNamesAtOnce(t *testing.T) {
	b := setup(t)
	var wg sync.WaitGroup
	made := make(chan error, 8)
	for range cap(made) {
		wg.Go(func() {
			_, _, err := b.keys.Create(t.Context(), "shop", "one", auth.Read)
			made <- err
		})
	}
	wg.Wait()
	close(made)
	n := 0
	for err := range made {
		var wrong *ident.Error
		if err == nil {
			n++
		} else if !errors.As(err, &wrong) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d were made", n)
	}
}

func TestAuthenticate(t *testing.T) {
	b := setup(t)
	secret, _ := b.create("shop", "checkout", auth.Send)
	g := b.guard(auth.GuardConfig{AdminToken: "the admin's"})
	b.is(g, secret, auth.Principal{Name: "checkout", Project: "shop", Scope: auth.Send})
	b.is(g, "the admin's", auth.Principal{Name: auth.AdminName, Scope: auth.Admin})
	for _, token := range []string{"", "the admin", "the admin's ", secret[:45], secret + "x", strings.ToUpper(secret), "pm_", "x"} {
		b.isNobody(g, token)
	}
	if _, _, err := b.keys.Revoke(t.Context(), "shop", "checkout"); err != nil {
		t.Fatal(err)
	}
	b.eventually("the key is of no use", func() bool {
		_, err := g.Authenticate(t.Context(), secret)
		return errors.Is(err, auth.ErrUnauthorized)
	})
}

// An API that is open closes with the first key, and is open again without the last; one that others reach is never open.
func TestOpen(t *testing.T) {
	b := setup(t)
	g, exposed := b.guard(auth.GuardConfig{Open: true}), b.guard(auth.GuardConfig{})
	b.is(g, "", auth.Principal{Scope: auth.Admin})
	b.isNobody(g, "any")
	b.isNobody(exposed, "")
	b.isNobody(b.guard(auth.GuardConfig{Open: true, AdminToken: "t"}), "")
	b.create("shop", "first", auth.Read)
	closed := func() bool { _, err := g.Authenticate(t.Context(), ""); return errors.Is(err, auth.ErrUnauthorized) }
	b.eventually("it is closed", closed)
	if _, _, err := b.keys.Revoke(t.Context(), "shop", "first"); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is open", func() bool { return !closed() })
	b.isNobody(exposed, "")
}

// A database that is away is no reason to say who somebody is, or that he is nobody.
func TestAway(t *testing.T) {
	b := setup(t)
	secret, _ := b.create("shop", "k", auth.Read)
	pool, err := pgxpool.New(t.Context(), b.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.NewKeys(pool, b.db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	for _, token := range []string{"", secret} {
		_, err := auth.NewGuard(auth.GuardConfig{Keys: keys, Open: true}).Authenticate(t.Context(), token)
		if err == nil || errors.Is(err, auth.ErrUnauthorized) {
			t.Errorf("%.5s: %v", token, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.guard(auth.GuardConfig{}).Authenticate(ctx, secret); err == nil {
		t.Error("no error of a request that is canceled")
	}
}

// The last use is kept, and costs one write a minute.
func TestLastUsed(t *testing.T) {
	b := setup(t)
	secret, _ := b.create("shop", "k", auth.Read)
	last := func() (at *time.Time) {
		list, err := b.keys.List(t.Context(), "shop", false, uuid.Nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		return list[0].LastUsedAt
	}
	if last() != nil {
		t.Error("it was used before it was")
	}
	use := func() {
		b.is(b.guard(auth.GuardConfig{}), secret, auth.Principal{Name: "k", Project: "shop", Scope: auth.Read})
	}
	use()
	first := last()
	use()
	if first == nil || !last().Equal(*first) {
		t.Errorf("used at %v, then %v", first, last())
	}
	if _, err := b.db.Pool.Exec(t.Context(), migrations.Qualify(`update pointsman.api_keys set last_used_at = now() - interval '61 s'`, b.db.Schema)); err != nil {
		t.Fatal(err)
	}
	use()
	if !last().After(first.Add(-time.Second)) {
		t.Errorf("used at %v", last())
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range []auth.Scope{auth.Read, auth.Send, auth.Admin} {
		if back, err := auth.ParseScope(s.String()); err != nil || back != s {
			t.Errorf("%s: %v, %v", s, back, err)
		}
	}
	if _, err := auth.ParseScope("root"); err == nil {
		t.Error("root is a scope")
	}
	if got := auth.Caller(auth.With(t.Context(), auth.Principal{Name: "k"})) + fmt.Sprint(auth.Caller(t.Context()) == ""); got != "ktrue" {
		t.Error(got)
	}
}
