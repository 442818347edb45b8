// What an agent says, as elements. The daemon has parsed it; nothing here reads markup.

import { act, post } from './api.js';
import { h, press, t } from './dom.js';

const TAGS = { bold: 'strong', italic: 'em', strike: 's', code: 'code', pre: 'code', quote: 'q', spoiler: 'span', link: 'a' };

const isWeb = (url) => /^(https?|mailto):/i.test(url);

/** `text` with its spans, which may nest or touch. */
export function styled({ text, spans = [] }) {
	const edges = new Set([0, text.length]);
	for (const [start, end] of spans) edges.add(start).add(end);
	const at = [...edges].sort((one, other) => one - other);
	const found = [];
	for (let index = 0; index + 1 < at.length; index += 1) {
		const [from, to] = [at[index], at[index + 1]];
		let piece = document.createTextNode(text.slice(from, to));
		for (const [start, end, style, arg] of spans) {
			if (start > from || end < to) continue;
			const isLink = style === 'link' && isWeb(arg);
			const props = isLink ? { href: arg, target: '_blank', rel: 'noopener noreferrer' } : {};
			if (style === 'spoiler') Object.assign(props, { class: 'spoiler', tabindex: '0' });
			piece = h(style === 'link' && !isLink ? 'span' : TAGS[style] ?? 'span', props, piece);
		}
		found.push(piece);
	}
	return found;
}

function codeOf({ text, language }) {
	const shown = h('pre', { tabindex: '0', 'aria-label': language ? t`Code in ${language}` : t`Code` }, h('code', text));
	const copy = navigator.clipboard && press(t`Copy`, (it) => act(it, () => navigator.clipboard.writeText(text), t`Copied.`));
	return h('div.code', h('p.soft', h('span', language), copy), shown);
}

function tableOf({ header, rows, align }) {
	const cell = (tag, value, at) => h(tag, { class: align[at] ?? '', scope: tag === 'th' ? 'col' : null }, styled(value));
	return h('div.table', { tabindex: '0', role: 'region', 'aria-label': t`Table` }, h('table', {},
		h('thead', h('tr', header.map((value, at) => cell('th', value, at)))),
		h('tbody', rows.map((row) => h('tr', row.map((value, at) => cell('td', value, at)))))));
}

function textOf(block, level) {
	if (block.heading) return h('p.heading', { role: 'heading', 'aria-level': level }, styled(block));
	const isQuote = block.spans.some(([start, end, style]) => style === 'quote' && start === 0 && end === block.text.length);
	if (!isQuote) return h('p', styled(block));
	return h('blockquote', styled({ text: block.text, spans: block.spans.filter(([, , style]) => style !== 'quote') }));
}

const MAKERS = { text: textOf, code: codeOf, table: tableOf };

/** The elements of an answer; its headings stand below the view's. `above`: {level} of the heading before. */
export function blocksOf(blocks, above = { level: 1 }) {
	return blocks.map((block) => {
		if (block.heading) above.level = Math.min(block.heading + 1, above.level + 1, 6);
		return MAKERS[block.type]?.(block, above.level);
	}).filter(Boolean);
}

/** A text that grows by paragraphs. The daemon parses those that are finished; the last one stands as it was written. */
export class Preview {
	#parts = [];
	#above = { level: 1 };
	#drawn = 0;
	#asked = -1;
	#isBusy = false;
	#isOver = false;
	#text = '';

	constructor(parent) {
		this.parent = parent;
	}

	end() {
		this.#isOver = true;
	}

	show(text) {
		this.#text = text;
		const wanted = text.slice(this.#drawn).split(/\n{2,}/);
		wanted.forEach((part, at) => {
			const held = this.#parts[at] ??= this.parent.appendChild(h('p', new Text()));
			const said = held.textContent;
			if (part !== said && part.startsWith(said)) held.firstChild.appendData(part.slice(said.length));
			else if (part !== said) held.firstChild.data = part;
		});
		for (const extra of this.#parts.splice(wanted.length)) extra.remove();
		this.#parse();
	}

	/** Draws what is finished since the last time. Where that fails, it stands as it was written until the answer comes. */
	async #parse() {
		const at = this.#text.lastIndexOf('\n\n');
		if (this.#isBusy || at <= this.#asked) return;
		this.#isBusy = true;
		this.#asked = at;
		const { blocks = [], units = 0 } = await post('/web/blocks', { text: this.#text.slice(this.#drawn) }, { quiet: true }).catch(() => ({}));
		this.#isBusy = false;
		if (this.#isOver) return;
		if (units) {
			const found = blocksOf(blocks, this.#above);
			if (this.#parts.length) this.#parts[0].before(...found);
			this.#drawn += units;
		}
		this.show(this.#text);
	}
}
