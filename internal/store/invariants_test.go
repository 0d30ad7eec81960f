package store

import (
	"slices"
	"strings"
)

// witnesses are the explorer's own record: of every signal that ever got into an inbox, and of what deliveries said they took in.
const witnesses = `
create table pointsman.witness (instance_id uuid, id bigint, dedup_key text, kind text);
create table pointsman.accepted (dedup_key text);
create function pointsman.bear_witness() returns trigger language plpgsql as $$
  begin insert into pointsman.witness values (new.instance_id, new.id, new.dedup_key, new.kind); return null; end $$;
create trigger bear_witness after insert on pointsman.signals for each row execute function pointsman.bear_witness();
` + triggerWitnesses + reset

// reset makes a function that empties what scenarios write; its statements are planned once. Ids that scenarios give to signals of
// their own are below 1000.
const reset = `
create function pointsman.reset() returns void language plpgsql as $$ begin
delete from pointsman.instances; delete from pointsman.ready; delete from pointsman.leases; delete from pointsman.timers; delete from pointsman.signals;
delete from pointsman.ledger; delete from pointsman.held; delete from pointsman.outbox; delete from pointsman.history; delete from pointsman.events;
delete from pointsman.running_keys; delete from pointsman.waiters; delete from pointsman.unique_keys; delete from pointsman.routes;
delete from pointsman.verdicts; delete from pointsman.departed; update pointsman.departed_to set finished_at = '-infinity';
delete from pointsman.webhook_deliveries; delete from pointsman.triggers;
delete from pointsman.witness; delete from pointsman.accepted; delete from pointsman.jobs; perform setval('pointsman.signal_ids', 1000);
delete from pointsman.triggers; delete from pointsman.held_events; delete from pointsman.quotas; delete from pointsman.webhook_deliveries; delete from pointsman.told;
end $$;
`

type invariant struct{ rule, sql string }

// invariants hold whenever nobody is in the middle of something; each query finds what violates it.
var invariants = []invariant{
	{"a signal was lost", `
		select w.dedup_key from pointsman.witness w join pointsman.instances i on i.id = w.instance_id and i.live
		where not exists (select from pointsman.signals s where s.instance_id = w.instance_id and s.id = w.id)
		and not exists (select from pointsman.history h where h.instance_id = w.instance_id and w.id = any(h.consumed))`},
	{"what was accepted is nowhere", `
		select a.dedup_key from pointsman.accepted a where not exists (select from pointsman.witness w where w.dedup_key = a.dedup_key)
		and not exists (select from pointsman.held h where h.dedup_key = a.dedup_key) and not exists (select from pointsman.outbox o where o.kind = 'dead' and convert_from(o.body, 'UTF8')::jsonb->>'d' = a.dedup_key)`},
	{"a signal was seen twice", `
		select w.dedup_key from pointsman.witness w join pointsman.instances i on i.id = w.instance_id group by i.scope, w.dedup_key, w.kind having count(distinct w.id) > 1`},
	{"a signal was seen and is held or dead", `
		select w.dedup_key from pointsman.witness w join pointsman.instances i on i.id = w.instance_id
		where exists (select from pointsman.held h where h.project = i.project and h.key = i.correlation_key and h.dedup_key = w.dedup_key)
		or exists (select from pointsman.outbox o where o.kind = 'dead' and convert_from(o.body, 'UTF8')::jsonb->>'d' = w.dedup_key)`},
	{"a signal was consumed twice", `
		select x.id from (select h.instance_id, unnest(h.consumed) as id from pointsman.history h) x group by x.instance_id, x.id having count(*) > 1`},
	{"a signal was consumed and is there", `
		select s.id from pointsman.signals s join pointsman.history h on h.instance_id = s.instance_id and s.id = any(h.consumed)`},
	{"sleeps on a match", `
		select i.id from pointsman.instances i cross join lateral (
			select s.id, s.kind || '/' || s.name as tag from pointsman.signals s where s.instance_id = i.id and s.kind = 'signal'
				and (not coalesce(i.await_where ? s.name, false) or coalesce(s.payload @@ (i.await_where->>s.name)::jsonpath, false))) s
		where i.live and i.parked and not i.paused and s.tag = any(i.awaits)
		group by i.id, i.await_n having count(distinct s.tag) >= i.await_n and bool_or(not (s.id <= i.handed_to and s.tag = any(i.handed)))`},
	{"sleeps on its children", `
		select i.id from pointsman.instances i cross join lateral (
			select count(*) as n, max(s.id) as last from pointsman.signals s where s.instance_id = i.id and s.kind = 'child') s
		where i.live and i.parked and not i.paused and 'child/*' = any(i.awaits) and (i.handed = '{}' or s.last > i.handed_to)
		and (not exists (select from pointsman.instances c where c.parent_id = i.id and c.live)
			or 'child/any child' = any(i.awaits) and s.n >= 1 or 'child/2 children' = any(i.awaits) and s.n >= 2)`},
	{"an end was not told to a parent that lives", `
		select c.id from pointsman.instances c join pointsman.instances p on p.id = c.parent_id and p.live
		where not c.live and exists (select from pointsman.history h where h.instance_id = c.id and h.rev = c.rev)
		and not exists (select from pointsman.witness w where w.instance_id = p.id and w.dedup_key = c.id || ':' || c.rev)`},
	{"is not in one place", `
		select i.id || ' in ' || i.places from (
			select i.*, i.parked::int + i.delayed::int
				+ (select count(*) from pointsman.ready r where r.instance_id = i.id and r.rev = i.rev)
				+ (select count(*) from pointsman.waiters w where w.instance_id = i.id and w.rev = i.rev)
				+ (select count(*) from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) where x.id = i.id and x.rev = i.rev) as places
			from pointsman.instances i) i
		where i.live and i.places <> 1 and not (i.paused and i.places = 0)`},
	{"is ready twice at one rev", `select r.instance_id from pointsman.ready r group by r.instance_id, r.rev having count(*) > 1`},
	{"has no timer", `
		select i.id from pointsman.instances i where i.live and not i.paused and (i.parked or i.delayed) and i.due_at is not null
		and not exists (select from pointsman.timers t where t.instance_id = i.id and t.rev = i.rev and t.run_at = i.due_at)`},
	{"is parked with a time-out", `select i.id from pointsman.instances i where i.live and i.parked and i.timed_out`},
	{"the ended has an inbox", `
		select s.id from pointsman.signals s where not exists (select from pointsman.instances i where i.id = s.instance_id and i.live)`},
	{"an end was not published once", `
		select i.id from pointsman.instances i where not i.live and (select count(*) from pointsman.outbox o where o.kind = 'outcome' and o.msg_id = i.id || ':' || i.rev) <> 1`},
	{"two ends have one id", `select o.msg_id from pointsman.outbox o where o.kind = 'outcome' group by o.msg_id having count(*) > 1`},
	{"a retry would not see what was there at the end", `
		select w.dedup_key from pointsman.witness w join pointsman.instances i on i.id = w.instance_id and i.status in ('failed', 'canceled')
		where not exists (select from jsonb_array_elements(i.kept) k where k->>'id' = w.id::text)
		and not exists (select from pointsman.history h where h.instance_id = w.instance_id and w.id = any(h.consumed))`},
	{"is held beside a live one", `
		select h.dedup_key from pointsman.held h join pointsman.instances i on i.project = h.project and i.correlation_key = h.key and i.live where h.expires_at > now()`},
	{"the ledger has what was not delivered", `
		select l.signal_id from pointsman.ledger l where l.signal_id > 0
		and not exists (select from pointsman.witness w where w.instance_id = l.instance_id and w.id = l.signal_id)`},
	{"the ledger has not what was delivered", `
		select w.dedup_key from pointsman.witness w join pointsman.instances i on i.id = w.instance_id
		where w.kind <> 'event' and i.inserted_at > now() - interval '1 h' and not exists (select from pointsman.ledger l where l.scope = i.scope and l.instance_id = i.id and l.signal_id = w.id)`},
	{"the gone has left something", `
		select x.what || ' of ' || x.instance_id from (select 'history' as what, instance_id from pointsman.history union all select 'events', instance_id from pointsman.events
			union all select 'unique key', instance_id from pointsman.unique_keys
			union all select 'ledger', instance_id from pointsman.ledger l where not exists (select from pointsman.departed d where d.instance_id = l.instance_id) and not exists (select from pointsman.triggers g where g.id = l.instance_id)) x
		where not exists (select from pointsman.instances i where i.id = x.instance_id)`},
	{"a lease is not whole", `
		select l.token from pointsman.leases l where cardinality(l.ids) = 0 or cardinality(l.ids) <> cardinality(l.revs)`},
	{"a lease runs in the future", `
		select l.token from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) join pointsman.instances i on i.id = x.id where x.rev > i.rev`},
	{"two of one partition key execute", `
		select i.partition_key from (` + executing + `) i where i.partition_key is not null group by i.project, i.partition_key having count(*) > 1`},
	{"executes without its partition key", `
		select i.id from (` + executing + `) i where i.partition_key is not null and not exists (
			select from pointsman.running_keys k where k.project = i.project and k.key = i.partition_key and k.instance_id = i.id and k.token = i.token)`},
	{"a partition key is held without a lease", `
		select k.key from pointsman.running_keys k where not exists (select from pointsman.leases l where l.token = k.token and k.instance_id = any(l.ids))`},
	{"a waiter is stranded", `
		select w.instance_id from pointsman.waiters w join pointsman.instances i on i.id = w.instance_id and i.rev = w.rev and i.live
		where not exists (select from pointsman.running_keys k where k.project = w.project and k.key = w.key)
		and not exists (select from pointsman.ready r left join pointsman.instances j on j.id = r.instance_id
			where coalesce(j.project, r.project) = w.project and coalesce(j.partition_key, r.key) = w.key and r.queue = w.queue and r.lane = w.lane)`},
	{"a unique key is held out of its scope", `
		select k.key from pointsman.unique_keys k where not exists (
			select from pointsman.instances i where i.id = k.instance_id and i.project = k.project and i.unique_key = k.key and ` + occupies + `)`},
	{"a unique key is held by nobody, in scope", `
		select i.id from pointsman.instances i where i.unique_key is not null and ` + occupies + `
		and not exists (select from pointsman.unique_keys k where k.project = i.project and k.key = i.unique_key)
		and not exists (select from pointsman.instances j where j.project = i.project and j.unique_key = i.unique_key and j.id <> i.id)`},
}

const executing = `select i.*, l.token from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev), pointsman.instances i where i.id = x.id and i.rev = x.rev and i.live`

// occupies: the unique scope of i holds its status.
const occupies = `(i.unique_scope & case when not i.live then case i.status when 'done' then 8 when 'failed' then 16 else 32 end when i.parked then 4
	when exists (select from pointsman.leases l, unnest(l.ids, l.revs) x(id, rev) where x.id = i.id and x.rev = i.rev) then 2 else 1 end) <> 0`

var invariantsText = func() string {
	all := slices.Concat(invariants, triggerInvariants)
	parts := make([]string, len(all))
	for i, in := range all {
		parts[i] = `select '` + in.rule + `', v::text from (` + in.sql + `) q(v)`
	}
	return strings.Join(parts, ` union all `)
}()
