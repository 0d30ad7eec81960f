package store

import (
	"reflect"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/internal/pgtest"
)

// TestEveryStatementPrepares finds a misspelled column before a transaction does.
func TestEveryStatementPrepares(t *testing.T) {
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
	all := reflect.ValueOf(s.text)
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		sql := strings.ReplaceAll(all.Field(i).String(), "{n}", "8")
		if sql == "" {
			t.Errorf("%s: no text", name)
		}
		if strings.ContainsAny(sql, "{") && !strings.Contains(sql, "'{}'") {
			t.Errorf("%s: a placeholder is left:\n%s", name, sql)
		}
		if _, err := conn.Conn().Prepare(t.Context(), name, sql); err != nil {
			t.Errorf("%s: %v\n%s", name, err, sql)
		}
	}
}
