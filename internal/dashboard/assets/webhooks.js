// Webhooks that were, or are to be, sent.
import {h, put, swap} from './dom.js';
import {get, path, Refusal} from './api.js';
import {brief, count, when} from './format.js';
import {badge, button, change, code, codeText, facts, filters, hash, instanceLink, link, listing, panel} from './parts.js';

const why = (d) => d.last_error ?? (d.last_status ? `status ${d.last_status}` : '–');

const retry = (d, after) => change({
	title: 'Send the webhook again?', text: `To ${brief(d.url, 100)}, with the same id: a receiver that has seen it has nothing to do.`, confirm: 'Send again',
	where: path('webhook-deliveries', d.id, 'retry'), said: 'It is sent again', after,
});

export function webhooks(view) {
	const {query} = view;
	const list = listing(view, {
		caption: 'Webhooks', where: path('webhook-deliveries'), query, keyOf: (d) => d.id, empty: 'There are none.',
		columns: [
			{name: 'Webhook', class: 'wide', cell: (d) => link(hash(['webhooks', d.id]), brief(d.url, 80))},
			{name: 'Status', cell: (d) => badge(d.status)},
			{name: 'Tells', cell: (d) => d.type},
			{name: 'Attempts', number: true, cell: (d) => count(d.attempts)},
			{name: 'Last answer', class: 'wide', cell: (d) => brief(why(d), 120)},
			{name: 'Changed', cell: (d) => when(d.updated_at)},
			{name: 'Action', cell: (d) => (d.status === 'failed' ? button('Retry…', () => retry(d, list.reload), {focus: 'retry', 'aria-label': `Retry the webhook to ${brief(d.url, 60)}`}) : '')},
		],
	});
	put(view.el, h('h1', {}, 'Webhooks'), filters(['webhooks'], query, [
		{name: 'status', label: 'Status', kind: 'select', options: [['', 'any'], ['pending', 'pending'], ['delivered', 'delivered'], ['failed', 'failed']]},
	]), list);
}

export function webhook(view, id) {
	const body = h('div'), actions = h('div.actions');
	view.title('Webhook');
	put(view.el, h('h1', {}, 'Webhook'), actions, body);
	const load = async () => {
		try {
			const d = await get(path('webhook-deliveries', id), {}, view.signal);
			swap(actions, d.status === 'failed' && button('Retry…', () => retry(d, load), {kind: 'primary'}));
			swap(body, facts([
				['Id', h('span.mono', {}, d.id)], ['Status', badge(d.status)], ['To', h('span.mono', {}, d.url)], ['Tells', d.type], ['Of', d.source === 'instance' ? instanceLink(d.source_id) : d.source],
				['Attempts', count(d.attempts)], ['Next', d.next_at && when(d.next_at)], ['Last status', d.last_status && String(d.last_status)], ['Last error', d.last_error], ['Written', when(d.created_at)], ['Changed', when(d.updated_at)],
			]), d.last_response && panel('Its answer', codeText(d.last_response)), panel('Body', code(d.body)));
			view.ready();
		} catch (err) {
			if (view.signal.aborted) return;
			if (!(err instanceof Refusal)) throw err;
			view.failed(err);
		}
	};
	view.every(3000, load);
}
