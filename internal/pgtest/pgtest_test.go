package pgtest_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestNewIsMigrated(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if v, err := migrations.Current(t.Context(), conn, db.Schema); err != nil || v != migrations.Version {
		t.Errorf("version %d, %v; want %d", v, err, migrations.Version)
	}
}

func TestSchemasAreApart(t *testing.T) {
	t.Parallel()
	a, b := pgtest.Pool(t), pgtest.Pool(t)
	if _, err := a.Exec(t.Context(), "create table mine (id int)"); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := b.QueryRow(t.Context(), "select to_regclass('mine') is not null").Scan(&there); err != nil || there {
		t.Errorf("the other schema sees the table: %t, %v", there, err)
	}
}

func TestSchemaIsDropped(t *testing.T) {
	t.Parallel()
	outer := pgtest.Empty(t)
	var schema string
	t.Run("A long name with "+strings.Repeat("ünicode ", 10), func(t *testing.T) {
		schema = pgtest.Empty(t).Schema
	})
	if !regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`).MatchString(schema) {
		t.Errorf("schema %q needs quotes", schema)
	}
	var there bool
	if err := outer.Pool.QueryRow(t.Context(), "select to_regnamespace($1) is not null", schema).Scan(&there); err != nil || there {
		t.Errorf("schema %s is left: %t, %v", schema, there, err)
	}
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	outer := pgtest.Empty(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		db := pgtest.New(t)
		if err := db.Pool.QueryRow(t.Context(), "select current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	var there bool
	if err := outer.Pool.QueryRow(t.Context(), "select exists (select from pg_database where datname = $1)", name).Scan(&there); err != nil || there || name == "" {
		t.Errorf("database %q is left: %t, %v", name, there, err)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		pgtest.New(b)
	}
}
