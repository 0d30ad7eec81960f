-- Access, bulk jobs.

create table pointsman.api_keys (
  id           uuid        not null primary key,
  project      text        collate "C" not null,
  name         text        collate "C" not null,
  scope        text        not null, -- read, send, admin
  hash         bytea       not null unique, -- SHA-256
  hint         text        not null, -- its first characters, to recognise it in a list
  created_at   timestamptz not null default now(),
  last_used_at timestamptz,
  revoked_at   timestamptz
);
create index api_keys_project on pointsman.api_keys (project, id);
-- a name is whose signals these are, so one live key has it
create unique index api_keys_name on pointsman.api_keys (project, name) where revoked_at is null;

-- Work on all instances that a filter finds, in batches. Who has the row locked does the next one.
create table pointsman.jobs (
  id         uuid        not null primary key,
  project    text        collate "C" not null,
  kind       text        not null,                   -- signal, cancel, retry, pause, resume
  status     text        not null default 'running', -- running, done, failed, canceled
  dry_run    boolean     not null default false,
  counted    boolean     not null default false,     -- total is known, and the cursor is of the work
  rate       integer     not null default 0,         -- instances a second; 0: any number
  total      bigint      not null default 0,
  done       bigint      not null default 0,
  failed     bigint      not null default 0,
  skipped    bigint      not null default 0,
  cursor     uuid,                                   -- what is older than this instance is still to be looked at; null: all
  due_at     timestamptz not null default now(),     -- of the next batch
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  ended_at   timestamptz,
  created_by text,
  filter     jsonb       not null,
  args       jsonb       not null,
  errors     jsonb       not null default '[]',      -- the first hundred
  error      text                                    -- why it failed, or does not get on
);
-- the next batch
create index jobs_due on pointsman.jobs (due_at) where status = 'running';
-- lists
create index jobs_project on pointsman.jobs (project, id);
-- retention
create index jobs_ended on pointsman.jobs (ended_at) where ended_at is not null;
