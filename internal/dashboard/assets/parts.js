// What pages are made of.
import {h, keyed, svg, swap} from './dom.js';
import {get, Refusal, send} from './api.js';
import {pretty} from './format.js';

// link within the dashboard.
export const link = (where, text, props) => h('a', {href: where, 'data-focus': where, ...props}, text);

// hash is the address of a page: its parts, and its query.
export function hash(parts, query = {}) {
	const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== '' && v !== undefined && v !== null));
	return '#/' + parts.map(encodeURIComponent).join('/') + (q.size ? '?' + q : '');
}

export const instanceLink = (ref, text) => link(hash(['instances', ref]), text ?? ref, {class: 'mono'});

// tones of states: what they mean at a glance. The text says it too.
const tones = {
	done: 'good', delivered: 'good', received: 'good', running: 'good', ok: 'good', alive: 'good', started: 'good',
	failed: 'bad', gone: 'bad', trouble: 'bad', dead_lettered: 'bad', conflict: 'bad', unserved: 'bad',
	runnable: 'busy', executing: 'busy', pending: 'busy', retried: 'busy',
	paused: 'warn', timed_out: 'warn', held: 'warn', late: 'warn', slow: 'warn', full: 'warn', starting: 'busy',
};

export const badge = (state, text) => h('span.badge.' + (tones[state.replaceAll('-', '_')] ?? 'calm'), {}, text ?? state.replaceAll('_', ' '));

// spark draws samples, the last one at the right edge.
export function spark(values, label, {width = 110, height = 22} = {}) {
	const most = Math.max(...values, 0), step = width / 89;
	const points = values.map((v, i) => [width - (values.length - 1 - i) * step, height - 2 - (most > 0 ? (v / most) * (height - 4) : 0)]);
	const line = points.map(([x, y]) => x.toFixed(1) + ',' + y.toFixed(1)).join(' ');
	const area = points.length > 1 ? `${points[0][0].toFixed(1)},${height} ${line} ${width},${height}` : '';
	return svg('svg', {class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label, preserveAspectRatio: 'none'},
		area && svg('polygon', {points: area}), points.length > 1 && svg('polyline', {points: line}));
}

// notice is a message in the place of what cannot be shown, or above it.
export function notice(tone, ...text) {
	return h('p.notice.' + tone, {role: tone === 'bad' ? 'alert' : 'status'}, text);
}

export function sorry(err) {
	if (!(err instanceof Refusal)) throw err;
	return notice(err.status === 403 ? 'calm' : 'bad', err.message);
}

// code shows JSON, or that there is none.
export function code(value, none = 'null') {
	if (value === null || value === undefined) return h('p.dim', {}, none);
	return codeText(pretty(value));
}

export const codeText = (text) => h('pre.code', {tabindex: '0'}, text);

// facts are names with values; those without a value are left out.
export function facts(pairs) {
	return h('dl.facts', {}, pairs.filter(([, v]) => v !== null && v !== undefined && v !== '' && v !== false).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

export const panel = (title, ...children) => h('section.panel', {}, h('h2', {}, title), children);

export function button(text, click, {kind = '', focus, ...props} = {}) {
	return h('button', {type: 'button', class: kind, click, 'data-focus': focus ?? text, ...props}, text);
}

// table of columns: {name, cell(item), number}. Its show(items) renders rows; on a phone each row is a card.
export function table(caption, columns, keyOf, empty) {
	const body = h('tbody'), none = h('p.empty', {hidden: true}, empty);
	const rows = h('table', {}, h('caption.sr', {}, caption), h('thead', {}, h('tr', {}, columns.map((c) => h('th', {scope: 'col', class: c.number ? 'number' : null}, c.name)))), body);
	const el = h('div.table', {}, rows, none);
	el.show = (items) => {
		none.hidden = items.length > 0;
		rows.hidden = items.length === 0;
		keyed(body, items, keyOf, (item) => h('tr', {}, columns.map((c) => h('td', {'data-label': c.name, class: [c.number && 'number', c.class].filter(Boolean).join(' ') || null}, h('div', {}, c.cell(item))))));
	};
	return el;
}

let fields = 0;

// field is an input with its label. Kinds: text, number, datetime-local, json, select (with options).
export function field({name, label, kind = 'text', value = '', options, hint, ...props}) {
	const id = `field-${++fields}`;
	let input;
	if (kind === 'json' || kind === 'lines') input = h('textarea', {id, name, rows: 6, spellcheck: 'false', 'data-kind': kind, class: 'mono', ...props}, value);
	else if (kind === 'select') input = h('select', {id, name, ...props}, options.map(([v, text]) => h('option', {value: v, selected: v === value}, text)));
	else if (kind === 'check') input = h('input', {id, name, type: 'checkbox', ...props});
	else input = h('input', {id, name, type: kind, value, autocomplete: 'off', spellcheck: 'false', ...props});
	return h('div.field' + (kind === 'check' ? '.check' : ''), {}, h('label', {for: id}, label), input, hint && h('p.hint', {}, hint));
}

// filters is a form whose fields are the query of the page.
export function filters(parts, query, list, act = 'Filter') {
	return h('form.filters', {
		role: 'search',
		submit: (event) => {
			event.preventDefault();
			location.hash = hash(parts, Object.fromEntries(new FormData(event.target)));
		},
		change: (event) => { if (event.target.tagName === 'SELECT') event.currentTarget.requestSubmit(); },
	}, list.map((f) => field({...f, value: query[f.name] ?? ''})), h('button', {type: 'submit'}, act));
}

// listing shows a list of the API, page after page. The first page stays fresh.
export function listing(view, {caption, where, query, columns, keyOf, empty, every = 3000, limit = 50}) {
	const rows = table(caption, columns, keyOf, empty), said = h('div'), more = button('Show more', () => load(true));
	let items = [], cursor = null, pages = 1;
	const load = async (next) => {
		try {
			const page = await get(where, {...query, limit, cursor: next ? cursor : undefined}, view.signal);
			if (!next && pages > 1) return; // the first page, while others are shown
			items = next ? items.concat(page.items) : page.items;
			pages += next ? 1 : 0;
			cursor = page.next_cursor;
			rows.show(items);
			more.hidden = !cursor;
			swap(said);
		} catch (err) {
			if (view.signal.aborted) return;
			swap(said, sorry(err));
		}
		view.ready();
	};
	more.hidden = true;
	view.every(every, () => (pages > 1 ? null : load(false)));
	const el = h('div', {}, said, rows, more);
	el.reload = () => { pages = 1; return load(false); };
	return el;
}

// ask opens a dialog and does what it is for when that is confirmed; it resolves to the answer, or to undefined where it was left. do gets
// the values of the fields by their names, and its error is shown in the dialog, which stays.
export function ask({title, text, fields: list = [], confirm, danger = false, do: act, extra}) {
	return new Promise((resolve) => {
		const inputs = list.map(field), error = h('p.error', {role: 'alert'});
		const ok = h('button', {type: 'submit', class: danger ? 'danger' : 'primary'}, confirm);
		let answer;
		const form = h('form', {
			method: 'dialog',
			submit: async (event) => {
				event.preventDefault();
				const values = Object.fromEntries(new FormData(form));
				for (const el of form.querySelectorAll('[data-kind=json]')) {
					const why = notJSON(el.value);
					if (why) {
						swap(error, why);
						return el.focus();
					}
				}
				ok.disabled = true;
				swap(error);
				try {
					const got = (await act(values)) ?? null;
					if (got === ask.stay) return;
					answer = got;
					dialog.close();
				} catch (err) {
					if (!(err instanceof Refusal)) throw err;
					swap(error, err.message);
				} finally {
					ok.disabled = false;
				}
			},
		}, h('h2', {id: 'dialog-title'}, title), text && h('p', {}, text), inputs, extra, error,
		h('div.actions', {}, button(act ? 'Back' : 'Close', () => dialog.close()), confirm && ok));
		const dialog = h('dialog', {'aria-labelledby': 'dialog-title', close: () => { dialog.remove(); resolve(answer); }}, form);
		document.body.append(dialog);
		dialog.showModal();
	});
}

// stay is what do answers to keep the dialog open.
ask.stay = Symbol('stay');

// notJSON says what is wrong with a text that should be a JSON document.
function notJSON(text) {
	try {
		JSON.parse(text);
		return '';
	} catch (err) {
		return 'That is no JSON: ' + err.message;
	}
}

let toasts;

// tell says what was done, for a while.
export function tell(text, tone = 'good') {
	toasts ??= document.body.appendChild(h('div.toasts', {role: 'status', 'aria-live': 'polite'}));
	if (!toasts.isConnected) document.body.append(toasts);
	const one = h('p.toast.' + tone, {}, text);
	toasts.append(one);
	setTimeout(() => one.remove(), 6000);
}

// change asks whether to do something, does it and says so: a request, or act where there is more to it. after says what to do then.
export async function change({title, text, confirm, danger, fields: list, method = 'POST', where, request = () => ({}), said, act, after}) {
	const answer = await ask({title, text, confirm, danger, fields: list, do: act ?? ((values) => send(method, where, request(values)))});
	if (answer === undefined) return;
	if (said) tell(...[typeof said === 'function' ? said(answer) : said].flat());
	await after?.(answer);
}
