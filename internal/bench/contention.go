package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// contention is what many routes, many copies of the programs, and somebody's old snapshot cost.
func contention(ctx context.Context, b *run) error {
	cn := &contended{run: b}
	about := b.aboutCycles()
	if err := cn.by(ctx, "routes", about+". They are spread over so many routes of one bridge", b.Routes, func(n int) setting {
		return setting{routes: n, copies: 1}
	}); err != nil {
		return err
	}
	if err := cn.by(ctx, "copies", about+". So many bridges share the routes, and as many workers the queue", b.Copies, func(n int) setting {
		return setting{routes: b.Conns, copies: n}
	}); err != nil {
		return err
	}
	alone := setting{routes: b.Conns, copies: 1}
	held := alone
	held.snapshot = true
	return b.alternate(ctx, &Case{Name: "snapshot", Unit: "cycle", About: about + ". Nothing that is deleted meanwhile can be vacuumed where somebody holds a snapshot from before"},
		side{"held", "a transaction from before the first message is open to the end", cn.path(held)},
		side{"none", "nobody else is there", cn.path(alone)},
	)
}

// contended has the instances that all of its probes are for.
type contended struct {
	*run
	parked *instances
}

// setting is what a cycle goes through.
type setting struct {
	routes, copies int
	snapshot       bool // somebody holds an old one
}

// by makes a case with a side for each number, the largest first: it is what is judged.
func (cn *contended) by(ctx context.Context, name, about string, numbers []int, set func(n int) setting) error {
	var sides []side
	for _, n := range slices.Backward(slices.Sorted(slices.Values(numbers))) {
		sides = append(sides, side{strconv.Itoa(n), fmt.Sprintf("%d %s", n, name), cn.path(set(n))})
	}
	return cn.alternate(ctx, &Case{Name: name, Unit: "cycle", About: about}, sides...)
}

// path is a cycle of programs that are started for it, over a stream that no other setting has consumers of.
func (cn *contended) path(s setting) probe {
	return func(ctx context.Context, m *measurement) (err error) {
		r := *cn.run
		r.Conns = s.routes
		r.stopPrograms()
		if err := r.js.DeleteStream(ctx, streamIn); err != nil {
			return fmt.Errorf("delete stream %s: %w", streamIn, err)
		}
		if err := r.makeStreams(ctx); err != nil {
			return err
		}
		var programs []string
		for range s.copies {
			programs = append(programs, partBridge, partWorker)
		}
		if err := r.runParts(ctx, r.config(slots(maxGroup)), programs...); err != nil {
			return err
		}
		if s.snapshot {
			release, err := r.snapshot(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, release()) }()
		}
		cy := &cycles{run: &r, parked: cn.parked}
		err = cy.path(ctx, m)
		cn.parked = cy.parked
		return err
	}
}

// snapshot holds one as a report or a backup does, until it is released.
func (b *run) snapshot(ctx context.Context) (release func() error, err error) {
	tx, err := b.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	release = func() error { return tx.Rollback(context.WithoutCancel(ctx)) }
	if _, err := tx.Exec(ctx, `select 1`); err != nil {
		return nil, errors.Join(fmt.Errorf("hold a snapshot: %w", err), release())
	}
	return release, nil
}
