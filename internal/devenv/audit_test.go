package devenv

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/pointsman/pointsman/internal/natstest"
	"github.com/pointsman/pointsman/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestAuditFindsWhatIsNotThere settles a traffic, and then takes away what one message left behind.
func TestAuditFindsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	e := &environment{Options: Options{
		Traffic: 30, DatabaseURL: pgtest.Database(t), NATSURL: natstest.Start(t).URL, Out: io.Discard, Log: slog.New(slog.DiscardHandler),
		Env: func(string) (string, bool) { return "", false },
	}}
	if err := e.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.stop() }()
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	e.cfg.HTTP.Addr, e.cfg.Worker.HTTPAddr = freeAddr("127.0.0.1:0"), freeAddr("127.0.0.1:0")
	if err := e.runParts(ctx, group); err != nil {
		t.Fatal(err)
	}
	s, err := e.newShop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := s.run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := sum.err(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}

	for _, test := range []struct{ what, sql string }{
		{"a signal that was taken in", `delete from pointsman.ledger where ctid = (select ctid from pointsman.ledger where signal_id is not null limit 1)`},
		{"a held signal", `delete from pointsman.held where ctid = (select ctid from pointsman.held limit 1)`},
	} {
		tag, err := e.db.Exec(t.Context(), test.sql)
		if err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v %v", test.what, tag, err)
		}
		lost := len(sum.problems)
		s.audit.stored = nil
		if err := s.audit.run(t.Context(), s.streams); err != nil {
			t.Fatal(err)
		}
		sum = &summary{traffic: s.traffic, stored: s.audit.stored, dropped: s.publisher.dropped, instances: sum.instances, outcomes: sum.outcomes, took: s.took}
		sum.check()
		if err := sum.err(); err == nil || !strings.Contains(err.Error(), "is nowhere") || len(sum.problems) <= lost {
			t.Errorf("%s is gone: %v", test.what, err)
		}
	}
}
