-- The stable way to read the tables. Status is derived: ended from the row; awaiting_signal is parked; executing is in a lease
-- at the instance's rev; else runnable.

create view pointsman.v_instances as
select i.id, i.project, i.machine, i.version,
  case when not i.live then i.status when i.parked then 'awaiting_signal' when l.worker is not null then 'executing' else 'runnable' end as status,
  i.step, i.attempt, i.correlation_key, i.queue, i.priority, i.partition_key, i.unique_key, i.unique_scope, i.state,
  case when i.live and i.parked then array(select substr(a, strpos(a, '/') + 1) from unnest(i.awaits) a where a <> 'child/*') else '{}' end as awaits,
  case when i.live and i.parked then i.due_at end as deadline,
  case when i.live and i.delayed then i.due_at else i.run_at end as run_at,
  i.result, i.last_error, i.live and i.paused as paused, i.parent_id, i.reply_to,
  (select count(*) from pointsman.signals s where s.instance_id = i.id) as inbox_count,
  i.inserted_at, i.updated_at, i.finished_at, l.worker as lease_worker, l.expires_at as lease_expires_at, i.rev
from pointsman.instances i
left join lateral (
  select l.worker, l.expires_at from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev)
  where i.live and not i.parked and x.id = i.id and x.rev = i.rev limit 1) l on true;

create view pointsman.v_inbox as
select s.instance_id, i.project, i.correlation_key, s.id, s.kind, s.name, s.payload, s.dedup_key, s.sent_by, s.inserted_at
from pointsman.signals s join pointsman.instances i on i.id = s.instance_id;

create view pointsman.v_triggers as
select id, event_key, project as project_id, source_type, trigger_type, instance_id, step,
  case when source_type = 'workflow_step' then instance_id end as workflow_run_id, case when source_type = 'workflow_step' then step end as workflow_step_run_id,
  case when source_type = 'job_run' then instance_id end as job_run_id, status, timeout_secs, request_payload, response_payload,
  requested_at, received_at, expires_at, ended_at, error, notify_url, notify_status, event_emit_key, sent_by
from pointsman.triggers;
