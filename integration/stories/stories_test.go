package stories_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pointsman/pointsman/integration/oracle"
	"github.com/pointsman/pointsman/integration/stories"
	"github.com/pointsman/pointsman/internal/apptest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestStories plays all stories in good weather: the oracle finds nothing, and each kind of thing has happened.
func TestStories(t *testing.T) {
	s := apptest.Start(t, stories.Config(stories.All()...), map[string][]string{stories.Stream: {"stories.>"}, stories.OrderedStream: {"ticks.>"}}, stories.Machines()...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, cfg := range stories.Streams() {
		if _, err := s.JS.CreateOrUpdateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	db, err := pgxpool.New(ctx, s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	account := oracle.NewAccount()
	watch := stories.NewWatch(s.JS, account)
	copies, err := stories.NewCopies(ctx, db, account, watch)
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); watch.Run(watching) }()
	defer func() { stop(); <-watched }()

	w := stories.Workload{Stories: stories.All(), Players: 4, Seed: 1, Conn: s.JS.Conn(), JS: s.JS, Account: account}
	began := time.Now()
	if err := w.Some(ctx, 20); err != nil {
		t.Error(err)
	}
	t.Logf("%s played: %+v", time.Since(began), account.Count())
	rest := stories.Rest{DB: db, JS: s.JS, Account: account, Watch: watch, Copies: copies}
	violations, err := rest.Settle(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
	t.Logf("%+v", account.Count())
}
