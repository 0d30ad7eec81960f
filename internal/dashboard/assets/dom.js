// Elements are made here alone. What comes from the server becomes a text node or an attribute and is never parsed as markup; the
// Content-Security-Policy forbids that as well (require-trusted-types-for).

function fill(el, props, children) {
	for (const [name, value] of Object.entries(props ?? {})) {
		if (value === undefined || value === null || value === false) continue;
		if (typeof value === 'function') el.addEventListener(name, value);
		else el.setAttribute(name, value === true ? '' : value);
	}
	put(el, ...children);
	return el;
}

// h makes an element; 'div.a.b' has the classes a and b. Of props functions are listeners, the others attributes.
export function h(tag, props, ...children) {
	const [name, ...classes] = tag.split('.');
	const el = document.createElement(name);
	if (classes.length) el.className = classes.join(' ');
	return fill(el, props, children);
}

// svg makes an element of a drawing.
export function svg(tag, props, ...children) {
	return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

// put appends children: nodes, texts, lists of these; null and false are nothing.
export function put(el, ...children) {
	for (const child of children.flat(Infinity)) {
		if (child === null || child === undefined || child === false) continue;
		el.append(child instanceof Node ? child : String(child));
	}
	return el;
}

// swap gives an element other children, unless they would look the same, so that who reads or points at them is not disturbed. The focus
// stays on what has the same data-focus.
export function swap(el, ...children) {
	const next = put(document.createDocumentFragment(), ...children);
	if (next.childNodes.length === el.childNodes.length && [...next.childNodes].every((n, i) => n.isEqualNode(el.childNodes[i]))) return el;
	const focused = el.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
	el.replaceChildren(next);
	if (focused) el.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
	return el;
}

// keyed shows items as children, of which those that did not change stay as they are.
export function keyed(parent, items, keyOf, make) {
	const had = new Map([...parent.children].map((el) => [el.dataset.key, el]));
	const focused = parent.contains(document.activeElement) ? document.activeElement : null;
	let refocus = null;
	const rows = items.map((item) => {
		const key = String(keyOf(item)), look = JSON.stringify(item), old = had.get(key);
		if (old && old.look === look) return old;
		const row = make(item);
		row.dataset.key = key;
		row.look = look;
		if (old && focused && old.contains(focused) && focused.dataset.focus) refocus = row.querySelector(`[data-focus="${CSS.escape(focused.dataset.focus)}"]`);
		return row;
	});
	if (rows.length !== parent.children.length || rows.some((row, i) => parent.children[i] !== row)) {
		parent.replaceChildren(...rows);
		(refocus ?? (focused?.isConnected ? focused : null))?.focus({preventScroll: true});
	}
}
