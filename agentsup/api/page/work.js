// The queue and what runs; what has ended on demand.

import { act, get, post } from './api.js';
import { ask, h } from './dom.js';
import { isOpen, itemOf, listed } from './items.js';
import { agentChoice, board, choice, count, deed, keyed, place } from './viewing.js';

const SHOWS = [['', 'Running and waiting'], ['done', 'Done'], ['dead', 'Given up'], ['cancelled', 'Cancelled'], ['all', 'Everything']];
const PRIORITIES = ['critical', 'high', 'normal', 'low'].map((each) => [each, each]);
const TOP = ['leased', 'parked', 'queued'];
/** How many of the waiting ones are asked for their position. */
const POSITIONS = 16;

async function openOnes(agent, pages) {
  const lists = await Promise.all(TOP.map((state) => listed('/messages', { agent, state }, pages)));
  const waiting = lists[2].found;
  // Those that are next are worth most; the list itself is newest first.
  await Promise.all(waiting.slice(-POSITIONS).map(async (message) => {
    const told = await get(`/messages/${message.id}`).catch(() => ({}));
    Object.assign(message, { position: told.position, eta_s: told.eta_s });
  }));
  return { found: lists.flatMap((list) => list.found), more: lists.some((list) => list.more) };
}

export async function work(view, route, app) {
  let agent = route.params.get('agent') ?? '';
  let shows = route.params.get('show') ?? '';
  let pages = 1;
  const list = h('ul', { class: 'items' });
  const nothing = h('p', { class: 'empty', hidden: true });
  const further = deed('More', () => { pages += 1; return frame.look(true); });
  further.hidden = true;

  function chosen() {
    pages = 1;
    app.note(place('work', { agent, show: shows }));
    frame.look(true);
  }
  const url = (message, verb) => `/messages/${message.id}/${verb}`;
  function controls(read) {
    const cancel = deed('Cancel', async () => {
      const isRunning = read().state === 'leased';
      if (isRunning && !await ask('Cancel this?', h('p', {}, 'It is being answered; the answer will be broken off.'), 'Cancel it', true)) return;
      await post(url(read(), 'cancel'));
      await frame.look();
    }, { kind: 'quiet' });
    const again = deed('Replay', async () => { await post(url(read(), 'replay')); await frame.look(); }, { done: 'It runs once more, as a new message.', kind: 'quiet' });
    const level = choice('Priority', PRIORITIES, read().priority, async (priority) => {
      const select = level.querySelector('select');
      await act(select, () => post(url(read(), 'reprioritize'), { priority }));
      select.focus();
      frame.look();
    });
    const mine = (message) => app.may('talk') && !message.private;
    return [
      { node: cancel, when: (message) => isOpen(message) && mine(message) },
      {
        node: level,
        when(message) {
          const select = level.querySelector('select');
          if (document.activeElement !== select) select.value = message.priority;
          return message.state === 'queued' && app.may('steer');
        },
      },
      { node: again, when: (message) => !isOpen(message) && app.may('steer') },
    ];
  }

  const frame = board(view, {
    title: 'Work',
    tools: [
      agentChoice(app, agent, (value) => { agent = value; chosen(); }),
      choice('Show', SHOWS, shows, (value) => { shows = value; chosen(); }),
    ],
    kinds: ['message.', 'chat.', 'question.', 'stop.'],
    load: () => (shows ? listed('/messages', { agent, state: shows === 'all' ? '' : shows }, pages) : openOnes(agent, pages)),
    show({ found, more }) {
      draw(found);
      nothing.textContent = shows ? 'Nothing here.' : 'Nothing runs and nothing waits.';
      nothing.hidden = found.length > 0;
      further.hidden = !more;
      if (!shows) return found.length ? TOP.map((state, at) => [found.filter((each) => each.state === state).length, ['running', 'with a question', 'waiting'][at]]).filter(([number]) => number).map(([number, words]) => `${number} ${words}`).join(' · ') : '';
      return found.length ? `${count(found.length, 'message')}, newest first` : '';
    },
  });
  const draw = keyed(list, (message) => message.id, (message) => itemOf(message, controls));
  frame.body.append(list, nothing, further);
  return frame.end;
}
