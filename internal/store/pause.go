package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Pause keeps live instances from being picked and from being woken, until they are resumed. What executes goes on, and its outcome
// counts. It returns those that it paused.
func (s *Store) Pause(ctx context.Context, instances []uuid.UUID) (paused []uuid.UUID, err error) {
	err = s.together(ctx, s.lockInstances(instances), statement{"pause", s.text.pause, []any{instances}, func(r pgx.Rows) error {
		var id uuid.UUID
		err := r.Scan(&id)
		paused = append(paused, id)
		return err
	}})
	return paused, err
}

// Resumed says what a resume came to.
type Resumed struct {
	IDs   []uuid.UUID // the instances that were paused
	Woken []string    // queues that have more to do for it
}

// Resume undoes Pause: what may run is ready again, what waits for a time has a timer again, and what waits for signals that have come
// meanwhile is woken.
func (s *Store) Resume(ctx context.Context, instances []uuid.UUID) (out Resumed, err error) {
	err = s.inTx(ctx, func(tx *Store) error {
		out = Resumed{}
		if err := tx.run(ctx, tx.lockInstances(instances)); err != nil {
			return err
		}
		var parked []uuid.UUID
		err := tx.each(ctx, "resume", tx.text.resume, func(r pgx.Rows) error {
			var id uuid.UUID
			var waits bool
			var queue *string
			err := r.Scan(&id, &waits, &queue)
			out.IDs = append(out.IDs, id)
			if waits {
				parked = append(parked, id)
			}
			if queue != nil {
				out.Woken = append(out.Woken, *queue)
			}
			return err
		}, instances)
		if err != nil || len(parked) == 0 {
			return err
		}
		told, err := tx.Tell(ctx, parked)
		if err != nil {
			return err
		}
		out.Woken = append(out.Woken, told...)
		queues, err := tx.Recheck(ctx, parked)
		for _, queue := range queues {
			out.Woken = append(out.Woken, queue)
		}
		return err
	})
	return out, err
}

// lockInstances comes before the statement that reads what depends on their revs: leases, history. Its snapshot is younger than the
// locks then.
func (s *Store) lockInstances(instances []uuid.UUID) statement {
	return statement{"lock instances", s.text.lockIDTargets, []any{"", instances}, nil}
}

// pauseText ($1 ids) leaves the rev, for the outcome of what executes. Ready rows and timers stay: picks and sweeps drop those of the
// paused.
const pauseText = `
with /* pause */ u as (
  update pointsman.instances i set paused = true, updated_at = now() where i.id = any($1) and ` + alive + ` and not i.paused
  returning i.id, i.rev, i.step, i.attempt
), {noted}
select id from u`

// resumeText ($1 ids) moves the rev, so that no ready row from before the pause is there beside the new one; not of what executes, whose
// commit puts it where it belongs. What a lost lease returned meanwhile was to be leased alone: its attempt tells.
const resumeText = `
with /* resume */ leased as materialized (
  select x.id, x.rev from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) where x.id = any($1)
), p as materialized (
  select i.id, (i.id, i.rev) not in (select id, rev from leased) as moves from pointsman.instances i where i.id = any($1) and ` + alive + ` and i.paused
), u as (
  update pointsman.instances i set paused = false, rev = i.rev + p.moves::int, updated_at = now() from p where i.id = p.id
  returning i.id, i.queue, i.priority, i.rev, i.step, i.attempt, i.parked, i.delayed, i.due_at, p.moves
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev, solo)
  select queue, priority, id, rev, attempt > 0 from u where moves and not parked and not delayed
), ` + rearm + `, {noted}
select id, parked, case when moves and not parked and not delayed then queue end from u`

// noted is the history of what u has been told. Whoever else writes history of these has committed before this statement began.
func noted(outcome string) string {
	return `hi as (
  insert into pointsman.history (instance_id, rev, nth, step, outcome, attempt)
  select u.id, u.rev, coalesce((
    select h.nth + 1 from pointsman.history h where h.instance_id = u.id and h.rev = u.rev order by h.nth desc limit 1), 0), u.step, '` + outcome + `', u.attempt from u
)`
}

// LockInstances locks instances, live or not, until the end of the transaction.
func (s *Store) LockInstances(ctx context.Context, instances []uuid.UUID) error {
	return s.run(ctx, s.lockInstances(instances))
}
