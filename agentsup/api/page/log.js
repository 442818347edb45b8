// The log of one agent: what the daemon wrote about it, and what happened to it.

import { get } from './api.js';
import { h, toast } from './dom.js';
import { agentChoice, board, choice, count, deed, keyed, place } from './viewing.js';

const LEVELS = ['debug', 'info', 'warning', 'error', 'critical'];
const LEAST = [['debug', 'All levels'], ['info', 'Info and above'], ['warning', 'Warnings and errors'], ['error', 'Errors']];
const POLL_MS = 3000;
const NEAR_PX = 24;

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const words = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
const toldOf = (facts) => Object.entries(facts).map(([name, value]) => `${name}=${words(value)}`);
const whole = (line) => [new Date(line.at).toISOString(), line.level, line.text, ...toldOf(line.facts)].join(' ');

function row(line) {
  const isToday = new Date(line.at).toDateString() === new Date().toDateString();
  const pairs = Object.entries(line.facts).filter(([name]) => !['agent', 'logger'].includes(name));
  const isLong = ([, value]) => words(value).length > 160 || words(value).includes('\n');
  const short = pairs.filter((pair) => !isLong(pair));
  const node = h('li', { class: 'line', data: { level: line.level } },
    h('time', { datetime: new Date(line.at).toISOString() }, isToday ? clock.format(line.at) : `${day.format(line.at)} ${clock.format(line.at)}`),
    h('span', { class: 'level' }, line.level),
    h('span', { class: 'told' }, line.text,
      short.length > 0 && h('span', { class: 'soft' }, ` ${toldOf(Object.fromEntries(short)).join(' ')}`),
      pairs.filter(isLong).map(([name, value]) => h('details', {}, h('summary', {}, name), h('pre', { tabindex: '0' }, words(value))))));
  return { node, show: () => {} };
}

async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without a secure context there is only the old way.
  const held = h('textarea', { class: 'unseen', 'aria-hidden': 'true' });
  held.value = text;
  document.body.append(held);
  held.select();
  const isDone = document.execCommand('copy');
  held.remove();
  if (!isDone) throw new Error('The browser does not let this page copy.');
  return undefined;
}

export async function log(view, route, app) {
  const name = route.parts[0] || app.session.agents[0];
  let [least, wanted, limit, lines] = [route.params.get('level') ?? 'debug', '', '200', []];
  const list = h('ol', { class: 'lines' });
  const pane = h('div', { class: 'log-pane', tabindex: '0', role: 'region', 'aria-label': `Log of ${name}` }, list);
  const nothing = h('p', { class: 'empty', hidden: true });
  const follow = h('input', { type: 'checkbox', checked: true, onchange: () => toEnd() });
  const find = h('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter lines', oninput: () => { wanted = find.value.toLowerCase(); filter(); } });
  const isAtEnd = () => pane.scrollHeight - pane.scrollTop - pane.clientHeight < NEAR_PX;
  const toEnd = () => { if (follow.checked) pane.scrollTop = pane.scrollHeight; };
  // Who scrolls up wants to read; who comes back to the end wants to follow.
  const scrolled = () => { follow.checked = isAtEnd(); };
  pane.addEventListener('wheel', () => requestAnimationFrame(scrolled), { passive: true });
  pane.addEventListener('touchend', () => setTimeout(scrolled, 300), { passive: true });
  pane.addEventListener('keyup', scrolled);

  const shown = () => lines.filter((line) => LEVELS.indexOf(line.level) >= LEVELS.indexOf(least)
    && (!wanted || whole(line).toLowerCase().includes(wanted)));
  function filter() {
    const found = shown();
    draw(found);
    nothing.textContent = lines.length ? 'No line fits the filter.' : 'Nothing is written about it yet.';
    nothing.hidden = found.length > 0;
    pane.hidden = !found.length;
    toEnd();
    return found;
  }
  const frame = board(view, {
    title: `Log of ${name}`,
    tools: [
      agentChoice(app, name, (value) => app.go(place('log', value)), false),
      choice('Level', LEAST, least, (value) => {
        least = value;
        app.note(place('log', name, { level: value === 'debug' ? '' : value }));
        filter();
      }),
      choice('Lines', [['200', '200'], ['1000', '1000']], limit, (value) => { limit = value; frame.look(true); }),
      find,
      h('label', { class: 'check' }, follow, 'Follow'),
      deed('Copy', async () => {
        const text = shown().map(whole).join('\n');
        await copied(text);
        toast(`Copied ${count(text ? text.split('\n').length : 0, 'line')}.`);
      }),
    ],
    kinds: ['agent.', 'message.', 'question.', 'stop.', 'config.'],
    everyMs: POLL_MS,
    load: () => get(`/agents/${encodeURIComponent(name)}/log?limit=${limit}`),
    show(answer) {
      const seen = new Map();
      // Lines have no number of their own: their words, and how often they were said before.
      lines = answer.lines.map((line) => {
        const key = whole(line);
        seen.set(key, (seen.get(key) ?? 0) + 1);
        return { ...line, key: `${key} ${seen.get(key)}` };
      });
      filter();
      return '';
    },
  });
  const draw = keyed(list, (line) => line.key, row);
  frame.body.append(pane, nothing);
  return frame.end;
}
