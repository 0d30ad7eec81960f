package store

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// wire counts how often a connection turned from listening to talking.
type wire struct {
	net.Conn
	trips    *atomic.Int64
	listened atomic.Bool
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.listened.Store(true)
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	if w.listened.Swap(false) {
		w.trips.Add(1)
	}
	return w.Conn.Write(b)
}

// wired is the fixture's store on a connection whose round trips are counted.
func wired(f *fixture, pooler bool) (*Store, *atomic.Int64) {
	trips := &atomic.Int64{}
	cfg := must(pgxpool.ParseConfig(f.db.URL))(f.t)
	Tune(cfg, pooler)
	cfg.MaxConns, cfg.PrepareConn = 1, nil
	cfg.HealthCheckPeriod = time.Hour
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &wire{Conn: conn, trips: trips}, err
	}
	pool := must(pgxpool.NewWithConfig(f.t.Context(), cfg))(f.t)
	f.t.Cleanup(pool.Close)
	return must(New(pool, f.schema))(f.t), trips
}

// The calls of the common path are one round trip each, once their statements are prepared.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, with := range []struct{ pooler, keyed bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		f := setup(t)
		f.parked("k", "signal/pay")
		if with.keyed {
			f.exec(`update pointsman.instances set partition_key = 'K'`)
		}
		s, trips := wired(f, with.pooler)
		minute := time.Minute
		calls := []struct {
			name string
			want int64
			call func() error
		}{
			{"deliver", 1, func() error {
				_, err := s.Deliver(t.Context(), project, false, []Signal{signal("k", "pay", uuid.NewString()), signal("nobody", "pay", "d")})
				return err
			}},
			{"pick and commit", 2, func() error {
				works, err := s.Pick(t.Context(), queue, "", "w", known, 8, time.Hour)
				if err != nil || len(works) == 0 {
					return fmt.Errorf("picked %d: %w", len(works), err)
				}
				o := consuming(await(works[0], "signal/pay"), works[0])
				o.Delay = &minute
				_, err = s.tryCommit(t.Context(), o)
				return err
			}},
			{"extend", 1, func() error { _, _, err := s.Extend(t.Context(), []uuid.UUID{uuid.New()}, time.Hour); return err }},
			{"sweep timers", 1, func() error { _, _, err := s.SweepTimers(t.Context(), 8); return err }},
			{"sweep leases", 1, func() error { _, err := s.SweepLeases(t.Context(), 8); return err }},
			{"start: begin, lock, start, commit", 4, func() error { _, err := s.tryBegin(t.Context(), newInstance(uuid.NewString())); return err }},
			{"next due", 1, func() error { _, err := s.NextDue(t.Context(), time.Hour); return err }},
		}
		for _, warm := range []bool{false, false, true} {
			for _, c := range calls {
				before := trips.Load()
				if err := c.call(); err != nil {
					t.Fatal(c.name, err)
				}
				if got := trips.Load() - before; warm && got != c.want {
					t.Errorf("%+v: %s takes %d round trips, want %d", with, c.name, got, c.want)
				}
			}
		}
	}
}
