package store

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
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

func TestSchemaName(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, "no; drop"); err == nil {
		t.Error("no error")
	}
}
