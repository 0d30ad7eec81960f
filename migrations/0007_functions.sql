-- Functions for programs that have their own tables in this database: they signal, start and publish in their own transactions, with the
-- rules of the Go API. What begins with _ is not to be called from outside.
--
-- Refusals have SQLSTATEs of the class PM with the status that HTTP answers: PM400 invalid, PM404 no target, PM409 conflict.
-- No text here has a backslash: what one means is up to the caller's session.

-- >>> The statements of internal/store, word for word: its TestSQLFunctions compares them, and -write writes them.
create function pointsman._lock_keys(bigint[]) returns void language sql as $$
select /* lock keys */ pg_advisory_xact_lock(h) from unnest($1::bigint[]) h
$$;

create function pointsman._deliver(text, text[], text[], text[], text[], text[], uuid[], uuid[], uuid[], text[], text[], boolean[]) returns table (ord bigint, verdict int, instance uuid, signal bigint, queue text, slow boolean) language plpgsql as $$
#variable_conflict use_column
begin
  return query
with /* deliver */ inp as materialized (
  select * from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::boolean[])
    with ordinality t(target, kind, name, payload, dedup_key, dedup, hash, source, traceparent, sent_by, recheck, ord)
), tgt as materialized (
  select i.id, i.correlation_key as target, i.scope, i.awaits, i.queue, i.priority, i.rev, i.parked and not i.paused as wakeable, (i.parked and not i.paused and (i.await_n > 1 or i.await_where is not null or (i.unique_scope & 5) in (1, 4))) as slow, i.live
  from pointsman.instances i where i.id = any(array(
    select x.id from unnest($2::text[]) k(key)
    cross join lateral (select x.id from pointsman.instances x where x.project = $1 and x.correlation_key = k.key and x.live limit 1) x)) and i.live >= true
  order by i.id for no key update
), hit as materialized (
  select nextval('pointsman.signal_ids') as sid, x.* from (
    select t.id, t.scope, t.awaits, t.queue, t.priority, t.rev, t.wakeable, t.slow, inp.*
    from inp join tgt t using (target) where t.live order by inp.ord) x
), fresh as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
  select scope, dedup, id, hash, source, sid from hit where not recheck or not exists (select from pointsman.ledger l where l.scope = hit.scope and l.source = hit.source)
  on conflict do nothing returning signal_id as sid
), sig as (
  insert into pointsman.signals (instance_id, id, kind, name, payload, dedup_key, traceparent, sent_by)
  select id, sid, kind, name, payload::jsonb, dedup_key, traceparent, sent_by from hit where (sid in (select sid from fresh)) is true
), wake as (
  update pointsman.instances i set parked = false
  from (select distinct s.id from hit s where (s.sid in (select sid from fresh)) is true and s.wakeable and not s.slow and (case s.kind when 'child' then 'child/*' else s.kind || '/' || s.name end) = any(s.awaits)) w
  where i.id = w.id
  returning i.id, i.queue, i.priority, i.rev
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from wake
)
select inp.ord,
  case when h.fresh then 1 when h.sid is null then 4 when l.hash is null then 5 when l.hash = h.hash then 2 else 3 end,
  h.id, case when h.fresh then h.sid else l.signal_id end, case when h.fresh and h.id in (select id from wake) then h.queue end, coalesce(h.slow, false)
from inp left join (select hit.*, (sid in (select sid from fresh)) is true as fresh from hit) h using (ord)
left join lateral (
  select h.hash, l.signal_id from pointsman.ledger l where not h.fresh and h.recheck and l.scope = h.scope and l.source = h.source union all select case when l.source = h.source then h.hash else l.hash end as hash, l.signal_id
  from pointsman.ledger l where not h.fresh and l.scope = h.scope and l.dedup = h.dedup
  limit 1) l on true
order by inp.ord;
end $$;

create function pointsman._recheck(uuid[], uuid[], uuid[]) returns table (instance uuid, queue text, moved boolean) language plpgsql as $$
#variable_conflict use_column
begin
  return query
with /* recheck */ c as materialized (
  select x.id from unnest($1::uuid[]) x(id) where (select s.id from pointsman.signals s where s.instance_id = x.id order by s.instance_id, s.id limit 1) is not null
  union all select id from unnest($3::uuid[]) x(id)
), m as materialized (
  select i.id from pointsman.instances i cross join lateral (
    select count(distinct x.name) filter (where x.kind = 'signal') as names, bool_or(x.news) filter (where x.kind = 'signal') as news,
      bool_or(x.news) filter (where x.kind not in ('signal', 'child')) as besides
    from (select s.kind, s.name, s.id > i.handed_to or (case s.kind when 'child' then 'child/*' else s.kind || '/' || s.name end) <> all(i.handed) or not (case when s.kind = 'signal' and i.handed_where ? s.name then coalesce(jsonb_path_match_tz(s.payload, (i.handed_where->>s.name)::jsonpath, '{}', true), false) else true end) as news
      from pointsman.signals s where s.instance_id = i.id and (case s.kind when 'child' then 'child/*' else s.kind || '/' || s.name end) = any(i.awaits) and (case when s.kind = 'signal' and i.await_where ? s.name then coalesce(jsonb_path_match_tz(s.payload, (i.await_where->>s.name)::jsonpath, '{}', true), false) else true end) offset 0) x offset 0) n
  where i.id = any(array(select id from c)) and i.live >= true and i.parked and not i.paused
    and (n.names >= i.await_n and n.news or n.besides or coalesce((
    select case when (select c.id from pointsman.instances c where c.parent_id = i.id and c.live >= true order by c.parent_id desc, c.live desc, c.id desc limit 1) is null and i.id <> all($2)
        then a.tag <> all(i.handed) or (select s.id from pointsman.signals s where s.instance_id = i.id and s.kind = 'child'
          and s.id > case when 'child/*' = any(i.handed) then i.handed_to else 0 end order by s.instance_id, s.id limit 1) is not null
      when a.tag = 'child/all children' then false
      else (select count(*) from (select from pointsman.signals s where s.instance_id = i.id and s.kind = 'child' order by s.instance_id, s.id limit (case a.tag when 'child/any child' then 1 else substring(a.tag from 7 for strpos(a.tag, ' ') - 7)::int end)) x) >= (case a.tag when 'child/any child' then 1 else substring(a.tag from 7 for strpos(a.tag, ' ') - 7)::int end) and (select s.id from pointsman.signals s where s.instance_id = i.id and s.kind = 'child'
          and s.id > case when 'child/*' = any(i.handed) then i.handed_to else 0 end order by s.instance_id, s.id limit 1) is not null end
    from unnest(i.awaits) a(tag) where a.tag like 'child/%' and a.tag <> 'child/*'), false))
), u as (
  update pointsman.instances i set parked = false from m where i.id = m.id and i.parked and not i.paused
  returning i.id, i.queue, i.priority, i.rev, (i.unique_scope & 5) in (1, 4) as moved
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, rev from u)
select id, queue, moved from u;
end $$;

create function pointsman._nobody(text, text[], uuid[], uuid[], uuid[], uuid[], boolean[]) returns table (ord bigint, verdict int, instance uuid, signal bigint, status text, ended timestamptz) language plpgsql as $$
#variable_conflict use_column
begin
  return query
with /* nobody */ inp as materialized (
  select * from unnest($2::text[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::boolean[])
    with ordinality t(target, scope, dedup, hash, source, recheck, ord)
)
select inp.ord,
  case when coalesce(l.hash, h.hash) is not null then case when coalesce(l.hash, h.hash) = inp.hash then 2 else 3 end when e.id is not null then 6 else 4 end,
  coalesce(l.instance_id, e.id), l.signal_id, e.status, e.finished_at
from inp
left join lateral (
  select i.id, i.scope, i.status, i.finished_at from pointsman.instances i where i.project = $1 and i.correlation_key = inp.target and not i.live order by i.finished_at desc limit 1) e on true
left join lateral (
  select l.instance_id, l.signal_id, inp.hash from pointsman.ledger l where inp.recheck and l.scope = inp.scope and l.source = inp.source
  union all
  select l.instance_id, l.signal_id, case when l.source = inp.source then inp.hash else l.hash end
  from pointsman.ledger l where l.scope = inp.scope and l.dedup = inp.dedup
  limit 1) l on true
left join lateral (
  select inp.hash from pointsman.held h where inp.recheck and h.project = $1 and h.key = inp.target and h.source = inp.source
  union all
  select case when h.source = inp.source then inp.hash else h.hash end from pointsman.held h where h.project = $1 and h.key = inp.target and h.dedup = inp.dedup
  limit 1) h on true
order by inp.ord;
end $$;

create function pointsman._hold(text, text[], text[], text[], text[], text[], uuid[], uuid[], uuid[], text[], text[], bigint[], text[], bytea[]) returns void language plpgsql as $$
begin
insert /* hold */ into pointsman.held (project, key, kind, name, payload, dedup_key, dedup, hash, source, traceparent, sent_by, expires_at, message, body)
select $1, t.key, t.kind, t.name, t.payload::jsonb, t.dedup_key, t.dedup, t.hash, t.source, t.traceparent, t.sent_by, now() + t.us * interval '1 microsecond', t.message, t.body
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::bytea[])
  with ordinality t(key, kind, name, payload, dedup_key, dedup, hash, source, traceparent, sent_by, us, message, body, ord)
order by t.ord
on conflict (project, key, dedup) do nothing;
end $$;

create function pointsman._guard(uuid[], text[], text[], uuid[]) returns table (ord int, has boolean) language plpgsql as $$
#variable_conflict use_column
begin
  return query
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
), taken as (
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
)
select ord::int, (key, id) in (select key, instance_id from has) from (select ord, unique_key as key, id from moved where enters) m;
end $$;

create function pointsman._start(text, uuid[], text[], uuid[], text[], int[], text[], text[], smallint[], text[], timestamptz[], text[], text[], uuid[], uuid[], uuid[], text[], text[], smallint[], boolean[], boolean[], uuid[], text[]) returns table (ord bigint, verdict int, instance uuid, queue text, adopted int, of_unique boolean) language plpgsql as $$
#variable_conflict use_column
begin
  return query
with /* start */ inp as materialized (
  select * from unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::text[], $8::text[], $9::smallint[], $10::text[], $11::timestamptz[],
    $12::text[], $13::text[], $14::uuid[], $15::uuid[], $16::uuid[], $17::text[], $18::text[], $19::smallint[], $20::boolean[], $21::boolean[], $22::uuid[], $23::text[])
    with ordinality t(id, key, scope, machine, version, step, queue, priority, state, run_at, reply_to, traceparent, dedup, hash, source, pkey, ukey, uscope, recheck, settles, parent, notify_url, ord)
), c as materialized (
  select inp.id, inp.key, inp.scope, inp.machine, inp.priority, inp.state, inp.run_at, inp.reply_to, inp.traceparent, inp.dedup, inp.hash, inp.source, inp.pkey, inp.ukey, inp.uscope, inp.settles, inp.parent, inp.notify_url, inp.ord,
    coalesce(nullif(inp.version, 0), m.version, 1) as version, coalesce(nullif(inp.step, ''), m.start, '') as step,
    coalesce(nullif(inp.queue, ''), m.queue, 'default') as queue,
    l.instance_id as dup, l.hash is distinct from inp.hash as differs, i.id as holder, u.instance_id as owner, inp.ukey is not null and inp.uscope & 1 <> 0 and u.instance_id is distinct from inp.id as barred
  from inp
  left join lateral (
    select m.version, m.start, m.queue from pointsman.machines m where m.name = inp.machine and inp.version in (0, m.version) order by m.version desc limit 1) m on true
  left join lateral (
    select l.instance_id, inp.hash from pointsman.ledger l where l.source = inp.source and l.signal_id is null and (inp.key is null or l.scope = inp.scope)
    union all
    select l.instance_id, inp.hash from pointsman.ledger l where inp.recheck and l.scope = inp.scope and l.source = inp.source
    union all
    select '00000000-0000-0000-0000-000000000000'::uuid, inp.hash from pointsman.held h
    where inp.recheck and h.project = $1 and h.key = inp.key and h.source = inp.source
    union all
    select l.instance_id, case when l.source = inp.source then inp.hash else l.hash end from pointsman.ledger l where l.scope = inp.scope and l.dedup = inp.dedup
    limit 1) l on true
  left join lateral (select i.id from pointsman.instances i where i.project = $1 and i.correlation_key = inp.key and i.live limit 1) i on true
  left join lateral (select u.instance_id from pointsman.unique_keys u where u.project = $1 and u.key = inp.ukey limit 1) u on true
), ins as (
  insert into pointsman.instances (id, project, machine, version, queue, priority, correlation_key, scope, step, state, delayed, due_at, run_at, reply_to, traceparent,
    partition_key, unique_key, unique_scope, parent_id, notify_url)
  select id, $1, machine, version, queue, priority, key, scope, step, state::jsonb, coalesce(run_at > now(), false), case when run_at > now() then run_at end, run_at, reply_to, traceparent,
    pkey, ukey, uscope, parent, notify_url
  from c where dup is null and holder is null and not barred order by ord
  on conflict do nothing
  returning id, project, scope, correlation_key, queue, priority, delayed, due_at
), own as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source)
  select x.scope, x.dedup, x.taken, x.hash, x.source from (
    select c.*, case when (c.id in (select id from ins)) is true then c.id when c.settles and c.dup is null
      then coalesce(c.holder, case when c.barred then c.owner end, (select ins.id from ins where ins.correlation_key = c.key)) end as taken
    from c where c.dedup is not null) x
  where x.taken is not null and (x.taken in (select id from ins) or (x.taken in (select id from inp)) is not true)
), heirs as (
  select id, project, scope, correlation_key from ins
), adopted as (
  delete from pointsman.held h using heirs where h.project = heirs.project and h.key = heirs.correlation_key and h.expires_at > now()
  returning h.*, heirs.id as instance_id, heirs.scope
), numbered as materialized (
  select nextval('pointsman.signal_ids') as sid, a.* from (select * from adopted order by id) a
), known as (
  insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
  select scope, dedup, instance_id, hash, source, sid from numbered on conflict do nothing returning signal_id as sid
), sig as (
  insert into pointsman.signals (instance_id, id, kind, name, payload, dedup_key, traceparent, sent_by)
  select instance_id, sid, kind, name, payload, dedup_key, traceparent, sent_by from numbered where (sid in (select sid from known)) is true
), rdy as (
  insert into pointsman.ready (queue, priority, instance_id, rev) select queue, priority, id, 0 from ins where not delayed
), tm as (
  insert into pointsman.timers (instance_id, rev, run_at) select id, 0, due_at from ins where delayed
)
select c.ord, case when c.new then 8 when c.dup is null then 9 when c.differs then 3 else 2 end,
  case when c.new then c.id else coalesce(c.dup, c.holder, case when c.barred then c.owner else (select ins.id from ins where ins.correlation_key = c.key) end) end,
  case when c.new and (c.run_at > now()) is not true then c.queue end,
  case when c.new then (select count(*)::int from numbered a where a.instance_id = c.id) else 0 end,
  c.dup is null and c.holder is null and c.barred
from (select c.*, (c.id in (select id from ins)) is true as new from c) c order by c.ord;
end $$;

create function pointsman._give_back(text, text[], uuid[]) returns void language plpgsql as $$
begin
delete /* give back */ from pointsman.unique_keys where ctid = any(array(
  select k.ctid from unnest($2::text[], $3::uuid[]) t(key, id)
  cross join lateral (select k.ctid from pointsman.unique_keys k where k.project = $1 and k.key = t.key and k.instance_id = t.id limit 1) k));
end $$;

create function pointsman._publish(text, text[], text[], text[], bytea[]) returns void language plpgsql as $$
begin
insert /* publish */ into pointsman.outbox (shard, kind, project, subject, msg_id, headers, body)
select get_byte(convert_to(t.msg_id, 'UTF8'), length(convert_to(t.msg_id, 'UTF8')) - 1) & 15, 'publish', $1, t.subject, t.msg_id, t.headers, t.body
from unnest($2::text[], $3::text[], $4::text[], $5::bytea[]) with ordinality t(subject, msg_id, headers, body, ord) order by t.ord;
end $$;
-- <<<

-- The hashes of internal/store.
create function pointsman._hash(variadic parts text[]) returns uuid language sql immutable as $$
  select left(encode(sha256(string_agg(convert_to(t.part, 'UTF8'), decode('00', 'hex') order by t.ord)), 'hex'), 32)::uuid
  from unnest(parts) with ordinality t(part, ord)
$$;

-- A UUIDv7, of milliseconds and their fraction.
create function pointsman._uuid7() returns uuid language sql volatile as $$
  select (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex((us % 1000) * 1000 >> 8), 3, '0') || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid
  from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us) t
$$;

-- Those elements of an array.
create function pointsman._at(elements anyarray, at int[]) returns anyarray language sql immutable as $$
  select array_agg(elements[t.i] order by t.ord) from unnest(at) with ordinality t(i, ord)
$$;

-- The validator of internal/ident: what is wrong, or null.
create function pointsman._bad_key(field text, s text) returns text language sql immutable as $$
  select field || case
    when coalesce(s, '') = '' then ': is empty: a key has 1 to 512 characters'
    when s collate "C" ~ ('[' || chr(1) || '-' || chr(31) || ']') then ': has a control character: remove it'
    when length(s) > 512 then ': has ' || length(s) || ' characters: a key has at most 512' end
$$;

create function pointsman._bad_name(field text, s text) returns text language sql immutable as $$
  select field || case
    when coalesce(s, '') = '' then ': is empty: want 1 to 128 of letters, digits and _ - : .'
    when s collate "C" !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$' then ': ' || to_json(left(s, 64)) || ' is no name: want 1 to 128 of letters, digits and _ - : . that begin with a letter, a digit or _' end
$$;

create function pointsman._bad_token(field text, s text) returns text language sql immutable as $$
  select coalesce(pointsman._bad_name(field, s), case when strpos(s, '.') > 0 then
    field || ': ' || to_json(left(s, 64)) || ' has a ''.'', which this name cannot have, as it is one token of a subject: use letters, digits and _ - :' end)
$$;

-- A document is judged as Postgres writes it. Only one that is long or deep is walked through.
create function pointsman._bad_json(field text, doc jsonb) returns text language plpgsql immutable as $$
declare
  written constant text := doc::text;
begin
  return field || case
    when octet_length(written) > 1048576 then ': is too long: ' || octet_length(written) || ' bytes, at most 1048576 are allowed'
    when length(written) > 1000 and exists (
      select from jsonb_path_query(doc, 'strict $.** ? (@.type() == "number")') n where length(translate(n::text, '-.', '')) > 1000)
      then ': has a number of more than 1000 digits: send it as a string'
    when length(written) - length(translate(written, '[{', '')) > 1000
      and jsonb_path_exists(doc, 'strict $.**{1000 to last} ? (@.type() == "array" || @.type() == "object")')
      then ': nests more than 1000 deep: flatten it' end;
end $$;

create function pointsman._bad_subject(s text) returns text language sql immutable as $$
  select 'subject: ' || case
    when coalesce(s, '') = '' then 'is empty'
    when s collate "C" ~ ('[' || chr(1) || '-' || chr(32) || chr(127) || ']') then to_json(s)::text || ' has a space or a control character'
    when s ~ '[*>]' then to_json(s)::text || ' has a wildcard, and a message needs one exact subject'
    when strpos('.' || s || '.', '..') > 0 then to_json(s)::text || ' has an empty token: no dot at either end, no two in a row' end
$$;

-- Headers are an object of texts, or of arrays of texts.
create function pointsman._bad_headers(headers jsonb) returns text language plpgsql immutable as $$
begin
  if headers is null or jsonb_typeof(headers) = 'null' then
    return null;
  elsif jsonb_typeof(headers) <> 'object' then
    return 'headers: want an object of texts, or of arrays of texts';
  end if;
  return (
    select case
      when h.key collate "C" !~ '^[!-9;-~]+$' then 'headers: ' || to_json(h.key) || ' is no name of a header: use printable ASCII without spaces and colons'
      when jsonb_typeof(v.value) <> 'string' then 'headers: ' || h.key || ' is no text, nor an array of texts'
      else 'headers: ' || h.key || ' has a control character: remove it' end
    from jsonb_each(headers) h
    cross join lateral jsonb_array_elements(case jsonb_typeof(h.value) when 'array' then h.value else jsonb_build_array(h.value) end) v
    where h.key collate "C" !~ '^[!-9;-~]+$' or jsonb_typeof(v.value) <> 'string' or v.value #>> '{}' collate "C" ~ ('[' || chr(1) || '-' || chr(31) || chr(127) || ']')
    limit 1);
end $$;

-- Under a higher level a signal can be held beside its live instance: the snapshot would be older than the locks.
create function pointsman._read_committed() returns void language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'the transaction is %, and pointsman''s functions need read committed', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state', hint = 'Begin it with isolation level read committed.';
  end if;
end $$;

create function pointsman._invalid(what text) returns void language plpgsql as $$
begin
  if what is not null then
    raise exception '%', what using errcode = 'PM400';
  end if;
end $$;

-- Batches are arrays of one length; those that are null are of nulls.
create function pointsman._same_length(n int, variadic lengths int[]) returns void language plpgsql as $$
begin
  if n > 1000 then
    perform pointsman._invalid('items: are ' || n || ': at most 1000 in one call');
  elsif exists (select from unnest(lengths) l where l <> n) then
    perform pointsman._invalid('items: the arrays are of different lengths');
  end if;
end $$;

-- The locks of scopes, sorted, as internal/store takes them.
create function pointsman._lock(scopes uuid[]) returns void language plpgsql as $$
declare
  locks bigint[];
begin
  select array_agg(l order by l) into locks from (
    select distinct ('x' || left(replace(s::text, '-', ''), 16))::bit(64)::bigint as l from unnest(scopes) s where s is not null) t;
  if cardinality(locks) > 200 then
    perform pointsman._invalid('items: are for ' || cardinality(locks) || ' keys, and one call locks at most 200: use several');
  end if;
  perform pointsman._lock_keys(coalesce(locks, '{}'));
end $$;

-- What a call for one item raises.
create function pointsman._refuse(result text, error text, instance uuid) returns void language plpgsql as $$
begin
  if error is not null then
    raise exception '%', error using
      errcode = case result when 'refused' then 'PM400' when 'no_target' then 'PM404' when 'conflict' then 'PM409' else 'serialization_failure' end,
      detail = case when instance is null then '' else json_build_object('instance_id', instance)::text end;
  end if;
end $$;

-- The slow acceptance of package engine: under the locks of the keys, first to whom it may concern, then to nobody. Repetitions within the
-- batch have turns of their own, and find the first as any other transaction would.
create function pointsman._signals(project text, keys text[], names text[], payloads jsonb[], dedups text[], on_missing text, on_terminal text, hold_for interval)
returns table (o_ord int, o_result text, o_instance uuid, o_signal bigint, o_error text) language plpgsql as $$
#variable_conflict use_variable
declare
  n constant int := coalesce(cardinality(keys), 0);
  hold_us constant bigint := (extract(epoch from coalesce(hold_for, interval '1 hour')) * 1000000)::bigint;
  results text[]; instances uuid[]; signals bigint[]; errors text[];
  bodies text[]; scopes uuid[]; hashes uuid[]; known uuid[];
  todo int[]; at int[]; again int[]; missing int[]; holds int[];
  undecided uuid[]; moved uuid[] := '{}';
  d record; i int;
begin
  perform pointsman._read_committed();
  perform pointsman._same_length(n, coalesce(cardinality(names), 0), coalesce(cardinality(payloads), n), coalesce(cardinality(dedups), n));
  perform pointsman._invalid(coalesce(pointsman._bad_token('project', project),
    case when (on_missing in ('reject', 'hold', 'drop')) is not true then 'on_missing: want reject, hold or drop' end,
    case when (on_terminal in ('reject', 'drop')) is not true then 'on_terminal: want reject or drop' end,
    case when hold_us <= 0 then 'hold_for: is not above 0' end));
  for i in 1..n loop
    errors[i] := coalesce(pointsman._bad_key('correlation_key', keys[i]), pointsman._bad_name('name', names[i]),
      case when dedups[i] is not null then pointsman._bad_key('dedup_key', dedups[i]) end, pointsman._bad_json('payload', payloads[i]));
    if errors[i] is not null then
      results[i] := 'refused';
      continue;
    end if;
    bodies[i] := coalesce(payloads[i]::text, 'null');
    scopes[i] := pointsman._hash(project, keys[i]);
    hashes[i] := pointsman._hash('signal', names[i], bodies[i]);
    known[i] := case when dedups[i] is null then gen_random_uuid() else pointsman._hash(dedups[i]) end;
  end loop;
  perform pointsman._lock(scopes);
  loop
    select array_agg(x.o order by x.o) into todo from (
      select o, row_number() over (partition by scopes[o], known[o] order by o) as nth from generate_series(1, n) o where results[o] is null) x where x.nth = 1;
    exit when todo is null;
    again := todo; missing := '{}'; holds := '{}'; undecided := '{}';
    for turn in 1..2 loop -- what the first snapshot did not see yet, the second does
      exit when cardinality(again) = 0;
      at := again; again := '{}';
      for d in select * from pointsman._deliver(project, pointsman._at(keys, at), array_fill('signal'::text, array[cardinality(at)]), pointsman._at(names, at), pointsman._at(bodies, at),
        pointsman._at(dedups, at), pointsman._at(known, at), pointsman._at(hashes, at), array_fill(null::uuid, array[cardinality(at)]), array_fill(null::text, array[cardinality(at)]),
        array_fill(null::text, array[cardinality(at)]), array_fill(false, array[cardinality(at)])) loop
        i := at[d.ord];
        if d.slow then
          undecided := undecided || d.instance;
        end if;
        if d.verdict = 4 then
          missing := missing || i;
        elsif d.verdict = 5 then
          again := again || i;
        else
          results[i] := (array['delivered', 'duplicate', 'conflict'])[d.verdict];
          instances[i] := d.instance; signals[i] := d.signal;
        end if;
      end loop;
    end loop;
    foreach i in array again loop
      results[i] := 'failed'; errors[i] := 'its target changed at the same time';
    end loop;
    if cardinality(undecided) > 0 then
      for d in select * from pointsman._recheck(undecided, '{}', undecided) loop
        if d.moved then
          moved := moved || d.instance;
        end if;
      end loop;
    end if;
    if cardinality(missing) > 0 then
      for d in select * from pointsman._nobody(project, pointsman._at(keys, missing), pointsman._at(scopes, missing), pointsman._at(known, missing), pointsman._at(hashes, missing),
        array_fill(null::uuid, array[cardinality(missing)]), array_fill(false, array[cardinality(missing)])) loop
        i := missing[d.ord];
        instances[i] := d.instance; signals[i] := d.signal;
        if d.verdict in (2, 3) then
          results[i] := (array['duplicate', 'conflict'])[d.verdict - 1];
        elsif d.verdict = 6 then
          results[i] := case on_terminal when 'drop' then 'dropped' else 'no_target' end;
          errors[i] := case on_terminal when 'reject' then format('instance %s is %s since %s', d.instance, d.status, to_char(d.ended at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) end;
        elsif on_missing = 'hold' then
          results[i] := 'held'; holds := holds || i;
        else
          results[i] := case on_missing when 'drop' then 'dropped' else 'no_target' end;
          errors[i] := case on_missing when 'reject' then format('nobody has the key %s', to_json(keys[i])) end;
        end if;
      end loop;
    end if;
    if cardinality(holds) > 0 then
      perform pointsman._hold(project, pointsman._at(keys, holds), array_fill('signal'::text, array[cardinality(holds)]), pointsman._at(names, holds), pointsman._at(bodies, holds),
        pointsman._at(dedups, holds), pointsman._at(known, holds), pointsman._at(hashes, holds), array_fill(null::uuid, array[cardinality(holds)]), array_fill(null::text, array[cardinality(holds)]),
        array_fill(null::text, array[cardinality(holds)]), array_fill(hold_us, array[cardinality(holds)]), array_fill(null::text, array[cardinality(holds)]),
        (select array_agg(convert_to(bodies[h.at], 'UTF8') order by h.ord) from unnest(holds) with ordinality h(at, ord)));
    end if;
  end loop;
  if cardinality(moved) > 0 then
    perform pointsman._guard(moved, '{}', '{}', '{}');
  end if;
  return query select o, results[o], instances[o], signals[o],
    case results[o] when 'conflict' then format('the dedup key %s was used before with another name or body', to_json(dedups[o])) else errors[o] end
    from generate_series(1, n) o order by o;
end $$;

-- The start of package engine, with the turns of internal/store: first unique keys, then the instances; what has to give a key back makes
-- room for others of the batch.
create function pointsman._starts(project text, machines text[], keys text[], states jsonb[], dedups text[], versions int[], steps text[], queues text[], priorities smallint[],
  run_ats timestamptz[], replies text[], partitions text[], uniques text[], unique_scope text[])
returns table (o_ord int, o_result text, o_instance uuid, o_error text) language plpgsql as $$
#variable_conflict use_variable
declare
  statuses constant text[] := '{runnable,executing,awaiting_signal,done,failed,canceled}';
  n constant int := coalesce(cardinality(machines), 0);
  bits smallint := 0;
  results text[]; instances uuid[]; errors text[];
  bodies text[]; scopes uuid[]; locked uuid[]; hashes uuid[]; known uuid[]; ids uuid[]; bits_of smallint[];
  turns int[]; at int[]; takes int[]; won int[]; back int[]; again int[]; barred int[];
  d record; i int;
begin
  perform pointsman._read_committed();
  perform pointsman._same_length(n, coalesce(cardinality(keys), n), coalesce(cardinality(states), n), coalesce(cardinality(dedups), n), coalesce(cardinality(partitions), n), coalesce(cardinality(uniques), n));
  perform pointsman._invalid(coalesce(pointsman._bad_token('project', project),
    case when coalesce(cardinality(unique_scope), 0) > 0 and coalesce(cardinality(array_remove(uniques, null)), 0) = 0 then 'unique_scope: is of no unique_key' end,
    case when (unique_scope <@ statuses) is false then 'unique_scope: want statuses of ' || array_to_string(statuses, ', ') end));
  select coalesce(bit_or((1 << array_position(statuses, s) - 1)::smallint), 7) into bits from unnest(unique_scope) s;
  for i in 1..n loop
    errors[i] := coalesce(pointsman._bad_token('machine', machines[i]), case when versions[i] < 0 then 'version: is not between 0 and 2147483647' end,
      case when steps[i] is not null then pointsman._bad_name('step', steps[i]) end, case when queues[i] is not null then pointsman._bad_token('queue', queues[i]) end,
      case when queues[i] in ('_outbox', '_webhooks', '_jobs') then 'queue: ' || to_json(queues[i]) || ' is pointsman''s own: choose another name' end,
      case when keys[i] is not null then pointsman._bad_key('correlation_key', keys[i]) end, case when dedups[i] is not null then pointsman._bad_key('dedup_key', dedups[i]) end,
      case when partitions[i] is not null then pointsman._bad_key('partition_key', partitions[i]) end, case when uniques[i] is not null then pointsman._bad_key('unique_key', uniques[i]) end,
      case when replies[i] is not null then pointsman._bad_key('reply_to', replies[i]) end, pointsman._bad_json('state', states[i]));
    if errors[i] is not null then
      results[i] := 'refused';
      continue;
    end if;
    ids[i] := pointsman._uuid7();
    bodies[i] := coalesce(states[i]::text, '{}');
    locked[i] := case when keys[i] is not null then pointsman._hash(project, keys[i]) when dedups[i] is not null then pointsman._hash(project, 'start', dedups[i]) end;
    scopes[i] := coalesce(locked[i], ids[i]);
    known[i] := case when dedups[i] is not null then pointsman._hash('start', dedups[i]) end;
    hashes[i] := case when dedups[i] is not null then pointsman._hash('start', machines[i], bodies[i]) end;
    bits_of[i] := case when uniques[i] is null then 0 else bits end;
  end loop;
  perform pointsman._lock(locked);
  select array_agg(least(x.nth, 2) order by x.o) into turns from (
    select o, case when known[o] is null then 1 else row_number() over (partition by scopes[o], known[o] order by o) end as nth from generate_series(1, n) o) x;
  for turn in 1..2 loop -- what the batch itself repeats takes a later statement
    select coalesce(array_agg(o order by o), '{}') into at from generate_series(1, n) o where results[o] is null and turns[o] = turn;
    while cardinality(at) > 0 loop
      won := '{}'; barred := '{}';
      select coalesce(array_agg(o order by x.ord), '{}') into takes from unnest(at) with ordinality x(o, ord) where uniques[o] is not null and bits_of[o] & 1 <> 0;
      if cardinality(takes) > 0 then
        for d in select * from pointsman._guard('{}', array_fill(project, array[cardinality(takes)]), pointsman._at(uniques, takes), pointsman._at(ids, takes)) loop
          if d.has then
            won := won || takes[d.ord];
          end if;
        end loop;
      end if;
      for d in select * from pointsman._start(project, pointsman._at(ids, at), pointsman._at(keys, at), pointsman._at(scopes, at), pointsman._at(machines, at),
        pointsman._at((select array_agg(coalesce(versions[o], 0) order by o) from generate_series(1, n) o), at), pointsman._at(steps, at), pointsman._at(queues, at),
        pointsman._at((select array_agg(coalesce(priorities[o], 0::smallint) order by o) from generate_series(1, n) o), at), pointsman._at(bodies, at), pointsman._at(run_ats, at),
        pointsman._at(replies, at), array_fill(null::text, array[cardinality(at)]), pointsman._at(known, at), pointsman._at(hashes, at), array_fill(null::uuid, array[cardinality(at)]),
        pointsman._at(partitions, at), pointsman._at(uniques, at), pointsman._at(bits_of, at), array_fill(false, array[cardinality(at)]), array_fill(false, array[cardinality(at)]),
        array_fill(null::uuid, array[cardinality(at)]), array_fill(null::text, array[cardinality(at)])) loop
        i := at[d.ord];
        instances[i] := d.instance;
        results[i] := case d.verdict when 8 then 'started' when 2 then 'duplicate' else 'conflict' end;
        errors[i] := case
          when d.verdict = 3 then format('the dedup key %s was used with another machine or state', to_json(dedups[i]))
          when d.verdict = 9 and d.of_unique then format('the unique key %s is held by instance %s', to_json(uniques[i]), d.instance)
          when d.verdict = 9 then format('the correlation key %s is held by instance %s', to_json(keys[i]), d.instance) end;
        if d.verdict = 9 and d.of_unique then
          barred := barred || i;
        end if;
      end loop;
      select coalesce(array_agg(o), '{}') into back from unnest(won) o where results[o] <> 'started';
      select coalesce(array_agg(o order by o), '{}') into again from unnest(barred) o
        where instances[o] is null or uniques[o] in (select uniques[b] from unnest(back) b);
      if cardinality(back) > 0 then
        perform pointsman._give_back(project, pointsman._at(uniques, back), pointsman._at(ids, back));
      end if;
      at := again;
    end loop;
  end loop;
  return query select o, results[o], instances[o], errors[o] from generate_series(1, n) o order by o;
end $$;

create function pointsman._publications(project text, subjects text[], datas jsonb[], headers jsonb[])
returns table (o_ord int, o_result text, o_msg text, o_error text) language plpgsql as $$
#variable_conflict use_variable
declare
  n constant int := coalesce(cardinality(subjects), 0);
  errors text[]; msgs text[]; texts text[]; bodies bytea[]; at int[];
begin
  perform pointsman._read_committed();
  perform pointsman._same_length(n, coalesce(cardinality(datas), n), coalesce(cardinality(headers), n));
  perform pointsman._invalid(pointsman._bad_token('project', project));
  for i in 1..n loop
    errors[i] := coalesce(pointsman._bad_subject(subjects[i]), pointsman._bad_headers(headers[i]), pointsman._bad_json('data', datas[i]));
    continue when errors[i] is not null;
    at := at || i;
    texts[i] := (select json_object_agg(h.key, case jsonb_typeof(h.value) when 'array' then h.value else jsonb_build_array(h.value) end)
      from jsonb_each(case jsonb_typeof(headers[i]) when 'object' then headers[i] end) h);
    msgs[i] := gen_random_uuid();
    bodies[i] := convert_to(coalesce(datas[i]::text, 'null'), 'UTF8');
  end loop;
  if at is not null then
    perform pointsman._publish(project, pointsman._at(subjects, at), pointsman._at(msgs, at), pointsman._at(texts, at), pointsman._at(bodies, at));
  end if;
  return query select o, case when errors[o] is null then 'published' else 'refused' end,
    case when errors[o] is null then coalesce(nullif(texts[o]::jsonb->'Nats-Msg-Id'->>0, ''), msgs[o]) end, errors[o]
    from generate_series(1, n) o order by o;
end $$;

-- What is called from outside. Each runs with the rights of the schema's owner, finds nothing but by its schema, and plans as
-- internal/store's sessions do.
create function pointsman.signal(correlation_key text, name text, payload jsonb default null, dedup_key text default null, project text default 'default',
  on_missing text default 'reject', on_terminal text default 'reject', hold_for interval default '1 hour', out result text, out instance_id uuid, out signal_id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  r record;
begin
  select * into r from pointsman._signals(project, array[correlation_key], array[name], array[payload], array[dedup_key], on_missing, on_terminal, hold_for);
  perform pointsman._refuse(r.o_result, r.o_error, r.o_instance);
  result := r.o_result; instance_id := r.o_instance; signal_id := r.o_signal;
end $$;

create function pointsman.signal_many(correlation_keys text[], names text[], payloads jsonb[] default null, dedup_keys text[] default null, project text default 'default',
  on_missing text default 'reject', on_terminal text default 'reject', hold_for interval default '1 hour')
returns table (ord int, result text, instance_id uuid, signal_id bigint, error text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  return query select * from pointsman._signals(project, correlation_keys, names, payloads, dedup_keys, on_missing, on_terminal, hold_for);
end $$;

create function pointsman.start(machine text, correlation_key text default null, state jsonb default null, dedup_key text default null, project text default 'default',
  version int default null, step text default null, queue text default null, priority int default 0, run_at timestamptz default null, reply_to text default null,
  partition_key text default null, unique_key text default null, unique_scope text[] default null) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  r record;
begin
  perform pointsman._invalid(case when priority not between -32768 and 32767 then 'priority: is not between -32768 and 32767' end);
  select * into r from pointsman._starts(project, array[machine], array[correlation_key], array[state], array[dedup_key], array[version], array[step], array[queue], array[priority::smallint],
    array[run_at], array[reply_to], array[partition_key], array[unique_key], unique_scope);
  perform pointsman._refuse(r.o_result, r.o_error, r.o_instance);
  return r.o_instance;
end $$;

create function pointsman.start_many(machines text[], correlation_keys text[] default null, states jsonb[] default null, dedup_keys text[] default null, project text default 'default',
  version int default null, step text default null, queue text default null, priority int default 0, run_at timestamptz default null, reply_to text default null,
  partition_keys text[] default null, unique_keys text[] default null, unique_scope text[] default null)
returns table (ord int, result text, instance_id uuid, error text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  n constant int[] := array[coalesce(cardinality(machines), 0)];
begin
  perform pointsman._invalid(case when priority not between -32768 and 32767 then 'priority: is not between -32768 and 32767' end);
  return query select * from pointsman._starts(project, machines, correlation_keys, states, dedup_keys, array_fill(version, n), array_fill(step, n), array_fill(queue, n),
    array_fill(priority::smallint, n), array_fill(run_at, n), array_fill(reply_to, n), partition_keys, unique_keys, unique_scope);
end $$;

create function pointsman.publish(subject text, data jsonb default null, headers jsonb default null, project text default 'default') returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  r record;
begin
  select * into r from pointsman._publications(project, array[subject], array[data], array[headers]);
  perform pointsman._refuse(r.o_result, r.o_error, null);
  return r.o_msg;
end $$;

create function pointsman.publish_many(subjects text[], datas jsonb[] default null, headers jsonb[] default null, project text default 'default')
returns table (ord int, result text, msg_id text, error text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  return query select * from pointsman._publications(project, subjects, datas, headers);
end $$;

-- To read a view needs the use of the schema: that alone must not let anybody write.
do $$
declare
  f regprocedure;
begin
  for f in select p.oid from pg_proc p where p.pronamespace = (select b.pronamespace from pg_proc b where b.oid = 'pointsman._bad_key'::regproc)
    and p.proname ~ '^(_.*|(signal|start|publish)(_many)?)$' loop
    execute format('revoke all on function %s from public', f);
  end loop;
end $$;
