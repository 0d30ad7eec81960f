-- What the bridge remembers of its routes.

create table pointsman.routes (
  name       text        collate "C" not null primary key,
  config     text,                              -- hash of what maps a message, to tell a changed route
  paused     boolean     not null default false, -- by an operator, beside what the configuration says
  epoch      bigint      not null default 0,    -- fences the one active bridge of an ordered route
  owner      text,
  expires_at timestamptz,
  updated_at timestamptz not null default now()
);

-- The first statement of what a bridge takes in for an ordered route: under its lock nobody can take the route over.
create function pointsman.fence(route text, expected bigint) returns void language plpgsql as $$
begin
  perform from pointsman.routes r where r.name = route and r.epoch = expected for key share;
  if not found then
    raise exception 'the route % is another bridge''s', route using errcode = 'PM001';
  end if;
end $$;

-- How far a route has come in each incarnation of its stream.
create table pointsman.checkpoints (
  route      text        collate "C" not null,
  stream     text        collate "C" not null,
  created    timestamptz not null,
  seq        bigint      not null,
  consumer   timestamptz not null,              -- when the consumer was created that got so far
  first      timestamptz not null,              -- when the route's first one was: what came before that nobody has read
  rewinds    bigint      not null default 0,    -- how often it was set back: who has read it before that may not set it forth
  rewound    boolean     not null default false, -- the consumer is still to be made again, after seq
  updated_at timestamptz not null default now(),
  primary key (route, stream, created)
);

-- Failures of a message's own, which count towards max_deliver. Written only on failure.
create table pointsman.failures (
  route      text        collate "C" not null,
  stream     text        collate "C" not null,
  created    timestamptz not null,
  seq        bigint      not null,
  n          integer     not null,
  last_error text        not null,
  updated_at timestamptz not null default now(),
  primary key (route, stream, created, seq)
);
create index failures_updated on pointsman.failures (updated_at);

-- Dead letters that an operator deleted: their messages have had their fate.
create table pointsman.dropped_letters (
  route      text        collate "C" not null,
  stream     text        collate "C" not null, -- where the message stood first
  created    timestamptz not null,
  seq        bigint      not null,
  reason     text        not null,
  dropped_at timestamptz not null default now(),
  primary key (route, stream, created, seq)
);
create index dropped_letters_forget on pointsman.dropped_letters (dropped_at);
