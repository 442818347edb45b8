// Elements, words for times and sizes, and what is told to the person.

let spoken = {};
let clock;
let day;
let still;

/** Words of the page: t`Log of ${name}`, or t([word]) for one that came from elsewhere. */
export function t(parts, ...given) {
	const key = parts.join('{}');
	return (spoken[key] ?? key).replaceAll('{}', () => given.shift());
}

/** The page speaks `language`; `words` are its texts by the English ones. */
export function speak(language, words) {
	spoken = words;
	document.documentElement.lang = language;
	clock = new Intl.DateTimeFormat(language, { hour: '2-digit', minute: '2-digit' });
	day = new Intl.DateTimeFormat(language, { weekday: 'short', day: 'numeric', month: 'short' });
	// What index.html says, as it was.
	still ??= [...document.querySelectorAll('body *')].flatMap((node) => [...node.childNodes, ...node.attributes])
		.filter(({ name, nodeType }) => nodeType === 3 || name === 'aria-label').map((node) => [node, node.nodeValue]);
	for (const [node, text] of still) node.nodeValue = t([text]);
}

/** An element: `h('a.class', {href, onclick}, ...children)`; `{}` may be left out. */
export function h(tag, ...children) {
	const [name, ...classes] = tag.split('.');
	const made = document.createElement(name);
	const props = children[0]?.constructor === Object ? children.shift() : {};
	if (classes.length) made.className = classes.join(' ');
	for (const [name, value] of Object.entries(props)) {
		if (value == null || value === false) continue;
		if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
		else if (name === 'class') made.className = value;
		else if (name === 'data') Object.assign(made.dataset, value);
		else if (name in made && typeof value !== 'string') made[name] = value;
		else made.setAttribute(name, value === true ? '' : value);
	}
	made.append(...children.flat().filter((child) => child || child === 0));
	return made;
}

const ICONS = {
	chat: 'M4 5h16v11H10l-5 4v-4H4z',
	agents: 'M12 3a3 3 0 1 0 0 6 3 3 0 0 0 0-6M5 15a3 3 0 1 0 0 6 3 3 0 0 0 0-6m14 0a3 3 0 1 0 0 6 3 3 0 0 0 0-6M11 9l-4 6m6-6 4 6',
	work: 'M4 6h16M4 12h16M4 18h10',
	tasks: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18m0 4v5l3 2',
	questions: 'M9 9a3 3 0 1 1 4 2.8q-1 .5-1 2M12 17v.5M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18',
	dead: 'M4 6h16v12H4zm0 0 8 7 8-7',
	figures: 'M5 20V11m5 9V4m5 16v-6m5 6V8',
	clip: 'm20 11-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7L9.5 17a1.7 1.7 0 0 1-2.4-2.4L14 7.5',
	send: 'M4 12 20 4l-5 16-3.5-6.5zm7.5 1.5L20 4',
	stop: 'M7 7h10v10H7z',
	file: 'M7 3h7l4 4v14H7zm7 0v4h4',
};

/** An element of a drawing. */
export function svg(tag, fields, ...children) {
	const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
	for (const [name, value] of Object.entries(fields)) made.setAttribute(name, value);
	made.append(...children);
	return made;
}

/** A sign for the eye only: its button or link has the name. */
export const icon = (name) => svg('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true' }, svg('path', { d: ICONS[name] }));

export const press = (label, work, props) => h('button', { type: 'button', onclick: (event) => work(event.currentTarget), ...props }, label);

export const soft = (...children) => h('span.soft', ...children);

/** Changes what an element says where it differs, so that nobody hears it twice. */
export const tell = (node, text) => { if (node.textContent !== text) node.textContent = text; };

export const by = (id) => document.getElementById(id);

/** Puts the children of `parent` into this order, and touches only what differs. */
export function fill(parent, children) {
	const wanted = children.filter(Boolean);
	// First what goes: what is moved loses the focus.
	for (const child of [...parent.children]) if (!wanted.includes(child)) child.remove();
	wanted.forEach((child, at) => {
		if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
	});
}

/** A <time> with the hour, and the day where it isn't today. */
export function timeOf(ms) {
	if (!ms) return '';
	const isToday = new Date(ms).toDateString() === new Date().toDateString();
	const words = `${isToday ? '' : `${day.format(ms)} `}${clock.format(ms)}`;
	return h('time', { datetime: new Date(ms).toISOString(), title: new Date(ms).toLocaleString(document.documentElement.lang) }, words);
}

const UNITS = [[90, 1, 's'], [5400, 60, 'min'], [129600, 3600, 'h'], [Infinity, 86400, 'd']];

export function duration(seconds) {
	if (seconds == null) return '–';
	if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
	const [, size, unit] = UNITS.find(([most]) => seconds < most);
	return `${Math.round(seconds / size)} ${unit}`;
}

export function bytes(count) {
	const step = count < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(count) / 3));
	return `${step ? (count / 1000 ** step).toPrecision(3) : count} ${['B', 'kB', 'MB', 'GB'][step]}`;
}

export function toast(text, isBad = false) {
	const shown = h('p', { class: isBad ? 'toast bad' : 'toast' }, text);
	by('toasts').append(shown);
	setTimeout(() => shown.remove(), isBad ? 9000 : 4000);
}

let settle = null;

/** Asks; resolves to whether it was agreed. Without `yes` there is only a way out. */
export function ask(title, body, yes, isDanger = false) {
	const dialog = by('ask');
	settle?.(false);
	by('ask-title').textContent = title;
	by('ask-body').replaceChildren(body);
	by('ask-no').textContent = yes ? t`Cancel` : t`Close`;
	Object.assign(by('ask-yes'), { textContent: yes ?? '', hidden: !yes, className: isDanger ? 'danger' : 'primary' });
	dialog.returnValue = '';
	if (!dialog.open) dialog.showModal();
	return new Promise((resolve) => {
		settle = (isYes) => {
			settle = null;
			dialog.onclose = null;
			resolve(isYes);
		};
		// The event comes late: it may be that of the dialog before, when this one is open already.
		dialog.onclose = () => dialog.open || settle(dialog.returnValue === 'yes');
	});
}

// A link to copy, or to scan from the SVG picture `drawn`.
export function scannable(url, drawn) {
	const line = h('input', { readonly: true, value: url, 'aria-label': t`The link`, onfocus: () => line.select() });
	const copy = navigator.clipboard && press(t`Copy`, async () => { await navigator.clipboard.writeText(url); toast(t`Copied.`); });
	const picture = drawn && URL.createObjectURL(new Blob([drawn], { type: 'image/svg+xml' }));
	return [h('p.row', line, copy),
		drawn && h('img.qr', { src: picture, alt: t`The link as a QR code, for a camera`, onload: () => URL.revokeObjectURL(picture) })];
}

export const closeDialog = () => by('ask').close();

/** A random name; works without a secure context, too. */
export function newId() {
	return [...crypto.getRandomValues(new Uint32Array(4))].map((each) => each.toString(36)).join('');
}
