// How values are written: numbers with their units, times relative with the absolute one in the title.
import {h} from './dom.js';

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const tenth = new Intl.NumberFormat('en', {maximumFractionDigits: 1});

// count is a number of things; null is not known.
export const count = (n) => (n === null || n === undefined ? '–' : whole.format(n));

// rate is a number a second.
export const rate = (n) => (n === null || n === undefined ? '–' : (n >= 100 ? whole : tenth).format(n) + '/s');

// duration of seconds, in the two largest units that matter.
export function duration(seconds) {
	if (seconds === null || seconds === undefined) return '–';
	if (seconds < 0.001) return '0 s';
	if (seconds < 1) return whole.format(seconds * 1000) + ' ms';
	if (seconds < 10) return tenth.format(seconds) + ' s';
	const s = Math.floor(seconds);
	if (s < 60) return s + ' s';
	if (s < 600) return Math.floor(s / 60) + ' min ' + (s % 60) + ' s';
	if (s < 3600) return Math.floor(s / 60) + ' min';
	if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
	return whole.format(Math.floor(s / 86400)) + ' d ' + Math.floor((s % 86400) / 3600) + ' h';
}

function relative(at) {
	const seconds = (at - Date.now()) / 1000, long = Math.abs(seconds);
	if (long < 1) return 'now';
	const text = duration(Math.max(1, Math.floor(long)));
	return seconds > 0 ? 'in ' + text : text + ' ago';
}

function left(at) {
	const seconds = (at - Date.now()) / 1000;
	return seconds > 0 ? duration(Math.max(1, Math.floor(seconds))) + ' left' : 'due';
}

// when is a moment; tick keeps it true.
export function when(text, how = 'relative') {
	if (!text) return '–';
	const at = new Date(text);
	return h('time', {datetime: text, title: at.toLocaleString() + ' · ' + text, 'data-how': how}, how === 'left' ? left(at) : relative(at));
}

// tick writes all relative times anew.
export function tick() {
	for (const el of document.querySelectorAll('time[data-how]')) {
		const at = new Date(el.dateTime), text = el.dataset.how === 'left' ? left(at) : relative(at);
		if (el.textContent !== text) el.textContent = text;
	}
}

// parse reads JSON. A number that a double cannot hold stays as it is written, where the browser can do that.
export function parse(text) {
	return JSON.parse(text, (_, value, context) =>
		typeof value === 'number' && context?.source !== undefined && JSON.rawJSON && exact(context.source) !== exact(String(value)) ? JSON.rawJSON(context.source) : value);
}

// exact is how a number is compared: an integer of more digits than a double has, or a long fraction, is not what it is printed as.
const exact = (text) => (/^-?\d+$/.test(text) ? text : text.includes('.') && !/[eE]/.test(text) ? text.replace(/\.?0+$/, '') : String(Number(text)));

// pretty is JSON as it is read.
export const pretty = (value) => JSON.stringify(value, null, 2);

// brief is a text of at most n characters.
export const brief = (text, n) => (text.length > n ? text.slice(0, n - 1) + '…' : text);
