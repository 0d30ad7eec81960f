package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/engine"
	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The owner of postgres/roles.sql can migrate, and the other role do all that the programs do, and no more.
func TestRoles(t *testing.T) {
	t.Parallel()
	super := pgtest.Database(t)
	suffix := fmt.Sprintf("_%08x", rand.Uint32()) // roles belong to the server, and other tests share it
	owner, app := "pointsman_owner"+suffix, "pointsman_app"+suffix
	roles := strings.NewReplacer("pointsman_owner", owner, "pointsman_app", app).Replace(read(t, "postgres/roles.sql"))
	db, err := pgx.Connect(t.Context(), super)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, role := range []string{app, owner} {
			if _, err := db.Exec(ctx, "drop owned by "+role+" cascade; drop role "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Errorf("drop the role %s: %v", role, err)
			}
		}
		_ = db.Close(ctx)
	})
	exec(roles)
	exec(roles) // again is no harm
	for _, role := range []string{owner, app} {
		exec(fmt.Sprintf("alter role %s password 'only for this test'", role))
	}
	if err := migrations.Up(t.Context(), as(t, super, owner), "pointsman"); err != nil {
		t.Fatalf("the owner migrates: %v", err)
	}
	pool, err := engine.Connect(t.Context(), as(t, super, app), 2, false)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := engine.CheckSchema(t.Context(), pool, "pointsman"); err != nil {
		t.Fatal(err)
	}
	client, err := engine.NewClient(pool, engine.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Start(t.Context(), engine.NewInstance{Machine: "order", CorrelationKey: "k"}); err != nil {
		t.Fatalf("start: %v", err)
	}
	if _, err := client.Signal(t.Context(), engine.ByKey("", "k"), engine.Signal{Name: "payment", DedupKey: "1"}); err != nil {
		t.Fatalf("signal: %v", err)
	}
	// Every table, sequence and function there is: what a later migration adds is the app's too.
	var lacking []string
	if err := db.QueryRow(t.Context(), `select coalesce(array_agg(c.oid::regclass::text), '{}') from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'pointsman' and c.relkind in ('r', 'p') and not has_table_privilege($1, c.oid, 'select, insert, update, delete')
		or n.nspname = 'pointsman' and c.relkind = 'S' and not has_sequence_privilege($1, c.oid, 'usage')`, app).Scan(&lacking); err != nil {
		t.Fatal(err)
	}
	if len(lacking) > 0 {
		t.Errorf("%s has no right to %v", app, lacking)
	}
	for _, sql := range []string{"drop table pointsman.signals", "alter table pointsman.instances add column x int", "create table pointsman.x ()", "create schema x", "truncate pointsman.instances"} {
		if _, err := pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s may %s", app, sql)
		}
	}
}

// as is the URL of a database for a role.
func as(t *testing.T, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "only for this test")
	query := u.Query()
	query.Del("user")
	query.Del("password")
	u.RawQuery = query.Encode()
	return u.String()
}
