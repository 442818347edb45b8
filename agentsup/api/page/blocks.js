// What an agent says, as elements. Blocks come parsed from the daemon; nothing here reads markup
// but the preview of a text that is still being written.

import { h } from './dom.js';

const TAGS = { bold: 'strong', italic: 'em', strike: 's', code: 'code', pre: 'code', quote: 'q', spoiler: 'span', link: 'a' };

const isWeb = (url) => /^(https?|mailto):/i.test(url);

/** `text` with its spans, which may nest or touch but never matter for what is said. */
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
  const shown = h('pre', { tabindex: '0', 'aria-label': language ? `Code in ${language}` : 'Code' }, h('code', {}, text));
  const copy = h('button', {
    class: 'copy', type: 'button',
    onclick: async () => {
      await navigator.clipboard?.writeText(text);
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    },
  }, 'Copy');
  return h('div', { class: 'code' }, h('p', { class: 'soft' }, h('span', {}, language), navigator.clipboard ? copy : ''), shown);
}

function tableOf({ header, rows, align }) {
  const cell = (tag, value, at) => h(tag, { class: align[at] ?? '', scope: tag === 'th' ? 'col' : null }, styled(value));
  return h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table' }, h('table', {},
    h('thead', {}, h('tr', {}, header.map((value, at) => cell('th', value, at)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map((value, at) => cell('td', value, at)))))));
}

function textOf(block, level) {
  if (block.heading) return h('p', { class: 'heading', role: 'heading', 'aria-level': level }, styled(block));
  const isQuote = block.spans.some(([start, end, style]) => style === 'quote' && start === 0 && end === block.text.length);
  if (!isQuote) return h('p', {}, styled(block));
  return h('blockquote', {}, styled({ text: block.text, spans: block.spans.filter(([, , style]) => style !== 'quote') }));
}

const MAKERS = { text: textOf, code: codeOf, table: tableOf };

/** The elements of an answer. Its headings stand below the view's, without a gap. */
export function blocksOf(blocks) {
  let level = 1;
  return blocks.map((block) => {
    if (block.heading) level = Math.min(block.heading + 1, level + 1, 6);
    return MAKERS[block.type]?.(block, level);
  }).filter(Boolean);
}

/** Preview of a text that grows: fences as code, all else as it is written. Only what changed since
    the last call is built anew. */
export class Preview {
  #parts = [];

  constructor(parent) {
    this.parent = parent;
  }

  show(text) {
    // Fences come in pairs: the second of each ends the code. Paragraphs stand for themselves, so
    // that a long text is not laid out again for each word.
    let isOpen = false;
    const wanted = text.split(/^(?=```)/m).flatMap((part) => {
      if (part.startsWith('```')) isOpen = !isOpen;
      const rest = part.replace(/^```[^\n]*\n?/, '');
      return isOpen ? [{ is: 'pre', text: rest }] : rest.split(/\n{2,}/).map((each) => ({ is: 'p', text: each }));
    }).filter((part) => part.text);
    wanted.forEach((part, at) => {
      let held = this.#parts[at];
      if (held?.is !== part.is) {
        held = { is: part.is, text: '', node: h(part.is) };
        this.#parts[at]?.node.replaceWith(held.node);
        if (!this.#parts[at]) this.parent.append(held.node);
        this.#parts[at] = held;
      }
      if (part.text.startsWith(held.text) && held.node.firstChild) {
        held.node.firstChild.appendData(part.text.slice(held.text.length));
      } else if (part.text !== held.text) held.node.textContent = part.text;
      held.text = part.text;
    });
    for (const extra of this.#parts.splice(wanted.length)) extra.node.remove();
  }
}
