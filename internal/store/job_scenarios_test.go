package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// job is a counted one, at its beginning.
func job(kind string) string {
	return fmt.Sprintf("insert into pointsman.jobs (id, project, kind, counted, filter, args) values ('%s', '%s', '%s', true, '{}', '{}');\n", u(80), project, kind)
}

// bulk does a batch of the job, of at most so many instances, as the engine's runner does.
func bulk(f Filter, most int, act func(ctx context.Context, tx *Store, ids []uuid.UUID) (done int, err error)) op {
	f.Project, f.Only = project, OnlyLive
	return func(ctx context.Context, s *Store) error {
		_, err := s.WorkJob(ctx, uuid.Nil, func(tx *Store, j Job) (step JobStep, err error) {
			ids, next, err := tx.Matching(ctx, f, j.Cursor, most)
			if err != nil {
				return step, err
			}
			still, err := tx.StillMatching(ctx, f, ids, j.Kind == "cancel")
			if err != nil {
				return step, err
			}
			done, err := act(ctx, tx, still)
			step = JobStep{Counted: true, Cursor: next, Done: int64(done), Skipped: int64(len(ids) - done)}
			if next == uuid.Nil {
				step.Ended = "done"
			}
			return step, err
		})
		return err
	}
}

func bulkCanceling(f Filter, most int) op {
	return bulk(f, most, func(ctx context.Context, tx *Store, ids []uuid.UUID) (int, error) {
		canceled, err := tx.Cancel(ctx, ids, "", publish)
		return len(canceled.IDs), err
	})
}

// bulkSignaling sends each "pay" under a dedup key of its own.
func bulkSignaling(most int) op {
	return bulk(Filter{}, most, func(ctx context.Context, tx *Store, ids []uuid.UUID) (done int, err error) {
		var sigs []Signal
		for _, id := range ids {
			sigs = append(sigs, signalID(id, "pay", "job "+id.String()))
		}
		out, err := tx.DeliverSlow(ctx, project, true, sigs)
		for _, d := range out {
			if d.Verdict == Delivered {
				done++
			}
		}
		return done, err
	})
}

func jobScenarios() []scenario {
	// What has been done is what was counted, once for each instance.
	canceledOnce := `select 1 from pointsman.jobs j where j.done <> (select count(*) from pointsman.history where outcome = 'cancel')
		or j.done <> (select count(*) from pointsman.instances where status = 'canceled')`
	signaledOnce := `select 1 from pointsman.jobs j where j.done <> (select count(*) from pointsman.witness) union all select 2 from pointsman.jobs j where j.done + j.skipped > 3`
	three := awaiting(1, 1, "signal/pay") + awaiting(2, 1, "signal/pay") + awaiting(3, 1, "signal/pay")
	parked := Filter{Status: "awaiting_signal"}
	family := awaiting(1, 1, allChildren) + leased(90, valid, 2) + childOf(1, 2)
	return []scenario{
		{"bulk cancel / commit", leased(90, valid, 1) + job("cancel"), together(bulkCanceling(Filter{}, 2), committing(of(1, 90, OutcomeNext))), canceledOnce},
		{"bulk cancel / end", leased(90, valid, 1) + job("cancel"), together(bulkCanceling(Filter{}, 2), committing(of(1, 90, OutcomeDone))), canceledOnce},
		{"bulk cancel, end of a child / cancel of the parent", family + job("cancel"), together(bulkCanceling(Filter{}, 2), committing(endsFor(2, 90, 1))), canceledOnce},
		{
			"bulk cancel of the parked / deliver", awaiting(1, 1, "signal/pay") + job("cancel"), together(bulkCanceling(parked, 2), delivering(pay(1, "d1"))),
			canceledOnce + ` union all select 2 from pointsman.instances where status = 'canceled' and not parked`,
		},
		{"bulk signal / park", leased(90, valid, 1) + job("signal"), together(bulkSignaling(2), committing(parks(1, 90))), signaledOnce},
		{"bulk signal / cancel", awaiting(1, 1, "signal/pay") + awaiting(2, 1, "signal/pay") + job("signal"), together(bulkSignaling(2), canceling(1)), signaledOnce},
		{"job / job, one batch after another", three + job("cancel"), together(inTurn(bulkCanceling(Filter{}, 1), bulkCanceling(Filter{}, 1)), bulkCanceling(Filter{}, 1)), canceledOnce},
		{"job / job, signals", three + job("signal"), together(inTurn(bulkSignaling(1), bulkSignaling(2)), inTurn(bulkSignaling(1), bulkSignaling(2))), signaledOnce},
		{"job / cancel of the job", three + job("signal"), together(inTurn(bulkSignaling(1), bulkSignaling(2)), func(ctx context.Context, s *Store) error {
			_, err := s.CancelJob(ctx, project, u(80))
			return err
		}), signaledOnce},
	}
}

// jobSabotages take away what keeps jobs exact.
func jobSabotages() []sabotage {
	return []sabotage{
		{"a batch is not looked at again under its locks", []edit{{func(x *texts) *string { return &x.stillMatching }, "order by c.id limit $8", "or c.id = any($13) order by c.id limit $8"}}, []string{"bulk cancel of the parked / deliver"}},
		{"two have one job", []edit{{func(x *texts) *string { return &x.takeJob }, "for update skip locked", ""}}, []string{"job / job, signals"}},
	}
}
