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
  requested_at     timestamptz not null default clock_timestamp(), -- read under the lock of the key, so that the latest trigger of a key has the latest
  expires_at       timestamptz not null,
  received_at      timestamptz,
  ended_at         timestamptz,
  notify_url       text,
  notify_status    text,
  event_emit_key   text,
  sent_by          text,
  error            text,
  missed_visit     integer,                                -- of the instance: it was in this visit when the trigger ended without its event, and not parked on it
  with_instance    boolean     not null default false,     -- canceled by the end of its instance: a retry brings it back
  ledger           uuid,                                   -- scope of the ledger row of the message that sent the event
  request_payload  jsonb,
  response_payload jsonb
);
-- one waiting trigger a key; send by key and by prefix
create unique index triggers_waiting on pointsman.triggers (project, event_key) where status = 'waiting';
-- the latest trigger of a key; a resend
create index triggers_key on pointsman.triggers (project, event_key, requested_at);
-- timeouts
create index triggers_due on pointsman.triggers (expires_at) where status = 'waiting';
-- lists, counts
create index triggers_status on pointsman.triggers (project, status, id);
-- purge and retention
create index triggers_ended on pointsman.triggers (project, ended_at) where status <> 'waiting';
-- those of an instance: its end, its awaits, lists
create index triggers_instance on pointsman.triggers (instance_id, id) where instance_id is not null;

-- Events that were sent before anybody waited for them: one a key, and those of it whose time is over.
create table pointsman.held_events (
  id         bigint      generated always as identity primary key,
  project    text        collate "C" not null,
  event_key  text        collate "C" not null,
  expires_at timestamptz not null,
  sent_at    timestamptz not null default now(),
  sent_by    text,
  dedup      uuid,                  -- of the message that it came by,
  hash       uuid,                  -- and its body,
  source     uuid,                  -- and its place
  payload    jsonb       not null,
  message    text,                  -- JSON, as of held; null: its expiry leaves no dead letter
  body       bytea
);
-- adoption by a trigger; another one of the key
create index held_events_key on pointsman.held_events (project, event_key, id);
create index held_events_expiry on pointsman.held_events (expires_at);

-- One row a project that has a quota, locked by who creates a trigger: what makes it exact. Ends do not count down, so that they wait for
-- nobody: the number is what there was at the last count and all that was created since. Where that reaches the limit it is counted anew.
create table pointsman.quotas (
  project         text   collate "C" not null primary key,
  active_triggers bigint not null default 0,
  max_triggers    bigint not null default 0 -- the limit that it was counted for; 0: something was created without counting
);

-- Webhooks to be sent, and what became of them. Who writes one gives project, source, source_id, url, type and body. Due is what is
-- pending at next_at: a claim sets that to when the claim ends, and "claim" forth, so that what a sender that stood still brings late is
-- known as late.
create table pointsman.webhook_deliveries (
  id          uuid        not null primary key default -- a UUIDv7: in the order of time
    encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
      placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid,
  project     text        collate "C" not null,
  status      text        not null default 'pending', -- delivered, failed
  attempts    smallint    not null default 0,         -- that have a result
  claim       integer     not null default 0,
  next_at     timestamptz not null default now(),
  created_at  timestamptz not null default now(),
  updated_at  timestamptz not null default now(),
  source      text        not null,                   -- trigger, instance
  source_id   uuid        not null,
  url         text        not null,
  host        text        collate "C" not null generated always as (coalesce(substring(lower(url collate "C") from '^https?://([^/?#]+)'), '')) stored, -- with its port
  type        text        not null,
  last_status integer,                                -- of HTTP; null: no answer
  last_error  text,
  response    text,                                   -- the beginning of the last answer
  body        json        not null                    -- {type, timestamp, data}, as it is sent
);
-- the hosts that something is pending for, and what is due of one
create index webhook_deliveries_due on pointsman.webhook_deliveries (host, next_at) where status = 'pending';
-- when the next is due
create index webhook_deliveries_next on pointsman.webhook_deliveries (next_at) where status = 'pending';
-- lists
create index webhook_deliveries_status on pointsman.webhook_deliveries (project, status, id);
-- retention
create index webhook_deliveries_ended on pointsman.webhook_deliveries (updated_at) where status <> 'pending';
-- what became of a trigger's
create index webhook_deliveries_source on pointsman.webhook_deliveries (source_id);

do $$
declare t text;
begin
  foreach t in array '{triggers,webhook_deliveries,quotas}'::text[] loop
    execute format('alter table pointsman.%I set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)', t);
  end loop;
end $$;
