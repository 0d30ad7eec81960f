-- The engine's own tables. Every write to them is in internal/store.

create sequence pointsman.signal_ids;

-- One row an instance. "parked" is an await, "delayed" a sleep, a replay with a delay or a start in the future: both mean that
-- only a wake moves it. No index on anything that a step changes, so that every update stays on its page (HOT).
-- What a wake changes comes first, wide values last: the WAL of an update is the span from its first changed byte to its last.
create table pointsman.instances (
  parked          boolean     not null default false,
  delayed         boolean     not null default false,
  paused          boolean     not null default false,
  timed_out       boolean     not null default false, -- the last wake was the deadline
  wait_canceled   boolean     not null default false, -- the last wake was a canceled event
  live            boolean     not null default true,
  await_n         smallint    not null default 1,     -- how many of the awaited names have to be there
  priority        smallint    not null default 0,     -- lower is earlier
  unique_scope    smallint    not null default 0,     -- bits: 1 runnable, 2 executing, 4 awaiting_signal, 8 done, 16 failed, 32 canceled
  attempt         integer     not null default 0,
  uncounted       integer     not null default 0,     -- of attempt: what does not count towards max_attempts (replays as asked for, lost leases that were shared, all before an await)
  rev             integer     not null default 0,     -- counts commits; the fence of every write
  visit           integer     not null default 0,     -- counts progress and awaits; the idempotency key is (id, visit)
  version         integer     not null,
  id              uuid        not null,
  scope           uuid        not null,               -- of the ledger: hash of (project, correlation key), or the id
  handed_to       bigint      not null default 0,     -- what is named in "handed" and has an id up to this does not wake
  due_at          timestamptz,                        -- of the await or the delay
  run_at          timestamptz,                        -- as asked for at the start
  inserted_at     timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  finished_at     timestamptz,
  project         text        collate "C" not null,
  machine         text        collate "C" not null,
  queue           text        collate "C" not null,
  correlation_key text        collate "C",
  partition_key   text        collate "C",
  unique_key      text        collate "C",
  status          text,                               -- of the ended: done, failed, canceled
  step            text        not null,
  awaits          text[]      not null default '{}',  -- kind/name; of children child/*, and how many
  handed          text[]      not null default '{}',  -- kind/name the step that parked was handed
  await_where     jsonb,                              -- name -> JSON path predicate over the payload
  handed_where    jsonb,                              -- of what was handed: the await_where before
  parent_id       uuid,
  reply_to        text,
  notify_url      text,
  traceparent     text,
  state           jsonb       not null,
  result          jsonb,
  last_error      text,
  kept            jsonb                               -- the inbox of a failed or canceled one, for a retry
) with (fillfactor = 80);
alter table pointsman.instances add primary key (id);
-- who holds a key now; deliver and start
create unique index instances_live on pointsman.instances (project, correlation_key) where live;
-- who held a key last; the verdict of a signal that comes after the end
create index instances_ended on pointsman.instances (project, correlation_key, finished_at) where not live;
-- lists by status
create index instances_finished on pointsman.instances (project, status, finished_at) where not live;
-- retention: the oldest ends of all projects. Ends come in the order of time, so an insert finds the page it needs at the right edge.
create index instances_retained on pointsman.instances (finished_at, id) where not live;
-- join on children: is one live? And lists of children, the live and the ended
create index instances_parent on pointsman.instances (parent_id, live, id) where parent_id is not null;

-- What may run now. Inserted by a wake, deleted by a pick, never updated.
-- A row whose rev is not its instance's is stale; pick drops it.
create table pointsman.ready (
  queue       text        collate "C" not null,
  lane        text        collate "C" not null default '', -- "machine@version" that the worker who picked it did not know; "~" before it: nothing else of its kind at once
  priority    smallint    not null,
  run_at      timestamptz not null default now(),
  instance_id uuid        not null,
  rev         integer     not null,
  solo        boolean     not null default false,          -- to be leased alone: its last lease was lost
  project     text        collate "C",                     -- of one that has been given the turn of a partition key: who drops the row
  key         text        collate "C"                      -- gives it on, also when the instance is deleted by then
);
-- pick
create index ready_pick on pointsman.ready (queue, lane, priority, run_at);

-- One row a picked batch: the instances in it at these revs are executing.
create table pointsman.leases (
  token      uuid        not null primary key,
  worker     text        not null,
  expires_at timestamptz not null,
  ids        uuid[]      not null,
  revs       integer[]   not null,
  alone      boolean     not null default false            -- of a lane with "~"
);
-- sweep
create index leases_expiry on pointsman.leases (expires_at);
-- what else a worker had that lost a lease
create index leases_worker on pointsman.leases (worker);

-- Await deadlines, sleeps, delayed starts and replays, of instances that have one. Stale by rev, as ready.
create table pointsman.timers (
  instance_id uuid        not null,
  rev         integer     not null,
  run_at      timestamptz not null
);
-- commit drops the timer of the await that its step came from
create index timers_instance on pointsman.timers (instance_id, rev);
-- sweep
create index timers_due on pointsman.timers (run_at);

-- The inboxes. Ids are drawn under the lock of the instance, so within one inbox they are in the order of arrival.
create table pointsman.signals (
  instance_id uuid        not null,
  id          bigint      not null default nextval('pointsman.signal_ids'),
  kind        text        not null default 'signal', -- signal, update, event, child
  name        text        not null,
  dedup_key   text,
  traceparent text,
  sent_by     text,
  inserted_at timestamptz not null default now(),
  payload     jsonb       not null,
  primary key (instance_id, id)
);

-- What has been taken in, under 128-bit hashes; outlives consumption and the instance.
create table pointsman.ledger (
  scope       uuid        not null, -- of the instance: its key's, so that a redelivery after the end is known too
  dedup       uuid        not null,
  instance_id uuid        not null,
  hash        uuid        not null, -- of name and body: another one under the same dedup is a conflict
  source      uuid,                 -- of stream, its creation and sequence
  signal_id   bigint,
  at          timestamptz not null default now(),
  primary key (scope, dedup)
);
-- retention: a start's row may be in the scope of another than the instance that it names. Those of signals never are, and are not in here.
create index ledger_starts on pointsman.ledger (instance_id) where signal_id is null;

-- Ended instances whose ledger rows are to go at "due". It is written when the instance is deleted, or when its ledger is kept for less
-- long than it is: an index of the ledger by instance would cost every delivery.
create table pointsman.departed (
  instance_id uuid        not null primary key, -- also finds the scope of a late signal by id
  due         timestamptz not null,             -- the same for what ends within a while, so that a scope they share is read once for all
  scope       uuid        not null,             -- of its ledger rows
  done_to     uuid        not null default '00000000-0000-0000-0000-000000000000', -- dedups of the scope up to this have been looked at
  project     text        collate "C" not null
);
-- retention
create index departed_due on pointsman.departed (due, scope);

-- One row: the end up to which those are in departed whose ledger is kept for less long than they are.
create table pointsman.departed_to (
  finished_at timestamptz not null,
  instance_id uuid        not null
);
insert into pointsman.departed_to values ('-infinity', '00000000-0000-0000-0000-000000000000');

-- Serves starts by messages: another delivery may have another dedup key, and without a correlation key so another scope.
create index ledger_started on pointsman.ledger (source) where signal_id is null and source is not null;

-- Signals for keys that nobody holds yet. With them the original message, for its dead letter.
create table pointsman.held (
  id          bigint      generated always as identity primary key,
  project     text        collate "C" not null,
  key         text        collate "C" not null,
  dedup       uuid        not null,
  hash        uuid        not null,
  source      uuid,
  expires_at  timestamptz not null,
  inserted_at timestamptz not null default now(),
  kind        text        not null,
  name        text        not null,
  dedup_key   text,
  traceparent text,
  sent_by     text,
  payload     jsonb       not null,
  message     text,                 -- JSON: route, subject, headers, deliveries, stream, created, seq
  body        bytea
);
-- adoption by a start; a duplicate of a held one
create unique index held_key on pointsman.held (project, key, dedup);
-- expiry
create index held_expiry on pointsman.held (expires_at);

-- Partition keys that execute now, and runnable instances that wait for one.
create table pointsman.running_keys (
  project     text    collate "C" not null,
  key         text    collate "C" not null,
  instance_id uuid    not null,
  rev         integer not null,
  token       uuid    not null,
  primary key (project, key)
);
create table pointsman.waiters (
  project     text        collate "C" not null,
  key         text        collate "C" not null,
  queue       text        collate "C" not null,
  lane        text        collate "C" not null,
  priority    smallint    not null,
  run_at      timestamptz not null,
  instance_id uuid        not null,
  rev         integer     not null,
  solo        boolean     not null
);
-- the best waiter of each lane of a key that was released
create index waiters_pick on pointsman.waiters (project, key, queue, lane, priority, run_at);

create table pointsman.unique_keys (
  project     text collate "C" not null,
  key         text collate "C" not null,
  instance_id uuid not null,
  primary key (project, key)
);

-- What committed transactions want published. A shard is read by who holds it, in order of id.
create table pointsman.outbox (
  id          bigint      generated always as identity,
  shard       smallint    not null,
  attempts    smallint    not null default 0,
  refusals    smallint    not null default 0,    -- those of the attempts that count towards its death
  dead        boolean     not null default false,
  next_at     timestamptz not null default now(),
  created_at  timestamptz not null default now(),
  kind        text        not null, -- outcome, reply, publish, dead
  instance_id uuid,
  project     text        not null,
  subject     text        not null,
  msg_id      text        not null,
  headers     text,                              -- JSON
  last_error  text,
  body        bytea       not null
);
-- relay
create unique index outbox_relay on pointsman.outbox (shard, id);
-- what stands behind a row that could not be published
create index outbox_postponed on pointsman.outbox (instance_id, id) where attempts > 0 and not dead;

create table pointsman.outbox_shards (
  shard      smallint    not null primary key,
  owner      text,
  expires_at timestamptz not null default '-infinity'
);
insert into pointsman.outbox_shards (shard) select generate_series(0, 15);
create table pointsman.relays (
  name       text        not null primary key,
  expires_at timestamptz not null
);

-- The latest transitions; commits keep it short. A pause does not move the rev, nor does a resume of what executes: they are counted beside what made it.
create table pointsman.history (
  instance_id uuid        not null,
  rev         integer     not null,
  nth         integer     not null default 0, -- of its rev
  attempt     integer     not null,
  step        text        not null,
  outcome     text        not null,
  consumed    bigint[],
  at          timestamptz not null default now(),
  primary key (instance_id, rev, nth)
);

-- Published values.
create table pointsman.events (
  instance_id uuid        not null,
  key         text        collate "C" not null,
  rev         integer     not null,
  updated_at  timestamptz not null default now(),
  value       jsonb       not null,
  primary key (instance_id, key)
);

-- Verdicts on updates, for retries of the request.
create table pointsman.verdicts (
  scope   uuid        not null, -- of the ledger: a retry finds the verdict also where the key has another holder by then
  dedup   uuid        not null, -- update name and Idempotency-Key
  hash    uuid        not null, -- of the argument
  verdict jsonb       not null,
  at      timestamptz not null default now(),
  primary key (scope, dedup)
);
-- retention
create index verdicts_at on pointsman.verdicts (at);

-- Machine versions that a worker has served: a start that names no version, step or queue takes them from here, and a changed
-- definition under an old version can be refused.
create table pointsman.machines (
  name          text        collate "C" not null,
  version       integer     not null,
  start         text        not null,
  queue         text        not null default 'default',
  content_hash  text,
  validators    text[]      not null default '{}', -- updates that who serves it validates: nobody accepts them unasked
  registered_at timestamptz not null default now(),
  primary key (name, version)
);

create table pointsman.workers (
  name       text        not null primary key,
  started_at timestamptz not null,
  seen_at    timestamptz not null,
  info       jsonb       not null
);

-- These tables turn over at the rate of the traffic: vacuum by a count of rows, not by a share of the table.
do $$
declare t text;
begin
  foreach t in array '{instances,ready,leases,timers,signals,ledger,departed,held,running_keys,waiters,unique_keys,outbox,history}'::text[] loop
    execute format('alter table pointsman.%I set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)', t);
  end loop;
end $$;
