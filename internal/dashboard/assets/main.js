// The frame: who may see it, which page is shown, what goes on around it.
import {h, put, swap} from './dom.js';
import {get, login, logout, onUnauthorized, path, pause, project, Refusal, setProject, token} from './api.js';
import {tick} from './format.js';
import {ask, button, hash, link, notice} from './parts.js';
import * as pulse from './pulse.js';
import overview from './overview.js';
import {routes, route} from './routes.js';
import queues from './queues.js';
import {instances} from './instances.js';
import instance from './instance.js';
import {triggers, trigger} from './triggers.js';
import {letters, letter} from './letters.js';
import {webhooks, webhook} from './webhooks.js';
import held from './held.js';
import message from './message.js';

const pages = [
	['', 'Overview', 'o', overview],
	['routes', 'Routes', 'r', routes, route],
	['queues', 'Queues & workers', 'q', queues],
	['instances', 'Instances', 'i', instances, instance],
	['triggers', 'Triggers', 't', triggers, trigger],
	['dead-letters', 'Dead letters', 'd', letters, letter],
	['webhooks', 'Webhooks', 'w', webhooks, webhook],
	['held', 'Held', 'h', held],
	['messages', 'Messages', 'm', message],
];

const every = 2000; // how often a bridge that does not answer is asked
const gate = document.getElementById('login');
let frame = null, content = null, current = null, life = null, retry = 0;

// decoded is a part of an address; one that somebody cut in the middle stays as it is.
function decoded(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

// address is where the page is: its parts, and its query.
function address() {
	const [where, query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
	return {parts: where.split('/').filter(Boolean).map(decoded), query: Object.fromEntries(new URLSearchParams(query))};
}

// show the page of the address.
function show() {
	if (!frame) return;
	current?.abort();
	current = new AbortController();
	const {signal} = current, {parts, query} = address();
	const entry = pages.find(([name]) => name === (parts[0] ?? ''));
	const page = parts.length > 2 ? null : parts.length === 2 ? entry?.[4] : entry?.[3];
	for (const a of frame.querySelectorAll('nav a')) {
		if (entry && a.hash === hash(entry[0] ? [entry[0]] : [])) {
			a.setAttribute('aria-current', 'page');
			a.parentElement.scrollTo({left: a.offsetLeft + (a.offsetWidth - a.parentElement.clientWidth) / 2}); // on a phone they are a line
		} else a.removeAttribute('aria-current');
	}
	content.replaceChildren();
	delete content.dataset.ready;
	const view = {
		el: content, signal, query,
		// every does something now and again, one after another, while the page is shown and seen.
		async every(ms, f) {
			for (; !signal.aborted; await pause(ms, signal)) {
				try {
					if (!document.hidden) await f();
				} catch (err) {
					if (signal.aborted) return;
					if (!(err instanceof Refusal)) throw err; // a bridge that is away comes back: the frame says that it is
				}
			}
		},
		title(text) { document.title = text + ' · pointsman'; },
		ready() { if (!signal.aborted) content.dataset.ready = 'true'; }, // something is there to see
		failed(err) { if (!signal.aborted && err instanceof Refusal) { swap(content, h('h1', {}, 'Not shown'), notice('bad', err.message)); view.ready(); } },
	};
	if (!page) {
		view.title('No such page');
		put(content, h('h1', {}, 'No such page'), h('p', {}, link(hash([]), 'To the overview')));
		return view.ready();
	}
	view.title(entry[1]);
	page(view, parts[1]);
}

// find what the search names: an instance by its id, or those whose key begins so.
function find(event) {
	event.preventDefault();
	const text = new FormData(event.target).get('find').trim();
	if (!text) return;
	location.hash = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text) ? hash(['instances', text.toLowerCase()]) : hash(['instances'], {correlation_prefix: text});
	event.target.reset();
	content.focus();
}

const themes = ['auto', 'light', 'dark'];

function setTheme(theme) {
	if (theme === 'auto') delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = theme;
	localStorage.setItem('pointsman-theme', theme);
}

function nextTheme(event) {
	const theme = themes[(themes.indexOf(localStorage.getItem('pointsman-theme') ?? 'auto') + 1) % themes.length];
	setTheme(theme);
	event.currentTarget.textContent = 'Theme: ' + theme;
}

async function otherProject() {
	await ask({
		title: 'Project', text: 'Instances, triggers, webhooks and held signals are those of one project. An API key has its own.', confirm: 'Show',
		fields: [{name: 'name', label: 'Project (empty: the default)', value: project()}],
		do: async ({name}) => {
			const before = project();
			setProject(name.trim());
			try {
				await get(path('stats'));
			} catch (err) {
				setProject(before);
				throw err;
			}
			open();
		},
	});
}

// open shows the frame, which is not there before.
function open() {
	gate.hidden = true;
	frame?.remove();
	life?.abort();
	life = new AbortController();
	const where = h('button', {type: 'button', class: 'plain', click: otherProject, title: 'Choose another project'}, 'Project: …');
	const live = h('span.live', {role: 'status'});
	content = h('main.content', {id: 'content', tabindex: '-1'});
	frame = h('div.frame', {},
		h('a.skip', {href: '#content', click: (e) => { e.preventDefault(); content.focus(); }}, 'Skip to the page'),
		h('header.top', {},
			h('a.brand', {href: '#/'}, 'pointsman'),
			h('form.find', {role: 'search', submit: find}, h('input', {name: 'find', type: 'search', 'aria-label': 'Find an instance by its key or id', placeholder: 'Key or id of an instance', autocomplete: 'off', spellcheck: 'false'})),
			live, where,
			button('Theme: ' + (localStorage.getItem('pointsman-theme') ?? 'auto'), nextTheme, {kind: 'plain'}),
			button('Keys', help, {kind: 'plain keys', title: 'Keyboard shortcuts (?)'}),
			token() && button('Log out', () => { logout(); close(); }, {kind: 'plain logout'})),
		h('nav', {'aria-label': 'Pages'}, pages.map(([name, text]) => link(hash(name ? [name] : []), text))),
		content);
	document.body.prepend(frame);
	pulse.start();
	pulse.listen((p) => {
		if (p.stats) where.textContent = 'Project: ' + p.stats.project;
		live.className = 'live ' + (p.trouble ? 'bad' : 'good');
		live.textContent = p.trouble ? 'Trouble' : 'Live';
		live.title = p.trouble ? p.trouble.message : 'Asked every two seconds';
	}, life.signal);
	show();
}

// close leaves the login and nothing else.
function close(why = '') {
	current?.abort();
	life?.abort();
	pulse.stop();
	for (const dialog of document.querySelectorAll('dialog')) dialog.close();
	frame?.remove();
	frame = content = null;
	document.title = 'Log in · pointsman';
	gate.hidden = false;
	document.getElementById('login-error').textContent = why;
	document.getElementById('token').focus();
}

onUnauthorized(() => {
	const had = token() !== '';
	logout();
	close(had ? 'The token is not known, or was revoked.' : '');
});

document.getElementById('login-form').addEventListener('submit', async (event) => {
	event.preventDefault();
	const input = document.getElementById('token');
	login(input.value.trim());
	input.value = '';
	await enter();
});

// enter shows the frame to whom the bridge answers. One that starts, or is away, is asked again.
async function enter() {
	clearTimeout(retry);
	try {
		await get(path('stats'));
		open();
	} catch (err) {
		if (!(err instanceof Refusal)) throw err;
		if (err.status === 401) return;
		close(err.message);
		if (err.status === 0 || err.status === 503) retry = setTimeout(enter, every);
	}
}

function help() {
	ask({
		title: 'Keyboard', confirm: '',
		extra: h('dl.facts', {}, [['/', 'find an instance'], ['j, k', 'next, previous row'], ['Enter', 'open it'], ['Esc', 'leave a dialog'], ...pages.map(([, text, key]) => ['g ' + key, text]), ['?', 'this']]
			.map(([key, text]) => h('div', {}, h('dt', {}, h('kbd', {}, key)), h('dd', {}, text)))),
	});
}

let going = 0;

document.addEventListener('keydown', (event) => {
	if (!frame || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
	if (Date.now() - going < 1500) {
		going = 0;
		const to = pages.find(([, , key]) => key === event.key);
		if (to) {
			event.preventDefault();
			location.hash = hash(to[0] ? [to[0]] : []);
		}
		return;
	}
	switch (event.key) {
	case 'g': going = Date.now(); break;
	case '/': event.preventDefault(); frame.querySelector('.find input').focus(); break;
	case '?': event.preventDefault(); help(); break;
	case 'j': case 'k': {
		const links = [...content.querySelectorAll('tbody tr a:first-of-type, .attention a')];
		if (!links.length) break;
		event.preventDefault();
		const at = links.indexOf(document.activeElement), step = event.key === 'j' ? 1 : -1;
		links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))].focus();
	}
	}
});

addEventListener('hashchange', show);
document.addEventListener('visibilitychange', () => { if (!document.hidden) pulse.now(); });
setInterval(tick, 1000);
setTheme(localStorage.getItem('pointsman-theme') ?? 'auto');
enter();
