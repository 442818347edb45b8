// Messages as rows, for work and dead letters.

import { get, query } from './api.js';
import { duration, h, timeOf } from './dom.js';
import { badge, count, facts, fromNow, redraw } from './viewing.js';

const PAGE = 100;
const OPEN = ['queued', 'leased', 'parked'];
const WORDS = { queued: 'waiting', leased: 'running', parked: 'has a question', done: 'done', dead: 'given up', cancelled: 'cancelled' };

export const isOpen = (message) => OPEN.includes(message.state);

/** The first `pages` pages of a list: `{found, more}`. */
export async function listed(path, fields, pages) {
  const found = [];
  let cursor = null;
  for (let page = 0; page < pages; page += 1) {
    const answer = await get(query(path, { ...fields, cursor, limit: PAGE }));
    found.push(...(answer.messages ?? answer.dead));
    cursor = answer.next_cursor;
    if (!cursor) break;
  }
  return { found, more: Boolean(cursor) };
}

const asks = (message) => message.text || message.parts.map((part) => part.text || part.name || '').filter(Boolean).join(' · ');
const filesOf = (message) => message.parts.filter((part) => part.type === 'file').map((part) => part.name).join(', ');

function stateOf(message) {
  const hasFailed = message.state === 'done' && message.outcome === 'failed';
  return badge(hasFailed ? 'dead' : message.state, hasFailed ? 'failed' : WORDS[message.state]);
}

function timing(message) {
  if (message.state === 'leased') return fromNow(message.started_at ?? message.accepted_at, 'for');
  return fromNow(message.finished_at ?? message.accepted_at);
}

function placing({ position, eta_s: eta, not_before: notBefore }) {
  if (notBefore > Date.now()) return ['begins again ', fromNow(notBefore, 'in')];
  if (position === undefined || position === null) return [];
  const ahead = position ? `${position} before it` : 'next';
  return [eta ? `${ahead}, about ${duration(Math.round(eta))}` : ahead];
}

function more(message) {
  const piece = (title, text, kind = '') => text && h('section', { class: kind }, h('h3', {}, title), h('p', { class: 'words' }, text));
  return [
    piece('Asked', asks(message)),
    piece('Answer', message.result_text),
    piece('Error', message.error, 'bad'),
    facts([
      ['Files', filesOf(message)],
      ['Kind', message.kind === 'chat' ? '' : message.kind],
      ['Priority', message.priority],
      ['Attempts', message.attempts > 1 ? String(message.attempts) : ''],
      ['Crashes', message.crashes ? String(message.crashes) : ''],
      ['Accepted', timeOf(message.accepted_at)],
      ['Started', timeOf(message.started_at)],
      ['Ended', timeOf(message.finished_at)],
      ['Took', message.finished_at && message.started_at ? duration((message.finished_at - message.started_at) / 1000) : ''],
      ['Expires', isOpen(message) ? timeOf(message.expires_at) : ''],
      ['Replay of', message.replay_of],
      ['Session', message.session],
      ['Message', message.id],
    ]),
  ];
}

/** A row of one message; `actions(read)` gives its controls once, each `{node, when(message)}`,
    where `read()` is the message as it stands. */
export function itemOf(first, actions) {
  let now = first;
  const head = h('p', { class: 'item-head' });
  const words = h('span', { class: 'clamp' });
  const inside = h('div', { class: 'item-more' });
  const told = h('p', { class: 'item-why bad' });
  const details = h('details', { ontoggle: () => draw() }, h('summary', {}, words), inside);
  const controls = actions(() => now);
  const node = h('li', { class: 'item', data: { row: first.id } }, head, details, told,
    h('div', { class: 'actions' }, controls.map((each) => each.node)));

  function draw() {
    if (details.open) redraw(inside, now, () => more(now));
  }
  function show(message) {
    now = message;
    node.dataset.state = message.state;
    redraw(head, [message.state, message.outcome, message.agent, message.sender, message.priority, message.started_at, message.finished_at, message.position, message.eta_s, message.not_before], () => [
      stateOf(message),
      h('strong', {}, message.agent),
      message.sender && h('span', {}, `from ${message.sender}`),
      message.priority !== 'normal' && h('span', {}, `${message.priority} priority`),
      h('span', {}, timing(message)),
      message.state === 'queued' && h('span', {}, placing(message)),
    ]);
    redraw(words, [message.private, asks(message)], () => (message.private ? h('em', { class: 'soft' }, 'Somebody else’s words') : asks(message).slice(0, 400) || h('em', { class: 'soft' }, 'No text')));
    const why = message.state === 'dead' || message.outcome === 'failed' ? message.error || message.error_code : '';
    redraw(told, [why, message.attempts, message.crashes], () => (why ? [why.slice(0, 500), message.attempts > 1 && h('span', { class: 'soft' }, ` · ${count(message.attempts, 'attempt')}`), message.crashes > 0 && h('span', { class: 'soft' }, ` · ${count(message.crashes, 'crash', 'crashes')}`)] : []));
    for (const control of controls) control.node.hidden = !control.when(message);
    draw();
  }
  return { node, show };
}
