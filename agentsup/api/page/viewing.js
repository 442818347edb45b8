// What the views share: a heading with tools, loading and looking again, rows that stay in place,
// ages that tick.

import { act, ApiError, changes } from './api.js';
import { duration, fill, h, timeOf } from './dom.js';

const TICK_MS = 1000;

/** "1 message", "3 messages". */
export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** The address of a view: `place('log', 'main')`, `place('work', {show: 'done'})`. */
export function place(...parts) {
  const params = typeof parts.at(-1) === 'object' ? parts.pop() : {};
  const given = Object.entries(params).filter(([, value]) => value);
  return `#/${parts.map(encodeURIComponent).join('/')}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

/** Text that is replaced only where it differs. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
  node.hidden = !text;
}

const drawn = new WeakMap();

/** Builds what is inside `node` anew, if the facts behind it have changed. */
export function redraw(node, facts, build) {
  const now = JSON.stringify(facts);
  if (drawn.get(node) === now) return;
  drawn.set(node, now);
  node.replaceChildren(...[build()].flat().filter(Boolean));
  node.hidden = !node.childNodes.length;
}

// -- time ------------------------------------------------------------------------------------------

const inWhole = (ms) => duration(Math.max(0, Math.round(ms / 1000)));
const TICKS = {
  ago: (ms) => `${inWhole(Date.now() - ms)} ago`,
  for: (ms) => `for ${inWhole(Date.now() - ms)}`,
  in: (ms) => (ms > Date.now() ? `in ${inWhole(ms - Date.now())}` : 'now'),
};

/** A time told from now, which goes on: "3 min ago", "for 3 min", "in 20 s". */
export function fromNow(ms, way = 'ago') {
  if (!ms) return '';
  const made = timeOf(ms);
  Object.assign(made.dataset, { way, at: ms });
  made.textContent = TICKS[way](ms);
  return made;
}

function tick(root) {
  if (document.hidden) return;
  for (const node of root.querySelectorAll('time[data-way]')) {
    const words = TICKS[node.dataset.way](Number(node.dataset.at));
    if (node.textContent !== words) node.textContent = words;
  }
}

// -- a view ----------------------------------------------------------------------------------------

/** A view's frame. `load` fetches, `show` shows what it got and returns a line that sums it up.
    Looked at again when something of `kinds` (beginnings of event types) happened, and each
    `everyMs` if given. Returns `{body, look, end}`. */
export function board(view, { title, tools = [], load, show, kinds, everyMs = 0 }) {
  const trouble = h('div', { class: 'trouble', role: 'status' });
  const summary = h('p', { class: 'soft summary', hidden: true });
  const body = h('div', { class: 'board-body' });
  const root = h('div', { class: 'board' },
    h('header', { class: 'board-head' }, h('h1', { tabindex: '-1' }, title), h('div', { class: 'tools' }, tools)),
    trouble, summary, body);
  view.replaceChildren(root);
  let [isOver, isBusy, isWanted, wish, isShown] = [false, false, false, 0, false];

  function tell(error) {
    const again = h('button', { type: 'button', onclick: () => look(true) }, 'Try again');
    const words = isShown ? `What you see may be old. ${error?.message}` : error?.message;
    redraw(trouble, error ? words : '', () => (error ? [h('p', {}, words), again] : ''));
  }

  async function once() {
    const wished = wish;
    try {
      const found = await load();
      if (isOver || wished !== wish) return;
      const words = show(found);
      isShown = true;
      tell(null);
      say(summary, words ?? '');
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!isOver && error.status !== 401) tell(error);
    }
  }

  /** Looks again; `isNew` if another thing is asked for, so that an answer under way is dropped. */
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

  redraw(trouble, 'Loading…', () => h('p', { class: 'soft' }, 'Loading…'));
  const ends = changes.listen((told) => {
    if ([...told].some((kind) => kind === 'gap' || kinds.some((each) => kind.startsWith(each)))) look();
  });
  const ticking = setInterval(() => tick(root), TICK_MS);
  const polling = everyMs ? setInterval(() => { if (!document.hidden) look(); }, everyMs) : 0;
  look();
  return {
    body,
    look,
    end() {
      isOver = true;
      ends();
      clearInterval(ticking);
      clearInterval(polling);
    },
  };
}

/** Rows by key: `make(item)` gives `{node, show(item)}`. Those that stay are neither rebuilt nor
    moved without need, so focus, text typed and open details stay. */
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
    for (const [key, row] of rows) if (!next.has(key)) leave(row.node);
    rows = next;
    fill(parent, [...next.values()].map((row) => row.node));
    if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
  };
}

const CAN_FOCUS = 'button:not(:disabled, [hidden]), summary, input, a[href]';

/** Takes a row away; what had the focus in it hands it on to its neighbour, or to the heading. */
function leave(node) {
  const beside = node.nextElementSibling ?? node.previousElementSibling;
  const heading = node.closest('.board')?.querySelector('h1');
  const hadIt = node.contains(document.activeElement);
  node.remove();
  if (hadIt) (beside?.querySelector(CAN_FOCUS) ?? heading)?.focus();
}

// -- parts -----------------------------------------------------------------------------------------

/** A button that does something and stays focused where it stays at all. */
export function deed(words, work, { done = '', kind = '' } = {}) {
  const made = h('button', { type: 'button', class: kind, onclick: press }, words);
  async function press() {
    const row = made.closest('[data-row]');
    const beside = row?.nextElementSibling ?? row?.previousElementSibling;
    const heading = made.closest('.board')?.querySelector('h1');
    // A button that is off loses the focus; it gets it back, unless one has gone on meanwhile.
    await act(made, work, done);
    const focused = document.activeElement;
    if (focused && focused !== document.body && focused !== made) return;
    const next = [made, row?.querySelector(CAN_FOCUS), beside?.querySelector(CAN_FOCUS), heading];
    next.find((each) => each?.isConnected && !each.hidden)?.focus({ preventScroll: true });
  }
  return made;
}

/** A labelled select; `options` are `[value, words]`. */
export function choice(label, options, value, chosen) {
  const made = h('select', { onchange: () => chosen(made.value) },
    options.map(([each, words]) => h('option', { value: each, selected: each === value }, words)));
  return h('label', { class: 'choice' }, h('span', {}, label), made);
}

/** Chooses an agent; the empty value is all of them. */
export function agentChoice(app, value, chosen, hasAll = true) {
  const names = app.session.agents.includes(value) || !value ? app.session.agents : [value, ...app.session.agents];
  const options = names.map((name) => [name, name]);
  return choice('Agent', hasAll ? [['', 'All agents'], ...options] : options, value, chosen);
}

export const badge = (state, words) => h('span', { class: 'tag', data: { state } }, words);

/** `<dl>` of those facts that there are; `[name, value]`. */
export const facts = (pairs) => h('dl', { class: 'facts' }, pairs
  .filter(([, value]) => value !== '' && value !== null && value !== undefined)
  .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

/** What can be scrolled sideways must be reachable by keyboard. */
export const scrolling = (label, ...inside) => h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label }, inside);
