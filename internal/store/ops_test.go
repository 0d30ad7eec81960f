package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// u is the id of instance n of a scenario, or of its lease n. Its key is key(n).
func u(n int) uuid.UUID { return uuid.UUID{6: 0x70, 8: 0x80, 15: byte(n)} }

func key(n int) string { return fmt.Sprint("k", n) }

// instance is live and nowhere yet: one of the others, or a lease, has to follow. set changes columns.
func instance(n int, set string) string {
	sql := fmt.Sprintf("insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state) values ('%s', '%s', '%s', 1, '%s', '%s', '%s', 'begin', '{}');\n",
		u(n), project, machine, queue, key(n), KeyScope(project, key(n)))
	if set != "" {
		sql += fmt.Sprintf("update pointsman.instances set %s where id = '%s';\n", set, u(n))
	}
	return sql
}

func awaiting(n, of int, tags string) string {
	return instance(n, fmt.Sprintf("parked = true, awaits = '{%s}', await_n = %d", tags, of))
}

// due awaits until a time that has come.
func due(n int) string {
	return instance(n, "parked = true, awaits = '{signal/pay}', due_at = now() - interval '1 s'") +
		fmt.Sprintf("insert into pointsman.timers select id, rev, due_at from pointsman.instances where id = '%s';\n", u(n))
}

func ready(n int) string {
	return instance(n, "") + fmt.Sprintf("insert into pointsman.ready (queue, priority, instance_id, rev) values ('%s', 0, '%s', 0);\n", queue, u(n))
}

const (
	valid   = "1 h"
	expired = "-1 s"
)

// leased are instances that execute under lease n.
func leased(n int, ends string, ids ...int) string {
	sql := ""
	var all []uuid.UUID
	for _, id := range ids {
		sql, all = sql+instance(id, "awaits = '{signal/pay}'"), append(all, u(id))
	}
	list, revs := "", "0"
	for i, id := range all {
		if i > 0 {
			list, revs = list+",", revs+",0"
		}
		list += id.String()
	}
	return sql + fmt.Sprintf("insert into pointsman.leases values ('%s', 'w', now() + interval '%s', '{%s}', '{%s}');\n", u(n), ends, list, revs)
}

// inbox gives instance n a signal with this id.
func inbox(n, id int, dedup string) string {
	return fmt.Sprintf("insert into pointsman.signals (instance_id, id, name, payload, dedup_key) values ('%s', %d, 'pay', '{}', '%s');\n", u(n), id, dedup) +
		fmt.Sprintf("insert into pointsman.ledger values ('%s', '%s', '%s', '%s', null, %d);\n", KeyScope(project, key(n)), SignalDedup(dedup), u(n), signal(key(n), "pay", dedup).Hash, id)
}

// onHold is a signal for the key of instance n.
func onHold(n int, ends, dedup string) string {
	g := signal(key(n), "pay", dedup)
	return fmt.Sprintf("insert into pointsman.held (project, key, dedup, hash, expires_at, kind, name, dedup_key, payload, message, body) values ('%s', '%s', '%s', '%s', now() + interval '%s', 'signal', 'pay', '%s', '%s', '{}', '%s');\n",
		project, g.Key, g.Dedup, g.Hash, ends, dedup, g.Payload, g.Payload)
}

func together(ops ...op) []op { return ops }

func inTurn(ops ...op) op {
	return func(ctx context.Context, s *Store) error {
		for _, o := range ops {
			if err := o(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// delivering takes signals in as the engine does: in one statement, then what that missed in the slow transaction, where it is
// held. It fails on a verdict that no caller can act on.
func delivering(sigs ...Signal) op { return accepting(nil, sigs...) }

// accepting is delivering, but starts instances for signals to nobody.
func accepting(starts map[string]NewInstance, sigs ...Signal) op {
	return func(ctx context.Context, s *Store) error {
		out, err := s.Deliver(ctx, project, sigs[0].Key == "", sigs)
		if err != nil {
			return err
		}
		if missing, at := missed(sigs, out); len(missing) > 0 {
			ds, err := s.trySlow(ctx, starts, missing...)
			if err != nil {
				return err
			}
			for k, d := range ds {
				out[at[k]] = d
			}
		}
		for i, d := range out {
			switch d.Verdict {
			case Delivered, Duplicate, Held:
				if err := accepted(ctx, s, sigs[i]); err != nil {
					return err
				}
			case Ended:
			default:
				return fmt.Errorf("verdict %d on %s", d.Verdict, sigs[i].DedupKey)
			}
		}
		return nil
	}
}

// accepted notes what an invariant will ask for. A redelivery is under whatever dedup key it came first.
func accepted(ctx context.Context, s *Store, g Signal) error {
	if g.Recheck {
		return nil
	}
	rows, err := s.db.Query(ctx, "insert into accepted values ($1)", g.DedupKey)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	return err
}

func starting(ns ...NewInstance) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.tryBegin(ctx, ns...)
		return err
	}
}

// fresh is a new instance with the id of n.
func fresh(n int, key string) NewInstance {
	in := newInstance(key)
	in.ID = u(n)
	return in
}

// ofMessage is a start that a message asks for.
func ofMessage(n NewInstance, seq uint64, dedup string) NewInstance {
	source := Source("r", "S", time.Unix(1, 0), seq)
	n = deduped(n, dedup)
	n.Source, n.Settles = &source, true
	return n
}

// cameAgain is a start by a message that is redelivered.
func cameAgain(n NewInstance) NewInstance {
	n.Recheck = true
	return n
}

func withUnique(n NewInstance, key string) NewInstance {
	n.UniqueKey, n.UniqueScope = key, ScopeRunnable|ScopeExecuting|ScopeAwaiting
	return n
}

// of is what the step of instance n came to under a lease, at the rev that scenarios begin with.
func of(n, token int, kind string) Outcome {
	return Outcome{ID: u(n), Project: project, Token: u(token), Kind: kind, Ran: "begin", Progress: kind != OutcomeReplay}
}

func parks(n, token int, effects ...Signal) Outcome {
	o := of(n, token, OutcomeAwait)
	o.Awaits, o.Signals = []string{"signal/pay"}, effects
	return o
}

// committing settles outcomes, the last of their leases.
func committing(os ...Outcome) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.tryCommit(ctx, os...)
		return err
	}
}

// committingPart leaves the lease to the other outcomes of its batch.
func committingPart(os ...Outcome) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Commit(ctx, os, Group{Publish: publish})
		return err
	}
}

// working picks at most n and has them await again what they awaited, which they consume.
func working(n int) op {
	return func(ctx context.Context, s *Store) error {
		works, err := s.Pick(ctx, queue, "", "w", known, n, time.Hour)
		if err != nil || len(works) == 0 {
			return err
		}
		var os []Outcome
		for _, w := range works {
			os = append(os, consuming(await(w, "signal/pay"), w))
		}
		_, err = s.tryCommit(ctx, os...)
		return err
	}
}

// ending picks at most n and ends them.
func ending(n int) op {
	return func(ctx context.Context, s *Store) error {
		works, err := s.Pick(ctx, queue, "", "w", known, n, time.Hour)
		if err != nil || len(works) == 0 {
			return err
		}
		var os []Outcome
		for _, w := range works {
			os = append(os, outcome(w, OutcomeDone))
		}
		_, err = s.tryCommit(ctx, os...)
		return err
	}
}

func picking(n int) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Pick(ctx, queue, "", "w", known, n, time.Hour)
		return err
	}
}

func canceling(ns ...int) op {
	return func(ctx context.Context, s *Store) error {
		var ids []uuid.UUID
		for _, n := range ns {
			ids = append(ids, u(n))
		}
		_, err := s.Cancel(ctx, ids, "", publish)
		return err
	}
}

// retrying tries again what instance n failed at. That it is not to be retried any more is no error.
func retrying(n int) op { return retryingAs(n, n) }

// retryingAs is retrying, of one that has the key of another.
func retryingAs(n, holder int) op {
	return func(ctx context.Context, s *Store) error {
		return s.InScopes(ctx, []uuid.UUID{KeyScope(project, key(holder))}, func(tx *Store) error {
			_, err := tx.Retry(ctx, u(n), nil, 0)
			return err
		})
	}
}

func pausing(n int) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Pause(ctx, []uuid.UUID{u(n)})
		return err
	}
}

func resuming(n int) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Resume(ctx, []uuid.UUID{u(n)})
		return err
	}
}

// without picks, and fails if that brings it an instance that is paused.
func without(n int) op {
	return func(ctx context.Context, s *Store) error {
		works, err := s.Pick(ctx, queue, "", "w", known, 2, time.Hour)
		for _, w := range works {
			if w.ID == u(n) {
				return fmt.Errorf("instance %d was picked while it is paused", n)
			}
		}
		return err
	}
}

func extending(token int) op {
	return func(ctx context.Context, s *Store) error {
		_, _, err := s.Extend(ctx, []uuid.UUID{u(token)}, time.Hour)
		return err
	}
}

func sweepingTimers(ctx context.Context, s *Store) error {
	_, _, err := s.SweepTimers(ctx, 8)
	return err
}

func sweepingLeases(ctx context.Context, s *Store) error {
	_, err := s.SweepLeases(ctx, 8)
	return err
}

func expiringHeld(ctx context.Context, s *Store) error {
	_, err := s.ExpireHeld(ctx, 8)
	return err
}

// dropping settles outcomes of other leases and drops this one, as a worker does whose last step of it was canceled.
func dropping(token int, os ...Outcome) op {
	return func(ctx context.Context, s *Store) error {
		_, err := s.Commit(ctx, os, Group{Last: []uuid.UUID{u(token), os[0].Token}, Publish: publish})
		return err
	}
}

func withRev(o Outcome, rev int32) Outcome {
	o.Rev = rev
	return o
}

// startedBy says that a start with this dedup key made instance n.
func startedBy(n int, dedup string) string {
	return fmt.Sprintf("insert into pointsman.ledger values ('%s', '%s', '%s', '%s');\n", KeyScope(project, key(n)), StartDedup(dedup), u(n), deduped(fresh(n, key(n)), dedup).Hash)
}

// hasParked says that instance n, leased before, has committed an await.
func hasParked(n int) string {
	return fmt.Sprintf("update pointsman.instances set rev = 1, parked = true where id = '%s';\n", u(n))
}

// pickedAgain says that instance n, leased before, has committed and is leased under token, at rev 1.
func pickedAgain(n, token int) string {
	return fmt.Sprintf("update pointsman.instances set rev = 1 where id = '%s';\n", u(n)) +
		fmt.Sprintf("insert into pointsman.leases values ('%s', 'w', now() + interval '1 h', '{%s}', '{1}');\n", u(token), u(n))
}

// ended is an instance that has ended at rev 1, in what set says beside.
func ended(n int, status, set string) string {
	if set != "" {
		set = ", " + set
	}
	return instance(n, fmt.Sprintf("live = false, status = '%s', finished_at = now(), rev = 1, awaits = '{signal/pay}'%s", status, set)) +
		fmt.Sprintf("insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, body) select 0, 'outcome', id, project, 'm', id || ':1', '' from pointsman.instances where id = '%s';\n", u(n))
}

// keeps is the signal that instance n, ended before, had in its inbox.
func keeps(n, id int, dedup string) string {
	return inbox(n, id, dedup) +
		fmt.Sprintf("update pointsman.instances set kept = (select jsonb_agg(to_jsonb(s) - 'instance_id') from pointsman.signals s where s.instance_id = '%s') where id = '%[1]s';\n", u(n)) +
		fmt.Sprintf("delete from pointsman.signals where instance_id = '%s';\n", u(n))
}

// paused is an instance, made before, that is paused.
func paused(n int) string {
	return fmt.Sprintf("update pointsman.instances set paused = true where id = '%s';\n", u(n))
}

// formerly is one that has failed, and had the key before.
func formerly(n int, key string) string {
	return ended(n, "failed", "") + fmt.Sprintf("update pointsman.instances set correlation_key = '%s', scope = '%s' where id = '%s';\n", key, KeyScope(project, key), u(n))
}
