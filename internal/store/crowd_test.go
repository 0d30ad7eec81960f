package store

import (
	"strconv"
	"strings"
)

// dueOnes are how many timers, leases and holds of a crowd are due.
const dueOnes = 600

// crowdText is what a system of {n} parked instances has beside them. Keys tell what is what: k parked, r runnable, s runnable with
// partition key, x executing, e ended, h held. The first tenth of those parked has a signal that nobody awaits.
const crowdText = `
create function pointsman.crowd_id(at bigint) returns uuid language sql volatile as $$
  select overlay(overlay(lpad(to_hex(1700000000000 + at), 12, '0') || substr(md5(random()::text), 1, 20) placing '7' from 13) placing '8' from 17)::uuid $$;
create function pointsman.crowd_scope(key text) returns uuid language sql immutable as $$
  select encode(substring(sha256(convert_to('p', 'UTF8') || '\x00'::bytea || convert_to(key, 'UTF8')) for 16), 'hex')::uuid $$;

insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, parked, awaits, due_at)
select pointsman.crowd_id(g * 10), 'p', 'm', 1, 'q', 'k' || g, pointsman.crowd_scope('k' || g), 's', jsonb_build_object('pad', repeat('s', 200)), true, '{signal/pay}', now() + interval '1 h'
from generate_series(1, {n}) g;
insert into pointsman.timers (instance_id, rev, run_at)
select id, rev, case when substr(correlation_key, 2)::int <= {due} then now() - interval '1 h' else now() + random() * interval '1 h' end from pointsman.instances;

insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, partition_key)
select pointsman.crowd_id(g * 100), 'p', 'm', 1, 'q', c || g, pointsman.crowd_scope(c || g), 's', '{}', case c when 's' then 'P' || g / 2 end
from generate_series(1, {n} / 10) g, unnest('{r,s}'::text[]) c where c = 'r' or g <= greatest({n} / 100, {due});
insert into pointsman.ready (queue, lane, priority, run_at, instance_id, rev)
select case when partition_key is not null then 'keyed' when n % 5 = 0 then 'other' else 'q' end, case when n % 7 = 0 and partition_key is null then 'm@9' else '' end, n % 3, now() - random() * interval '1 h', id, rev
from (select *, substr(correlation_key, 2)::int as n from pointsman.instances where correlation_key ~ '^[rs]') i;

insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, partition_key, unique_key, unique_scope)
select pointsman.crowd_id(g * 1000), 'p', 'm', 1, 'q', 'x' || g, pointsman.crowd_scope('x' || g), 's', '{}', 'X' || g, 'X' || g, 7 from generate_series(1, greatest({n} / 100, 2 * {due})) g;
insert into pointsman.leases (token, worker, expires_at, ids, revs)
select gen_random_uuid(), 'w', case when g <= {due} then now() - interval '1 s' else now() + random() * interval '1 h' end, array_agg(id), array_agg(rev)
from (select id, rev, substr(correlation_key, 2)::int as n, case when substr(correlation_key, 2)::int <= {due} then substr(correlation_key, 2)::int else {due} + substr(correlation_key, 2)::int / 10 end as g
  from pointsman.instances where correlation_key ~ '^x') i group by g;
insert into pointsman.running_keys (project, key, instance_id, rev, token)
select 'p', i.partition_key, i.id, i.rev, l.token from pointsman.leases l, unnest(l.ids) x(id) join pointsman.instances i using (id);
insert into pointsman.waiters (project, key, queue, lane, priority, run_at, instance_id, rev, solo)
select project, key, 'q', '', 0, now(), instance_id, rev, false from pointsman.running_keys;
insert into pointsman.unique_keys (project, key, instance_id) select project, key, instance_id from pointsman.running_keys;

insert into pointsman.instances (id, project, machine, version, queue, correlation_key, scope, step, state, live, status, finished_at, result)
select pointsman.crowd_id(g * 100), 'p', case when g % 1000 = 0 then 'rare' else 'm' end, 1, 'q', 'e' || g, pointsman.crowd_scope('e' || g), 's', '{}', false, case when g % 10 = 0 then 'failed' else 'done' end, now() - g * interval '1 s', '{}'
from generate_series(1, {n} / 10) g;
insert into pointsman.history (instance_id, rev, attempt, step, outcome, consumed)
select id, r, 0, 's', 'next', array[r] from pointsman.instances, generate_series(1, 3) r where not live;

insert into pointsman.signals (instance_id, name, payload) select id, 'note', '{}' from pointsman.instances where parked and substr(correlation_key, 2)::int <= {n} / 10;
insert into pointsman.ledger (scope, dedup, instance_id, hash, source, signal_id)
select scope, gen_random_uuid(), id, gen_random_uuid(), gen_random_uuid(), g from pointsman.instances, generate_series(1, 2) g where not live or correlation_key ~ '^[kx]';
insert into pointsman.outbox (shard, kind, instance_id, project, subject, msg_id, body)
select g % 16, 'publish', id, 'p', 's', 'm', '' from pointsman.instances, generate_series(1, 1) g where not live;
update pointsman.outbox set attempts = 1 where id % 10 = 0;
insert into pointsman.held (project, key, dedup, hash, expires_at, kind, name, payload, message, body)
select 'p', 'h' || g, gen_random_uuid(), gen_random_uuid(), case when g <= {due} then now() - interval '1 s' else now() + interval '1 h' end, 'signal', 'pay', '{}', '{"route": "r"}', ''
from generate_series(1, greatest({n} / 100, 2 * {due})) g;
insert into pointsman.events (instance_id, key, rev, value) select id, 'progress', 1, '1' from pointsman.instances where not live;
`

// crowdTables are those that a crowd fills.
var crowdTables = []string{
	"instances", "ready", "timers", "signals", "ledger", "leases", "outbox", "held", "running_keys", "waiters", "unique_keys", "history", "events",
}

// gather makes a crowd.
func (f *fixture) gather(n int) {
	f.t.Helper()
	text := strings.NewReplacer("{n}", strconv.Itoa(n), "{due}", strconv.Itoa(dueOnes)).Replace(crowdText)
	f.exec(text)
	for _, table := range crowdTables {
		f.exec("vacuum analyze pointsman." + table)
	}
}
