package store

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/migrations"
)

// One that Postgres cannot hold fails its batch and is to blame for it.
func TestBlame(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.parked("k", "signal/pay")
	deliver := func(s *Store, payload string) error {
		g := signal("k", "pay", "bad")
		g.Payload = []byte(payload)
		_, err := s.Deliver(t.Context(), project, false, []Signal{signal("k", "pay", "good"), g})
		return err
	}
	for _, payload := range []string{`"\u0000"`, `{`, "\"\xff\"", `1e999999`} {
		if err := deliver(f.Store, payload); Blame(err) != BlameData {
			t.Errorf("%q: %v", payload, err)
		}
	}
	f.want("0 0", `select (select count(*) from pointsman.signals), (select count(*) from pointsman.ledger)`)

	cfg := must(pgxpool.ParseConfig(f.db.URL))(t)
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = "10ms"
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	hasty := must(New(pool, f.schema))(t)
	held := f.inTx(t.Context(), func(tx *Store) error {
		if err := tx.each(t.Context(), "lock", tx.text.lockIDTargets, nil, project, []uuid.UUID{id}); err != nil {
			return err
		}
		// On a slow machine it may be idle for longer than a process of ours may.
		if err := tx.each(t.Context(), "no limit", "set local idle_in_transaction_session_timeout = 0", nil); err != nil {
			return err
		}
		if err := deliver(hasty, `{}`); Blame(err) != BlameLock {
			t.Errorf("a locked target: %v", err)
		}
		return nil
	})
	if held != nil {
		t.Fatal(held)
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Cancel(gone, nil, "", nil); err == nil || Blame(err) != BlameNobody {
		t.Errorf("a canceled context: %v", err)
	}
	if Blame(errors.New("other")) != BlameNobody || Blame(nil) != BlameNobody {
		t.Error("somebody is to blame for what is no error of Postgres")
	}
}

// A table that somebody has to himself is told from a row that somebody has locked, and the search for the row is in a hurry.
func TestTablesLocked(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.parked("k", "signal/pay")
	for lock, want := range map[string]bool{
		`select from pointsman.instances for update`:                    false,
		`lock table pointsman.signals in access exclusive mode`:         true,
		`lock table pointsman.ledger in share mode`:                     true,
		`lock table pointsman.instances in share update exclusive mode`: false, // a vacuum
	} {
		err := f.inTx(t.Context(), func(tx *Store) error {
			if err := tx.each(t.Context(), "lock", migrations.Qualify(lock, f.schema), nil); err != nil {
				return err
			}
			locked, err := f.TablesLocked(t.Context())
			if locked != want {
				t.Errorf("%s: %t, want %t", lock, locked, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var patience string
	read := func(r pgx.Rows) error { return r.Scan(&patience) }
	err := f.Hasty().inTx(t.Context(), func(tx *Store) error {
		return tx.each(t.Context(), "patience", `select current_setting('lock_timeout')`, read)
	})
	if err != nil || patience != "500ms" {
		t.Errorf("it waits %s: %v", patience, err)
	}
	err = f.each(t.Context(), "raise", `do $$ begin raise exception 'again' using errcode = '40001'; end $$`, nil)
	if Blame(err) != BlameLock {
		t.Errorf("a serialization failure: %v", err)
	}
}

func TestSchemaName(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, "no; drop"); err == nil {
		t.Error("no error")
	}
}
