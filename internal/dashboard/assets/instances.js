// Instances by key, machine, status and queue, the newest first.
import {h, put} from './dom.js';
import {path} from './api.js';
import {brief, count, when} from './format.js';
import {badge, filters, instanceLink, listing} from './parts.js';

export const statuses = ['runnable', 'executing', 'awaiting_signal', 'done', 'failed', 'canceled'];

// statusBadges are what an instance is, and whether it is paused.
export const statusBadges = (i) => [badge(i.status), i.paused && ' ', i.paused && badge('paused')];

export const instanceColumns = [
	{name: 'Instance', class: 'wide', cell: (i) => instanceLink(i.id, i.correlation_key ?? i.id)},
	{name: 'Status', cell: statusBadges},
	{name: 'Machine', cell: (i) => `${i.machine} v${i.version}`},
	{name: 'Step', cell: (i) => i.step + (i.attempt > 0 ? ` (attempt ${i.attempt})` : '')},
	{name: 'Waits for, or why', class: 'wide', cell: (i) => because(i)},
	{name: 'Inbox', number: true, cell: (i) => count(i.inbox_count)},
	{name: 'Changed', cell: (i) => when(i.updated_at)},
];

function because(i) {
	if (i.status === 'failed' || i.status === 'canceled' || (i.status === 'runnable' && i.last_error)) return brief(i.last_error ?? '–', 120);
	if (i.status === 'awaiting_signal') return [i.awaits.join(', ') || 'its time', i.deadline && [', ', when(i.deadline, 'left')]];
	if (i.status === 'runnable') return i.run_at && Date.parse(i.run_at) > Date.now() ? ['its time, ', when(i.run_at)] : `a slot of ${i.queue}`;
	if (i.status === 'executing') return i.lease ? brief(i.lease.worker, 40) : 'its step';
	return '–';
}

export function instances(view) {
	const {query} = view;
	put(view.el, h('h1', {}, 'Instances'), filters(['instances'], query, [
		{name: 'correlation_prefix', label: 'Key begins with', kind: 'search'},
		{name: 'status', label: 'Status', kind: 'select', options: [['', 'any'], ...statuses.map((s) => [s, s.replaceAll('_', ' ')])]},
		{name: 'machine', label: 'Machine'}, {name: 'queue', label: 'Queue'},
	]), listing(view, {
		caption: 'Instances', where: path('instances'), query, columns: instanceColumns, keyOf: (i) => i.id, empty: 'No instance is like that.',
	}));
}
