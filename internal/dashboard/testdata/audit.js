// Looks for what keeps people from using a page: it returns a sentence for each thing that is wrong.
(() => {
	const wrong = [], shown = (el) => el.checkVisibility({visibilityProperty: true}) && el.getClientRects().length > 0;
	const what = (el) => `<${el.tagName.toLowerCase()}${el.className && el.className.baseVal === undefined ? ' class="' + el.className + '"' : ''}> ${(el.textContent || '').trim().slice(0, 40)}`;
	const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);

	if (!document.documentElement.lang) wrong.push('the page has no language');
	if (!document.title) wrong.push('the page has no title');
	if (all('h1').length !== 1) wrong.push(`${all('h1').length} headings of the first level`);
	let level = 0;
	for (const el of all('h1, h2, h3')) {
		const n = Number(el.tagName[1]);
		if (n > level + 1) wrong.push(`${what(el)}: a level of headings is left out`);
		level = n;
	}
	const name = (el) => el.getAttribute('aria-label') || [...(el.labels ?? [])].map((l) => l.textContent).join(' ').trim() || (/^(INPUT|SELECT|TEXTAREA)$/.test(el.tagName) ? '' : el.textContent.trim());
	for (const el of all('a[href], button, input, select, textarea, summary, [role=img]')) {
		if (!name(el)) wrong.push(`${what(el)}: has no name`);
	}
	const ids = [...document.querySelectorAll('[id]')].map((el) => el.id);
	for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push(`the id ${id} is there twice`);
	for (const el of all('table')) {
		if (!el.caption?.textContent) wrong.push(`${what(el)}: the table has no caption`);
		for (const th of el.querySelectorAll('th')) if (!th.scope) wrong.push(`${what(th)}: a heading of a table without a scope`);
	}
	for (const el of all('[style]')) if (!el.closest('svg')) wrong.push(`${what(el)}: has a style of its own`);
	for (const el of all('time')) if (!el.title || !el.dateTime) wrong.push(`${what(el)}: a time without the absolute one`);
	if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);

	// Contrast of text to what is behind it: 4.5, of large text 3.
	const colour = (text) => {
		const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
		return {r, g, b, a};
	};
	const over = (top, below) => Object.fromEntries([...'rgb'].map((c) => [c, top[c] * top.a + below[c] * (1 - top.a)]).concat([['a', 1]]));
	const behind = (el) => {
		const layers = [];
		for (let at = el; at; at = at.parentElement) {
			const c = colour(getComputedStyle(at).backgroundColor);
			layers.push(c);
			if (c.a === 1) break;
		}
		return layers.reverse().reduce((below, top) => over(top, below), {r: 255, g: 255, b: 255, a: 1});
	};
	const light = ({r, g, b}) => {
		const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
		return 0.2126 * x + 0.7152 * y + 0.0722 * z;
	};
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let node = texts.nextNode(); node; node = texts.nextNode()) {
		const el = node.parentElement;
		if (!node.data.trim() || !shown(el) || el.closest('.sr, .skip, script, noscript, option') || (el.disabled ?? false)) continue;
		const style = getComputedStyle(el), back = behind(el), front = over(colour(style.color), back);
		const [a, b] = [light(front), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
		const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
		if (ratio < least) wrong.push(`${what(el)}: contrast ${ratio.toFixed(2)}, want ${least}`);
	}
	return [...new Set(wrong)];
})()
