// Held signals wait for an instance to start with their key.
import {h, put} from './dom.js';
import {path} from './api.js';
import {brief, count, when} from './format.js';
import {code, filters, hash, link, listing} from './parts.js';

export default function held(view) {
	const {query} = view;
	put(view.el, h('h1', {}, 'Held'), h('p.hint', {}, 'Signals for keys that nobody has yet. The instance that starts with the key is given them; what expires becomes a dead letter.'),
		filters(['held'], query, [{name: 'correlation_prefix', label: 'Key begins with', kind: 'search'}]),
		listing(view, {
			caption: 'Held signals', where: path('held'), query, keyOf: (s) => [s.correlation_key, s.dedup_key, s.stream, s.seq, s.inserted_at].join('\n'), empty: 'None.',
			columns: [
				{name: 'Key', class: 'wide', cell: (s) => h('span.mono', {}, s.correlation_key)},
				{name: 'Signal', cell: (s) => s.name},
				{name: 'Payload', class: 'wide', cell: (s) => h('details', {}, h('summary', {}, brief(JSON.stringify(s.payload) ?? 'null', 60)), code(s.payload))},
				{name: 'Route', cell: (s) => (s.route ? link(hash(['routes', s.route]), s.route) : '–')},
				{name: 'Message', cell: (s) => (s.stream ? link(hash(['messages'], {stream: s.stream, seq: s.seq}), `${s.stream} ${count(s.seq)}`) : '–')},
				{name: 'Came', cell: (s) => when(s.inserted_at)},
				{name: 'Time', cell: (s) => when(s.expires_at, 'left')},
			],
		}));
}
