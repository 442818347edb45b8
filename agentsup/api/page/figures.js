// Small figures: turns, how long they took, and what they cost.

import { get } from './api.js';
import { duration, h } from './dom.js';
import { board, choice, count, place, redraw, scrolling } from './viewing.js';

const SPANS = [['6', '6 hours'], ['24', '24 hours'], ['72', '3 days'], ['168', '7 days'], ['720', '30 days']];
const HIGH = 48;
const WIDE = 10;
const POLL_MS = 60_000;
const SVG = 'http://www.w3.org/2000/svg';

const hour = new Intl.DateTimeFormat(undefined, { weekday: 'short', hour: '2-digit', minute: '2-digit' });
const date = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
const number = new Intl.NumberFormat();
const few = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const money = (usd) => (usd === null ? '–' : `$${usd < 1 ? usd.toFixed(3) : usd.toFixed(2)}`);

function drawing(tag, fields, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(fields)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function bars({ agent, by_hour: spans }, { since, until }, top) {
  const width = (until - since) / spans.length;
  const told = until - since > 4 * 86_400_000 ? date : hour;
  const at = (index) => told.format(since + index * width);
  const most = Math.max(...spans);
  const all = spans.reduce((sum, each) => sum + each, 0);
  const each = width === 3_600_000 ? 'an hour' : duration(width / 1000);
  const label = all ? `${agent}: ${count(all, 'turn')}; at most ${most} in ${each}, from ${at(spans.indexOf(most))}` : `${agent}: no turns`;
  const rects = spans.map((value, index) => {
    const high = value ? Math.max(2, (value / top) * HIGH) : 0.5;
    return drawing('rect', { x: index * WIDE + 1, width: WIDE - 2, y: HIGH - high, height: high, class: value ? 'on' : '' },
      drawing('title', {}, `${at(index)}: ${value}`));
  });
  return h('figure', { class: 'card bars' },
    h('figcaption', {}, h('strong', {}, agent), h('span', { class: 'soft' }, all ? `${count(all, 'turn')}, at most ${most} in ${each}` : 'no turns')),
    drawing('svg', { viewBox: `0 0 ${spans.length * WIDE} ${HIGH}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, ...rects),
    h('p', { class: 'soft axis', 'aria-hidden': 'true' }, h('span', {}, at(0)), h('span', {}, 'now')));
}

const COLUMNS = [
  ['Agent'],
  ['Turns', 'that ended in this span'],
  ['Failed'],
  ['Cancelled'],
  ['Waited', 'half of them began within this time'],
  ['Half within', 'half of them were answered within this time'],
  ['95 % within', '95 of 100 were answered within this time'],
  ['Tokens in'],
  ['Tokens out'],
  ['Cost'],
];

function cells(each) {
  const tokens = (value) => (value ? h('span', { title: number.format(value) }, few.format(value)) : '–');
  const cost = each.unpriced && each.usd !== null ? `${money(each.usd)} +` : money(each.usd);
  return [
    number.format(each.turns),
    each.failed ? h('span', { class: 'bad' }, number.format(each.failed)) : '0',
    number.format(each.cancelled),
    duration(each.wait_p50_s), duration(each.p50_s), duration(each.p95_s),
    tokens(each.input_tokens), tokens(each.output_tokens), cost,
  ];
}

function table(all) {
  const sum = (name) => all.reduce((total, each) => total + (each[name] ?? 0), 0);
  const priced = all.filter((each) => each.usd !== null);
  const total = {
    turns: sum('turns'), failed: sum('failed'), cancelled: sum('cancelled'), wait_p50_s: null, p50_s: null, p95_s: null,
    input_tokens: sum('input_tokens'), output_tokens: sum('output_tokens'), usd: priced.length ? sum('usd') : null, unpriced: sum('unpriced'),
  };
  const line = (name, each) => h('tr', {}, h('th', { scope: 'row' }, name), cells(each).map((cell) => h('td', {}, cell)));
  return scrolling('Figures by agent', h('table', { class: 'figures-table' },
    h('thead', {}, h('tr', {}, COLUMNS.map(([name, title]) => h('th', { scope: 'col', title }, name)))),
    h('tbody', {}, all.map((each) => line(each.agent, each))),
    all.length > 1 && h('tfoot', {}, line('All', total))));
}

export async function figures(view, route, app) {
  const given = route.params.get('hours');
  let hours = SPANS.some(([value]) => value === given) ? given : '24';
  const numbers = h('div');
  const notes = h('p', { class: 'soft' });
  const charts = h('div', { class: 'cards' });
  const frame = board(view, {
    title: 'Figures',
    tools: [choice('Span', SPANS, hours, (value) => {
      hours = value;
      app.note(place('figures', { hours }));
      frame.look(true);
    })],
    kinds: ['message.done', 'message.dead', 'message.cancelled', 'stop.', 'config.applied'],
    everyMs: POLL_MS,
    load: () => get(`/web/figures?hours=${hours}`),
    show(found) {
      const all = found.agents;
      const top = Math.max(1, ...all.flatMap((each) => each.by_hour));
      const unpriced = all.reduce((sum, each) => sum + each.unpriced, 0);
      redraw(numbers, all, () => table(all));
      redraw(notes, unpriced, () => (unpriced ? `${count(unpriced, 'report')} of usage had no price; the true cost is higher.` : ''));
      redraw(charts, [all.map((each) => [each.agent, each.by_hour]), Math.floor(found.until / 60_000)], () => all.map((each) => bars(each, found, top)));
      return '';
    },
  });
  frame.body.append(numbers, notes, charts);
  return frame.end;
}
