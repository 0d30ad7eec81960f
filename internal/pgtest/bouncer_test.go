package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pointsman/pointsman/internal/pgtest"
	"github.com/pointsman/pointsman/migrations"
)

// One connection of a client goes from session to session, which is what a test with it is for; after a restart to others.
func TestBouncer(t *testing.T) {
	t.Parallel()
	b := pgtest.NewBouncer(t, pgtest.Empty(t).URL)
	before := sessionsOfOne(t, b.URL)
	if len(before) < 2 {
		t.Errorf("one connection was always in the session %v", before)
	}
	b.Restart()
	for pid := range sessionsOfOne(t, b.URL) {
		if before[pid] {
			t.Errorf("session %d is still there after a restart", pid)
		}
	}
}

func sessionsOfOne(t *testing.T, url string) map[int]bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	seen := map[int]bool{}
	for range 4 {
		var pid int
		if err := conn.QueryRow(t.Context(), "select pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		seen[pid] = true
	}
	return seen
}

// TestMigrateBehindBouncer is migrate_on_start of several programs behind a pooler.
func TestMigrateBehindBouncer(t *testing.T) {
	t.Parallel()
	url := pgtest.NewBouncer(t, pgtest.Database(t)).URL
	failed := make(chan error)
	for range 6 {
		go func() { failed <- migrations.Up(t.Context(), url, "") }()
	}
	for range 6 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for range 6 {
		if v, err := migrations.Current(t.Context(), conn, ""); err != nil || v != migrations.Version {
			t.Errorf("version %d, %v; want %d", v, err, migrations.Version)
		}
	}
}
