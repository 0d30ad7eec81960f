package contracttest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/internal/api"
	"github.com/pointsman/pointsman/internal/pgtest"
)

// The views have the names of the JSON as columns, with values that are written alike.
func TestViewsHaveTheNamesOfTheJSON(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for view, of := range map[string]any{"v_instances": api.Instance{}, "v_inbox": api.Signal{}, "v_triggers": api.Trigger{}} {
		var columns []string
		err := db.Pool.QueryRow(t.Context(), `select array_agg(attname::text) from pg_attribute where attrelid = ($1 || '.' || $2)::regclass and attnum > 0`, db.Schema, view).Scan(&columns)
		if err != nil {
			t.Fatal(err)
		}
		fields := reflect.TypeOf(of)
		for i := range fields.NumField() {
			if name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ","); name != "-" && !slices.Contains(columns, name) {
				t.Errorf("%s has no column %s", view, name)
			}
		}
	}
	var scope []string
	var lease *string
	_, err := db.Pool.Exec(t.Context(), `set search_path = `+db.Schema+`; select start('m', 'k', unique_key => 'u', unique_scope => '{done,runnable}'); reset search_path`)
	if err == nil {
		err = db.Pool.QueryRow(t.Context(), `select unique_scope, lease::text from `+db.Schema+`.v_instances`).Scan(&scope, &lease)
	}
	if err != nil || !slices.Equal(scope, []string{"runnable", "done"}) || lease != nil {
		t.Errorf("unique_scope %q, lease %v, %v", scope, lease, err)
	}
}
