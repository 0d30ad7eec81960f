// All that is asked of the bridge. The token is kept for this tab alone and sent by these functions as a header, never as a cookie: so no
// other page can make the browser speak for who is logged in, and there is nothing to forge. It is in no URL either.
import {parse} from './format.js';

const TOKEN = 'pointsman-token', PROJECT = 'pointsman-project';
const seen = new Map(); // answers by their URL, with their ETag
const mostSeen = 200;

// Refusal is an error that the bridge answered with.
export class Refusal extends Error {
	constructor(status, code, message, details) {
		super(message);
		Object.assign(this, {status, code, details});
	}
}

export const token = () => sessionStorage.getItem(TOKEN) ?? '';
export const project = () => sessionStorage.getItem(PROJECT) ?? '';

export function setProject(name) {
	name ? sessionStorage.setItem(PROJECT, name) : sessionStorage.removeItem(PROJECT);
	seen.clear();
}

export function login(text) {
	sessionStorage.setItem(TOKEN, text);
	seen.clear();
}

export function logout() {
	sessionStorage.removeItem(TOKEN);
	sessionStorage.removeItem(PROJECT);
	seen.clear();
}

// onUnauthorized is told when the token is not, or no longer, good.
let unauthorized = () => {};
export const onUnauthorized = (f) => { unauthorized = f; };

// path joins parts, each escaped.
export const path = (...parts) => '/v1/' + parts.map(encodeURIComponent).join('/');

function address(where, query) {
	const q = new URLSearchParams();
	for (const [name, value] of Object.entries({...query, project: project()})) {
		if (value !== undefined && value !== null && value !== '') q.set(name, value);
	}
	return q.size ? where + '?' + q : where;
}

async function ask(url, options) {
	const headers = {...options.headers};
	if (token()) headers.Authorization = 'Bearer ' + token();
	let answer;
	try {
		answer = await fetch(url, {...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error'});
	} catch (err) {
		if (err.name === 'AbortError') throw err;
		throw new Refusal(0, 'unavailable', 'The bridge does not answer.');
	}
	if (answer.status === 401) unauthorized();
	return answer;
}

async function refusal(answer) {
	const text = await answer.text();
	try {
		const {error} = parse(text);
		return new Refusal(answer.status, error.code, error.message, error.details);
	} catch {
		return new Refusal(answer.status, 'unavailable', `${answer.status} ${answer.statusText}`);
	}
}

// get reads. What has not changed since is not sent again.
export async function get(where, query, signal) {
	const url = address(where, query), had = seen.get(url);
	const answer = await ask(url, {headers: had ? {'If-None-Match': had.tag} : {}, signal});
	if (answer.status === 304) return had.value;
	if (!answer.ok) throw await refusal(answer);
	const value = parse(await answer.text()), tag = answer.headers.get('ETag');
	seen.delete(url);
	if (tag) seen.set(url, {tag, value});
	if (seen.size > mostSeen) seen.delete(seen.keys().next().value);
	return value;
}

// send asks for a change. body is the text of a JSON document, or what becomes one.
export async function send(method, where, {query, body, headers} = {}) {
	const options = {method, headers: {...headers}};
	if (body !== undefined) {
		options.body = typeof body === 'string' ? body : JSON.stringify(body);
		options.headers['Content-Type'] = 'application/json';
	}
	const answer = await ask(address(where, query), options);
	if (!answer.ok && answer.status !== 422) throw await refusal(answer); // 422 is the verdict on an update
	const text = await answer.text();
	return text ? parse(text) : null;
}

// metrics of this bridge, as text.
export async function metrics(signal) {
	const answer = await ask('/metrics', {signal});
	return answer.ok ? answer.text() : '';
}

// follow gives the data of each event of a stream, and comes again when it is cut off, until it has ended.
export async function* follow(where, signal) {
	for (let last = ''; !signal.aborted; await pause(2000, signal)) {
		try {
			const answer = await ask(address(where), {headers: last ? {'Last-Event-ID': last} : {}, signal});
			if (answer.status === 204) return;
			if (!answer.ok) throw await refusal(answer);
			for await (const event of eventsOf(answer.body)) {
				last = event.id;
				yield parse(event.data);
			}
		} catch (err) {
			if (signal.aborted) return;
			if (err instanceof Refusal && err.status >= 400 && err.status < 500) throw err;
		}
	}
}

async function* eventsOf(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	try {
		for (let text = ''; ;) {
			const {value, done} = await reader.read();
			if (done) return;
			const blocks = (text + value).split('\n\n');
			text = blocks.pop();
			for (const block of blocks) {
				const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s, 2)));
				if (fields.data !== undefined) yield fields;
			}
		}
	} finally {
		reader.cancel().catch(() => {});
	}
}

// pause waits, or until the signal.
export const pause = (ms, signal) => new Promise((resolve) => {
	const timer = setTimeout(resolve, ms);
	signal?.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, {once: true});
});

// newKey is a dedup key: what is asked twice, because an answer was lost, happens once.
export const newKey = () => 'dashboard:' + [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join('');
