-- A job that is asked for again by its key is the same; one that cancels comes to the children too.
alter table pointsman.jobs
  add column dedup_key text collate "C",
  add column hash      uuid,                       -- of what was asked for, with a dedup key
  add column below     uuid[] not null default '{}'; -- whose children are still to be canceled, before the next batch
-- the same request again
create unique index jobs_dedup on pointsman.jobs (project, dedup_key) where dedup_key is not null;

-- The view has the names of the JSON, and their values: unique_scope is a list of statuses, lease an object.
drop view pointsman.v_instances;
create view pointsman.v_instances as
select i.id, i.project, i.machine, i.version,
  case when not i.live then i.status when i.parked then 'awaiting_signal' when l.worker is not null then 'executing' else 'runnable' end as status,
  i.step, i.attempt, i.correlation_key, i.queue, i.priority, i.partition_key, i.unique_key,
  case when i.unique_key is not null then array(
    select s.status from unnest('{runnable,executing,awaiting_signal,done,failed,canceled}'::text[]) with ordinality s(status, ord)
    where i.unique_scope & (1 << (s.ord - 1)::int) <> 0 order by s.ord) end as unique_scope, i.state,
  case when i.live and i.parked then array(select substr(a, strpos(a, '/') + 1) from unnest(i.awaits) a where a <> 'child/*') else '{}' end as awaits,
  case when i.live and i.parked then i.due_at end as deadline,
  case when i.live and i.delayed then i.due_at else i.run_at end as run_at,
  i.result, i.last_error, i.live and i.paused as paused, i.parent_id, i.reply_to,
  (select count(*) from pointsman.signals s where s.instance_id = i.id) as inbox_count,
  case when l.worker is not null then jsonb_build_object('worker', l.worker, 'expires_at', l.expires_at) end as lease,
  i.inserted_at, i.updated_at, i.finished_at, l.worker as lease_worker, l.expires_at as lease_expires_at, i.unique_scope as unique_scope_bits, i.rev
from pointsman.instances i
left join lateral (
  select l.worker, l.expires_at from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev)
  where i.live and not i.parked and x.id = i.id and x.rev = i.rev limit 1) l on true;
