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

create table pointsman.jobs (
  id               uuid        not null primary key,
  project          text        collate "C" not null,
  kind             text        not null, -- signal, cancel, retry, pause, resume, send
  status           text        not null, -- running, done, failed, canceled
  dry_run          boolean     not null default false,
  rate             integer,              -- instances a second
  total            bigint      not null default 0,
  done             bigint      not null default 0,
  failed           bigint      not null default 0,
  owner            text,
  lease_expires_at timestamptz,
  created_at       timestamptz not null default now(),
  updated_at       timestamptz not null default now(),
  filter           jsonb       not null,
  args             jsonb,
  cursor           jsonb,
  error            text
);
create index jobs_running on pointsman.jobs (lease_expires_at) where status = 'running';
create index jobs_project on pointsman.jobs (project, id);
