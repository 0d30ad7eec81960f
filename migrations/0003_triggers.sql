-- Event triggers, webhooks.

create table pointsman.triggers (
  id               uuid        not null primary key,
  project          text        collate "C" not null,
  event_key        text        collate "C" not null,
  status           text        not null default 'waiting', -- received, timed_out, canceled
  source_type      text        not null,                   -- workflow_step, job_run, api
  trigger_type     text        not null default 'event',   -- sleep
  instance_id      uuid,
  step             text,
  timeout_secs     bigint      not null,
  requested_at     timestamptz not null default now(),
  expires_at       timestamptz not null,
  received_at      timestamptz,
  ended_at         timestamptz,
  notify_url       text,
  notify_status    text,
  event_emit_key   text,
  sent_by          text,
  error            text,
  request_payload  jsonb,
  response_payload jsonb
);
-- one waiting trigger a key; send by key and by prefix
create unique index triggers_waiting on pointsman.triggers (project, event_key) where status = 'waiting';
-- the latest trigger of a key; a resend
create index triggers_key on pointsman.triggers (project, event_key, requested_at);
-- timeouts
create index triggers_due on pointsman.triggers (expires_at) where status = 'waiting';
-- lists and retention
create index triggers_status on pointsman.triggers (project, status, id);
create index triggers_ended on pointsman.triggers (ended_at) where status <> 'waiting';
create index triggers_instance on pointsman.triggers (instance_id) where instance_id is not null;

-- Events that were sent before anybody waited for them.
create table pointsman.held_events (
  project    text        collate "C" not null,
  event_key  text        collate "C" not null,
  expires_at timestamptz not null,
  sent_at    timestamptz not null default now(),
  sent_by    text,
  payload    jsonb,
  primary key (project, event_key)
);
create index held_events_expiry on pointsman.held_events (expires_at);

-- One row a project, locked by who creates or ends a trigger: what makes a quota exact.
create table pointsman.quotas (
  project         text   collate "C" not null primary key,
  active_triggers bigint not null default 0
);

create table pointsman.webhook_deliveries (
  id          uuid        not null primary key,
  project     text        collate "C" not null,
  status      text        not null default 'pending', -- delivered, failed
  attempts    smallint    not null default 0,
  next_at     timestamptz not null default now(),
  created_at  timestamptz not null default now(),
  updated_at  timestamptz not null default now(),
  source      text        not null,                   -- trigger, instance
  source_id   uuid        not null,
  url         text        not null,
  type        text        not null,
  last_status integer,
  last_error  text,
  response    text,
  body        jsonb       not null
);
create index webhook_deliveries_due on pointsman.webhook_deliveries (next_at) where status = 'pending';
create index webhook_deliveries_status on pointsman.webhook_deliveries (project, status, id);
create index webhook_deliveries_source on pointsman.webhook_deliveries (source_id);

do $$
declare t text;
begin
  foreach t in array '{triggers,webhook_deliveries,quotas}'::text[] loop
    execute format('alter table pointsman.%I set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)', t);
  end loop;
end $$;
