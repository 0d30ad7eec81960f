// Package migrations holds the database schema: numbered SQL files, forward only, frozen once released.
//
// The files are written for the schema "pointsman"; [Up] puts them into the schema it is told.
package migrations

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
)

//go:embed *.sql
var files embed.FS

// DefaultSchema is the schema that the SQL files name.
const DefaultSchema = "pointsman"

// Version is the schema version that this build needs: the number of its newest file.
var Version = func() int {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		panic(err)
	}
	return len(names)
}()

// schemaLock serialises the creation of the schema itself; tern locks the rest.
const schemaLock = 7309834823511

// Up brings the schema of this database to [Version]. It is safe to call from several processes at once; each waits for the
// others. It needs a session of its own, so the URL must not lead to a pooler in transaction mode.
// An empty schema means [DefaultSchema].
func Up(ctx context.Context, databaseURL, schema string) error {
	if err := CheckSchema(schema); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := createSchema(ctx, conn, orDefault(schema)); err != nil {
		return fmt.Errorf("migrate: create schema: %w", err)
	}
	migrator, err := load(ctx, conn, orDefault(schema))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if current, err := migrator.GetCurrentVersion(ctx); err != nil || int(current) > Version {
		return err // newer than this build: additive by rule, so it serves as it is
	}
	if err := migrator.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Current returns the version of the schema, 0 where there is none.
func Current(ctx context.Context, conn *pgx.Conn, schema string) (int, error) {
	table := orDefault(schema) + "." + versionTable
	var exists bool
	if err := conn.QueryRow(ctx, `select to_regclass($1) is not null`, table).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	var version int
	err := conn.QueryRow(ctx, `select version from `+table).Scan(&version)
	return version, err
}

const versionTable = "schema_version"

func orDefault(schema string) string {
	if schema == "" {
		return DefaultSchema
	}
	return schema
}

// createSchema asks first: create schema if not exists needs the right to create one even where it exists.
func createSchema(ctx context.Context, conn *pgx.Conn, schema string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(schemaLock)); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, `select exists (select from pg_namespace where nspname = $1)`, schema).Scan(&exists); err != nil || exists {
			return err
		}
		_, err := tx.Exec(ctx, `create schema `+schema)
		return err
	})
}

func load(ctx context.Context, conn *pgx.Conn, schema string) (*migrate.Migrator, error) {
	migrator, err := migrate.NewMigrator(ctx, conn, schema+"."+versionTable)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		migrator.AppendMigration(name, Qualify(string(text), schema), "")
	}
	return migrator, nil
}

// Qualify puts SQL that was written for [DefaultSchema] into another schema, which [CheckSchema] accepts.
func Qualify(sql, schema string) string {
	return strings.ReplaceAll(sql, DefaultSchema+".", orDefault(schema)+".")
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// CheckSchema accepts names that need no quotes: a lower-case letter or _, then at most 62 of these and digits. "" is [DefaultSchema].
func CheckSchema(schema string) error {
	if !plainName.MatchString(orDefault(schema)) {
		return fmt.Errorf("schema %q: want a lower-case letter or _, then letters, digits and _, at most 63 characters", schema)
	}
	return nil
}
