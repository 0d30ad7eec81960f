// Package pgtest gives tests a real Postgres: one private server per test process, started by the first test that asks, and a database or a
// schema of its own for each test.
//
// POINTSMAN_TEST_DATABASE_URL names a server to use instead. Where no server can be had a test is skipped, and fails when CI is "true".
// A package with such tests has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// so that the server's data is removed with the process; on Linux the server itself never outlives it.
package pgtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	poolSize       = 10
	cleanupTimeout = 90 * time.Second
)

// DB is one test's share of the server. The search path of URL and Pool does not hold Schema.
type DB struct {
	URL    string
	Schema string
	Pool   *pgxpool.Pool
}

// New returns a database of the test's own whose schema has all migrations: nobody else's snapshots and key locks, which are those of a database,
// are met in it. The test drops it at its end, when nobody may hold a connection of the pool.
func New(t testing.TB) *DB {
	t.Helper()
	db := &DB{}
	db.URL, db.Schema = fromTemplate(t)
	db.Pool = newPool(t, db.URL)
	return db
}

// Empty returns a schema with nothing in it, in a database that others have schemas in too.
func Empty(t testing.TB) *DB {
	t.Helper()
	db := &DB{URL: serverURL(t), Schema: schemaName(t.Name())}
	execute(t, db.URL, "create schema "+db.Schema)
	t.Cleanup(func() { execute(t, db.URL, "drop schema "+db.Schema+" cascade") })
	db.Pool = newPool(t, db.URL)
	return db
}

// Database leads to a fresh, empty database of its own, for programs that choose their schemas themselves.
func Database(t testing.TB) string {
	t.Helper()
	server, name := serverURL(t), schemaName(t.Name())
	execute(t, server, "create database "+name)
	t.Cleanup(func() { execute(t, server, "drop database "+name+" with (force)") })
	return inDatabase(t, server, name)
}

// URL leads to a fresh, empty schema, which is first in the search path.
func URL(t testing.TB) string {
	t.Helper()
	db := Empty(t)
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	q := u.Query()
	q.Set("search_path", db.Schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// Pool is a pool on URL.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return newPool(t, URL(t))
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	cfg.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close() // waits for connections that are in use
		}()
		select {
		case <-closed:
		case <-time.After(cleanupTimeout):
			t.Error("pgtest: the test did not release all connections of its pool")
		}
	})
	return pool
}

// execute runs one statement on a connection of its own; t's context is over during cleanup.
func execute(t testing.TB, url, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

var notPlain = regexp.MustCompile(`[^a-z0-9]+`)

// schemaName is new on every call, since processes share a server, and tells whose schema it is.
func schemaName(test string) string {
	name := notPlain.ReplaceAllString(strings.ToLower(test), "_")
	return name[:min(len(name), 40)] + "_" + strings.ToLower(rand.Text()[:12])
}
