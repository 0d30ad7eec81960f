// Queues and workers: what waits to run, and who runs it.
import {h, put, swap} from './dom.js';
import {count, duration, when} from './format.js';
import {badge, hash, link, notice, panel, sorry, spark, table} from './parts.js';
import {listen, samples} from './pulse.js';
import {queueState, workerState} from './states.js';

export default function queuesAndWorkers(view) {
	const said = h('div');
	const queues = table('Queues', [
		{name: 'Queue', cell: (q) => link(hash(['instances'], {queue: q.name, status: 'runnable'}), q.name)},
		{name: 'State', cell: (q) => badge(...queueState(q))},
		{name: 'Ready', number: true, cell: (q) => count(q.depth) + (q.depth >= 10000 ? '+' : '')},
		{name: 'Oldest', number: true, cell: (q) => (q.depth ? duration(q.oldest_seconds) : '–')},
		{name: 'Workers', number: true, cell: (q) => count(q.workers)},
		{name: 'Slots', number: true, cell: (q) => count(q.slots)},
		{name: 'Last 3 min', cell: (q) => spark(q.samples, `Instances ready in ${q.name}`)},
	], (q) => q.name, 'No queue has anything ready, and no worker serves one.');
	const workers = table('Workers', [
		{name: 'Worker', class: 'wide', cell: (w) => h('span.mono', {}, w.name)},
		{name: 'State', cell: (w) => badge(...workerState(w))},
		{name: 'Queues', cell: (w) => Object.entries(w.queues).map(([name, slots]) => `${name} (${count(slots)} slots)`).join(', ')},
		{name: 'Machines', cell: (w) => w.machines.join(', ')},
		{name: 'Batches', number: true, cell: (w) => count(w.leases)},
		{name: 'Executing', number: true, cell: (w) => count(w.executing)},
		{name: 'Up', cell: (w) => when(w.started_at)},
		{name: 'Seen', cell: (w) => when(w.seen_at)},
	], (w) => w.name, 'No worker was seen within the last day. Start one: pointsman worker.');
	put(view.el, h('h1', {}, 'Queues & workers'), said, panel('Queues', queues), panel('Workers', workers));
	listen((p) => {
		if (!p.shared) return view.ready(swap(said, notice('calm', 'Queues and workers belong to no project: they take the admin token.')));
		if (!p.queues) return swap(said, p.trouble && sorry(p.trouble));
		queues.show(p.queues.map((q) => ({...q, samples: [...samples('depth ' + q.name)]})));
		workers.show(p.workers);
		view.ready();
	}, view.signal);
}
