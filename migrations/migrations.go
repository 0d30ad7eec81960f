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

// schemaLock serialises migrations of one database.
const schemaLock = 7309834823511

// Up brings the schema of this database to [Version]. It is safe to call from several processes at once; each waits for the
// others. A pooler in transaction mode may stand between. An empty schema means [DefaultSchema].
func Up(ctx context.Context, databaseURL, schema string) error {
	if err := CheckSchema(schema); err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for done := false; !done; {
		if done, err = next(ctx, conn, orDefault(schema), names); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

// next applies the file that comes next, unless all are there; one of a build that is newer than this is additive by rule, and serves as
// it is. Each file is a transaction that holds the lock: behind a pooler nothing else belongs together.
func next(ctx context.Context, conn *pgx.Conn, schema string, names []string) (done bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, pgx.QueryExecModeExec, int64(schemaLock)); err != nil {
			return err
		}
		version, err := begun(ctx, tx, schema)
		if done = version >= len(names); err != nil || done {
			return err
		}
		text, err := files.ReadFile(names[version])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, Qualify(string(text), schema)); err != nil {
			return fmt.Errorf("%s: %w", names[version], err)
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(`update %s.%s set version = %d`, schema, versionTable, version+1))
		return err
	})
	return done, err
}

// begun is the version of a schema, which it makes at 0 where there is none. It asks first: create schema if not exists needs the right
// to create one even where it exists.
func begun(ctx context.Context, tx pgx.Tx, schema string) (int, error) {
	var exists bool
	if err := tx.QueryRow(ctx, `select exists (select from pg_namespace where nspname = $1)`, pgx.QueryExecModeExec, schema).Scan(&exists); err != nil {
		return 0, err
	}
	if !exists {
		if _, err := tx.Exec(ctx, `create schema `+schema); err != nil {
			return 0, err
		}
	}
	version, found, err := versionOf(ctx, tx, schema)
	if err != nil || found {
		return version, err
	}
	_, err = tx.Exec(ctx, fmt.Sprintf(`create table %[1]s.%[2]s (version int4 not null); insert into %[1]s.%[2]s values (0)`, schema, versionTable))
	return 0, err
}

// Current returns the version of the schema, 0 where there is none.
func Current(ctx context.Context, conn *pgx.Conn, schema string) (int, error) {
	version, _, err := versionOf(ctx, conn, orDefault(schema))
	return version, err
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// versionOf leaves nothing prepared: the next statement may be another session's.
func versionOf(ctx context.Context, q querier, schema string) (version int, found bool, err error) {
	table := schema + "." + versionTable
	if err := q.QueryRow(ctx, `select to_regclass($1) is not null`, pgx.QueryExecModeExec, table).Scan(&found); err != nil || !found {
		return 0, false, err
	}
	err = q.QueryRow(ctx, `select version from `+table, pgx.QueryExecModeExec).Scan(&version)
	return version, true, err
}

const versionTable = "schema_version"

func orDefault(schema string) string {
	if schema == "" {
		return DefaultSchema
	}
	return schema
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
