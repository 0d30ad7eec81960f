// The fate of a message: which route read it, what it decided and why, and the step that consumed it.
import {h, put, swap} from './dom.js';
import {get, path, Refusal} from './api.js';
import {count, when} from './format.js';
import {badge, facts, filters, hash, instanceLink, link, panel, sorry} from './parts.js';

export default function message(view) {
	const {query} = view, answer = h('div', {'aria-live': 'polite'});
	put(view.el, h('h1', {}, 'Fate of a message'), h('p.hint', {}, 'By its stream and sequence, or by its Nats-Msg-Id.'), filters(['messages'], query, [
		{name: 'stream', label: 'Stream'}, {name: 'seq', label: 'Sequence', kind: 'number', min: 1}, {name: 'msg_id', label: 'or message id'},
	], 'Look it up'), answer);
	if (!query.msg_id && !(query.stream && query.seq)) return view.ready();
	view.every(3000, async () => {
		try {
			const m = await get(path('messages'), query, view.signal);
			swap(answer, [m, ...(m.others ?? [])].map(fate));
		} catch (err) {
			if (view.signal.aborted) return;
			if (!(err instanceof Refusal)) throw err;
			swap(answer, sorry(err));
		}
		view.ready();
	});
}

const fate = (m) => panel(m.route ? 'Route ' + m.route : 'No route', h('p.because', {}, badge(m.fate), ' ', m.reason), facts([
	['Message', `${m.stream} ${count(m.seq)}`], ['Message id', m.msg_id && h('span.mono', {}, m.msg_id)], ['Subject', h('span.mono', {}, m.subject)],
	['Route', m.route && link(hash(['routes', m.route]), m.route)], ['Instance', m.instance_id && instanceLink(m.instance_id)], ['Signal', m.signal_id !== null && count(m.signal_id)],
	['Consumed by', m.consumed_by && [h('b', {}, m.consumed_by.step), `, revision ${m.consumed_by.rev}, `, when(m.consumed_by.at)]], ['When', m.at && when(m.at)],
]));
