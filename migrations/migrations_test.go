package migrations_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestUpAtOnce is what several programs do that are started together with migrate_on_start.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := migrations.Up(t.Context(), url, ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if v := current(t, url, ""); v != migrations.Version {
		t.Errorf("version %d, want %d", v, migrations.Version)
	}
}

func TestVersionOfNothing(t *testing.T) {
	t.Parallel()
	if v := current(t, pgtest.Database(t), ""); v != 0 {
		t.Errorf("version %d of an empty database", v)
	}
}

// TestSchemasSideBySide: two systems in one database know nothing of each other.
func TestSchemasSideBySide(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	if err := migrations.Up(t.Context(), url, "one"); err != nil {
		t.Fatal(err)
	}
	if v := current(t, url, "two"); v != 0 {
		t.Errorf("schema two is at version %d", v)
	}
	if err := migrations.Up(t.Context(), url, "two"); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	var outside int
	err := conn.QueryRow(t.Context(), `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'v', 'S') and n.nspname not in ('one', 'two', 'information_schema') and n.nspname not like 'pg\_%'`).Scan(&outside)
	if err != nil || outside != 0 {
		t.Errorf("%d relations outside of the schemas, %v", outside, err)
	}
}

func TestBadSchemaNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Upper", "with space", `quo"te`, "1st", strings.Repeat("x", 64), "semi;colon", "dots.in.it"} {
		if err := migrations.CheckSchema(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// TestFilesAreQualified: a table without its schema would land wherever the search path leads.
func TestFilesAreQualified(t *testing.T) {
	t.Parallel()
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names {
		if !strings.HasSuffix(f.Name(), ".sql") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, verb := range []string{"create table ", "create view ", "create sequence ", "insert into ", "alter table ", " references "} {
				if at := strings.Index(line, verb); at >= 0 && !strings.HasPrefix(line[at+len(verb):], "pointsman.") {
					t.Errorf("%s:%d: %s", f.Name(), i+1, line)
				}
			}
		}
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func current(t *testing.T, url, schema string) int {
	t.Helper()
	v, err := migrations.Current(t.Context(), connect(t, url), schema)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
