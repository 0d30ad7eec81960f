// One instance: what it is at, why it does not get on, what happened to it, and what can be done.
import {h, put, swap} from './dom.js';
import {follow, get, newKey, path, Refusal, send} from './api.js';
import {brief, count, when} from './format.js';
import {badge, button, change, code, facts, instanceLink, panel, sorry, table, tell} from './parts.js';
import {pulse} from './pulse.js';
import {statusBadges} from './instances.js';

const live = (i) => !['done', 'failed', 'canceled'].includes(i.status);

export default function instance(view, ref) {
	const where = (...rest) => path('instances', ref, ...rest);
	const head = h('div.head'), why = h('div'), about = h('div'), state = h('div'), result = h('div'), actions = h('div.actions'), said = h('div');
	const history = h('ol.timeline'), older = button('Show more', () => more(), {hidden: true}), values = h('div'), tree = h('ul.tree');
	const inbox = table('Inbox', [
		{name: 'Id', number: true, cell: (s) => count(s.id)},
		{name: 'Kind', cell: (s) => s.kind},
		{name: 'Name', cell: (s) => s.name},
		{name: 'Payload', class: 'wide', cell: (s) => h('details', {}, h('summary', {}, brief(JSON.stringify(s.payload) ?? 'null', 60)), code(s.payload))},
		{name: 'Sent by', cell: (s) => s.sent_by ?? '–'},
		{name: 'Came', cell: (s) => when(s.inserted_at)},
	], (s) => s.id, 'Empty.');
	view.title('Instance');
	put(view.el, head, said, why, actions, about, h('div.two', {},
		h('div', {}, panel('Timeline', history, older), panel('Inbox', inbox), panel('Children', tree)),
		h('div', {}, panel('State', state), panel('Result', result), panel('Published values', values))));

	let now = null, cursor = null, full = false;
	const draw = (i) => {
		now = i;
		view.title(i.correlation_key ?? i.id);
		swap(head, h('h1', {}, h('span.mono', {}, i.correlation_key ?? i.id), ' ', statusBadges(i)));
		swap(why, h('p.because', {}, because(i)));
		swap(actions, buttons(i));
		swap(about, facts([
			['Id', h('span.mono', {}, i.id)], ['Machine', `${i.machine} v${i.version}`], ['Step', i.step], ['Attempt', i.attempt ? count(i.attempt) : null],
			['Queue', i.queue], ['Priority', i.priority ? count(i.priority) : null], ['Partition key', i.partition_key], ['Unique key', i.unique_key],
			['Child of', i.parent_id && instanceLink(i.parent_id)], ['Started', when(i.inserted_at)], ['Changed', when(i.updated_at)], ['Ended', i.finished_at && when(i.finished_at)],
		]));
		swap(state, code(i.state, 'None.'));
		swap(result, code(i.result, live(i) ? 'It has not ended.' : 'None.'));
		view.ready();
	};
	const beside = async () => {
		const [steps, waiting, published, children] = await Promise.all([
			full ? null : get(where('history'), {limit: 50}, view.signal), get(where('inbox'), {limit: 100}, view.signal),
			get(where('events'), {}, view.signal), get(where('children'), {limit: 100}, view.signal),
		]);
		if (steps) {
			cursor = steps.next_cursor;
			older.hidden = !cursor;
			swap(history, steps.items.length ? steps.items.map(transition) : h('li.dim', {}, 'Nothing yet, or its machine keeps no history.'));
		}
		inbox.show(waiting.items);
		const keys = Object.entries(published);
		swap(values, keys.length ? keys.map(([key, value]) => h('details', {open: keys.length < 4}, h('summary.mono', {}, key), code(value))) : h('p.dim', {}, 'None.'));
		if (!tree.querySelector('[aria-expanded=true]')) swap(tree, children.items.length ? children.items.map((c) => child(c, view)) : h('li.dim', {}, 'None.'));
	};
	const more = async () => {
		const page = await get(where('history'), {limit: 50, cursor}, view.signal);
		full = true;
		cursor = page.next_cursor;
		older.hidden = !cursor;
		put(history, page.items.map(transition));
	};
	const fresh = async () => {
		draw(await get(path('instances', ref), {}, view.signal));
		await beside();
	};
	const buttons = (i) => [
		live(i) && button('Signal…', () => signal(i, where, fresh), {kind: 'primary'}),
		live(i) && button('Update…', () => update(i, where, fresh)),
		live(i) && (i.paused
			? button('Resume…', () => operate(i, 'resume', 'It runs again, for all that came meanwhile. A deadline that has passed fires at once.', where, fresh), {focus: 'pause'})
			: button('Pause…', () => operate(i, 'pause', 'Its inbox fills, and it does not run until it is resumed. A step that executes goes on.', where, fresh), {focus: 'pause'})),
		(i.status === 'failed' || i.status === 'canceled') && button('Retry…', () => operate(i, 'retry', `The step ${i.step} runs again, with what it was handed last, under the same idempotency key.`, where, fresh), {kind: 'primary'}),
		live(i) && button('Cancel…', () => cancel(i, where, fresh), {kind: 'danger'}),
	];

	// The stream tells of each change. What is beside the instance is asked for then, and now and again.
	(async () => {
		try {
			draw(await get(path('instances', ref), {}, view.signal));
			view.every(5000, beside);
			for await (const i of follow(where('stream'), view.signal)) {
				draw(i);
				await beside().catch((err) => { if (!(err instanceof Refusal)) throw err; }); // it is asked for again
			}
			view.every(3000, fresh); // it has ended, and may be retried
		} catch (err) {
			if (view.signal.aborted) return;
			if (!(err instanceof Refusal)) throw err;
			if (!now) return view.failed(err);
			swap(said, sorry(err));
		}
	})();
}

// because says in a sentence why the instance is where it is.
function because(i) {
	const after = i.last_error && [' Its last error: ', h('q', {}, i.last_error)];
	if (i.paused) return ['Paused: its inbox fills and it does not run, until it is resumed.', after];
	switch (i.status) {
	case 'awaiting_signal':
		return ['Waits for ', i.awaits.length ? list(i.awaits) : 'its time', i.deadline ? [', ', when(i.deadline, 'left'), '.'] : ', with no deadline.', after];
	case 'executing':
		return ['The step ', h('b', {}, i.step), ' executes', i.lease && [' on ', h('span.mono', {}, i.lease.worker), ', whose lease ends ', when(i.lease.expires_at)], '.', after];
	case 'runnable': {
		if (i.run_at && Date.parse(i.run_at) > Date.now()) return [i.attempt ? `Attempt ${i.attempt} of the step ` : 'The step ', h('b', {}, i.step), ' is due ', when(i.run_at), '.', after];
		const q = pulse.queues?.find((one) => one.name === i.queue);
		return ['The step ', h('b', {}, i.step), ' is ready, in the queue ', h('b', {}, i.queue),
			q && (q.workers ? `, which ${q.workers} workers serve, with ${q.slots} slots` : ', which no worker serves: start one that does'), '.', after];
	}
	case 'failed': return ['Failed in the step ', h('b', {}, i.step), ': ', h('q', {}, i.last_error ?? 'no reason was given')];
	case 'canceled': return ['Canceled in the step ', h('b', {}, i.step), i.last_error ? [': ', h('q', {}, i.last_error)] : '.'];
	default: return ['Done ', when(i.finished_at), '.'];
	}
}

const list = (names) => names.map((name, n) => [n > 0 && ', ', h('b.mono', {}, name)]);

const transition = (t) => h('li', {}, h('span.at', {}, when(t.at)), h('span.what', {}, h('b', {}, t.step), ' ', badge(t.outcome), t.attempt > 0 && ` attempt ${t.attempt}`),
	h('span.dim', {}, `revision ${t.rev}`, t.consumed?.length ? `, consumed ${t.consumed.length === 1 ? 'signal' : 'signals'} ${brief(t.consumed.join(', '), 60)}` : ''));

// child shows one of the tree, whose own children are asked for when it is opened.
function child(i, view) {
	const below = h('ul.tree', {hidden: true});
	const open = button('▸', async () => {
		const opened = open.getAttribute('aria-expanded') === 'true';
		open.setAttribute('aria-expanded', String(!opened));
		open.textContent = opened ? '▸' : '▾';
		below.hidden = opened;
		if (opened) return;
		const page = await get(path('instances', i.id, 'children'), {limit: 100}, view.signal);
		swap(below, page.items.length ? page.items.map((c) => child(c, view)) : h('li.dim', {}, 'None.'));
	}, {kind: 'plain', 'aria-expanded': 'false', 'aria-label': `Children of ${i.correlation_key ?? i.id}`, focus: 'open ' + i.id});
	return h('li', {}, open, instanceLink(i.id, i.correlation_key ?? i.id), ' ', statusBadges(i), h('span.dim', {}, ` ${i.machine} v${i.version}`), below);
}

const name = (i) => brief(i.correlation_key ?? i.id, 60);

const signal = (i, where, after) => change({
	title: `Signal ${name(i)}`, confirm: 'Send the signal', text: i.awaits.length ? `It waits for ${i.awaits.join(', ')}.` : null,
	fields: [{name: 'name', label: 'Name', required: true, value: i.awaits.find((a) => !a.includes(' ')) ?? ''}, {name: 'payload', label: 'Payload (JSON)', kind: 'json', value: 'null'},
		{name: 'dedup', label: 'Dedup key', value: newKey(), hint: 'A second signal with it is a duplicate.'}],
	after,
	act: async (v) => {
		const answer = await send('POST', where('signals', v.name), {body: v.payload, headers: v.dedup ? {'Idempotency-Key': v.dedup} : {}});
		tell(answer.result === 'duplicate' ? 'A duplicate: it was there before' : `Signal ${v.name} is in the inbox`);
	},
});

const update = (i, where, after) => {
	const key = newKey();
	return change({
		title: `Update ${name(i)}`, confirm: 'Send the update', text: 'Its validator may refuse it; then nothing changes.',
		fields: [{name: 'name', label: 'Name', required: true}, {name: 'arg', label: 'Argument (JSON)', kind: 'json', value: 'null'}], after,
		act: async (v) => {
			const answer = await send('POST', where('updates', v.name), {query: {wait: '5s'}, body: v.arg, headers: {'Idempotency-Key': key}});
			if (!answer.accepted) throw new Refusal(422, 'refused', 'Refused: ' + answer.reason);
			tell(answer.run ? `Update ${v.name} was accepted, and a step took it` : `Update ${v.name} was accepted and is in the inbox`);
		},
	});
};

const operate = (i, verb, text, where, after) => change({
	title: `${verb[0].toUpperCase() + verb.slice(1)} ${name(i)}?`, text, confirm: verb[0].toUpperCase() + verb.slice(1), where: where(verb),
	said: (answer) => `It is ${answer.status.replaceAll('_', ' ')}${answer.paused ? ', paused' : ''}`, after,
});

const cancel = (i, where, after) => change({
	title: `Cancel ${name(i)}?`, text: 'It ends as canceled, and its outcome is published. A retry brings it back.', confirm: 'Cancel the instance', danger: true, method: 'DELETE', where: where(),
	fields: [{name: 'reason', label: 'Reason'}, {name: 'children', label: 'Its children too', kind: 'check', value: 'true'}],
	request: (v) => ({query: {reason: v.reason, children: v.children ? 'true' : undefined}}), said: (answer) => `It is ${answer.status}`, after,
});
