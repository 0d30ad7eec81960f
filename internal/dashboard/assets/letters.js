// Dead letters: what was refused and why, and giving it again or dropping it.
import {h, put, swap} from './dom.js';
import {get, path, Refusal, send} from './api.js';
import {brief, count, when} from './format.js';
import {ask, badge, button, change, code, codeText, facts, filters, hash, instanceLink, link, listing, panel, table, tell} from './parts.js';

export function letters(view) {
	const {query} = view;
	const list = listing(view, {
		caption: 'Dead letters', where: path('dead-letters'), query, keyOf: (l) => l.seq, empty: 'There are none.',
		columns: [
			{name: 'Letter', number: true, cell: (l) => link(hash(['dead-letters', l.seq]), count(l.seq))},
			{name: 'Route', cell: (l) => l.route},
			{name: 'Why', class: 'wide', cell: (l) => brief(l.reason, 200)},
			{name: 'Subject', class: 'wide', cell: (l) => h('span.mono', {}, l.subject ?? '–')},
			{name: 'Of', cell: (l) => (l.stream ? `${l.stream} ${count(l.stream_seq)}` : '–')},
			{name: 'When', cell: (l) => when(l.at)},
		],
	});
	put(view.el, h('h1', {}, 'Dead letters'), filters(['dead-letters'], query, [{name: 'route', label: 'Route'}]),
		h('div.actions', {}, button('Replay many…', () => many('replay', query, list.reload)), button('Drop many…', () => many('drop', query, list.reload), {kind: 'danger'})), list);
}

// many is first tried, then done: what the dry run found is shown before.
async function many(verb, query, after) {
	const tried = h('div', {'aria-live': 'polite'});
	let dry = '';
	await ask({
		title: verb === 'replay' ? 'Replay dead letters' : 'Drop dead letters', confirm: 'Dry run',
		text: verb === 'replay' ? 'Each is given again to the route that refused it. What is refused again stays.' : 'They are deleted for good.',
		fields: [{name: 'route', label: 'Route (empty: any)', value: query.route ?? ''}, {name: 'reason', label: 'Reason contains'}], extra: tried,
		do: async (v) => {
			const choice = {route: v.route || undefined, reason_contains: v.reason || undefined, all: !v.route && !v.reason ? true : undefined}, key = JSON.stringify(choice);
			const button = document.querySelector('dialog[open] button[type=submit]'), doing = dry === key;
			const sums = new Map();
			for (let cursor; ;) {
				const page = await send('POST', path('dead-letters', verb), {body: {...choice, cursor, dry_run: !doing}});
				for (const r of page.items) sums.set(r.result, (sums.get(r.result) ?? 0) + 1);
				swap(tried, facts([...sums].map(([result, n]) => [result.replaceAll('_', ' '), count(n)])), !sums.size && h('p', {}, 'No letter is like that.'));
				cursor = page.next_cursor;
				if (!cursor) break;
				if (!tried.isConnected) return null;
			}
			if (doing) {
				tell([...sums].map(([result, n]) => `${count(n)} ${result.replaceAll('_', ' ')}`).join(', ') || 'Nothing was there');
				await after();
				return sums;
			}
			if (!sums.size) return ask.stay;
			dry = key;
			button.textContent = verb === 'replay' ? 'Replay these' : 'Drop these';
			button.className = verb === 'replay' ? 'primary' : 'danger';
			return ask.stay;
		},
	});
}

export async function letter(view, seq) {
	view.title('Dead letter ' + seq);
	let l;
	try {
		l = await get(path('dead-letters', seq), {}, view.signal);
	} catch (err) {
		if (view.signal.aborted) return;
		if (!(err instanceof Refusal)) throw err;
		return view.failed(err);
	}
	const said = h('div');
	const back = () => { location.hash = hash(['dead-letters']); };
	put(view.el, h('h1', {}, 'Dead letter ', count(l.seq)), h('p.because', {}, h('q', {}, l.reason)), h('div.actions', {},
		button('Replay…', () => replay(l, said, back), {kind: 'primary'}),
		button('Drop…', () => change({
			title: `Drop the dead letter ${l.seq}?`, text: 'It is deleted for good. A note stays, so that an audit does not miss its message.', confirm: 'Drop', danger: true,
			method: 'DELETE', where: path('dead-letters', l.seq), said: 'The dead letter is dropped', after: back,
		}), {kind: 'danger'})), said,
	facts([
		['Route', link(hash(['routes', l.route]), l.route)], ['Subject', h('span.mono', {}, l.subject ?? '–')], ['Message', l.stream && link(hash(['messages'], {stream: l.stream, seq: l.stream_seq}), `${l.stream} ${count(l.stream_seq)}`)],
		['Message id', l.msg_id && h('span.mono', {}, l.msg_id)], ['Deliveries', l.deliveries ? count(l.deliveries) : null], ['When', when(l.at)],
	]), panel('Body', l.data !== undefined ? code(l.data) : codeText(l.data_text ?? l.data_base64 ?? '')), panel('Headers', headers(l.headers)));
	view.ready();
}

function headers(all) {
	const list = table('Headers', [{name: 'Name', cell: ([name]) => h('span.mono', {}, name)}, {name: 'Value', class: 'wide', cell: ([, values]) => h('span.mono', {}, values.join('\n'))}], ([name]) => name, 'None.');
	list.show(Object.entries(all ?? {}));
	return list;
}

const replay = (l, said, back) => change({
	title: `Replay the dead letter ${l.seq}?`, text: `It is given again to the route ${l.route}, as the bridge has that route now.`, confirm: 'Replay', where: path('dead-letters', l.seq, 'replay'),
	said: (r) => (r.stays ? ['It was refused again, and stays', 'bad'] : `It is ${r.result.replaceAll('_', ' ')} now`),
	after: (r) => {
		if (!r.stays && !r.instance_id) return back();
		swap(said, h('p.notice.' + (r.stays ? 'bad' : 'good'), {role: 'status'}, badge(r.result), ' ', r.reason, r.instance_id && [' ', instanceLink(r.instance_id, 'the instance')]));
	},
});
