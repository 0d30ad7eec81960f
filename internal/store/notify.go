package store

// notifiedColumns are what a webhook says of an instance that has ended, beside what is returned of it anyway.
const notifiedColumns = `,
    i.notify_url, i.parent_id, i.step, i.attempt, i.partition_key, i.unique_key, i.unique_scope, i.state, i.run_at, i.inserted_at, i.updated_at`

// notifyEnded writes webhooks for the ends in u. The data are the instance as the API gives it, from now on.
var notifyEnded = `, wh as (
  insert into pointsman.webhook_deliveries (project, source, source_id, url, type, body)
  select u.project, 'instance', u.id, u.notify_url, 'instance.' || u.status, json_build_object(
    'type', 'instance.' || u.status, 'timestamp', ` + jsonTime(`u.finished_at`) + `, 'data', json_build_object(
      'id', u.id, 'project', u.project, 'machine', u.machine, 'version', u.version, 'status', u.status, 'step', u.step, 'attempt', u.attempt,
      'correlation_key', u.correlation_key, 'queue', u.queue, 'priority', u.priority, 'partition_key', u.partition_key, 'unique_key', u.unique_key,
      'unique_scope', case when u.unique_key is not null then array(
        select s.name from unnest('{runnable,executing,awaiting_signal,done,failed,canceled}'::text[]) with ordinality s(name, ord)
        where u.unique_scope & (1 << (s.ord - 1)::int) <> 0 order by s.ord) end,
      'state', u.state, 'awaits', '{}'::text[], 'deadline', null, 'run_at', ` + jsonTime(`u.run_at`) + `, 'result', u.result, 'last_error', u.last_error,
      'paused', false, 'inbox_count', 0, 'lease', null, 'parent_id', u.parent_id, 'inserted_at', ` + jsonTime(`u.inserted_at`) + `, 'updated_at', ` + jsonTime(`u.updated_at`) + `,
      'finished_at', ` + jsonTime(`u.finished_at`) + `))
  from u where u.notify_url is not null and u.status is not null
)`

// jsonTime is a time as the API writes it.
func jsonTime(column string) string {
	return `to_char(` + column + ` at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}
