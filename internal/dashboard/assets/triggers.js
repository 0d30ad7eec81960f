// Triggers: who waits for which event, and sending it by hand.
import {h, put, swap} from './dom.js';
import {follow, get, path, Refusal, send} from './api.js';
import {brief, count, duration, when} from './format.js';
import {badge, button, change, code, facts, filters, hash, instanceLink, link, listing, panel, sorry, tell} from './parts.js';

const statuses = ['waiting', 'received', 'timed_out', 'canceled'];

export function triggers(view) {
	const {query} = view, tiles = h('div.tiles');
	put(view.el, h('h1', {}, 'Triggers'), tiles, filters(['triggers'], query, [
		{name: 'status', label: 'Status', kind: 'select', options: [['', 'any'], ...statuses.map((s) => [s, s.replaceAll('_', ' ')])]},
		{name: 'source_type', label: 'Waits', kind: 'select', options: [['', 'anyone'], ['api', 'who asked'], ['job_run', 'an instance'], ['workflow_step', 'a step of a flow']]},
	]), listing(view, {
		caption: 'Triggers', where: path('events'), query, keyOf: (t) => t.id, empty: 'No trigger is like that.',
		columns: [
			{name: 'Event', class: 'wide', cell: (t) => link(hash(['triggers', t.event_key]), t.event_key, {class: 'mono'})},
			{name: 'Status', cell: (t) => badge(t.status)},
			{name: 'Waits', cell: (t) => (t.instance_id ? instanceLink(t.instance_id, 'instance') : 'who asked')},
			{name: 'Time', cell: (t) => (t.status === 'waiting' ? when(t.expires_at, 'left') : '–')},
			{name: 'Asked', cell: (t) => when(t.requested_at)},
			{name: 'Sent by', cell: (t) => t.sent_by ?? '–'},
		],
	}));
	view.every(5000, async () => {
		try {
			const stats = await get(path('events', 'stats'), {}, view.signal);
			swap(tiles, statuses.map((s) => h('a.tile', {href: hash(['triggers'], {status: s})}, h('span.name', {}, s.replaceAll('_', ' ')), h('span.value', {}, count(stats[s])))));
		} catch (err) {
			if (!view.signal.aborted) swap(tiles, sorry(err));
		}
	});
}

export function trigger(view, key) {
	const body = h('div'), actions = h('div.actions');
	view.title('Trigger ' + key);
	put(view.el, h('h1', {}, 'Trigger ', h('span.mono', {}, key)), actions, body);
	const draw = (t) => {
		swap(actions, t.status === 'waiting' && [t.trigger_type !== 'sleep' && button('Send the event…', () => sendEvent(key, fresh), {kind: 'primary'}), button('Cancel…', () => cancel(key, fresh), {kind: 'danger'})]);
		swap(body, facts([
			['Status', badge(t.status)], ['Waits', t.instance_id ? instanceLink(t.instance_id) : 'who asked'], ['Step', t.step], ['Time', t.status === 'waiting' ? when(t.expires_at, 'left') : null],
			['Time-out', duration(t.timeout_secs)], ['Asked', when(t.requested_at)], ['Received', t.received_at && when(t.received_at)], ['Sent by', t.sent_by],
			['Error', t.error], ['Webhook', t.notify_url && brief(t.notify_url, 100)], ['Webhook is', t.notify_status],
		]), h('div.two', {}, panel('What was asked', code(t.request_payload, 'Nothing.')), panel('What was sent', code(t.response_payload, 'Nothing yet.'))));
		view.ready();
	};
	const fresh = async () => draw(await get(path('events', key), {}, view.signal));
	(async () => {
		try {
			await fresh();
			for await (const t of follow(path('events', key, 'stream'), view.signal)) draw(t);
		} catch (err) {
			if (view.signal.aborted) return;
			if (!(err instanceof Refusal)) throw err;
			view.failed(err);
		}
	})();
}

const sendEvent = (key, after) => change({
	title: 'Send the event', text: `Whoever waits for ${brief(key, 80)} gets it. It cannot be taken back.`, confirm: 'Send', fields: [{name: 'payload', label: 'Payload (JSON)', kind: 'json', value: 'null'}], after,
	act: async (v) => {
		await send('POST', path('events', key, 'send'), {body: `{"payload":${v.payload}}`});
		tell('The event was received');
	},
});

const cancel = (key, after) => change({
	title: 'Cancel the trigger?', text: 'Whoever awaits it is woken, as canceled.', confirm: 'Cancel the trigger', danger: true, method: 'DELETE', where: path('events', key), said: 'The trigger is canceled', after,
});
