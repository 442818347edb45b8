// What the views share: a frame, rows that stay in place, ages that tick.

import { act, ApiError, changes } from './api.js';
import { duration, fill, h, press, soft, t, tell, timeOf } from './dom.js';

/** "1 message", "3 messages". */
export const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

export function say(node, text) {
	tell(node, text);
	node.hidden = !text;
}

const drawn = new WeakMap();

/** Builds what is inside `node` anew, if `facts` have changed. */
export function redraw(node, facts, build) {
	const now = JSON.stringify(facts);
	if (drawn.get(node) === now) return;
	drawn.set(node, now);
	node.replaceChildren(...[build()].flat().filter(Boolean));
	node.hidden = !node.childNodes.length;
}

const whole = (ms) => duration(Math.max(0, Math.round(ms / 1000)));
const WAYS = {
	ago: (ms) => t`${whole(Date.now() - ms)} ago`,
	for: (ms) => t`for ${whole(Date.now() - ms)}`,
	in: (ms) => (ms > Date.now() + 500 ? t`in ${whole(ms - Date.now())}` : t`now`),
};

/** A time told from now, which goes on: "3 min ago". */
export function fromNow(ms, way = 'ago') {
	const made = timeOf(ms);
	Object.assign(made.dataset, { way, at: ms });
	made.textContent = WAYS[way](ms);
	return made;
}

function tick(root) {
	for (const node of root.querySelectorAll('time[data-way]')) tell(node, WAYS[node.dataset.way](Number(node.dataset.at)));
}

/** A view's frame. `show` shows what `load` fetched and sums it up; it looks again at `kinds` of
		events, and each `everyMs`. */
export function board(view, { title, tools = [], load, show, kinds, everyMs = 0 }) {
	const trouble = h('div.trouble', { role: 'status' }, h('p.soft', t`Loading…`));
	const summary = h('p.soft', { hidden: true });
	const body = h('div.body');
	const root = h('div.board',
		h('header', h('h1', { tabindex: '-1' }, title), h('div.tools', tools)), trouble, summary, body);
	view.replaceChildren(root);
	let [isOver, isBusy, isWanted, isShown, wish] = [false, false, false, false, 0];

	function complain(error) {
		const words = error && (isShown ? t`What you see may be old. ${error.message}` : error.message);
		redraw(trouble, [isShown, words], () => words && [h('p', words),
			press(t`Try again`, () => look(true))]);
	}

	async function once() {
		const wished = wish;
		try {
			const found = await load();
			if (isOver || wished !== wish) return;
			const words = show(found);
			isShown = true;
			complain(null);
			say(summary, words || '');
		} catch (error) {
			if (!(error instanceof ApiError)) throw error;
			if (!isOver && error.status !== 401) complain(error);
		}
	}

	/** Looks again; `isNew` drops an answer under way. */
	async function look(isNew = false) {
		if (isNew) wish += 1;
		isWanted = true;
		if (isBusy) return;
		isBusy = true;
		try {
			while (isWanted && !isOver) {
				isWanted = false;
				await once();
			}
		} finally {
			isBusy = false;
		}
	}

	const unlisten = changes.listen((told) => {
		if ([...told].some((type) => type === 'gap' || kinds.some((kind) => type.startsWith(kind)))) look();
	});
	const timers = [setInterval(() => tick(root), 1000)];
	if (everyMs) timers.push(setInterval(() => document.hidden || look(), everyMs));
	look();
	function end() {
		isOver = true;
		unlisten();
		timers.forEach(clearInterval);
	}
	return { body, look, end };
}

const CAN_FOCUS = ':is(button, summary, input, a):not([hidden])';

/** Rows by key: `make(item)` gives `{node, show(item)}`. What goes hands the focus on. */
export function keyed(parent, keyOf, make) {
	let rows = new Map();
	return (items) => {
		const focused = document.activeElement;
		const next = new Map();
		for (const item of items) {
			const key = keyOf(item);
			const row = rows.get(key) ?? make(item);
			row.show(item);
			next.set(key, row);
		}
		for (const [key, { node }] of rows) {
			if (next.has(key)) continue;
			const beside = node.nextElementSibling ?? node.previousElementSibling;
			const heir = beside?.querySelector(CAN_FOCUS) ?? parent.closest('.board').querySelector('h1');
			const hadIt = node.contains(focused);
			node.remove();
			if (hadIt) heir.focus();
		}
		rows = next;
		fill(parent, [...next.values()].map(({ node }) => node));
		if (!parent.contains(focused)) return;
		let heir = focused;
		while (heir?.hidden) heir = heir.previousElementSibling;
		heir ??= focused.parentNode.querySelector(CAN_FOCUS);
		if (heir !== document.activeElement) heir?.focus({ preventScroll: true });
	};
}

export const action = (words, work, done, kind) => press(words, (button) => act(button, work, done), { class: kind });

/** A labelled select; `options` are `[value, words]`. */
export function choice(label, options, value, chosen) {
	const select = h('select', { onchange: () => chosen(select.value, select) },
		options.map(([each, words]) => h('option', { value: each, selected: each === value }, words)));
	return h('label.choice', soft(label), select);
}

/** Chooses an agent; with `all`, also none in particular. */
export function agentChoice(app, value, chosen, all = [['', t`All agents`]]) {
	const names = new Set([...app.session.agents, ...app.agents().map(({ name }) => name), value].filter(Boolean));
	return choice(t`Agent`, [...all, ...[...names].map((name) => [name, name])], value, chosen);
}

export const tag = (state, words) => h('span.tag', { data: { state } }, words);

/** `<dl>` of those facts that there are; `[name, value]`. */
export const facts = (pairs) => h('dl.facts',
	pairs.filter(([, value]) => value).map(([name, value]) => h('div', h('dt', name), h('dd', value))));

/** A table that scrolls by itself, also by keyboard. */
export const table = (label, heads, ...parts) => h('div.table', { tabindex: '0', role: 'region', 'aria-label': label },
	h('table', h('thead', h('tr', heads.map((name) => h('th', { scope: 'col' }, name)))), parts));
