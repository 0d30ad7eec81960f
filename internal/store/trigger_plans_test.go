package store

// crowdOfTriggers is the part of crowd that is of triggers.
const crowdOfTriggers = `
insert into pointsman.triggers (id, project, event_key, source_type, instance_id, timeout_secs, requested_at, expires_at)
select gen_random_uuid(), 'p', 'e' || row_number() over (), 'job_run', id, 3600, now(), now() + interval '1 h' from pointsman.instances where live;
insert into pointsman.triggers (id, project, event_key, source_type, status, timeout_secs, requested_at, expires_at, ended_at, with_instance)
select gen_random_uuid(), 'p', 'x' || g, 'api', 'received', 3600, now(), now(), now() - g * interval '1 s', g % 2 = 0 from generate_series(1, 4000) g;
insert into pointsman.held_events (project, event_key, expires_at, payload) select 'p', 'y' || g, now() + interval '1 h', '{}' from generate_series(1, 4000) g;
insert into pointsman.quotas (project) select 'p' || g from generate_series(1, 4000) g;
`

func triggerStatements(x texts) map[string]string {
	return map[string]string{
		"trigger": x.trigger, "triggers by id": x.triggersByID, "trigger standings": x.triggerStandings, "list triggers": x.listTriggers, "list triggers of": x.listTriggersOf,
		"trigger counts": x.triggerCounts, "look for triggers": x.lookNew, "create triggers": x.createTriggers, "carry missed": x.carryMissed,
		"make quotas": x.makeQuotas, "lock quotas": x.lockQuotas, "count triggers": x.countTriggers, "save quotas": x.saveQuotas,
		"end triggers": x.endTriggers, "sweep triggers": x.sweepTriggers, "triggers due": x.triggersDue, "tell": x.tell, "ended with": x.endedWith, "revive": x.revive,
		"look for events": x.lookEvents, "note events": x.noteEvents, "hold events": x.holdEvents, "adopt events": x.adoptEvents, "expire held events": x.expireHeldEvents,
		"resolve events": x.resolveEvents, "lock group": x.lockGroup, "triggers with prefix": x.triggersWithPrefix, "purge triggers": x.purgeTriggers,
		"count purge": x.countPurge, "trigger projects": x.triggerProjects,
	}
}
