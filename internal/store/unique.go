package store

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Bits of a unique scope: the statuses in which a unique key is held.
const (
	ScopeRunnable int16 = 1 << iota
	ScopeExecuting
	ScopeAwaiting
	ScopeDone
	ScopeFailed
	ScopeCanceled
)

// takes reports whether the start has to hold its unique key. One with a time to run at is runnable too.
func (n *NewInstance) takes() bool { return n.UniqueKey != "" && n.UniqueScope&ScopeRunnable != 0 }

// moves reports whether an executing instance may come into the scope of its unique key, or out of it, by this outcome. One that parks
// may be woken by the same transaction.
func (o *Outcome) moves() bool {
	passes := ScopeExecuting
	switch o.Kind {
	case OutcomeDone:
		passes |= ScopeDone
	case OutcomeStop:
		passes |= ScopeFailed
	case OutcomeAwait:
		passes |= ScopeAwaiting | ScopeRunnable
	default:
		passes |= ScopeRunnable
	}
	in := o.UniqueScope & passes
	return in != 0 && in != passes
}

// Unguarded is how often an instance has come back into the scope of its unique key while another held it, and went on without; those of
// transactions that were rolled back included.
func (s *Store) Unguarded() int64 { return s.shared.unguarded.Load() }

// guard makes the unique keys of those in s.moved, which this transaction has locked and changed, say what their status says, and takes
// those of the starts at these indexes: won are the indexes that have theirs now. All in one statement, in the order of the keys: two
// of them in one transaction could deadlock with those of another. It is the last of its transaction to lock anything, but that what it
// starts is new.
func (s *Store) guard(ctx context.Context, project string, ns []NewInstance, at []int) (won map[int]bool, err error) {
	var of []int
	var projects, keys []string
	var ids []uuid.UUID
	for _, i := range at {
		if ns[i].takes() {
			of, projects, keys, ids = append(of, i), append(projects, project), append(keys, ns[i].UniqueKey), append(ids, ns[i].ID)
		}
	}
	moved := s.moved
	s.moved = nil
	if len(moved)+len(of) == 0 {
		return nil, nil
	}
	won = make(map[int]bool, len(of))
	err = s.run(ctx, s.guarding(moved, projects, keys, ids, func(ord int) { won[of[ord]] = true }))
	return won, err
}

// guarding is the statement of guard. won is called with the index of each start that has its key.
func (s *Store) guarding(moved []uuid.UUID, projects, keys []string, ids []uuid.UUID, won func(at int)) statement {
	return statement{"guard", s.text.guard, []any{moved, projects, keys, ids}, func(r pgx.Rows) error {
		var ord int
		var has bool
		err := r.Scan(&ord, &has)
		switch {
		case ord > 0 && has:
			won(ord - 1)
		case ord == 0 && !has:
			s.shared.unguarded.Add(1)
		}
		return err
	}}
}

// guardText ($1 ids; arrays of starts: $2 projects, $3 keys, $4 ids). None of these executes: a commit, a wake or an end put it where
// it is.
const guardText = `
with /* guard */ t as materialized (
  select i.id, i.project, i.unique_key, (i.unique_scope & case when i.live then case when i.parked then 4 else 1 end
    when i.status = 'done' then 8 when i.status = 'failed' then 16 else 32 end) <> 0 as occupies, coalesce(k.own, false) as own
  from pointsman.instances i
  left join lateral (
    select true as own from pointsman.unique_keys k where k.project = i.project and k.key = i.unique_key and k.instance_id = i.id limit 1) k on true
  where i.id = any($1) and i.unique_key is not null
), moved as materialized (
  select id, project, unique_key, own and not occupies as leaves, occupies and not own as enters, 0 as ord from t where own <> occupies
  union all
  select id, project collate "C", key collate "C", false, true, ord from unnest($2::text[], $3::text[], $4::uuid[]) with ordinality n(project, key, id, ord)
), ` + uniqueMoves + `
select ord::int, (key, id) in (select key, instance_id from has) from (select ord, unique_key as key, id from moved where enters) m`

// uniqueMoves takes and gives up the unique keys of moved (id, project, unique_key, leaves, enters, ord). has is who has come by its key.
// Who takes a key may have to wait for another transaction, who gives one up never has: takes come first, in the order of the keys, so
// that nobody waits in a circle. A key that is given up and wanted in the same statement changes hands: an instance may start the next
// one with its key as it ends. Each delete finds its row by itself: a join would be planned as a scan of all keys.
const uniqueMoves = `taken as (
  insert into pointsman.unique_keys (project, key, instance_id)
  select project, unique_key, id from moved where enters order by project, unique_key, ord
  on conflict do nothing returning key, instance_id
), given as (
  delete from pointsman.unique_keys where (select count(*) from taken) >= 0 and ctid = any(array(
    select k.ctid from moved m cross join lateral (
      select k.ctid from pointsman.unique_keys k where k.project = m.project and k.key = m.unique_key and k.instance_id = m.id limit 1) k
    where m.leaves))
  returning 1
), handed as (
  insert into pointsman.unique_keys (project, key, instance_id)
  select distinct on (project, unique_key) project, unique_key, id
  from (select moved.*, bool_or(leaves) over (partition by project, unique_key) as given_up from moved) m
  where enters and given_up and (select count(*) from given) >= 0
  order by project, unique_key, ord
  on conflict do nothing returning key, instance_id
), has as (
  select key, instance_id from taken union all select key, instance_id from handed
)`

// giveBack drops the unique keys that starts have won and then did not start (their correlation key or id was taken, or they are
// duplicates). It returns those that were refused for one of these keys, or for one whose holder was gone when it was looked for: they
// are to be started again.
func (s *Store) giveBack(ctx context.Context, project string, ns []NewInstance, at []int, won map[int]bool, out []Start) (again []int, err error) {
	var keys []string
	var ids []uuid.UUID
	for _, i := range at {
		if won[i] && out[i].Verdict != Started {
			keys, ids = append(keys, ns[i].UniqueKey), append(ids, ns[i].ID)
		}
	}
	for _, i := range at {
		if out[i].Verdict == Taken && out[i].Unique && (out[i].InstanceID == uuid.Nil || slices.Contains(keys, ns[i].UniqueKey)) {
			again = append(again, i)
		}
	}
	if len(keys) == 0 {
		return again, nil
	}
	return again, s.each(ctx, "give back", s.text.giveBack, nil, project, keys, ids)
}

const giveBackText = `
delete /* give back */ from pointsman.unique_keys where ctid = any(array(
  select k.ctid from unnest($2::text[], $3::uuid[]) t(key, id)
  cross join lateral (select k.ctid from pointsman.unique_keys k where k.project = $1 and k.key = t.key and k.instance_id = t.id limit 1) k))`
