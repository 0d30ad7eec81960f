package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/migrations"
)

// template is a database of this process whose schema has all migrations. To copy it takes a fifth of the time that they take.
var template struct {
	once     sync.Once
	name     string
	schema   string
	strategy string
	err      error
}

// fromTemplate makes a database with all migrations for a test, and leads to it.
func fromTemplate(t testing.TB) (at, schema string) {
	t.Helper()
	server := serverURL(t)
	template.once.Do(func() { template.err = makeTemplate(context.WithoutCancel(t.Context()), server) })
	if template.err != nil {
		t.Fatalf("pgtest: template: %v", template.err)
	}
	name := schemaName(t.Name())
	execute(t, server, "create database "+name+" template "+template.name+template.strategy)
	t.Cleanup(func() { execute(t, server, "drop database "+name+" with (force)") })
	return inDatabase(t, server, name), template.schema
}

func makeTemplate(ctx context.Context, server string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	name, schema, version := schemaName("template"), schemaName("test"), 0
	if err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return err
	}
	if version >= 150000 {
		template.strategy = " strategy file_copy" // as before 15: it writes no page of the copy to the log
	}
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		return err
	}
	template.name, template.schema = name, schema
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	u.Path = "/" + name
	if err := migrations.Up(ctx, u.String(), schema); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("alter database %s allow_connections false", name)) // one that looked in would keep it from being copied
	return err
}

// dropTemplate leaves nothing on a server that goes on.
func dropTemplate(ctx context.Context, server string) error {
	if template.name == "" {
		return nil
	}
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "drop database "+template.name)
	return err
}

func inDatabase(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}
