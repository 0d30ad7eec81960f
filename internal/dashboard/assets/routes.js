// Routes: how far each is, what it made of its messages, and how to stop it or send it back.
import {h, put, swap} from './dom.js';
import {path, send} from './api.js';
import {count, rate} from './format.js';
import {ask, badge, button, change, facts, hash, link, notice, panel, sorry, spark, table, tell} from './parts.js';
import {last, listen, now, samples} from './pulse.js';
import {routeState} from './states.js';

const ofNoProject = () => notice('calm', 'Routes belong to no project: they take the admin token.');

export function routes(view) {
	const said = h('div');
	const list = table('Routes', [
		{name: 'Route', cell: (r) => link(hash(['routes', r.name]), r.name)},
		{name: 'Reads', class: 'wide', cell: (r) => [r.stream, h('div.dim', {}, r.subjects.join(', '))]},
		{name: 'State', cell: (r) => [badge(...routeState(r)), r.trouble ? h('div.why', {}, r.trouble) : r.throttle_reason && h('div.why.dim', {}, r.throttle_reason)]},
		{name: 'Lag', number: true, cell: (r) => count(r.lag)},
		{name: 'Ack pending', number: true, cell: (r) => count(r.ack_pending)},
		{name: 'Redelivered', number: true, cell: (r) => count(r.redelivered)},
		{name: 'Acked', number: true, cell: (r) => r.now},
		{name: 'Last 3 min', cell: (r) => spark(r.samples, `Messages acked by ${r.name}`)},
	], (r) => r.name, 'No routes are configured.');
	put(view.el, h('h1', {}, 'Routes'), said, list);
	listen((p) => {
		if (!p.shared) return view.ready(swap(said, ofNoProject()));
		if (!p.routes) return swap(said, p.trouble && sorry(p.trouble));
		list.show(p.routes.map((r) => ({...r, now: rate(last('acked ' + r.name)), samples: [...samples('acked ' + r.name)]})));
		view.ready();
	}, view.signal);
}

export function route(view, name) {
	const body = h('div'), actions = h('div.actions');
	const results = table('Results', [
		{name: 'Result', cell: (r) => badge(r.result)},
		{name: 'Messages', number: true, cell: (r) => count(r.n)},
		{name: 'Now', number: true, cell: (r) => r.now},
		{name: 'Last 3 min', cell: (r) => spark(r.samples, `Messages ${r.result}`)},
	], (r) => r.result, 'This bridge has taken in nothing for it yet.');
	view.title('Route ' + name);
	put(view.el, h('h1', {}, 'Route ', h('span.mono', {}, name)), actions, body,
		h('div.two', {}, panel('Results', h('p.hint', {}, 'Counted by the bridge that answers, since it started.'), results),
			panel('Its messages', h('p', {}, link(hash(['dead-letters'], {route: name}), 'Dead letters of this route')), h('p', {}, link(hash(['messages']), 'The fate of one message')))));
	listen((p) => {
		if (!p.shared) return view.ready(swap(body, ofNoProject()));
		if (!p.routes) return swap(body, p.trouble && sorry(p.trouble));
		const r = p.routes.find((one) => one.name === name);
		if (!r) return view.ready(swap(body, notice('bad', 'The bridge that answers has no such route.')));
		swap(actions, r.paused_by.includes('operator')
			? button('Resume…', () => operate(r, 'resume', 'Bridges read it again within seconds.'), {kind: 'primary', focus: 'pause'})
			: button('Pause…', () => operate(r, 'pause', 'Within seconds no bridge reads it. What is in hand is taken in, and it stays so over restarts.'), {focus: 'pause'}),
		button('Rewind…', () => rewind(r)));
		swap(body, r.trouble && notice('bad', r.trouble), facts([
			['State', badge(...routeState(r))], ['Held back', r.throttle_reason], ['Stream', r.stream], ['Subjects', r.subjects.join(', ')], ['Consumer', h('span.mono', {}, r.consumer)],
			['Order', r.ordered ? 'kept, by one bridge at a time' : null], ['Read by', r.owner],
			['Lag', `${count(r.lag)} messages`], ['Not delivered yet', count(r.pending)], ['Delivered, not acked', count(r.ack_pending)], ['Redelivered', count(r.redelivered)],
			['Acked up to', count(r.ack_floor_seq)], ['Checkpoint', count(r.checkpoint_seq)], ['Speed', [rate(last('acked ' + name)), ' ', spark(samples('acked ' + name), 'Messages acked', {width: 160})]],
		]));
		results.show([...(p.results.get(name) ?? [])].filter(([, n]) => n > 0).map(([result, n]) => (
			{result, n, now: rate(last(`result ${name} ${result}`) ?? null), samples: [...samples(`result ${name} ${result}`)]})));
		view.ready();
	}, view.signal);
}

const operate = (r, verb, text) => change({
	title: `${verb === 'pause' ? 'Pause' : 'Resume'} the route ${r.name}?`, text, confirm: verb === 'pause' ? 'Pause' : 'Resume',
	where: path('routes', r.name, verb), said: `Route ${r.name}: ${verb} is on its way`, after: now,
});

// rewind is only done after it was tried: the dry run says what would come of it, page by page.
async function rewind(r) {
	const tried = h('div', {'aria-live': 'polite'});
	let dry = '';
	const place = (values) => (values.by === 'time' ? {to_time: new Date(values.time).toISOString()} : {to_seq: Number(values.seq)});
	await ask({
		title: `Rewind the route ${r.name}`, confirm: 'Dry run',
		text: 'The stream is read again from there on. What was taken in before is a duplicate, so only what was not comes through. First a dry run counts.',
		fields: [
			{name: 'by', label: 'To a', kind: 'select', value: 'seq', options: [['seq', 'sequence'], ['time', 'time']]},
			{name: 'seq', label: 'Sequence', kind: 'number', min: 1, value: String(Math.max(1, (r.ack_floor_seq ?? 1) - 100))},
			{name: 'time', label: 'Time', kind: 'datetime-local', step: 1, value: local(new Date(Date.now() - 3600e3))},
		],
		extra: tried,
		do: async (values) => {
			const to = place(values), key = JSON.stringify(to);
			const button = document.querySelector('dialog[open] button[type=submit]');
			if (dry === key) {
				const done = await send('POST', path('routes', r.name, 'rewind'), {body: to});
				tell(`Route ${r.name} is read again from sequence ${count(done.from_seq)} on: ${count(done.pending)} messages`);
				now();
				return done;
			}
			const sum = {total: 0, new: 0, duplicate: 0, filtered: 0, dead: 0};
			for (let from = to; ;) {
				const page = await send('POST', path('routes', r.name, 'rewind'), {body: {...from, dry_run: true}});
				for (const name of Object.keys(sum)) sum[name] += page[name];
				swap(tried, facts([['Messages', count(sum.total)], ['New', count(sum.new)], ['Duplicate', count(sum.duplicate)], ['Filtered', count(sum.filtered)], ['Would be dead letters', count(sum.dead)]]));
				if (page.next_seq === null) break;
				if (!tried.isConnected) return null;
				from = {to_seq: page.next_seq};
			}
			dry = key;
			button.textContent = 'Rewind';
			button.className = 'danger';
			return ask.stay;
		},
	});
}

// local is a time as an input has it.
const local = (at) => new Date(at - at.getTimezoneOffset() * 60e3).toISOString().slice(0, 19);
