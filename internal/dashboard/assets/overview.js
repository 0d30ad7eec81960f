// The first page answers: what is stuck, and why. Each line leads to the place where something can be done.
import {h, put, swap} from './dom.js';
import {get, path} from './api.js';
import {brief, count, duration, rate, when} from './format.js';
import {badge, hash, instanceLink, link, panel, sorry, spark, table} from './parts.js';
import {last, listen, samples} from './pulse.js';
import {queueState, routeState, workerState} from './states.js';

export default function overview(view) {
	const troubles = h('ul.attention'), tiles = h('div'), said = h('div');
	const routes = table('Routes', [
		{name: 'Route', cell: (r) => link(hash(['routes', r.name]), r.name)},
		{name: 'State', cell: (r) => badge(...routeState(r))},
		{name: 'Lag', number: true, cell: (r) => count(r.lag)},
		{name: 'Acked', number: true, cell: (r) => r.now},
		{name: 'Last 3 min', cell: (r) => spark(r.samples, `Messages acked by ${r.name}`)},
	], (r) => r.name, 'No routes are configured.');
	const queues = table('Queues', [
		{name: 'Queue', cell: (q) => link(hash(['instances'], {queue: q.name, status: 'runnable'}), q.name)},
		{name: 'State', cell: (q) => badge(...queueState(q))},
		{name: 'Ready', number: true, cell: (q) => count(q.depth)},
		{name: 'Oldest', number: true, cell: (q) => q.oldest},
		{name: 'Last 3 min', cell: (q) => spark(q.samples, `Instances ready in ${q.name}`)},
	], (q) => q.name, 'No queue has anything ready, and no worker serves one.');
	const failures = table('Latest failures', [
		{name: 'Instance', cell: (i) => instanceLink(i.id, i.correlation_key ?? i.id)},
		{name: 'Machine', cell: (i) => i.machine},
		{name: 'Step', cell: (i) => i.step},
		{name: 'Why', cell: (i) => brief(i.last_error ?? '–', 160), class: 'wide'},
		{name: 'Ended', cell: (i) => when(i.finished_at)},
	], (i) => i.id, 'Nothing has failed.');
	const shared = h('div.two', {}, panel('Routes', routes), panel('Queues', queues));
	put(view.el, h('h1', {}, 'Overview'), said, panel('Needs attention', troubles), tiles, shared, panel('Latest failures', failures));
	listen((p) => {
		if (!p.stats) return swap(said, p.trouble ? sorry(p.trouble) : null);
		swap(said);
		swap(troubles, attention(p));
		swap(tiles, tilesOf(p));
		shared.hidden = !p.shared;
		routes.show((p.routes ?? []).map((r) => ({...r, now: rate(last('acked ' + r.name)), samples: [...samples('acked ' + r.name)]})));
		queues.show((p.queues ?? []).map((q) => ({...q, oldest: q.depth ? duration(q.oldest_seconds) : '–', samples: [...samples('depth ' + q.name)]})));
		view.ready();
	}, view.signal);
	view.every(5000, async () => failures.show((await get(path('instances'), {status: 'failed', limit: 8}, view.signal)).items));
}

// attention is what should be looked at, the worst first.
function attention(p) {
	const items = [];
	const add = (tone, where, what, ...why) => items.push(h('li', {class: tone}, link(where, what), h('span', {}, ...why)));
	for (const q of p.queues ?? []) {
		const [state] = queueState(q);
		const where = hash(['instances'], {queue: q.name, status: 'runnable'});
		if (state === 'unserved') add('bad', where, `Queue ${q.name}`, `${count(q.depth)} ready and no worker serves it: start one that does`);
		else if (state === 'late') add('warn', where, `Queue ${q.name}`, `${count(q.depth)} ready, the oldest for ${duration(q.oldest_seconds)}: ${q.workers} workers with ${q.slots} slots are too few, or their steps hang`);
	}
	for (const r of p.routes ?? []) {
		if (r.trouble) add('bad', hash(['routes', r.name]), `Route ${r.name}`, r.trouble);
		else if (r.paused) add('warn', hash(['routes', r.name]), `Route ${r.name}`, `paused by ${r.paused_by.join(' and ')}, ${count(r.lag)} messages wait`);
		else if (r.throttle_reason && !r.throttle_reason.startsWith('standby')) add('warn', hash(['routes', r.name]), `Route ${r.name}`, r.throttle_reason);
	}
	for (const w of p.workers ?? []) {
		if (workerState(w)[0] === 'gone' && w.executing > 0) add('bad', hash(['queues']), `Worker ${w.name}`, 'gone with ', `${count(w.executing)} in work, last seen `, when(w.seen_at));
	}
	if (p.letters) add('bad', hash(['dead-letters']), 'Dead letters', `the latest, of ${p.letters.route}, `, when(p.letters.at), `: ${brief(p.letters.reason, 120)}`);
	const failed = p.stats.instances.failed ?? 0;
	if (failed) add('warn', hash(['instances'], {status: 'failed'}), 'Failed instances', `${count(failed)}${p.stats.at_least && failed >= 10000 ? ' or more' : ''}, ${count(p.stats.ended_last_minute.failed ?? 0)} in the last minute`);
	if (p.webhooks) add('warn', hash(['webhooks'], {status: 'failed'}), 'Failed webhooks', 'the latest, to ', brief(p.webhooks.url, 60), ': ', brief(p.webhooks.last_error ?? `status ${p.webhooks.last_status}`, 100));
	if (p.stats.paused) add('calm', hash(['instances']), 'Paused instances', count(p.stats.paused));
	if (p.held) add('calm', hash(['held']), 'Held signals', `for keys that nobody has yet, the first for ${brief(p.held.correlation_key, 60)}`);
	return items.length ? items : [h('li.good', {}, h('span', {}, 'Nothing: routes read, queues are served, nothing has failed.'))];
}

function tilesOf(p) {
	const counts = p.stats.instances, more = (n) => (p.stats.at_least && n >= 10000 ? '+' : '');
	const tile = (name, value, where, drawing, title) => h('a.tile', {href: where, title}, h('span.name', {}, name), h('span.value', {}, value), drawing);
	const of = (status, name) => tile(name, count(counts[status] ?? 0) + more(counts[status]), hash(['instances'], {status}));
	return [
		h('div.tiles.rates', {},
			p.shared && tile('Messages acked', rate(last('acked') ?? null), hash(['routes']), spark(samples('acked'), 'Messages acked in the last three minutes'), 'by all routes, over two seconds'),
			p.shared && tile('Lag', count(last('lag') ?? null), hash(['routes']), spark(samples('lag'), 'Messages not acked in the last three minutes'), 'messages of all routes that are not acked'),
			p.shared && tile('Ready', count(last('depth') ?? null), hash(['queues']), spark(samples('depth'), 'Instances ready in the last three minutes'), 'instances in all queues'),
			tile('Ended', rate(last('ended') ?? null), hash(['instances']), spark(samples('ended'), 'Instances ended in the last three minutes'), 'instances of the project, over the last minute')),
		h('div.tiles.counts', {}, of('awaiting_signal', 'Awaiting'), of('runnable', 'Runnable'), of('executing', 'Executing'), of('done', 'Done'), of('failed', 'Failed'), of('canceled', 'Canceled')),
	];
}
