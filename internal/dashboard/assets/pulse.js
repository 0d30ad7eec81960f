// What every page wants to know of the whole is asked here once, every two seconds, with what was seen before: rates need two looks.
import {get, metrics, path} from './api.js';

const every = 2000, slowly = 5; // every fifth look is also at what changes seldom
const kept = 90; // samples

// pulse is what was seen last. What the token may not see is null.
export const pulse = {at: null, stats: null, routes: null, queues: null, workers: null, letters: null, webhooks: null, held: null, results: new Map(), shared: true, trouble: null};

const series = new Map(), listeners = new Set();
let before = null, looks = 0, timer = 0, running = null, busy = null;

// samples of a series by its name, oldest first.
export const samples = (name) => series.get(name) ?? [];

// last sample of a series.
export const last = (name) => samples(name).at(-1);

function sample(name, value) {
	if (!series.has(name)) series.set(name, []);
	const all = series.get(name);
	all.push(value);
	if (all.length > kept) all.shift();
}

// listen is told of each look until the signal, and of the last one at once.
export function listen(f, signal) {
	listeners.add(f);
	signal.addEventListener('abort', () => listeners.delete(f), {once: true});
	if (pulse.at) f(pulse);
}

export function start() {
	stop();
	running = new AbortController();
	look(running.signal);
}

export function stop() {
	clearTimeout(timer);
	running?.abort();
	running = before = null;
	series.clear();
	looks = 0;
	Object.assign(pulse, {at: null, stats: null, routes: null, queues: null, workers: null, letters: null, webhooks: null, held: null, results: new Map(), shared: true, trouble: null});
}

// now looks without waiting for the next time.
export function now() {
	if (!running) return;
	looks = 0;
	look(running.signal);
}

async function look(signal) {
	if (busy === signal) return; // one is on its way
	clearTimeout(timer);
	busy = signal;
	if (!document.hidden) {
		try {
			await ask(signal);
			pulse.trouble = null;
		} catch (err) {
			pulse.trouble = err;
		}
	}
	if (signal.aborted) return;
	busy = null;
	if (!document.hidden) {
		pulse.at ??= performance.now();
		for (const f of listeners) f(pulse);
	}
	timer = setTimeout(look, every, signal);
}

// items are all of a list that is short as a rule, up to a thousand.
async function items(what, signal) {
	const all = [];
	for (let cursor; ;) {
		const page = await get(path(what), {limit: 200, cursor}, signal);
		all.push(...page.items);
		cursor = page.next_cursor;
		if (!cursor || all.length >= 1000) return all;
	}
}

// whole is of what belongs to no project: an API key may not see it.
async function whole(ask) {
	try {
		return await ask();
	} catch (err) {
		if (err.code !== 'forbidden') throw err;
		pulse.shared = false;
		return null;
	}
}

async function ask(signal) {
	const seldom = looks++ % slowly === 0;
	const [stats, routes, queues, workers, text] = await Promise.all([
		get(path('stats'), {}, signal),
		pulse.shared ? whole(() => get(path('routes'), {}, signal).then((r) => r.items)) : null,
		pulse.shared ? whole(() => items('queues', signal)) : null,
		pulse.shared ? whole(() => items('workers', signal)) : null,
		pulse.shared ? metrics(signal) : '',
	]);
	if (seldom) {
		const first = (what, query) => get(path(what), {...query, limit: 1}, signal).then((page) => page.items[0] ?? null);
		[pulse.letters, pulse.webhooks, pulse.held] = await Promise.all([
			pulse.shared ? whole(() => first('dead-letters')) : null, first('webhook-deliveries', {status: 'failed'}), first('held'),
		]);
	}
	const at = performance.now(), passed = before ? (at - before.at) / 1000 : 0;
	const results = resultsOf(text);
	if (routes) rates(routes, results, passed);
	const ended = Object.values(stats.ended_last_minute).reduce((a, b) => a + b, 0);
	sample('ended', ended / 60);
	sample('live', ['runnable', 'executing', 'awaiting_signal'].reduce((sum, status) => sum + (stats.instances[status] ?? 0), 0));
	for (const q of queues ?? []) sample('depth ' + q.name, q.depth);
	if (queues) sample('depth', queues.reduce((sum, q) => sum + q.depth, 0));
	before = {at, floors: new Map((routes ?? []).map((r) => [r.name, r.ack_floor_seq])), results};
	Object.assign(pulse, {at, stats, routes, queues, workers, results});
}

// rates of what routes ack. A floor that went back is of a consumer that was made again.
function rates(routes, results, passed) {
	let total = null, lag = 0;
	for (const r of routes) {
		const floor = before?.floors.get(r.name);
		const acked = passed > 0 && r.ack_floor_seq !== null && Number.isFinite(floor) && r.ack_floor_seq >= floor ? (r.ack_floor_seq - floor) / passed : null;
		if (acked !== null) {
			sample('acked ' + r.name, acked);
			total += acked;
		}
		if (r.lag !== null) {
			sample('lag ' + r.name, r.lag);
			lag += r.lag;
		}
		for (const [result, n] of results.get(r.name) ?? []) {
			const had = before?.results.get(r.name)?.get(result);
			if (passed > 0 && had !== undefined && n >= had) sample(`result ${r.name} ${result}`, (n - had) / passed);
		}
	}
	if (total !== null) sample('acked', total);
	sample('lag', lag);
}

// resultsOf reads the fates of messages, by route and result, out of the metrics.
function resultsOf(text) {
	const results = new Map();
	for (const [, labels, n] of text.matchAll(/^pointsman_bridge_messages_total\{(.*)\} (\S+)$/gm)) {
		const label = (name) => labels.match(new RegExp(`(?:^|,)${name}="([^"]*)"`))?.[1];
		const route = label('route');
		if (!results.has(route)) results.set(route, new Map());
		results.get(route).set(label('result'), Number(n));
	}
	return results;
}
