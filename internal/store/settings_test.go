package store

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/internal/pgtest"
)

// asked is what a session says of its settings.
type asked map[string]string

func (a asked) statement() statement {
	return statement{"asked", `select name, current_setting(name) from unnest($1::text[]) name`, []any{settingNames()}, func(r pgx.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		a[name] = value
		return err
	}}
}

func settingNames() (names []string) {
	for _, s := range settings {
		names = append(names, s.name)
	}
	return names
}

func (a asked) want(t *testing.T, where string, ours bool) {
	t.Helper()
	same := 0
	for _, s := range settings {
		if a[s.name] == s.value {
			same++
		}
	}
	if ours && same != len(settings) || !ours && same != 0 {
		t.Errorf("%s: %v, ours: %t", where, a, ours)
	}
}

var errEnough = errors.New("enough")

// Each transaction has the settings, whether its session has them or not, and no other transaction of a session that is not ours gets
// them. One of a caller keeps its own.
func TestEveryTransactionHasTheSettings(t *testing.T) {
	t.Parallel()
	for name, tune := range map[string]func(*pgxpool.Config){
		"tuned":  func(cfg *pgxpool.Config) { Tune(cfg, false) },
		"pooler": func(cfg *pgxpool.Config) { Tune(cfg, true) },
		"user's": func(*pgxpool.Config) {},
	} {
		db := pgtest.Empty(t)
		cfg := must(pgxpool.ParseConfig(db.URL))(t)
		tune(cfg)
		cfg.MaxConns = 1
		pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
		defer pool.Close()
		s := must(New(pool, db.Schema))(t)

		a := asked{}
		must(0, s.run(t.Context(), a.statement()))(t)
		a.want(t, name+": a statement by itself", true)
		a, b := asked{}, asked{}
		must(0, s.together(t.Context(), a.statement(), b.statement()))(t)
		a.want(t, name+": the first of two", true)
		b.want(t, name+": the second of two", true)
		err := s.inTx(t.Context(), func(tx *Store) error {
			a, b = asked{}, asked{}
			if err := tx.run(t.Context(), a.statement()); err != nil {
				return err
			}
			err := tx.inTx(t.Context(), func(sp *Store) error { return sp.run(t.Context(), b.statement()) })
			return errors.Join(err, errEnough)
		})
		equal(t, name+": the transaction", err.Error(), errEnough.Error())
		a.want(t, name+": a transaction", true)
		b.want(t, name+": a savepoint", true)
		tx := must(pool.Begin(t.Context()))(t)
		a = asked{}
		must(0, must(s.InTx(t.Context(), tx))(t).run(t.Context(), a.statement()))(t)
		a.want(t, name+": a caller's transaction", name == "tuned")
		must(0, tx.Rollback(t.Context()))(t)
	}
}

// setupBounced is setup behind a PgBouncer in transaction mode.
func setupBounced(t *testing.T) *fixture {
	t.Helper()
	db := pgtest.New(t)
	cfg := must(pgxpool.ParseConfig(pgtest.NewBouncer(t, db.URL).URL))(t)
	Tune(cfg, true)
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	return &fixture{Store: must(New(pool, db.Schema))(t), t: t, db: db, schema: db.Schema}
}

// A column that a migration adds or widens under a running program changes nothing for it: no statement is kept by a session.
func TestMigrationUnderBouncer(t *testing.T) {
	t.Parallel()
	f := setupBounced(t)
	f.parked("k", "signal/pay")
	for i, ddl := range []string{
		`alter table pointsman.signals add column more text`,
		`alter table pointsman.instances add column more text`,
		`alter table pointsman.history alter column attempt type bigint`,
		`create index on pointsman.signals (name)`,
	} {
		wantVerdicts(t, f.fast(signal("k", "pay", string(rune('a'+i)))), Delivered)
		f.exec(ddl)
		w := f.picked()
		f.commit(consuming(await(w, "signal/pay"), w))
		in, _ := must2(f.GetByKey(t.Context(), project, "k"))(t)
		equal(t, "inbox", in.InboxCount, 0)
	}
}
