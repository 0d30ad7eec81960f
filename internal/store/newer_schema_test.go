package store

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/pgtest"
)

// TestNewerSchema: a later version may add columns and tables while builds of this one run. No statement hands a column on that it did not
// name, finds a name ambiguous, or writes less than a row needs.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	s, err := New(db.Pool, db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(prefix string) map[string]string {
		t.Helper()
		results := map[string]string{}
		all := reflect.ValueOf(s.text)
		for i := range all.NumField() {
			name := all.Type().Field(i).Name
			d, err := conn.Conn().Prepare(t.Context(), prefix+name, strings.ReplaceAll(all.Field(i).String(), "{n}", "8"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var fields []string
			for _, f := range d.Fields {
				fields = append(fields, f.Name)
			}
			results[name] = strings.Join(fields, ", ")
		}
		return results
	}
	before := prepare("before")
	rows, err := conn.Query(t.Context(), `select format('alter table %I.%I add column of_the_future int not null default 7', schemaname, tablename)
		from pg_tables where schemaname = $1`, db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) < 10 {
		t.Fatalf("only %d tables", len(changes))
	}
	for _, sql := range changes {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for name, fields := range prepare("after") {
		if fields != before[name] {
			t.Errorf("%s returns %s, and %s on a newer schema", name, before[name], fields)
		}
	}
}
